"""A small tree to check."""

import pathlib
from collections.abc import Callable

import pytest
from tidy_rules.tree import Tree

Plant = Callable[[dict[str, str]], Tree]


@pytest.fixture
def plant(tmp_path: pathlib.Path) -> Plant:
    """Writes files (path -> text) and reads them as a Tree."""

    def write(files: dict[str, str]) -> Tree:
        for path, text in files.items():
            target = tmp_path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        return Tree(tmp_path)

    return write
