"""Direction of dependencies: what each room may include. docs/architecture.md says the same in words."""

from __future__ import annotations

import re

from tidy_rules.cpp import includes
from tidy_rules.tree import File, Finding, Tree

_BELOW_TRANSFER = {"device", "storage", "transport", "control", "tensor", "base"}
# Room -> rooms it may use. Apps, Python, tests, benchmarks and examples may use every one.
MAY_USE: dict[str, set[str]] = {
    "base": set(),
    "tensor": {"base"},
    "device": {"tensor", "base"},
    "storage": {"device", "tensor", "base"},
    "transport": {"device", "tensor", "base"},
    "control": {"tensor", "base"},
    "transfer": _BELOW_TRANSFER,
    "collective": {"transport", "device", "tensor", "base"},
    "reshard": _BELOW_TRANSFER | {"transfer"},
    "kvcache": _BELOW_TRANSFER | {"transfer"},
    "loader": _BELOW_TRANSFER | {"transfer"},
    "sim": {"collective", "control", "transport", "storage", "device", "tensor", "base"},
}
# Files that plan or parse, and so may use less than their room.
_PURE_RESHARD = (
    "capture", "cost_model", "coverage", "engine_layout", "geometry", "interop_digest", "layout_text", "models", "op_chain",
    "per_copy_planner", "placement", "plan", "planner", "publication", "read_rule", "replica_balance", "scenario", "source_table",
    "trainer_layout", "view",
)  # fmt: skip
NARROWER: dict[str, set[str]] = {
    "src/towline/loader/safetensors_header": {"tensor", "base"},
    "src/towline/collective/schedule": {"tensor", "base"},
    **{f"src/towline/reshard/{stem}": {"tensor", "base"} for stem in _PURE_RESHARD},
}
# Folders of a room that are private to it: its inside, and back ends that are a module of their own.
_PRIVATE = {"internal", "ucx"}
# In headers beside our own and fmt: C++ itself, and what POSIX declares.
_STANDARD = re.compile(r"[a-z_0-9]+|c[a-z]+")
_POSIX = re.compile(r"(sys|netinet|arpa|linux)/[a-z_0-9]+\.h|(unistd|fcntl|poll|errno|dlfcn|stdint|stddef)\.h")
_FMT = re.compile(r"fmt/[a-z_]+\.h")


def check(tree: Tree) -> list[Finding]:
    return [found for file in tree.cpp() for found in _check_file(file, tree)]


def _check_file(file: File, tree: Tree) -> list[Finding]:
    found = []
    for line, angled, path in includes(file.text):
        parts = path.split("/")
        if parts[0] != "towline" or len(parts) < 3:
            continue
        if angled:
            found.append(Finding(file.path, line, f'<{path}>: our own headers are included as "{path}"'))
        if problem := _forbidden(file, parts):
            found.append(Finding(file.path, line, problem))
    return found + _own_header_first(file, tree)


def _forbidden(file: File, parts: list[str]) -> str | None:
    room = parts[1]
    if room not in MAY_USE:
        return f"'{room}' is no room: add it to MAY_USE in tools/tidy_rules/layers.py"
    private = _PRIVATE.intersection(parts[2:-1])
    if private and file.room != room and not file.is_test:
        return f"{private.pop()}/ of {room} is private: use one of its public headers"
    if file.room is None or file.room == room:
        return None
    if file.room not in MAY_USE:
        return f"'{file.room}' is no room: add it to MAY_USE in tools/tidy_rules/layers.py"
    stem = file.path.rsplit(".", 1)[0]
    allowed = NARROWER.get(stem, MAY_USE[file.room])
    if room not in allowed:
        who = stem if stem in NARROWER else file.room
        return f"{who} may not use {room}; it may use: {', '.join(sorted(allowed)) or 'nothing'}"
    return None


def _own_header_first(file: File, tree: Tree) -> list[Finding]:
    if file.suffix != ".cc" or file.room is None:
        return []
    own = file.path[:-3] + ".h"
    listed = includes(file.text)
    if own in tree.by_path and listed and listed[0][2] != own.removeprefix("src/"):
        return [Finding(file.path, listed[0][0], f'include "{own.removeprefix("src/")}" first')]
    return []


def check_third_party(tree: Tree) -> list[Finding]:
    """Foreign headers stay in .cc, shim and private files: whoever includes a public header gets none of them."""
    found = []
    for file in tree.cpp():
        private = bool(_PRIVATE.intersection(file.path.split("/"))) or file.name.endswith("_shim.h")
        if file.suffix != ".h" or file.room is None or private:
            continue
        for line, angled, path in includes(file.text):
            foreign = not path.startswith("towline/") if not angled else not _allowed_in_header(path)
            if foreign:
                found.append(Finding(file.path, line, f"{path} in a public header: include it in the .cc"))
    return found


def _allowed_in_header(path: str) -> bool:
    return any(pattern.fullmatch(path) for pattern in (_STANDARD, _POSIX, _FMT))


def check_uses(tree: Tree) -> list[Finding]:
    """Each room is one CMake target whose USES is its row of the table, or less."""
    found = []
    for room in sorted({file.room for file in tree.cpp() if file.room}):
        cmake = tree.by_path.get(f"src/towline/{room}/CMakeLists.txt")
        if cmake is None:
            found.append(Finding(f"src/towline/{room}", 1, "a room without CMakeLists.txt: add towline_room()"))
            continue
        match = re.search(r"towline_room\(\s*(\w+)(?:\s+USES\s+([\w\s]+?))?\s+(?:SOURCES|LIBRARIES)\b", cmake.text)
        if match is None or match.group(1) != room:
            found.append(Finding(cmake.path, 1, f"no towline_room({room} USES ... SOURCES ...)"))
            continue
        for used in (match.group(2) or "").split():
            if used not in MAY_USE.get(room, set()):
                found.append(Finding(cmake.path, 1, f"{room} may not use {used}"))
    return found
