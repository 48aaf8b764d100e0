"""Characters, names of files, notes."""

from __future__ import annotations

import re

from tidy_rules.tree import File, Finding, Tree

_TODO = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?!\(issue-\d+\): )")
_NAMELESS = re.compile(r"(^|[_\W])(utils?|common|misc|helpers?|manager2|stuff)([_\W]|$)")
# The text of the licence is not ours to lay out; recorded output and the fuzzers' seeds are exact.
_VERBATIM = re.compile(r"LICENSE$|tests/golden/|tests/fuzz/[^/]+/")


def check(tree: Tree) -> list[Finding]:
    return [
        found for file in tree.files if not _VERBATIM.match(file.path) for found in _characters(file) + _todos(file)
    ]


def _characters(file: File) -> list[Finding]:
    found = []
    for number, line in enumerate(file.lines, 1):
        if "\t" in line:
            found.append(Finding(file.path, number, "tab: use spaces"))
        if line != line.rstrip():
            found.append(Finding(file.path, number, "trailing white space: remove it"))
    if file.raw and not file.raw.endswith(b"\n"):
        found.append(Finding(file.path, len(file.lines), "no newline at the end: add one"))
    try:
        file.raw.decode("utf-8")
    except UnicodeDecodeError as error:
        found.append(Finding(file.path, 1, f"not UTF-8 at byte {error.start}: save it as UTF-8"))
    return found


def _todos(file: File) -> list[Finding]:
    # This folder and its tests speak of the words themselves.
    if "tidy_rules" in file.path or file.path.startswith("tests/python/tools/"):
        return []
    return [
        Finding(file.path, number, f"{match.group(1)} without an issue: write TODO(issue-12): what")
        for number, line in enumerate(file.lines, 1)
        if (match := _TODO.search(line))
    ]


def check_names(tree: Tree) -> list[Finding]:
    found = []
    for file in tree.files:
        for part in file.path.split("/"):
            if match := _NAMELESS.search(part):
                found.append(Finding(file.path, 1, f"'{match.group(2)}' in a name: call it by what it holds"))
        if file.is_cpp and not re.fullmatch(r"[a-z0-9_]+\.(cc|h)", file.name):
            found.append(Finding(file.path, 1, "file name: use snake_case"))
        if file.suffix == ".h" and "#pragma once" not in file.code:
            found.append(Finding(file.path, 1, "header without '#pragma once': add it as the first line"))
    return found
