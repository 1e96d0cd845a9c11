"""Random templates and contexts, rendered by Python's Jinja2.

Prints one JSON object a line: template, context, trim (trim_blocks and lstrip_blocks), and
expected, or error where Python refuses. The same count and seed give the same lines.
"""

import json
import random
import signal
import sys

import jinja2
import jinja2.sandbox

COUNT, SEED = int(sys.argv[1]), int(sys.argv[2])
rng = random.Random(SEED)
pick = rng.choice


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment(trim):
    env = jinja2.sandbox.SandboxedEnvironment(
        trim_blocks=trim, lstrip_blocks=trim, extensions=["jinja2.ext.loopcontrols"]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


ENVIRONMENTS = {trim: environment(trim) for trim in (False, True)}

WORDS = ["", "a", "B", "hello world", " pad ", "it's", 'say "x"', "line\nbreak", "tab\t", "é", "ß",
         "日本", "😀!", "ÀÉ", "<b>", "a,b,,c", "x=1", "42", "-7", "3.5", "1e3", "Ünïcode Text",
         "\\back", "%", "{}", "trailing  ", "ΑΣ", "0x1f", "a-b c(d"]
NUMBERS = [0, 1, 2, 3, -1, -5, 7, 10, 100, 0.5, 1.0, -2.5, 3.14159, 1e16, 1e-7, 12345, 2.675]
NAMES = ["s", "t", "n", "m", "f", "l", "d", "u", "none_value", "messages", "flag"]
# Without those that are complex in Python: they are refused here.
POWERS = ["%s ** %s" % (base, exponent) for base in ["n", "2", "f", "-3"]
          for exponent in ["n", "2", "-1", "0.5"] if exponent != "0.5" or base in ["n", "2"]]
LOOP_ATTRIBUTES = ["index", "index0", "revindex", "first", "last", "length", "depth", "previtem",
                   "nextitem"]


def scalar():
    return pick([pick(WORDS), pick(NUMBERS), True, False, None])


def context():
    def message():
        content = pick([pick(WORDS), None, [{"type": "text", "text": pick(WORDS)}]])
        return {"role": pick(["user", "assistant", "system"]), "content": content}

    return {
        "s": pick(WORDS),
        "t": pick(WORDS),
        "n": pick([0, 1, 2, 3, 5]),
        "m": pick(NUMBERS),
        "f": pick([0.5, 2.0, -1.25]),
        "l": pick([[pick(WORDS) for _ in range(rng.randint(0, 4))],
                   [pick(NUMBERS) for _ in range(rng.randint(0, 4))],
                   [scalar() for _ in range(rng.randint(0, 4))]]),
        "d": {pick(["a", "b", "key", "Z", "é"]): scalar() for _ in range(rng.randint(0, 4))},
        "none_value": None,
        "flag": pick([True, False]),
        "messages": [message() for _ in range(rng.randint(0, 3))],
    }


def literal():
    return pick([
        lambda: repr(pick(WORDS)).replace("{{", "").replace("{%", ""),
        lambda: str(pick(NUMBERS)),
        lambda: pick(["true", "false", "none", "True", "None"]),
        lambda: "[%s]" % ", ".join(literal() for _ in range(rng.randint(0, 3))),
        lambda: "(%s, %s)" % (literal(), literal()),
        lambda: "{'k': %s, %d: %s}" % (literal(), rng.randint(0, 3), literal()),
    ])()


TEXT_FILTERS = ["upper", "lower", "trim", "title", "capitalize", "string", "length", "string | reverse",
                "replace('a', 'XX')", "replace('', '-')", "indent(2)", "indent(2, true, true)",
                "default('dd')", "e", "list", "first", "last", "wordcount", "center(9)", "safe",
                "truncate(5)", "truncate(6, true)", "urlencode", "int", "float", "tojson", "abs",
                "int(9)", "string | length", "format(1)", "trim('a ')"]
LIST_FILTERS = ["length", "first", "last", "list", "join(', ')", "join", "reverse | list", "sort",
                "sort(reverse=true)", "unique | list", "min", "max", "sum", "tojson",
                "tojson(indent=2)", "map('string') | list", "map('upper') | join('|')",
                "select | list", "reject('none') | list", "select('string') | list",
                "batch(2) | list", "batch(2, 'x') | list", "slice(2) | list", "slice(3, 0) | list",
                "select('gt', 1) | list", "count", "reject('in', [1, 'a']) | list", "string"]
DICT_FILTERS = ["length", "dictsort", "items | list", "list", "tojson", "tojson(sort_keys=true)",
                "dictsort(reverse=true)", "dictsort(by='value')", "string", "tojson(indent=1)"]
NUMBER_FILTERS = ["abs", "round", "round(1)", "round(2, 'floor')", "round(1, 'ceil')", "int",
                  "float", "string", "round(-1)", "default(3)", "tojson"]
MESSAGE_FILTERS = ["selectattr('role', 'equalto', 'user') | list | length",
                   "map(attribute='role') | join(',')", "groupby('role') | list",
                   "rejectattr('content') | list | length", "sort(attribute='role') | list",
                   "map(attribute='nope', default='?') | list", "tojson(indent=2)",
                   "selectattr('content') | map(attribute='content') | list", "length"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "mapping",
         "iterable", "sequence", "boolean", "true", "false", "odd", "even", "callable",
         "divisibleby 2", "eq 1", "ne('a')", "in [1, 'a', none]", "lower", "upper", "sameas none",
         "gt 1", "not none", "not string", "not defined"]
TEXT_METHODS = ["upper()", "lower()", "title()", "capitalize()", "swapcase()", "strip()",
                "lstrip()", "rstrip('d! ')", "split()", "split(',')", "split(' ', 1)",
                "rsplit(',', 1)", "splitlines()", "startswith('a')", "endswith(('b', ' '))",
                "find('l')", "rfind('l')", "count('a')", "replace('l', 'LL')", "replace('a', '', 1)",
                "isdigit()", "isalpha()", "isupper()", "islower()", "isspace()", "istitle()",
                "isalnum()", "zfill(5)", "ljust(6, '.')", "rjust(6)", "center(7, '*')",
                "partition(' ')", "rpartition(',')", "join(['x', 'y'])", "removeprefix('a')",
                "removesuffix('d')", "casefold()", "expandtabs(4)", "format(1, k=2)", "index('q')",
                "isnumeric()", "isidentifier()", "isprintable()", "isascii()", "missing()"]
DICT_METHODS = ["keys()", "values()", "items()", "get('a')", "get('q', 'fallback')", "copy()",
                "pop('a', 0)", "keys() | list", "items() | list", "update({'w': 1})", "popitem()",
                "setdefault('zz', 3)"]
LIST_METHODS = ["index(1)", "count('a')", "copy()", "append('new')", "pop()", "reverse()",
                "insert(1, 'in')", "extend([1])", "pop(0)", "sort()"]
FORMATS = ["'%s|%r' % (s, l)", "'%d %5.2f' % (n, f)", "'%-8s|' % s", "'%x %o %e' % (n, n, f)",
           "'%05d' % n", "'%+d' % m", "'%(a)s' % d", "'%c' % 'x'", "'%g' % m", "'%s' % l",
           "'{:>6}|{:<6}|{:^6}'.format(s, t, n)", "'{0} {1} {0}'.format(n, s)", "'{a!r}'.format(a=s)",
           "'{:,}'.format(m)", "'{:.2f}'.format(f)", "'{:05d}'.format(n)", "'{:x}'.format(n)",
           "'{:08.3f}|{:+}'.format(m, n)", "'{:e}'.format(m)", "'{:.1%}'.format(f)",
           "'{0[0]}'.format(l)", "'{x[a]}'.format(x=d)", "'{:*^9}'.format(s)", "'{{}} {}'.format(1)",
           "'{:.3}'.format(s)", "'{:{w}}'.format(s, w=7)", "'{:_}'.format(123456)", "'{}'.format(m)"]


def bound():
    return pick(["", "", "0", "1", "2", "-1", "-2", "5", "n"])


def expression(depth):
    if depth <= 0:
        return pick([literal(), pick(NAMES), pick(NAMES)])
    sub = lambda: expression(depth - 1)
    return pick([
        lambda: "%s %s %s" % (sub(), pick(["+", "-", "*", "/", "//", "%", "~", "~"]), sub()),
        lambda: pick(POWERS),
        lambda: "%s %s %s" % (sub(), pick(["==", "!=", "<", "<=", ">", ">="]), sub()),
        lambda: "1 < n <= %s" % sub(),
        lambda: "%s %s %s" % (sub(), pick(["in", "not in"]), pick(["l", "s", "d", "'abc'", "[1, 'a']"])),
        lambda: "%s %s %s" % (sub(), pick(["and", "or"]), sub()),
        lambda: "not %s" % sub(),
        lambda: "-%s" % pick(["n", "f", "m", "(n + 1)"]),
        lambda: "%s if %s else %s" % (sub(), sub(), sub()),
        lambda: "(%s if %s)" % (sub(), sub()),
        lambda: "(%s)" % sub(),
        lambda: "%s[%s:%s:%s]" % (pick(["s", "l", "'hello'", "t", "range(6) | list"[:8]]), bound(), bound(),
                                  pick(["", "1", "2", "-1", "-2"])),
        lambda: "%s[%s]" % (pick(["s", "l", "d", "messages"]), pick(["0", "-1", "1", "9", "'a'", "n"])),
        lambda: "d.%s" % pick(["a", "b", "key", "nope", "Z"]),
        lambda: "messages[0].%s" % pick(["role", "content", "nope"]),
        lambda: "%s | %s" % (pick(["s", "t", "n", "u", "none_value"]), pick(TEXT_FILTERS)),
        lambda: "%s | %s" % (pick(["l", "l", "s", "range(n)", "d", "u"]), pick(LIST_FILTERS)),
        lambda: "d | %s" % pick(DICT_FILTERS),
        lambda: "%s | %s" % (pick(["n", "m", "f", "-m"]), pick(NUMBER_FILTERS)),
        lambda: "messages | %s" % pick(MESSAGE_FILTERS),
        lambda: "%s is %s" % (pick(NAMES + ["1", "'a'", "range"]), pick(TESTS)),
        lambda: "%s.%s" % (pick(["s", "t", "'Hello World'"]), pick(TEXT_METHODS)),
        lambda: "d.%s" % pick(DICT_METHODS),
        lambda: "l.%s" % pick(LIST_METHODS),
        lambda: pick(FORMATS),
        lambda: "%s.u" % pick(["d", "u"]),
        lambda: "dict(a=%s)" % sub(),
        lambda: "range(%s)" % pick(["n", "1, n", "5, 0, -2"]),
    ])()


def blank():
    return pick(["", "", "", " ", "\n", "\n  ", "  \n", "text", "\n\n", "é "])


def tag(body):
    return "{%" + pick(["", "", "", "-", "+"]) + " " + body + " " + pick(["", "", "", "-"]) + "%}"


def output():
    return "{{" + pick(["", "", "-"]) + " " + expression(rng.randint(0, 2)) + " " + pick(["", "", "-"]) + "}}"


def iterable():
    return pick(["l", "l", "messages", "range(n)", "s", "d", "[1, 2, 3]", "u", "d | dictsort | list",
                 "l | select", "(1, 2)"])


def block(depth):
    return "".join(blank() + statement(depth) for _ in range(rng.randint(1, 3))) + blank()


def statement(depth):
    if depth <= 0:
        return output()
    inner = lambda: block(depth - 1)
    return pick([
        output,
        output,
        lambda: tag("if " + expression(1)) + inner() + tag("endif"),
        lambda: tag("if " + expression(1)) + inner() + tag("elif " + expression(1)) + inner()
        + tag("else") + inner() + tag("endif"),
        lambda: tag("for x in " + iterable()) + "{{ x }}{{ loop.%s }}" % pick(LOOP_ATTRIBUTES)
        + inner() + tag("endfor"),
        lambda: tag("for x in %s if x" % iterable()) + "{{ x }}" + inner() + tag("else") + inner()
        + tag("endfor"),
        lambda: tag("for k, v in d.items()") + "{{ k }}={{ v }};" + tag("endfor"),
        lambda: tag("for x in " + iterable()) + tag("if loop.index == 2") + tag(pick(["break", "continue"]))
        + tag("endif") + "{{ x }}" + tag("endfor"),
        lambda: tag("for x in l") + "{{ loop.cycle('a', 'b') }}{{ loop.changed(x) }}" + tag("endfor"),
        lambda: tag("set %s = %s" % (pick(["s", "v", "t"]), expression(2))) + "{{ v }}",
        lambda: tag("set a, b = (1, %s)" % expression(1)) + "{{ a }}{{ b }}",
        lambda: tag("set v") + inner() + tag("endset") + "{{ v | length }}",
        lambda: tag("set ns = namespace(c=0)") + tag("for x in l") + tag("set ns.c = ns.c + 1")
        + tag("endfor") + "{{ ns.c }}",
        lambda: tag("macro mm(p, q=%s)" % literal()) + "[{{ p }}{{ q }}{{ kwargs }}]" + inner()
        + tag("endmacro") + "{{ mm(%s) }}{{ mm(1, q=2, r=3) }}" % expression(1),
        lambda: tag("macro mc()") + "<{{ caller(3) }}>" + tag("endmacro") + tag("call(z) mc()")
        + "{{ z }}" + inner() + tag("endcall"),
        lambda: tag("filter upper") + inner() + tag("endfilter"),
        lambda: tag("with w = %s" % expression(1)) + "{{ w }}" + inner() + tag("endwith"),
        lambda: "{#" + pick(["", "-"]) + " note " + pick(["", "-"]) + "#}",
        lambda: "{% raw %}{{ raw }}{% endraw %}",
    ])()


def is_comparable(text):
    # Addresses of objects, names of Python's own types, and integers beyond 64 bits.
    if " object at 0x" in text or "<class" in text or "<bound" in text or "<built-in" in text:
        return False
    return "<function" not in text and "<Macro" not in text and "<generator" not in text


def too_long(*_):
    raise TimeoutError


signal.signal(signal.SIGALRM, too_long)
count = 0
while count < COUNT:
    template = block(rng.randint(1, 3))
    trim = pick([True, False])
    variables = context()
    case = {"template": template, "context": variables, "trim": trim}
    line = json.dumps(case, ensure_ascii=False)
    case = json.loads(line)
    signal.setitimer(signal.ITIMER_REAL, 0.5)  # a loop over a list that grows never ends
    try:
        text = ENVIRONMENTS[trim].from_string(template).render(**variables)
        if not is_comparable(text) or any(len(w) > 18 for w in text.replace("-", " ").split()
                                          if w.isdigit()):
            continue
        case["expected"] = text
    except TimeoutError:
        continue
    except Exception as error:  # any refusal: the kinds of exception are Python's own
        if rng.random() < 0.8:  # most cases shall have a text to compare
            continue
        case["error"] = type(error).__name__ + ": " + str(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    print(json.dumps(case, ensure_ascii=False))
    count += 1
