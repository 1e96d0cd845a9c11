// The tokenizers on vocabularies invented here.
#include "engine/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <thread>

#include "base/error.h"
#include "support/gguf_writer.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace nightsweep {
namespace {

using Ids = std::vector<uint32_t>;

std::string error_of(TokenData data) {
  try {
    Tokenizer tokenizer(std::move(data));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::model);
    return error.what();
  }
  return "";
}

// a b c d, space (U+0120), newline (U+010A), the two bytes of é, and what the merges make.
TokenData bpe_data() {
  TokenData data;
  data.source = "tiny.gguf";
  data.model = "gpt2";
  data.pre = "gpt-2";
  data.texts = {
      "<|start|>", "<|end|>",      "<tool>", "a",  "b",  "c",    "d",        "\u0120",
      "\u010A",    "\u00C3",       "\u00A9", "ab", "cd", "abcd", "\u0120ab", "\u00C3\u00A9",
      "bc",        "<|endoftext|>"};
  data.types.assign(data.texts.size(), TokenType::normal);
  for (size_t id : {0, 1, 17})
    data.types[id] = TokenType::control;
  data.types[2] = TokenType::user_defined;
  data.merges = {"a b", "c d", "ab cd", "\u0120 ab", "\u00C3 \u00A9", "b c"};
  data.bos = 0;
  data.eos = 1;
  return data;
}

enum BpeId : uint32_t {
  start,
  end,
  tool,
  a,
  b,
  c,
  d,
  space,
  newline,
  e_first,
  e_second,
  ab,
  cd,
  abcd,
  space_ab,
  e_acute,
  bc,
  endoftext
};

TEST(BytePairTokenizer, merges_by_rank_and_leftmost_on_a_tie) {
  const Tokenizer tokenizer(bpe_data());
  EXPECT_EQ(tokenizer.encode("abcd", false, false), (Ids{abcd}));
  EXPECT_EQ(tokenizer.encode("abc", false, false), (Ids{ab, c}));  // "a b" is better than "b c"
  EXPECT_EQ(tokenizer.encode("bc", false, false), (Ids{bc}));
  EXPECT_EQ(tokenizer.encode("abab abab", false, false), (Ids{ab, ab, space_ab, ab}));
  EXPECT_EQ(tokenizer.encode("\u00E9a\n", false, false), (Ids{e_acute, a, newline}));
  EXPECT_EQ(tokenizer.encode("", false, false), Ids{});
  EXPECT_EQ(tokenizer.description(), "gpt2/gpt-2");
}

TEST(BytePairTokenizer, a_token_that_the_merges_do_not_make_is_not_made) {
  TokenData data = bpe_data();
  data.texts.emplace_back("bcd");  // no merge leads there
  data.types.push_back(TokenType::normal);
  EXPECT_EQ(Tokenizer(data).encode("bcd", false, false), (Ids{b, cd}));
  data.pre = "llama-bpe";  // ignores merges, and adds BOS
  EXPECT_EQ(Tokenizer(data).encode("bcd", true, false), (Ids{start, endoftext + 1}));
}

// The definition, literally: again and again the pair of lowest rank, leftmost.
Ids merge_by_rank_naively(const TokenData& data, std::string_view text) {
  std::vector<std::string> symbols;
  for (char byte : text)
    symbols.emplace_back(1, byte);
  while (true) {
    size_t best = data.merges.size();
    size_t place = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = std::ranges::find(data.merges, symbols[i] + " " + symbols[i + 1]);
      const auto rank = static_cast<size_t>(found - data.merges.begin());
      if (rank < best) {
        best = rank;
        place = i;
      }
    }
    if (best == data.merges.size()) break;
    symbols[place] += symbols[place + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
  Ids ids;
  for (const std::string& symbol : symbols) {
    ids.push_back(
        static_cast<uint32_t>(std::ranges::find(data.texts, symbol) - data.texts.begin()));
  }
  return ids;
}

TEST(BytePairTokenizer, agrees_with_the_definition_on_random_merges_and_pieces_of_any_length) {
  std::mt19937 random(7);
  for (int round = 0; round < 12; ++round) {
    TokenData data;
    data.source = "random.gguf";
    data.model = "gpt2";
    data.pre = "gpt-2";
    data.texts = {"a", "b", "c"};
    while (data.texts.size() < 30) {
      const std::string left = data.texts[random() % data.texts.size()];
      const std::string right = data.texts[random() % data.texts.size()];
      if (std::ranges::find(data.texts, left + right) != data.texts.end()) continue;
      data.texts.push_back(left + right);
      data.merges.push_back(left + " " + right);
    }
    std::ranges::shuffle(data.merges, random);
    data.types.assign(data.texts.size(), TokenType::normal);
    data.eos = 0;
    const Tokenizer tokenizer(data);
    for (size_t length : {1, 2, 7, 40, 64, 65, 66, 200}) {
      std::string text;
      while (text.size() < length)
        text += static_cast<char>('a' + random() % 3);
      EXPECT_EQ(tokenizer.encode(text, false, false), merge_by_rank_naively(data, text)) << text;
      // Once more, now that it is known which tokens are whole.
      EXPECT_EQ(tokenizer.encode(text, false, false), merge_by_rank_naively(data, text)) << text;
    }
  }
}

TEST(BytePairTokenizer, what_merges_make_that_is_no_token_is_given_byte_by_byte) {
  TokenData data = bpe_data();
  data.merges.insert(data.merges.begin(), "d a");
  EXPECT_EQ(Tokenizer(data).encode("cdab", false, false), (Ids{c, d, a, b}));
}

TEST(BytePairTokenizer, a_byte_without_token_is_dropped_and_the_rest_kept) {
  const Tokenizer tokenizer(bpe_data());
  EXPECT_EQ(tokenizer.encode("abzab", false, false), (Ids{ab, ab}));
  EXPECT_EQ(tokenizer.encode("azb", false, false), (Ids{ab}));  // as Hugging Face has it
  EXPECT_EQ(tokenizer.encode("\xFF\xFE", false, false), Ids{});
  EXPECT_EQ(tokenizer.encode("a\xC3", false, false), (Ids{a, e_first}));
}

TEST(BytePairTokenizer, threads_share_one) {
  const Tokenizer tokenizer(bpe_data());
  std::vector<std::thread> threads;
  std::vector<Ids> ids(4);
  for (Ids& mine : ids) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i)
        mine = tokenizer.encode("abcd abc bcd \u00E9", false, true);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const Ids& mine : ids)
    EXPECT_EQ(mine, ids[0]);
}

TEST(SpecialTokens, control_tokens_are_text_unless_asked_for_and_user_defined_ones_never) {
  const Tokenizer tokenizer(bpe_data());
  EXPECT_EQ(tokenizer.encode("a<|end|>b<tool>", false, true), (Ids{a, end, b, tool}));
  // The vocabulary has no < | > e n: only what it has remains.
  EXPECT_EQ(tokenizer.encode("a<|end|>b<tool>", false, false), (Ids{a, d, b, tool}));
}

TEST(SpecialTokens, a_control_token_needs_all_of_its_text_in_trusted_spans) {
  const Tokenizer tokenizer(bpe_data());
  const auto encode = [&](std::vector<TextSpan> spans) { return tokenizer.encode(spans, false); };
  EXPECT_EQ(encode({{"<|end|>", true}, {"<|end|>", false}}), (Ids{end, d}));
  EXPECT_EQ(encode({{"<|e", true}, {"nd|>", true}}), (Ids{end}));
  EXPECT_EQ(encode({{"<|e", true}, {"nd|>", false}}), (Ids{d}));
  EXPECT_EQ(encode({{"<|e", false}, {"nd|>", true}}), (Ids{d}));
  EXPECT_EQ(encode({{"<|e", true}, {"", false}, {"nd|>", true}}), (Ids{end}));
  EXPECT_EQ(encode({{"<to", true}, {"ol>", false}}), (Ids{tool}));
  EXPECT_EQ(
      encode({{"<|end|>", true}, {"<|start|><|end|>", false}, {"a<|end|>", true}, {"<", false}}),
      (Ids{end, a, d, a, end}));
}

TEST(SpecialTokens, ordinary_text_goes_on_over_the_border_of_spans) {
  const Tokenizer tokenizer(bpe_data());
  const std::vector<TextSpan> spans = {{"a", true}, {"bc", false}, {"d", true}};
  EXPECT_EQ(tokenizer.encode(spans, false), (Ids{abcd}));
}

TEST(SpecialTokens, the_longest_of_the_leftmost_wins) {
  TokenData data = bpe_data();
  data.texts.insert(data.texts.end(), {"<tool>s", "<tool>sa", "s<tool>"});
  data.types.resize(data.texts.size(), TokenType::user_defined);
  data.types[endoftext + 2] = TokenType::control;  // <tool>sa
  const Tokenizer tokenizer(data);
  EXPECT_EQ(tokenizer.encode("<tool>sab", false, false), (Ids{endoftext + 1, ab}));
  EXPECT_EQ(tokenizer.encode("<tool>sab", false, true), (Ids{endoftext + 2, b}));
  EXPECT_EQ(tokenizer.encode("as<tool>s", false, false), (Ids{a, endoftext + 3}));
}

TEST(SpecialTokens, thousands_of_them_are_found) {
  TokenData data = bpe_data();
  const auto first = static_cast<uint32_t>(data.texts.size());
  for (int i = 0; i < 6000; ++i)
    data.texts.push_back("<unused" + std::to_string(i) + ">");
  data.types.resize(data.texts.size(), TokenType::user_defined);
  const Tokenizer tokenizer(data);
  EXPECT_EQ(
      tokenizer.encode("<unused5999><unused0>ab<unused17><unused17", false, false),
      (Ids{first + 5999, first, ab, first + 17, d}));
}

TEST(SpecialTokens, blanks_go_along_where_the_file_says) {
  TokenData data = bpe_data();
  data.strips_left = {tool};
  data.strips_right = {end, tool};
  const Tokenizer tokenizer(data);
  EXPECT_EQ(tokenizer.encode("a \n<tool>\u2003 b", false, false), (Ids{a, tool, b}));
  EXPECT_EQ(tokenizer.encode(" <|end|> \n a", false, true), (Ids{space, end, a}));
  // What one token has taken is not there for the next.
  EXPECT_EQ(tokenizer.encode("<|end|> <tool> <|start|>", false, true), (Ids{end, tool, start}));
  EXPECT_EQ(tokenizer.encode("<|start|> <tool>", false, true), (Ids{start, tool}));
  // A control token that is not meant takes nothing along: "nd" has d alone.
  EXPECT_EQ(tokenizer.encode("<|end|> a", false, false), (Ids{d, space, a}));
}

TEST(Tokenizer, without_a_rule_the_architecture_tells_the_family) {
  TokenData data = bpe_data();
  data.pre.reset();
  EXPECT_EQ(Tokenizer(data).description(), "gpt2/gpt-2");
  data.architecture = "gptneox";
  EXPECT_EQ(Tokenizer(data).description(), "gpt2/gpt-neox");
  EXPECT_EQ(Tokenizer(data).encode("e\u0301", false, false), (Ids{e_acute}));
}

TEST(Tokenizer, adds_bos_and_eos_where_the_file_says_and_never_bos_twice) {
  TokenData data = bpe_data();
  EXPECT_EQ(Tokenizer(data).encode("a", true, false), (Ids{a}));
  data.adds_bos = true;
  data.adds_eos = true;
  const Tokenizer tokenizer(data);
  EXPECT_EQ(tokenizer.encode("a", true, false), (Ids{start, a, end}));
  EXPECT_EQ(tokenizer.encode("a", false, false), (Ids{a}));
  EXPECT_EQ(tokenizer.encode("<|start|>a", true, true), (Ids{start, a, end}));
  EXPECT_EQ(tokenizer.encode("", true, true), (Ids{start, end}));
}

TEST(Tokenizer, ends_at_the_tokens_of_the_keys_and_at_control_tokens_of_known_texts) {
  TokenData data = bpe_data();
  EXPECT_EQ(Tokenizer(data).end_of_generation(), (Ids{end, endoftext}));
  data.types[endoftext] = TokenType::normal;  // an ordinary entry that looks like one
  EXPECT_EQ(Tokenizer(data).end_of_generation(), (Ids{end}));
  data.ends = {{"tokenizer.ggml.eot_token_id", bc}};
  const Tokenizer tokenizer(data);
  EXPECT_EQ(tokenizer.end_of_generation(), (Ids{end, bc}));
  EXPECT_TRUE(tokenizer.is_end_of_generation(bc));
  EXPECT_FALSE(tokenizer.is_end_of_generation(a));
}

TEST(Tokenizer, an_answer_goes_on_after_end_where_return_and_call_exist) {
  TokenData data = bpe_data();
  data.texts.insert(data.texts.end(), {"<|return|>", "<|call|>"});
  data.types.resize(data.texts.size(), TokenType::control);
  data.eos = endoftext + 1;
  EXPECT_EQ(Tokenizer(data).end_of_generation(), (Ids{endoftext + 1, endoftext, endoftext + 2}));
}

TEST(Tokenizer, decodes_bytes_and_writes_or_drops_control_tokens) {
  const Tokenizer tokenizer(bpe_data());
  const Ids ids = {start, space_ab, e_acute, e_first, tool, end};
  EXPECT_EQ(tokenizer.decode(ids, false), "<|start|> ab\u00E9\xC3<tool><|end|>");
  EXPECT_EQ(tokenizer.decode(ids, true), " ab\u00E9\xC3<tool>");
  EXPECT_EQ(tokenizer.token_bytes(newline), "\n");
  EXPECT_TRUE(tokenizer.is_control(start));
  EXPECT_FALSE(tokenizer.is_control(tool));
}

TEST(Tokenizer, refuses_what_it_does_not_know_by_name) {
  TokenData data = bpe_data();
  data.model = "bert";
  EXPECT_NE(
      error_of(data).find(
          "tokenizer.ggml.model: expected a known kind (gemma4, gpt2, llama), found 'bert'"),
      std::string::npos);
  data = bpe_data();
  data.pre = "klingon";
  const std::string text = error_of(data);
  EXPECT_NE(text.find("found 'klingon'"), std::string::npos);
  EXPECT_NE(text.find("qwen2, qwen35, refact"), std::string::npos) << text;
}

TEST(Tokenizer, refuses_damaged_data_and_names_the_key) {
  TokenData data = bpe_data();
  data.merges.clear();
  EXPECT_NE(error_of(data).find("tokenizer.ggml.merges"), std::string::npos);
  for (const char* line : {"ab", "", " ab", "a "}) {
    data = bpe_data();
    data.merges[1] = line;
    EXPECT_NE(error_of(data).find("merge 1"), std::string::npos) << line;
  }
  data = bpe_data();
  data.texts.clear();
  data.types.clear();
  EXPECT_NE(error_of(data).find("tokenizer.ggml.tokens"), std::string::npos);
  data = bpe_data();
  data.eos = 18;
  EXPECT_NE(
      error_of(data).find("tiny.gguf: tokenizer.ggml.eos_token_id: expected one of the 18 tokens "
                          "(0 to 17), found 18"),
      std::string::npos)
      << error_of(data);
  data = bpe_data();
  data.bos.reset();
  data.adds_bos = true;
  EXPECT_NE(error_of(data).find("tokenizer.ggml.bos_token_id"), std::string::npos);
  data = bpe_data();
  data.ends = {{"tokenizer.ggml.eom_token_id", 1U << 31U}};
  EXPECT_NE(error_of(data).find("tokenizer.ggml.eom_token_id"), std::string::npos);
}

TEST(Tokenizer, takes_the_first_of_equal_tokens_and_tokens_that_are_not_utf8) {
  TokenData data = bpe_data();
  data.texts.insert(data.texts.end(), {"ab", "\xFF\xC3", "<tool>", ""});
  data.types.resize(data.texts.size(), TokenType::normal);
  data.types[endoftext + 3] = TokenType::user_defined;
  const Tokenizer tokenizer(data);
  EXPECT_EQ(tokenizer.encode("ab<tool>", false, false), (Ids{ab, tool}));
  EXPECT_EQ(tokenizer.token_bytes(endoftext + 2), "\xFF\xC3");
}

TEST(Tokenizer, without_types_the_keys_tell_what_is_special) {
  TokenData data = bpe_data();
  data.types.clear();
  const Tokenizer tokenizer(data);
  EXPECT_EQ(tokenizer.encode("<|start|>a", false, true), (Ids{start, a}));
  EXPECT_TRUE(tokenizer.is_control(end));
  EXPECT_FALSE(tokenizer.is_control(endoftext));
}

TEST(Tokenizer, is_read_from_a_model_file) {
  const TemporaryFolder folder;
  const std::string path = folder.path("model.gguf");
  TinyModelOptions options;
  write_tiny_llama(path, options);
  const auto tokenizer = Tokenizer::from_gguf(GgufModel::open(path));
  EXPECT_EQ(tokenizer->n_tokens(), options.n_vocab);
  EXPECT_EQ(tokenizer->description().substr(0, 6), "llama/");
  const Ids ids = tokenizer->encode("any text at all \u00E9", true, false);
  EXPECT_EQ(ids.front(), 1U);
  EXPECT_EQ(tokenizer->decode(ids, true), " any text at all \u00E9");

  const auto error_with = [&](GgufWriter writer) -> std::string {
    writer.write(path);
    try {
      Tokenizer::from_gguf(GgufModel::open(path));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const GgufWriter sound = make_tiny_llama(options);
  EXPECT_EQ(error_with(sound), "");
  EXPECT_NE(
      error_with(GgufWriter(sound).set_f32s("tokenizer.ggml.scores", {1.0F}))
          .find("tokenizer.ggml.scores: expected one value for each of the 320 tokens, found 1"),
      std::string::npos);
  EXPECT_NE(
      error_with(GgufWriter(sound).set_i32s("tokenizer.ggml.scores", std::vector<int32_t>(320)))
          .find("tokenizer.ggml.scores: expected an array of floats"),
      std::string::npos);
  EXPECT_NE(
      error_with(
          GgufWriter(sound).set_i32s("tokenizer.ggml.token_type", std::vector<int32_t>(320, 7)))
          .find("tokenizer.ggml.token_type: token 0: expected a type from 1 to 6, found 7"),
      std::string::npos);
  EXPECT_NE(
      error_with(GgufWriter(sound).remove_key("tokenizer.ggml.model")).find("tokenizer.ggml.model"),
      std::string::npos);
}

TEST(Tokenizer, tokens_that_take_blanks_along_are_named_by_tokenizer_json_or_the_family) {
  const TemporaryFolder folder;
  const auto data_of = [&](GgufWriter writer) {
    writer.write(folder.path("m.gguf"));
    return read_token_data(GgufModel::open(folder.path("m.gguf")));
  };
  const GgufWriter sound = make_tiny_llama(TinyModelOptions());
  EXPECT_TRUE(data_of(sound).strips_right.empty());
  const TokenData told = data_of(GgufWriter(sound).set_string(
      "tokenizer.huggingface.json",
      R"({"added_tokens":[{"id":2,"lstrip":true,"rstrip":false},{"id":5,"rstrip":true},{"id":999,"lstrip":true}]})"));
  EXPECT_EQ(told.strips_left, (Ids{2}));
  EXPECT_EQ(told.strips_right, (Ids{5}));
  EXPECT_THROW(data_of(GgufWriter(sound).set_string("tokenizer.huggingface.json", "{")), Error);
  // Of the tiny model's control tokens <s> and </s> Phi-3 marks the latter.
  const TokenData phi = data_of(GgufWriter(sound).set_string("general.architecture", "phi3"));
  EXPECT_EQ(phi.strips_right, (Ids{2}));
}

// <unk> <s> </s>, byte tokens for 'x' and the bytes of é, then pieces with U+2581 for the space.
TokenData spm_data() {
  TokenData data;
  data.source = "tiny.gguf";
  data.model = "llama";
  data.texts = {"<unk>", "<s>",     "</s>",     "<0x78>", "<0xC3>", "<0xA9>", "\u2581", "a", "b",
                "ab",    "\u2581a", "\u2581ab", "<",      "s",      ">",      "<s",     "bb"};
  data.types.assign(data.texts.size(), TokenType::normal);
  data.types[0] = TokenType::unknown;
  data.types[1] = data.types[2] = TokenType::control;
  data.types[3] = data.types[4] = data.types[5] = TokenType::byte;
  data.scores = {0, 0, 0, 0, 0, 0, -1, -2, -3, -10, -11, -5, -6, -7, -8, -9, -12};
  return data;
}

TEST(ScoreMergeTokenizer, merges_the_best_score_first_and_puts_a_space_in_front) {
  const Tokenizer tokenizer(spm_data());
  EXPECT_EQ(tokenizer.encode("ab", true, false), (Ids{1, 11}));
  EXPECT_EQ(tokenizer.encode("ab ab", false, false), (Ids{11, 11}));
  EXPECT_EQ(tokenizer.encode("bb", false, false), (Ids{6, 16}));
  EXPECT_EQ(tokenizer.encode("bbb", false, false), (Ids{6, 16, 8}));  // leftmost of two equal
  EXPECT_EQ(tokenizer.encode("", false, false), Ids{});
  EXPECT_EQ(tokenizer.encode("", true, false), (Ids{1}));
  EXPECT_EQ(tokenizer.decode(Ids{1, 11, 11}, true), " ab ab");
}

TEST(ScoreMergeTokenizer, the_space_in_front_can_be_switched_off) {
  TokenData data = spm_data();
  data.adds_space_prefix = false;
  EXPECT_EQ(Tokenizer(data).encode("ab ab", false, false), (Ids{9, 11}));
}

TEST(ScoreMergeTokenizer, a_space_goes_before_what_follows_a_special_token) {
  const Tokenizer tokenizer(spm_data());
  EXPECT_EQ(tokenizer.encode("ab</s>ab", false, true), (Ids{11, 2, 11}));
  EXPECT_EQ(tokenizer.encode("</s></s>", false, true), (Ids{2, 2}));
}

TEST(ScoreMergeTokenizer, text_never_merges_into_a_control_or_byte_token) {
  const Tokenizer tokenizer(spm_data());
  EXPECT_EQ(tokenizer.encode("<s>", false, false), (Ids{6, 15, 14}));
  EXPECT_EQ(tokenizer.encode("<s>", false, true), (Ids{1}));
}

TEST(ScoreMergeTokenizer, falls_back_to_bytes_and_then_to_one_unknown_a_run) {
  const Tokenizer tokenizer(spm_data());
  EXPECT_EQ(tokenizer.encode("x\u00E9", false, false), (Ids{6, 3, 4, 5}));
  EXPECT_EQ(tokenizer.encode("yzy", false, false), (Ids{6, 0}));
  EXPECT_EQ(tokenizer.encode("\xFF\xC3", false, false), (Ids{6, 0, 4}));
}

TEST(ScoreMergeTokenizer, refuses_byte_tokens_of_another_text_and_missing_scores) {
  for (const char* text :
       {"<0x7>", "<0x7G>", "<0xG7>", "<0x7/>", "<0x:7>", "<0xfF>", "0x78", "<0x078>", "x"}) {
    TokenData data = spm_data();
    data.texts[3] = text;
    EXPECT_NE(error_of(data).find("token 3: expected the text of a byte token"), std::string::npos)
        << text;
  }
  TokenData data = spm_data();
  data.scores.clear();
  EXPECT_NE(error_of(data).find("tokenizer.ggml.scores"), std::string::npos);
}

// The definition, literally: again and again the best of all pairs.
Ids merge_naively(const TokenData& data, std::string_view text) {
  std::vector<std::string> symbols;
  for (char byte : text)
    symbols.emplace_back(1, byte);
  const auto find = [&](const std::string& wanted) -> int {
    for (size_t id = 0; id < data.texts.size(); ++id) {
      if (data.texts[id] == wanted && data.types[id] == TokenType::normal)
        return static_cast<int>(id);
    }
    return -1;
  };
  while (true) {
    int best = -1;
    float best_score = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const int id = find(symbols[i] + symbols[i + 1]);
      if (id < 0) continue;
      float score = data.scores[static_cast<size_t>(id)];
      if (std::isnan(score)) score = -INFINITY;
      if (best < 0 || score > best_score) {
        best = static_cast<int>(i);
        best_score = score;
      }
    }
    if (best < 0) break;
    symbols[static_cast<size_t>(best)] += symbols[static_cast<size_t>(best) + 1];
    symbols.erase(symbols.begin() + best + 1);
  }
  Ids ids;
  for (const std::string& symbol : symbols)
    ids.push_back(static_cast<uint32_t>(find(symbol)));
  return ids;
}

TEST(ScoreMergeTokenizer, agrees_with_the_definition_on_random_vocabularies_and_nan_scores) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    TokenData data;
    data.source = "random.gguf";
    data.model = "llama";
    data.texts = {"<unk>", "<s>", "</s>", "a", "b", "c"};
    while (data.texts.size() < 40) {
      std::string piece;
      for (size_t i = 0, n = 2 + random() % 4; i < n; ++i)
        piece += static_cast<char>('a' + random() % 3);
      data.texts.push_back(piece);
    }
    data.types.assign(data.texts.size(), TokenType::normal);
    data.types[0] = TokenType::unknown;
    data.types[1] = data.types[2] = TokenType::control;
    for (size_t id = 0; id < data.texts.size(); ++id) {
      data.scores.push_back(random() % 9 == 0 ? NAN : -static_cast<float>(random() % 12));
    }
    data.adds_space_prefix = false;
    const Tokenizer tokenizer(data);
    std::string text;
    for (int i = 0; i < 60; ++i)
      text += static_cast<char>('a' + random() % 3);
    EXPECT_EQ(tokenizer.encode(text, false, false), merge_naively(data, text)) << text;
  }
}

TEST(ScoreMergeTokenizer, words_apart_or_not_give_the_same) {
  TokenData data = spm_data();
  const std::string text = "ab  ab bb   a b<s ab x";
  const Ids apart = Tokenizer(data).encode(text, false, false);
  // A token with the space inside forbids cutting into words; this one never wins.
  data.texts.emplace_back("q\u2581q");
  data.types.push_back(TokenType::normal);
  data.scores.push_back(-100);
  EXPECT_EQ(Tokenizer(data).encode(text, false, false), apart);
  data.texts.emplace_back("b\u2581");  // and this one does
  data.types.push_back(TokenType::normal);
  data.scores.push_back(1);
  EXPECT_EQ(Tokenizer(data).encode("b b", false, false), (Ids{6, 18, 8}));
}

}  // namespace
}  // namespace nightsweep
