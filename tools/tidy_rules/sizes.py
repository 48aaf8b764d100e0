"""Lengths of files and functions, and that nothing grows past a limit."""

from __future__ import annotations

import ast

from tidy_rules.cpp import Function, functions
from tidy_rules.tree import File, Finding, Tree

FILE_LINES = 500  # what a file stays under; one above it is listed in exceptions.txt and may only shrink
FILE_LINES_HARD = 800
TEST_LINES = 1000
FUNCTION_LINES = 70
MEDIAN_LINES = 10  # the median function is shorter
MOST_LINES = 40  # and 95 of 100 are shorter than this
_MEASURED = {".cc", ".h", ".py", ".cmake", ".sh", ".proto", ".txt"}
_UNMEASURED = ("tools/tidy_rules/exceptions.txt", "LICENSE")


def check_files(tree: Tree) -> list[Finding]:
    found = []
    for file in tree.files:
        if not (file.suffix in _MEASURED or file.raw.startswith(b"#!")) or file.path in _UNMEASURED:
            continue
        if problem := _too_long(tree, file, file.text.count("\n")):
            found.append(Finding(file.path, 1, problem))
    return found + _stale_exceptions(tree)


def _too_long(tree: Tree, file: File, lines: int) -> str | None:
    if file.is_test:
        return f"{lines} lines: a test file has at most {TEST_LINES}, split it" if lines > TEST_LINES else None
    if lines > FILE_LINES_HARD:
        return f"{lines} lines: no file has more than {FILE_LINES_HARD}, split it"
    granted = int(tree.exceptions.get(("size", file.path), FILE_LINES))
    if lines <= granted:
        return None
    if granted > FILE_LINES:
        return f"{lines} lines: it may not grow past the {granted} it was granted"
    return f"{lines} lines: a file has at most {FILE_LINES}; split it by idea"


def _stale_exceptions(tree: Tree) -> list[Finding]:
    found = []
    for (check, path), _ in tree.exceptions.items():
        file = tree.by_path.get(path)
        if file is None:
            found.append(Finding("tools/tidy_rules/exceptions.txt", 1, f"{path} is gone: remove its line"))
        elif check == "size" and file.text.count("\n") <= FILE_LINES:
            found.append(Finding("tools/tidy_rules/exceptions.txt", 1, f"{path} needs no exception any more: remove its line"))
    return found


def functions_of(file: File) -> list[Function]:
    if file.is_cpp:
        return functions(file.code)
    if file.is_python:
        return [
            Function(node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1)
            for node in ast.walk(ast.parse(file.text))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
    return []


def check_functions(tree: Tree) -> list[Finding]:
    return [
        Finding(file.path, function.line, f"{function.name}: {function.lines} lines; a function has at most {FUNCTION_LINES}")
        for file in tree.files
        for function in functions_of(file)
        if function.lines > FUNCTION_LINES
    ]


def _product(tree: Tree) -> dict[str, list[int]]:
    """Lengths of the functions of each room and of the apps, ascending."""
    lengths: dict[str, list[int]] = {}
    for file in tree.cpp():
        group = file.room or (file.path.split("/")[0] if file.path.startswith(("apps/", "python/")) else None)
        if group:
            lengths.setdefault(group, []).extend(function.lines for function in functions_of(file))
    return {group: sorted(values) for group, values in lengths.items() if values}


def check_distribution(tree: Tree) -> list[Finding]:
    """Over the whole product; a small tree says nothing about a distribution."""
    every = sorted(length for lengths in _product(tree).values() for length in lengths)
    if len(every) < 100:
        return []
    found = []
    median, most = every[len(every) // 2], every[len(every) * 95 // 100]
    if median >= MEDIAN_LINES:
        found.append(Finding("src", 1, f"the median function has {median} lines; stay under {MEDIAN_LINES}"))
    if most >= MOST_LINES:
        found.append(Finding("src", 1, f"5 of 100 functions have {most} lines or more; stay under {MOST_LINES}"))
    return found


def statistics(tree: Tree) -> str:
    rows = [f"{'room':<12}{'functions':>10}{'median':>8}{'95%':>6}{'longest':>9}"]
    lengths = _product(tree)
    lengths["all"] = sorted(length for values in lengths.values() for length in values)
    for group, values in lengths.items():
        if values:
            rows.append(
                f"{group:<12}{len(values):>10}{values[len(values) // 2]:>8}{values[len(values) * 95 // 100]:>6}{values[-1]:>9}"
            )
    return "\n".join(rows)
