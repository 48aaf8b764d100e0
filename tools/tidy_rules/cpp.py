"""Just enough C++: comments and literals out, functions found by their braces."""

from __future__ import annotations

import bisect
import dataclasses
import re

_TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
  | (?P<string>"(?:\\.|[^"\\\n])*")
  | (?P<character>(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+')
    """,
    re.DOTALL | re.VERBOSE,
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)


def _blank(match: re.Match[str]) -> str:
    text = match.group(0)
    if match.lastgroup == "comment" or match.group("comment"):
        return re.sub(r"[^\n]", " ", text)
    # The quotes stay, so that an initialiser remains an expression; an #include is read from the raw text.
    return text[0] + re.sub(r"[^\n]", " ", text[1:-1]) + text[-1]


def strip(text: str) -> str:
    """The text with comments and the insides of literals blanked; newlines stay where they are."""
    return _TOKEN.sub(_blank, text)


def includes(text: str) -> list[tuple[int, bool, str]]:
    """(line, angled, path) of each #include outside comments."""
    uncommented = _TOKEN.sub(lambda m: _blank(m) if m.group("comment") else m.group(0), text)
    return [
        (uncommented.count("\n", 0, match.start()) + 1, match.group(1) == "<", match.group(2))
        for match in _INCLUDE.finditer(uncommented)
    ]


@dataclasses.dataclass(frozen=True)
class Function:
    name: str
    line: int
    lines: int


_PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n\\]|\\[^\n]|\\\n)*", re.MULTILINE)
_TYPE = re.compile(r"(?:^|\s|>|\))(?:class|struct|union|enum)\b")
_TEMPLATE = re.compile(r"^\s*template\s*<")
_NAMESPACE = re.compile(r'(?:^|\s)(?:inline\s+)?namespace\b|(?:^|\s)extern\s+"')
# What may stand between a parameter list and the body.
_TAIL = re.compile(r"(?:\s|\b(?:const|noexcept|override|final|mutable|try|volatile)\b|&&?)*$")
_NAME = re.compile(r"((?:[\w:]+::)?operator\s*(?:\(\)|[^\s\w(]+)|[~\w:]+)\s*\(")


def functions(code: str) -> list[Function]:
    """The functions of stripped code, lambdas counted with the function around them. Lines run from the one with the
    opening brace to the one with the closing."""
    scan = _Scan(_PREPROCESSOR.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), code))
    return scan.run()


class _Scan:
    """Walks the braces. Outside functions, the text before a `{` (the head) says what it opens."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.newlines = [match.start() for match in re.finditer("\n", code)]
        self.found: list[Function] = []

    def line_of(self, position: int) -> int:
        return bisect.bisect_left(self.newlines, position) + 1

    def run(self) -> list[Function]:
        head_start = position = 0
        parenthesis = 0
        code = self.code
        while position < len(code):
            character = code[position]
            if character in "([":
                parenthesis += 1
            elif character in ")]":
                parenthesis -= 1
            elif character == "{":
                head = code[head_start:position]
                kind = "other" if parenthesis > 0 else _kind(head)
                if kind == "function":
                    end = self.close(position)
                    first = self.line_of(position)
                    self.found.append(Function(_name(head), first, self.line_of(end) - first + 1))
                    head_start, position = end + 1, end
                elif kind == "other":  # an initialiser: the head goes on behind it
                    position = self.close(position)
                else:
                    head_start = position + 1
            elif character in ";}" and parenthesis <= 0:
                head_start, parenthesis = position + 1, 0
            position += 1
        return self.found

    def close(self, position: int) -> int:
        depth = 0
        for match in re.finditer(r"[{}]", self.code[position:]):
            depth += 1 if match.group(0) == "{" else -1
            if depth == 0:
                return position + match.start()
        return len(self.code) - 1


def _kind(head: str) -> str:
    head = _without_template(head)
    if _NAMESPACE.search(head):
        return "namespace"
    flat = _flatten(head)
    if "=" in re.sub(r"operator\s*[=!<>+\-*/|&^%]+|[=!<>]=|=>", " ", flat):
        return "other"
    if _TYPE.search(" " + flat) and "(" not in flat:
        return "type"
    if "(" not in flat:
        return "other"
    # A constructor's initialisers: `f() : a_` opens an initialiser, `f() : a_(1)` its body.
    if _TAIL.sub("", flat).endswith(")") or re.search(r"\)[^)]*->[^)]*$", flat):
        return "function"
    return "function" if re.search(r"\{\}\s*$", flat) else "other"


def _flatten(head: str) -> str:
    """The head with what lies in parentheses and braces taken out: `f(int a) : b_{1}` is `f() : b_{}`."""
    previous = None
    head = re.sub(r"\[\[.*?\]\]", " ", head, flags=re.DOTALL)
    while previous != head:
        previous = head
        head = re.sub(r"\([^()]+\)", "()", head)
        head = re.sub(r"\{[^{}]+\}", "{}", head)
    return head


def _without_template(head: str) -> str:
    while match := _TEMPLATE.search(head):
        depth = 0
        for index in range(match.end() - 1, len(head)):
            if head[index] == "<":
                depth += 1
            elif head[index] == ">" and head[index - 1] != "-":
                depth -= 1
                if depth == 0:
                    break
        head = head[index + 1 :]
    return head


def _name(head: str) -> str:
    match = _NAME.search(_flatten(_without_template(head)))
    return match.group(1) if match else "?"
