"""The code of a failure picks the exception's class."""

import pickle

import pytest

import towline
from towline import _core

BUILT_IN_OF = {
    "invalid_argument": ValueError,
    "out_of_range": IndexError,
    "not_found": LookupError,
    "deadline_exceeded": TimeoutError,
    "resource_exhausted": MemoryError,
    "unavailable": ConnectionError,
    "permission_denied": PermissionError,
    "unimplemented": NotImplementedError,
    "cancelled": RuntimeError,
    "unknown": RuntimeError,
    "already_exists": RuntimeError,
    "failed_precondition": RuntimeError,
    "aborted": RuntimeError,
    "internal": RuntimeError,
    "data_loss": RuntimeError,
    "unauthenticated": RuntimeError,
}


@pytest.mark.parametrize("code", sorted(BUILT_IN_OF))
def test_a_code_raises_its_built_in_that_is_also_a_towline_error(code: str) -> None:
    with pytest.raises(BUILT_IN_OF[code]) as caught:
        _core.raise_error(code, "file 'ü': is gone; try again")
    assert isinstance(caught.value, towline.Error)
    assert (caught.value.code, caught.value.scope) == (code, "operation")
    assert str(caught.value) == caught.value.message == "file 'ü': is gone; try again"


def test_an_error_survives_the_way_to_another_process() -> None:
    with pytest.raises(towline.Error) as caught:
        _core.raise_error("not_found", "model 'm': no source")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is type(caught.value)
    assert (copy.code, copy.scope, copy.message) == ("not_found", "operation", "model 'm': no source")


def test_the_version_is_the_projects() -> None:
    assert towline.__version__.split(".")[0].isdigit()
