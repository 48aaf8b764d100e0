"""What a capture of an engine's loader says. Plain values; duck-typed objects with the same attributes do as well."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass
class RecordedCopy:
    """One copy into a parameter. Offset and strides are elements of the parameter's storage."""

    src_name: str
    op_chain: tuple[Any, ...]  #: (name, arguments, keyword arguments as sorted pairs) of each call
    param_name: str
    dest_offset: int
    dest_shape: tuple[int, ...]
    dest_stride: tuple[int, ...]
    dest_dtype: Any


@dataclasses.dataclass
class CaptureResult:
    copies: list[RecordedCopy] = dataclasses.field(default_factory=list)
    unsupported: list[str] = dataclasses.field(default_factory=list)
    unattributed: int = 0
    unsupported_reasons: dict[str, str] = dataclasses.field(default_factory=dict)
