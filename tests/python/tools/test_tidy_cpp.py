"""Functions are found by their braces, whatever stands around them."""

import pytest
from tidy_rules.cpp import functions, includes, strip


def found(code: str) -> list[tuple[str, int, int]]:
    return [(function.name, function.line, function.lines) for function in functions(strip(code))]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("int f() { return 1; }\n", [("f", 1, 1)]),
        ("int f(int a,\n      int b) {\n  return a;\n}\n", [("f", 2, 3)]),
        ("namespace a {\nint f() {\n}\n}\n", [("f", 2, 2)]),
        ("struct S final : Base {\n  int f() const noexcept override {\n    return 1;\n  }\n};\n", [("f", 2, 3)]),
        ("template <typename T, typename U = std::map<int, T>>\nT f(T t) {\n  return t;\n}\n", [("f", 2, 3)]),
        ("template <typename T>\nclass C {\n  T f() { return {}; }\n  T t = {};\n};\n", [("f", 3, 1)]),
        ("C::C(int a) : a_{a}, b_(a) {\n  use();\n}\n", [("C::C", 1, 3)]),
        ("C::C(int a) : b_(a), a_{a} {\n}\n", [("C::C", 1, 2)]),
        ("C::~C() {\n}\n", [("C::~C", 1, 2)]),
        ("auto f() -> Result<int> {\n}\n", [("f", 1, 2)]),
        ("C& C::operator=(C&& other) noexcept {\n}\n", [("C::operator=", 1, 2)]),
        ("bool operator==(const A& a, const A& b) {\n}\n", [("operator==", 1, 2)]),
        ("int operator()(int a) const {\n}\n", [("operator()", 1, 2)]),
        ("TEST(Suite, SaysWhatHolds) {\n  EXPECT_EQ(1, 1);\n}\n", [("TEST", 1, 3)]),
        ("void f(int a = 1, S s = {}) {\n  auto g = [&](int b) {\n    return b;\n  };\n}\n", [("f", 1, 5)]),
        ("const std::map<int, int> kMap = {\n  {1, 2},\n};\nint f() {\n}\n", [("f", 4, 2)]),
        ("constexpr Row kRows[] = {\n  {1, &f},\n};\n", []),
        ("std::atomic<int> count{0};\nint f() { return 0; }\n", [("f", 2, 1)]),
        ("enum class E : uint8_t { kA, kB };\nint f();\n", []),
        ("#define M(x) \\\n  do {    \\\n  } while (0)\nint f() {\n}\n", [("f", 4, 2)]),
        ("auto kLambda = [](int a) {\n  return a;\n};\n", []),
        ("[[nodiscard]] int f() {\n}\n", [("f", 1, 2)]),
        ("template <typename U>\nrequires(std::is_same_v<U, int>)\nS(U&& u) : u_(std::move(u)) {\n}\n", None),
        ('extern "C" {\nint f() {\n}\n}\n', [("f", 2, 2)]),
    ],
)
def test_functions_have_the_lines_of_their_braces(code: str, expected: list[tuple[str, int, int]] | None) -> None:
    if expected is None:  # only the number matters: its name has no agreed form
        assert len(found(code)) == 1
    else:
        assert found(code) == expected


def test_braces_in_comments_and_literals_do_not_count() -> None:
    code = 'int f() {\n  // }\n  /* } */\n  g("}", \'}\', R"x(}")x");\n  int million = 1\'000\'000;\n}\nint h() {\n}\n'
    assert found(code) == [("f", 1, 6), ("h", 7, 2)]


def test_stripping_keeps_every_position() -> None:
    code = 'a("x // y"); // "z"\n/* b\n c */ d();\n'
    assert [len(line) for line in strip(code).split("\n")] == [len(line) for line in code.split("\n")]
    assert "y" not in strip(code) and "z" not in strip(code) and "d();" in strip(code)


def test_includes_in_comments_are_none() -> None:
    code = '#include "a/b.h"\n// #include "c.h"\n/*\n#include <d>\n*/\n  #  include <e>\n'
    assert includes(code) == [(1, False, "a/b.h"), (6, True, "e")]
