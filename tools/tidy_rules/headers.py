"""Each header compiles alone, with the flags of a source of its room."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess

from tidy_rules.tree import File, Finding, Tree


def check(tree: Tree, build: pathlib.Path) -> list[Finding]:
    try:
        commands = json.loads((build / "compile_commands.json").read_text())
    except OSError as error:
        return [Finding(str(build), 1, f"no compile_commands.json ({error.strerror}): configure it first")]
    flags = _flags_by_folder(tree, commands)
    headers = [file for file in tree.cpp() if file.suffix == ".h"]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(_compile, tree, header, _nearest(flags, header)) for header in headers]
        return [found for job in jobs if (found := job.result())]


def _flags_by_folder(tree: Tree, commands: list[dict[str, str]]) -> dict[str, list[str]]:
    flags: dict[str, list[str]] = {}
    for command in commands:
        source = pathlib.Path(command["directory"], command["file"]).resolve()
        if source.is_relative_to(tree.root):
            folder = source.relative_to(tree.root).parent.as_posix()
            flags.setdefault(folder, _without_output(shlex.split(command["command"]), command["directory"]))
    return flags


def _without_output(words: list[str], directory: str) -> list[str]:
    """The compiler and its flags: no launcher, output, input or precompiled header; include paths made absolute."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip or word in ("-c",) or word.endswith((".cc", "ccache")) or "cmake_pch" in word:
            skip = False
            if kept and kept[-1] == "-include":
                kept.pop()
        elif word in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
        elif word.startswith("-I") and not word.startswith("-I/"):
            kept.append("-I" + os.path.join(directory, word[2:]))
        else:
            kept.append(word)
    return kept


def _nearest(flags: dict[str, list[str]], header: File) -> list[str] | None:
    """Of the folder with which the header shares most levels; among equals, the one that sees most."""
    if not flags:
        return None
    levels = header.path.split("/")[:-1]

    def rank(folder: str) -> tuple[int, int, str]:
        shared = [a == b for a, b in zip(levels, folder.split("/"))]
        seen = sum(word.startswith(("-I", "-isystem")) for word in flags[folder])
        return (shared + [False]).index(False), seen, folder

    return flags[max(flags, key=rank)]


def _compile(tree: Tree, header: File, flags: list[str] | None) -> Finding | None:
    if flags is None:
        return Finding(header.path, 1, "no compile command to try it with")
    done = subprocess.run(
        [*flags, "-fsyntax-only", "-x", "c++", "-"],
        input=f'#include "{tree.root / header.path}"\n', cwd=tree.root, capture_output=True, text=True, check=False,
    )
    if done.returncode == 0:
        return None
    errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or ["?"]
    return Finding(header.path, 1, f"does not compile alone: {errors[0]}")
