"""What every Python test may use: the root of the checkout."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))


@pytest.fixture(scope="session")
def root() -> pathlib.Path:
    return ROOT
