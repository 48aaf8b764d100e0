"""One read, and the transport within a process."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Protocol, runtime_checkable

from towline import _core


@dataclasses.dataclass
class ReadDescriptor:
    """One read, all absolute."""

    session: str
    src_addr: int
    dst_addr: int
    nbytes: int


@runtime_checkable
class Transport(Protocol):
    def read(self, descriptors: Collection[ReadDescriptor]) -> None:
        """Returns when every byte has arrived; raises where one has not."""


class InMemoryReferenceTransport:
    """Moves bytes between addresses of this process, whatever the session. It knows no bounds: who calls it keeps both
    sides alive."""

    def __init__(self) -> None:
        self.bytes_moved = 0
        self.reads_issued = 0

    def read(self, descriptors: Collection[ReadDescriptor]) -> None:
        wanted = [(one.src_addr, one.dst_addr, one.nbytes) for one in descriptors if one.nbytes > 0]
        _core.move_bytes(wanted)
        self.bytes_moved += sum(nbytes for _, _, nbytes in wanted)
        self.reads_issued += len(wanted)
