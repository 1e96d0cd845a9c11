"""Random texts, cut and encoded by Hugging Face's `tokenizers`.

Prints one JSON object a line:
  {"rule", "text", "normal", "lengths"}       pieces of a pre-tokenizer: the normalised text, and
                                              the bytes of each piece
  {"model", "texts", "types", "merges", "left", "right", "text", "ids"}
                                              a small vocabulary and the ids of a text; "left" and
                                              "right" are the tokens with lstrip and rstrip
The same count and seed give the same lines.
"""

import json
import random
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

COUNT, SEED = int(sys.argv[1]), int(sys.argv[2])
rng = random.Random(SEED)

CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTION + (r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = CONTRACTION + (r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
                        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = r"[^\r\n\p{L}\p{N}]?%s*%s+TAIL|[^\r\n\p{L}\p{N}]?%s+%s*TAIL" % (UPPER, LOWER, UPPER, LOWER)
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = CASED.replace("TAIL", "") + r"|\p{N}" + REST
GPT4O = CASED.replace("TAIL", CONTRACTION + "?") + r"|\p{N}{1,3}" + REST
DEEPSEEK_V3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
               r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
               r"|\s*[\r\n]+|\s+(?!\S)|\s+")
# The cased letters as Deepseek's first tokenizer lists them.
CASED_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅ"
    "ὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄ"
    "Ⰰ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃")


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def sequence(*steps):
    return pre_tokenizers.Sequence(list(steps))


DIGITS = pre_tokenizers.Digits(individual_digits=True)
NFC = normalizers.NFC()
# As the families' tokenizer.json files declare them.
RULES = {
    "llama-bpe": (None, sequence(split(LLAMA3), byte_level(False))),
    "qwen2": (NFC, sequence(split(QWEN2), byte_level(False))),
    "qwen35": (NFC, sequence(split(QWEN35), byte_level(False))),
    "gpt-2": (None, byte_level(True)),
    "gpt-neox": (NFC, byte_level(True)),
    "mpt": (NFC, byte_level(True)),
    "smollm": (None, sequence(DIGITS, byte_level(True))),
    "starcoder": (None, sequence(DIGITS, byte_level(True))),
    "refact": (None, sequence(DIGITS, byte_level(True))),
    "command-r": (NFC, sequence(DIGITS, byte_level(True))),
    "tekken": (None, sequence(split(TEKKEN), byte_level(False))),
    "gpt-4o": (None, sequence(split(GPT4O), byte_level(False))),
    "llama4": (None, sequence(split(GPT4O), byte_level(False))),
    "glm4": (None, sequence(split(LLAMA3), byte_level(False))),
    "falcon": (None, sequence(pre_tokenizers.Punctuation("contiguous"), byte_level(True),
                              pre_tokenizers.Digits(individual_digits=False),
                              split("[0-9][0-9][0-9]"))),
    "deepseek-llm": (None, sequence(
        split("[\r\n]"), split(r"\s?[" + CASED_LETTERS + "]+"),
        split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"), split("[一-龥ࠀ-一가-퟿]+"), DIGITS,
        byte_level(False))),
    "deepseek-coder": (None, sequence(
        split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"), DIGITS,
        byte_level(False))),
    "deepseek-v3": (None, sequence(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK_V3),
                                   byte_level(False))),
}

PARTS = ["Hello", "world", "the", "camelCase", "HTTP", "it's", "IT'S", "we'LL", "'\u017f", "don't",
         "I'm", "'", "’s", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\u00a0", "\u3000",
         "\u2003", "\u0085", "\u200b", "\u180e", "\x0b", "\x00", "\x1f", "1", "12", "123", "1234567",
         "3.14", "1,000", "²", "½", "٣٤٥", "१२३", "Ⅷ", "①", "１２３４", "中文字符", "漢", "かな", "カタカナ",
         "한국어", "ไทย", "देवनागरी", "ក្នុង", "e\u0301", "\u0301", "a\u0323\u0301", "é", "Å", "\u212b",
         "ÀÉ", "ß", "ǅ", "ʰ", "µ", "Ω", "\u2126", "ա", "ა", "😀", "👍🏽", "👨‍👩‍👧", "🇩🇪", "!", "?!", "...", "—",
         "«»", "„“", "。", "、", "！", "～", "$", "+", "<=>", "^", "`", "|", "~", "€", "©", "_", "/", "//",
         "\\", "#", "@", "&", "%", "()", "[]", "{}", "=", "\ue000", "\ufdd0", "\U000e0001", "\U0010ffff"]


def any_character():
    while True:
        character = chr(rng.choice([rng.randrange(0x80, 0x250), rng.randrange(0x250, 0x3000),
                                    rng.randrange(0x3000, 0xFFFF), rng.randrange(0x10000, 0x1FFFF)]))
        # Both engines know other versions of Unicode: what is new in one is left out.
        if unicodedata.category(character) not in ("Cn", "Cs"):
            return character


def text_of(parts):
    return "".join(rng.choice(parts) if rng.random() < 0.9 else any_character()
                   for _ in range(rng.randrange(1, 14)))


def print_pieces():
    for name, (normalizer, pre_tokenizer) in RULES.items():
        for _ in range(COUNT):
            text = text_of(PARTS)
            normal = normalizer.normalize_str(text) if normalizer else text
            pieces = pre_tokenizer.pre_tokenize_str(normal)
            print(json.dumps({"rule": name, "text": text, "normal": normal,
                              "lengths": [len(piece) for piece, _ in pieces]}))


NORMAL, CONTROL, USER, BYTE = 1, 3, 4, 6


def random_merges(texts, count):
    merges, made = [], list(texts)
    for _ in range(count):
        left, right = rng.choice(made), rng.choice(made)
        if left + right not in made:
            merges.append((left, right))
            made.append(left + right)
    rng.shuffle(merges)
    return merges, [text for text in made if text not in texts]


def print_gemma():
    """BPE over characters with byte fallback."""
    for _ in range(COUNT):
        letters = ["a", "b", "é", "中", "\u2581"] + (["\n"] if rng.random() < 0.5 else [])
        merges, made = random_merges(letters, 14)
        if rng.random() < 0.5:  # as real files are: a mark begins a word
            merges.append(("a", "b"))  # perhaps once more: the last one counts
            made += [] if "ab" in made else ["ab"]
            merges = [m for m in merges if "\u2581" not in (m[0] + m[1]).lstrip("\u2581")]
            merges = [m for m in merges if set(m[0] + m[1]) <= {"\n"} or "\n" not in m[0] + m[1]]
            kept = {left + right for left, right in merges}
            merges = [m for m in merges if all(p in letters or p in kept for p in m)]
            made = [text for text in made if text in kept]
        texts = ["<pad>"] + letters + made + ["<0x%02X>" % byte for byte in range(256)] + ["<turn>", "<x>"]
        types = [CONTROL] + [NORMAL] * len(letters + made) + [BYTE] * 256 + [CONTROL, USER]
        tokenizer = Tokenizer(models.BPE({text: i for i, text in enumerate(texts)}, merges,
                                         byte_fallback=True, fuse_unk=True))
        tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
        tokenizer.add_special_tokens([AddedToken("<turn>", normalized=False)])
        tokenizer.add_tokens([AddedToken("<x>", normalized=False)])
        text = text_of(["a", "b", "ab", "ba", "é", "中", " ", "  ", "\n", "\n\n", "z", "😀", "<turn>", "<x>",
                        "\u2581"])
        print(json.dumps({"model": "gemma4", "texts": texts, "types": types,
                          "merges": ["%s %s" % merge for merge in merges], "left": [], "right": [],
                          "text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids}))


def print_byte_level():
    """Byte-level BPE with added tokens that overlap and take blanks along."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    for _ in range(COUNT):
        merges, made = random_merges(["a", "b", "Ġ", "Ċ", "<", ">"], 12)
        added = ["<|a|>", "<|a|>b", "<|", "<x>", "b>", "ab<"]
        texts = alphabet + made + [text for text in added if text not in made]
        # `tokenizers` keeps one list for special tokens and others; all are matched the same way.
        left = [text for text in added if rng.random() < 0.3]
        right = [text for text in added if rng.random() < 0.3]
        tokenizer = Tokenizer(models.BPE({text: i for i, text in enumerate(texts)}, merges))
        tokenizer.pre_tokenizer = byte_level(True)
        tokenizer.add_special_tokens([AddedToken(text, normalized=False, lstrip=text in left,
                                                 rstrip=text in right) for text in added])
        text = text_of(["a", "b", "ab", " ", "  ", "\n", "\t", "\u3000", "<|a|>", "<|a|>b", "<x>", "<", ">",
                        "|a|"])
        ids = [texts.index(text) for text in added]
        types = [USER if i in ids else NORMAL for i in range(len(texts))]
        print(json.dumps({"model": "gpt2", "texts": texts, "types": types,
                          "merges": ["%s %s" % merge for merge in merges],
                          "left": [texts.index(text) for text in left],
                          "right": [texts.index(text) for text in right],
                          "text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids}))


print_pieces()
print_gemma()
print_byte_level()
