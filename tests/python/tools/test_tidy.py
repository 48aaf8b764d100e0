"""Each check of tools/tidy finds what it is for, and lets pass what is right."""

import pathlib
import subprocess
import sys

import pytest
from tidy_rules import bans, dead, headers, layers, layout, sizes, text
from tidy_rules.tree import EXCEPTIONS

from .conftest import Plant


def messages(findings: list) -> list[str]:
    return [f"{found.path}:{found.line}: {found.message}" for found in findings]


def test_this_tree_is_tidy(root: pathlib.Path) -> None:
    done = subprocess.run([root / "tools/tidy"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_an_unknown_check_is_misuse(root: pathlib.Path) -> None:
    done = subprocess.run([root / "tools/tidy", "--only", "nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 2


def test_findings_are_exit_1_one_a_line(root: pathlib.Path, plant: Plant) -> None:
    tree = plant({"a.py": "x = 1 \n"})
    done = subprocess.run(
        [sys.executable, root / "tools/tidy", "--root", tree.root, "--only", "text"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "a.py:1: trailing white space: remove it\n")
    assert "1 finding in 1 files" in done.stderr


# Characters and names.


def test_tabs_spaces_at_the_end_and_missing_newlines_are_found(plant: Plant) -> None:
    assert messages(text.check(plant({"a.md": "a\tb\nc \nd"}))) == [
        "a.md:1: tab: use spaces",
        "a.md:2: trailing white space: remove it",
        "a.md:3: no newline at the end: add one",
    ]


def test_seeds_recorded_output_and_the_licence_are_exact(plant: Plant) -> None:
    paths = ["LICENSE", "tests/golden/apps/help.txt", "tests/fuzz/manifest/seed"]
    assert text.check(plant({path: "a \t" for path in paths})) == []


def test_a_todo_needs_an_issue(plant: Plant) -> None:
    tree = plant({"a.h": "// TODO: later\n// TODO(issue-12): later\n// FIXME\n"})
    assert [found.line for found in text.check(tree)] == [1, 3]


@pytest.mark.parametrize("path", ["src/towline/base/util.h", "src/common/a.h", "a/string_helpers.cc", "tools/misc.py"])
def test_a_name_without_meaning_is_found(plant: Plant, path: str) -> None:
    assert any("in a name" in found.message for found in text.check_names(plant({path: "#pragma once\n"})))


def test_a_name_that_only_contains_the_letters_is_fine(plant: Plant) -> None:
    assert text.check_names(plant({"src/towline/base/commonest.h": "#pragma once\n", "utilisation.md": ""})) == []


def test_a_header_needs_its_guard_and_snake_case(plant: Plant) -> None:
    assert len(text.check_names(plant({"src/BadName.h": "int a;\n"}))) == 2


# Banned names.


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("src/towline/transfer/a.cc", "std::thread t(f);"),
        ("src/towline/transfer/a.cc", "std::jthread t(f);"),
        ("src/towline/transfer/a.cc", 'auto* home = getenv("HOME");'),
        ("src/towline/transfer/a.cc", "auto t = std::chrono::steady_clock::now();"),
        ("src/towline/transfer/a.cc", "int x = rand();"),
        ("tests/unit/base/a_test.cc", "std::this_thread::sleep_for(ms);"),
        ("tests/unit/base/a_test.cc", "usleep(5);"),
        ("tests/unit/base/a_test.cc", "sleep(5);"),
        ("tests/unit/base/a_test.cc", "std::random_device device;"),
        ("apps/towline/a.cc", "for (int i : v | std::views::reverse) {}"),
        ("apps/towline/a.cc", "#include <format>"),
        ("apps/towline/a.cc", "auto s = std::format(x);"),
        ("src/towline/base/a.cc", "throw 1;"),
        ("src/towline/control/a.cc", "std::cerr << x;"),
        ("src/towline/control/a.cc", 'printf("x");'),
        ("src/towline/control/a.cc", "assert(x);"),
        ("src/towline/device/a.h", "#define HELLO 1"),
        ("src/towline/device/cuda.cc", "dlopen(name, 0);"),
    ],
)
def test_a_banned_name_is_found_with_its_replacement(plant: Plant, path: str, code: str) -> None:
    (found,) = bans.check(plant({path: code + "\n"}))
    assert found.line == 1 and ":" in found.message


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("src/towline/base/clock.cc", "std::thread t(f); auto t = std::chrono::steady_clock::now();"),
        ("apps/towline/main.cc", 'auto* home = getenv("HOME");'),
        ("tests/unit/base/a_test.cc", 'std::thread t(f); auto* seed = std::getenv("TOWLINE_SEED");'),
        ("src/towline/transfer/a.cc", "auto t = clock.now(); rng.rand_like(); // std::thread"),
        ("src/towline/transfer/a.cc", 'log.info("call getenv() and sleep_for");'),
        ("src/towline/transfer/a.cc", "throw std::bad_alloc(); const std::thread::id id; sleep_for(clock, span);"),
        ("src/towline/transfer/a.cc", "fmt::format_to(out, x); snprintf(buffer, 4, x); static_assert(true);"),
        ("src/towline/transfer/a.cc", "uptime(0); x.time(0); void sleep(TimePoint until);"),
        ("src/towline/device/internal/cuda_shim.cc", "dlopen(name, 0);"),
        ("src/towline/device/a.h", "#define TOWLINE_HELLO 1"),
    ],
)
def test_what_is_allowed_passes(plant: Plant, path: str, code: str) -> None:
    assert bans.check(plant({path: code + "\n"})) == []


def test_an_exception_frees_one_name_in_one_file(plant: Plant) -> None:
    granted = {EXCEPTIONS: "ban src/towline/sim/a.cc thread  # the one fiber test\n"}
    code = "std::thread t; int x = rand();\n"
    tree = plant({**granted, "src/towline/sim/a.cc": code, "src/towline/sim/b.cc": code})
    assert [(found.path[-4:], found.message.split()[0]) for found in sorted(bans.check(tree))] == [
        ("a.cc", "rand"),
        ("b.cc", "rand"),
        ("b.cc", "std::thread"),
    ]


def test_an_exception_says_why(plant: Plant) -> None:
    with pytest.raises(ValueError, match="says why"):
        plant({EXCEPTIONS: "ban a.cc thread\n"}).exceptions  # noqa: B018


# Layers.


@pytest.mark.parametrize(
    ("path", "include", "allowed"),
    [
        ("src/towline/transport/a.cc", "towline/device/device.h", True),
        ("src/towline/transport/a.cc", "towline/control/store.h", False),
        ("src/towline/transport/a.cc", "towline/storage/file.h", False),
        ("src/towline/tensor/a.h", "towline/device/device.h", False),
        ("src/towline/base/a.h", "towline/tensor/dtype.h", False),
        ("src/towline/control/a.h", "towline/device/device.h", False),
        ("src/towline/loader/a.h", "towline/transfer/manager.h", True),
        ("src/towline/loader/safetensors_header.h", "towline/transfer/manager.h", False),
        ("src/towline/loader/safetensors_header.cc", "towline/tensor/dtype.h", True),
        ("src/towline/transfer/a.h", "towline/loader/a.h", False),
        ("src/towline/transfer/a.h", "towline/sim/engine.h", False),
        ("src/towline/transfer/a.h", "towline/nowhere/a.h", False),
        ("src/towline/transfer/a.cc", "towline/transport/internal/ucx.h", False),
        ("src/towline/transport/a.cc", "towline/transport/internal/ucx.h", True),
        ("tests/unit/transport/a_test.cc", "towline/transport/internal/ucx.h", True),
        ("apps/towline/a.cc", "towline/transport/internal/ucx.h", False),
        ("apps/towline/a.cc", "towline/transport/ucx/engine.h", False),
        ("apps/towline/a.cc", "towline/sim/engine.h", True),
    ],
)
def test_the_layer_table_decides_each_include(plant: Plant, path: str, include: str, allowed: bool) -> None:
    assert (layers.check(plant({path: f'#include "{include}"\n'})) == []) == allowed


def test_the_layer_table_has_no_cycle() -> None:
    done: set[str] = set()
    while ready := {room for room in layers.MAY_USE if room not in done and layers.MAY_USE[room] <= done}:
        done |= ready
    assert done == set(layers.MAY_USE)


def test_a_source_includes_its_own_header_first(plant: Plant) -> None:
    tree = plant(
        {
            "src/towline/base/a.h": "",
            "src/towline/base/a.cc": '#include <string>\n#include "towline/base/a.h"\n',
            "src/towline/base/b.h": "",
            "src/towline/base/b.cc": '#include "towline/base/b.h"\n#include <string>\n',
        }
    )
    assert messages(layers.check(tree)) == ['src/towline/base/a.cc:1: include "towline/base/a.h" first']


def test_foreign_headers_stay_in_sources_and_shims(plant: Plant) -> None:
    foreign = "#include <ucp/api/ucp.h>\n"
    tree = plant(
        {
            "src/towline/transport/a.h": foreign + "#include <vector>\n#include <fmt/core.h>\n#include <sys/mman.h>\n",
            "src/towline/transport/a.cc": foreign,
            "src/towline/transport/internal/ucx.h": foreign,
            "src/towline/transport/ucx/engine.h": foreign,
            "src/towline/device/internal/cuda_shim.h": foreign,
        }
    )
    assert [found.path for found in layers.check_third_party(tree)] == ["src/towline/transport/a.h"]


def test_a_rooms_target_uses_what_its_row_allows(plant: Plant) -> None:
    tree = plant(
        {
            "src/towline/control/a.h": "",
            "src/towline/control/CMakeLists.txt": "towline_room(control USES base tensor device SOURCES a.cc)\n",
            "src/towline/base/a.h": "",
            "src/towline/base/CMakeLists.txt": "towline_room(base\n  SOURCES a.cc)\n",
            "src/towline/tensor/a.h": "",
        }
    )
    assert messages(layers.check_uses(tree)) == [
        "src/towline/control/CMakeLists.txt:1: control may not use device",
        "src/towline/tensor:1: a room without CMakeLists.txt: add towline_room()",
    ]


# Sizes.


def test_a_file_has_at_most_500_lines_and_a_test_1000(plant: Plant) -> None:
    tree = plant(
        {
            "src/towline/base/fits.cc": "\n" * 500,
            "src/towline/base/long.cc": "\n" * 501,
            "tests/unit/base/fits_test.cc": "\n" * 1000,
            "tests/unit/base/long_test.cc": "\n" * 1001,
        }
    )
    assert [found.path for found in sizes.check_files(tree)] == ["src/towline/base/long.cc", "tests/unit/base/long_test.cc"]


@pytest.mark.parametrize(("lines", "message"), [(600, None), (601, "may not grow"), (801, "no file"), (400, "remove its line")])
def test_a_granted_file_may_only_shrink(plant: Plant, lines: int, message: str | None) -> None:
    path = "src/towline/base/table.cc"
    findings = sizes.check_files(plant({EXCEPTIONS: f"size {path} 600  # one table\n", path: "\n" * lines}))
    assert (findings == []) if message is None else (message in findings[0].message)


def test_an_exception_for_a_file_that_is_gone_is_found(plant: Plant) -> None:
    assert "is gone" in sizes.check_files(plant({EXCEPTIONS: "size a.cc 600  # one table\n"}))[0].message


@pytest.mark.parametrize(("lines", "count"), [(70, 0), (71, 1)])
def test_a_function_has_at_most_70_lines(plant: Plant, lines: int, count: int) -> None:
    body = "  a();\n" * (lines - 2)
    python = "def f():\n" + "    a()\n" * (lines - 1)
    tree = plant({"apps/a.cc": f"void f() {{\n{body}}}\n", "a.py": python})
    assert len(sizes.check_functions(tree)) == 2 * count


def test_the_distribution_counts_once_there_are_enough_functions(plant: Plant) -> None:
    long = "void f() {\n" + "  a();\n" * 8 + "}\n"
    assert sizes.check_distribution(plant({"src/towline/base/a.cc": long * 99})) == []
    (found,) = sizes.check_distribution(plant({"src/towline/base/a.cc": long * 100}))
    assert "median function has 10 lines" in found.message


# Dead files.


def test_a_source_that_no_cmake_file_names_is_dead(plant: Plant) -> None:
    tree = plant(
        {
            "src/towline/base/CMakeLists.txt": "towline_room(base SOURCES a.cc internal/b.cc # dead.cc\n)\n",
            "src/towline/base/a.cc": "",
            "src/towline/base/internal/b.cc": "",
            "src/towline/base/dead.cc": "",
            "tests/fuzz/CMakeLists.txt": "add_executable(fuzz_${name} fuzz_${name}.cc)\n",
            "tests/fuzz/fuzz_manifest.cc": "",
            "tests/fuzz/manifest.cc": "",
            "cmake/towline.cmake": "file(GLOB s ${PROJECT_SOURCE_DIR}/tests/${kind}/${room}/*_test.cc)\n",
            "tests/unit/base/a_test.cc": "",
        }
    )
    assert [found.path for found in dead.check(tree)] == ["src/towline/base/dead.cc", "tests/fuzz/manifest.cc"]


def test_a_header_that_nobody_includes_is_dead(plant: Plant) -> None:
    tree = plant(
        {
            "src/towline/base/used.h": "",
            "src/towline/base/dead.h": '// #include "towline/base/dead.h"\n',
            "tests/contract/store/store_contract.h": "",
            "tests/contract/CMakeLists.txt": "add_executable(x a.cc)\n",
            "tests/contract/a.cc": '#include "towline/base/used.h"\n#include "contract/store/store_contract.h"\n',
        }
    )
    assert [found.path for found in dead.check(tree)] == ["src/towline/base/dead.h"]


def test_a_test_folder_without_a_row_is_dead(plant: Plant) -> None:
    tree = plant(
        {
            "tests/CMakeLists.txt": "foreach(kind unit fault)\n  towline_tests(${kind} base LINKS x)\nendforeach()\n",
            "cmake/towline.cmake": "file(GLOB s ${PROJECT_SOURCE_DIR}/tests/${kind}/${room}/*_test.cc)\n",
            "tests/unit/base/a_test.cc": "",
            "tests/unit/cellar/a_test.cc": "",
            "tests/odd/base/a_test.cc": "",
        }
    )
    assert sorted(messages(dead.check(tree))) == [
        "tests/odd/base/a_test.cc:1: 'odd' is no kind of test in tests/CMakeLists.txt",
        "tests/unit/cellar/a_test.cc:1: 'cellar' has no row in tests/CMakeLists.txt",
    ]


# Layout and headers, by the real tools.


def test_layout_is_clang_formats(plant: Plant) -> None:
    tree = plant({".clang-format": "BasedOnStyle: Google\n", "a.cc": "int  f( );\n", "b.cc": "int f();\n"})
    assert messages(layout.check(tree)) == ["a.cc:1: layout: run clang-format -i a.cc"]


def test_a_header_that_needs_another_before_it_is_found(plant: Plant, tmp_path: pathlib.Path) -> None:
    command = '[{"directory": "%s", "file": "src/a.cc", "command": "ccache c++ -std=c++20 -Isrc -c src/a.cc -o a.o"}]'
    tree = plant(
        {
            "src/a.cc": "",
            "src/good.h": "#pragma once\n#include <string>\nstd::string f();\n",
            "src/bad.h": "#pragma once\nstd::string f();\n",
            "build/compile_commands.json": command % tmp_path,
        }
    )
    (found,) = headers.check(tree, tmp_path / "build")
    assert found.path == "src/bad.h" and "does not compile alone" in found.message


def test_headers_need_a_build_folder(plant: Plant, tmp_path: pathlib.Path) -> None:
    assert "configure it first" in headers.check(plant({"a.h": ""}), tmp_path / "none")[0].message
