"""What a capture of an engine's loader says, and what a refit is refused with. Plain values; duck-typed objects with the
same attributes do as well."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

OpSpec = tuple  #: (name, arguments, keyword arguments as sorted pairs) of one call
OpChain = tuple  #: of OpSpec, in the order of the calls


class UnsupportedReshard(NotImplementedError):
    """A geometry or dtype that cannot be expressed as reads."""


class IncompleteRefit(RuntimeError):
    """Planned without fault, and not all of the model."""


@dataclasses.dataclass
class RecordedCopy:
    """One copy into a parameter. Offset and strides are elements of the parameter's storage."""

    src_name: str
    op_chain: OpChain
    param_name: str
    dest_offset: int
    dest_shape: tuple[int, ...]
    dest_stride: tuple[int, ...]
    dest_dtype: Any


@dataclasses.dataclass
class CaptureResult:
    copies: list[RecordedCopy] = dataclasses.field(default_factory=list)
    unsupported: list[str] = dataclasses.field(default_factory=list)
    unattributed: int = 0  #: copies into no known parameter: lost
    unsupported_reasons: dict[str, str] = dataclasses.field(default_factory=dict)


def summarize_unsupported(reasons: Mapping[str, str], limit: int | None = 3) -> list[tuple[str, int]]:
    """Equal causes and how often each, the most frequent first. What stands before " on lazy " is the cause."""
    counts = collections.Counter(reason.split(" on lazy ")[0] for reason in reasons.values())
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ordered if limit is None else ordered[:limit]
