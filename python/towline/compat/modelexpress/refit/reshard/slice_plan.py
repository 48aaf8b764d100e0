"""Shards and the reads that are planned of them."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Shard:
    """A box of a source tensor at one rank; its bytes are row-major in the extent."""

    shard_offset: tuple[int, ...]
    shape: tuple[int, ...]
    session: str
    addr: int
    elsize: int
    digest: str | None = None

    def __post_init__(self) -> None:
        if len(self.shard_offset) != len(self.shape):
            raise ValueError(f"rank mismatch: offset {tuple(self.shard_offset)}, extent {tuple(self.shape)}")


@dataclasses.dataclass
class PullSegment:
    """One planned read: no destination address, which is found by the name when it is carried out."""

    session: str
    src_addr: int
    param_name: str
    dst_byte: int
    nbytes: int
