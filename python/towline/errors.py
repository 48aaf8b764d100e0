"""The exceptions of the core: what it failed of picks the class.

Each is a :class:`towline.Error` with ``code`` (gRPC's canonical name, ``not_found``), ``scope`` (what is broken:
``operation``, ``endpoint``, ``device``, ``process``) and ``message``; and a built-in, so that
``except TimeoutError`` works.
"""

from __future__ import annotations


class Error(Exception):
    """A failure of the core."""

    code: str
    scope: str
    message: str

    def __init__(self, code: str, scope: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.scope = scope
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type[Error], tuple[str, str, str]]:
        # So that it crosses to another process: Exception's own would pass the message alone.
        return type(self), (self.code, self.scope, self.message)


class InvalidArgumentError(Error, ValueError):
    """invalid_argument: the call was wrong."""


class OutOfRangeError(Error, IndexError):
    """out_of_range: past an end."""


class NotFoundError(Error, LookupError):
    """not_found: no such name."""


class DeadlineExceededError(Error, TimeoutError):
    """deadline_exceeded: not in time."""


class ResourceExhaustedError(Error, MemoryError):
    """resource_exhausted: memory, space, queue or limit used up."""


class UnavailableError(Error, ConnectionError):
    """unavailable: the peer, server or library is not there."""


class PermissionDeniedError(Error, PermissionError):
    """permission_denied."""


class UnimplementedError(Error, NotImplementedError):
    """unimplemented: not in this back end or version."""


class InternalError(Error, RuntimeError):
    """Every other code; ``code`` says which."""


_CLASSES: dict[str, type[Error]] = {
    "invalid_argument": InvalidArgumentError,
    "out_of_range": OutOfRangeError,
    "not_found": NotFoundError,
    "deadline_exceeded": DeadlineExceededError,
    "resource_exhausted": ResourceExhaustedError,
    "unavailable": UnavailableError,
    "permission_denied": PermissionDeniedError,
    "unimplemented": UnimplementedError,
}


def make(code: str, scope: str, message: str) -> Error:
    """The exception for a failure of the core."""
    return _CLASSES.get(code, InternalError)(code, scope, message)
