"""Tables of several ranks as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from towline.compat.modelexpress.refit.reshard.transfer_plan import SourceInfo


def merge_shard_tables(tables: Iterable[Mapping[str, SourceInfo]]) -> dict[str, SourceInfo]:
    """By name. Of shards of one box the first that was published stays; distinct boxes all do."""
    merged: dict[str, SourceInfo] = {}
    boxes: dict[str, set[Any]] = {}
    for table in tables:
        for name, info in table.items():
            if name not in merged:
                merged[name] = dataclasses.replace(info, shards=[])
                boxes[name] = set()
            there = merged[name]
            if tuple(there.global_shape) != tuple(info.global_shape) or there.dtype != info.dtype:
                raise ValueError(
                    f"source '{name}': inconsistent shape/dtype: {tuple(there.global_shape)} of {there.dtype} and "
                    f"{tuple(info.global_shape)} of {info.dtype}"
                )
            for shard in info.shards:
                box = (tuple(shard.shard_offset), tuple(shard.shape))
                if box not in boxes[name]:
                    boxes[name].add(box)
                    there.shards.append(shard)
    return merged
