"""The files of a checkout as the checks see them."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib

# Built, fetched or the version control's own: not ours to check.
SKIPPED_FOLDERS = {".git", ".venv", ".cache", "build", "__pycache__", ".pytest_cache"}
CPP = {".cc", ".h"}
EXCEPTIONS = "tools/tidy_rules/exceptions.txt"


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """One violation; prints as compilers do, with what to do instead."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class File:
    """One text file; `path` is relative to the root, with slashes."""

    def __init__(self, root: pathlib.Path, path: str) -> None:
        self.path = path
        self.suffix = pathlib.PurePosixPath(path).suffix
        self.name = pathlib.PurePosixPath(path).name
        self._absolute = root / path

    @functools.cached_property
    def raw(self) -> bytes:
        return self._absolute.read_bytes()

    @functools.cached_property
    def text(self) -> str:
        return self.raw.decode("utf-8", errors="replace")

    @functools.cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @functools.cached_property
    def code(self) -> str:
        """C++ without comments and the insides of literals: same length of lines, so that positions agree."""
        from tidy_rules.cpp import strip

        return strip(self.text)

    @property
    def is_cpp(self) -> bool:
        return self.suffix in CPP

    @property
    def is_python(self) -> bool:
        return self.suffix == ".py" or (self.suffix == "" and self.raw.startswith(b"#!") and b"python" in self.raw[:40])

    @property
    def is_test(self) -> bool:
        return self.path.startswith("tests/")

    @property
    def room(self) -> str | None:
        """`transport` for src/towline/transport/..., else none."""
        parts = self.path.split("/")
        return parts[2] if parts[:2] == ["src", "towline"] and len(parts) > 3 else None


class Tree:
    """A checkout, read once. Binary files (a NUL byte) are left out."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root.resolve()
        self.files = [file for file in self._walk() if b"\0" not in file.raw]
        self.by_path = {file.path: file for file in self.files}

    def _walk(self) -> list[File]:
        found = []
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
            for name in names:
                absolute = pathlib.Path(folder, name)
                if absolute.is_file() and not absolute.is_symlink():
                    found.append(File(self.root, absolute.relative_to(self.root).as_posix()))
        return sorted(found, key=lambda file: file.path)

    def cpp(self) -> list[File]:
        return [file for file in self.files if file.is_cpp]

    @functools.cached_property
    def exceptions(self) -> dict[tuple[str, str], str]:
        """(check, path) -> value, of the lines `check path value  # why` of exceptions.txt."""
        rows: dict[tuple[str, str], str] = {}
        file = self.by_path.get(EXCEPTIONS)
        for line in file.lines if file else []:
            words, _, why = line.partition("#")
            if words.strip():
                if not why.strip():
                    raise ValueError(f"{EXCEPTIONS}: '{line}': an exception says why, behind '#'")
                check, path, *value = words.split()
                rows[check, path] = value[0] if value else ""
        return rows
