"""Files that nobody builds or includes."""

from __future__ import annotations

import posixpath
import re

from tidy_rules.cpp import includes
from tidy_rules.tree import Finding, Tree

_WORD = re.compile(r'[^\s()";]+\.cc\b')
_VARIABLE = re.compile(r"\$\{[^}]*\}")


def check(tree: Tree) -> list[Finding]:
    return _sources(tree) + _headers(tree) + _test_folders(tree)


def _sources(tree: Tree) -> list[Finding]:
    built = _built(tree)
    return [
        Finding(file.path, 1, "no CMakeLists.txt builds it: list it in one or remove it")
        for file in tree.files
        if file.suffix == ".cc" and not any(pattern.fullmatch(file.path) for pattern in built)
    ]


def _built(tree: Tree) -> list[re.Pattern[str]]:
    """Patterns of what the CMake files name; a variable or `*` stands for one level of folders or a part of a name."""
    patterns = []
    for file in tree.files:
        if file.name != "CMakeLists.txt" and file.suffix != ".cmake":
            continue
        # Included ones speak from the root; a CMakeLists.txt from its own folder.
        folder = posixpath.dirname(file.path) if file.name == "CMakeLists.txt" else ""
        text = re.sub(r"#[^\n]*", "", file.text)
        for word in _WORD.findall(text):
            if word.startswith("${PROJECT_SOURCE_DIR}/"):
                path = word.removeprefix("${PROJECT_SOURCE_DIR}/")
            else:
                path = posixpath.normpath(posixpath.join(folder, word.removeprefix("${CMAKE_CURRENT_SOURCE_DIR}/")))
            pieces = re.split(r"\$\{[^}]*\}|\*", path)
            patterns.append(re.compile("[^/]*".join(re.escape(piece) for piece in pieces)))
    return patterns


def _headers(tree: Tree) -> list[Finding]:
    included = set()
    for file in tree.cpp():
        folder = posixpath.dirname(file.path)
        for _, _, path in includes(file.text):
            included.update({f"src/{path}", f"tests/{path}", path, posixpath.normpath(posixpath.join(folder, path))})
            # A binary's own folder is in its path too.
            included.add(f"{folder.split('/')[0]}/{path}")
    return [
        Finding(file.path, 1, "nobody includes it: use it or remove it")
        for file in tree.files
        if file.suffix == ".h" and file.path not in included
    ]


def _test_folders(tree: Tree) -> list[Finding]:
    """tests/KIND/ROOM is built only where tests/CMakeLists.txt has the kind and the room's row."""
    cmake = tree.by_path.get("tests/CMakeLists.txt")
    if cmake is None:
        return []
    kinds = set(" ".join(re.findall(r"foreach\(kind ([^)]*)\)", cmake.text)).split())
    rooms = set(re.findall(r"towline_tests\(\s*\S+\s+(\w+)", cmake.text))
    found = []
    for file in tree.files:
        parts = file.path.split("/")
        if parts[0] == "tests" and len(parts) == 4 and file.name.endswith("_test.cc"):
            if parts[1] not in kinds:
                found.append(Finding(file.path, 1, f"'{parts[1]}' is no kind of test in tests/CMakeLists.txt"))
            elif parts[2] not in rooms:
                found.append(Finding(file.path, 1, f"'{parts[2]}' has no row in tests/CMakeLists.txt"))
        elif parts[0] == "tests" and file.suffix == ".cc" and len(parts) == 4 and parts[1] in kinds:
            found.append(Finding(file.path, 1, "no test file: name it ..._test.cc"))
    return found
