"""What is not written here, where, and what is written instead."""

from __future__ import annotations

import dataclasses
import re

from tidy_rules.tree import File, Finding, Tree

_EVERYWHERE = ("",)
_ROOMS = ("src/towline/",)
_EDGES = ("apps/", "src/towline/base/", "python/", "tests/", "benchmarks/", "examples/")


@dataclasses.dataclass(frozen=True)
class Ban:
    """`pattern` in files under `where`, but not under `except_in`."""

    pattern: str
    instead: str
    where: tuple[str, ...] = _EVERYWHERE
    except_in: tuple[str, ...] = ()


BANS = (
    Ban(r"\bstd::j?thread\b(?!::id)|\bpthread_create\b|\bstd::async\b", "Clock::spawn (base/clock.h)", _ROOMS, ("src/towline/base/",)),
    Ban(r"\b(secure_)?getenv\s*\(|\benviron\b", "take it from Options, set at the edge (base/options.h)", except_in=_EDGES),
    Ban(
        r"\b(system_clock|steady_clock|high_resolution_clock)::now\b|\bclock_gettime\b|\bgettimeofday\b|(?<![\w.>:])time\s*\(\s*(NULL|nullptr|0|&)",
        "Clock::now (base/clock.h)",
        except_in=_EDGES,
    ),
    Ban(
        r"(?<![\w.>:])s?rand\s*\(|\bstd::random_device\b|\bstd::mt19937(_64)?\b|\bstd::uniform_(int|real)_distribution\b",
        "towline::Rng with a seed (base/rng.h)",
        except_in=("src/towline/base/",),
    ),
    Ban(
        r"\bthis_thread::sleep_(for|until)\b|(?<![\w.>:])((u|nano)sleep\s*\(|sleep\s*\(\s*\d)",
        "Clock::wait on a Signal, or towline::sleep_until (base/clock.h)",
        except_in=("src/towline/base/clock.cc",),
    ),
    Ban(r"#\s*include\s*<ranges>|\bstd::views::|\bstd::ranges::views::", "a loop or an algorithm: Clang 14 has no views"),
    Ban(r"#\s*include\s*<format>|\bstd::v?format\b", "fmt::format: GCC 12 has no <format>"),
    Ban(r"#\s*include\s*<expected>|\bstd::expected\b", "Result (base/result.h)"),
    # An allocator has no other way to say it.
    Ban(r"\bthrow\b(?!\s+std::bad_alloc)", "return fail(...) (base/error.h)", _ROOMS),
    Ban(r"\bstd::(cout|cerr|clog)\b|(?<!\w)f?printf\s*\(|(?<!\w)puts\s*\(", "Logger (base/log.h)", _ROOMS, ("src/towline/base/",)),
    Ban(r"\bstd::endl\b", "'\\n'"),
    Ban(r"\busing\s+namespace\s+std\b", "std:: in front of the name"),
    Ban(r"(?<!\w)assert\s*\(", "TOWLINE_CHECK or TOWLINE_DCHECK (base/check.h)", _ROOMS + ("apps/", "python/")),
    Ban(r"\bstd::regex\b", "a parser of its own: std::regex recurses without limit"),
    Ban(r"\bdlopen\s*\(", "a *_shim file, or the module loader of the room's builtin.cc", _ROOMS, ()),
)
# Opening a library that may be absent is what these are for.
_DLOPEN_ALLOWED = re.compile(r"_shim\.(cc|h)$|/(builtin|module)\.cc$")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(?!TOWLINE_)(\w+)", re.MULTILINE)


def check(tree: Tree) -> list[Finding]:
    return [found for file in tree.cpp() for found in _banned(file, tree) + _macros(file)]


def _banned(file: File, tree: Tree) -> list[Finding]:
    found = []
    for ban in BANS:
        if not file.path.startswith(ban.where) or (ban.except_in and file.path.startswith(ban.except_in)):
            continue
        if "dlopen" in ban.pattern and _DLOPEN_ALLOWED.search(file.path):
            continue
        for match in re.finditer(ban.pattern, file.code):
            name = re.sub(r"\s*\(.*", "", match.group(0).strip())
            if tree.exceptions.get(("ban", file.path)) == name.split("::")[-1]:
                continue
            line = file.code.count("\n", 0, match.start()) + 1
            found.append(Finding(file.path, line, f"{name} is not used here: {ban.instead}"))
    return found


def _macros(file: File) -> list[Finding]:
    if file.suffix != ".h":
        return []
    return [
        Finding(file.path, file.code.count("\n", 0, match.start()) + 1, f"macro {match.group(1)}: name it TOWLINE_...")
        for match in _MACRO.finditer(file.code)
    ]
