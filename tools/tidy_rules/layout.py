"""clang-format decides layout."""

from __future__ import annotations

import concurrent.futures
import os
import re
import shutil
import subprocess

from tidy_rules.tree import Finding, Tree

_MESSAGE = re.compile(r"^(.*?):(\d+):\d+: (?:error|warning): ", re.MULTILINE)
_FILES_AT_ONCE = 20


def check(tree: Tree) -> list[Finding]:
    files = [file.path for file in tree.cpp()]
    if not files:
        return []
    program = shutil.which("clang-format")
    if program is None:
        return [Finding(".clang-format", 1, "clang-format is not installed: run scripts/setup --tests")]
    groups = [files[start : start + _FILES_AT_ONCE] for start in range(0, len(files), _FILES_AT_ONCE)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        outputs = pool.map(lambda group: _run(program, tree, group), groups)
    first_of = {}
    for output in outputs:
        for path, line in _MESSAGE.findall(output):
            first_of.setdefault(path, int(line))
    return [
        Finding(path, line, f"layout: run clang-format -i {path}") for path, line in sorted(first_of.items())
    ]


def _run(program: str, tree: Tree, group: list[str]) -> str:
    done = subprocess.run(
        [program, "--dry-run", "--ferror-limit=1", *group], cwd=tree.root, capture_output=True, text=True, check=False
    )
    return done.stderr
