"""What scripts/setup installs is explained, and nothing is installed twice."""

import pathlib
import re


def packages(root: pathlib.Path) -> list[str]:
    lines = (root / "scripts/packages.txt").read_text().splitlines()
    rows = [line for line in lines if line and line[0] not in "#["]
    assert all(re.fullmatch(r"[a-z0-9+.-]+ +# \S.*", row) for row in rows), "a package and, behind '#', what it is for"
    return [row.split()[0] for row in rows]


def requirements(root: pathlib.Path) -> list[str]:
    rows = [line for line in (root / "scripts/requirements.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+ +# \S.*", row) for row in rows), "a pinned package and what it is for"
    return [row.split("==")[0] for row in rows]


def test_every_dependency_has_its_line_in_the_docs(root: pathlib.Path) -> None:
    page = set(re.findall(r"`([a-z0-9+.-]+)`", (root / "docs/dependencies.md").read_text()))
    assert [name for name in packages(root) + requirements(root) if name not in page] == []


def test_no_package_is_listed_twice(root: pathlib.Path) -> None:
    names = packages(root) + requirements(root)
    assert len(names) == len(set(names))
