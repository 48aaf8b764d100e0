"""Refit by resharding reads. Names are looked up when they are first used."""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "geometry": ("LazyWeight", "capture_geometry"),
    "receiver": ("ReshardReceiver", "handshake_endpoints_for_plan", "handshake_with_peers"),
    "slice_plan": ("PullSegment", "Shard", "intersect", "op_chain_to_box", "paired_runs", "plan_pull"),
    "transfer_plan": (
        "ConvertSource",
        "FullPullSource",
        "SourceInfo",
        "TransferPlan",
        "exact_descriptors",
        "execute_transfer",
        "plan_transfer",
    ),
    "transport": ("InMemoryReferenceTransport", "NixlReshardTransport", "ReadDescriptor", "Transport"),
    "types": (
        "CaptureResult",
        "IncompleteRefit",
        "OpChain",
        "RecordedCopy",
        "UnsupportedReshard",
        "summarize_unsupported",
    ),
    "verify": ("shard_region", "tensor_digest"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
