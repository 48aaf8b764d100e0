"""Refit by resharding reads. Names are looked up when they are first used."""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "CaptureResult": "records",
    "ConvertSource": "transfer_plan",
    "FullPullSource": "transfer_plan",
    "InMemoryReferenceTransport": "transport",
    "IncompleteRefit": "errors",
    "NixlReshardTransport": "nixl_transport",
    "PullSegment": "slice_plan",
    "ReadDescriptor": "transport",
    "RecordedCopy": "records",
    "ReshardReceiver": "receiver",
    "Shard": "slice_plan",
    "SourceInfo": "transfer_plan",
    "TransferPlan": "transfer_plan",
    "UnsupportedReshard": "errors",
    "exact_descriptors": "transfer_plan",
    "execute_transfer": "transfer_plan",
    "handshake_endpoints_for_plan": "handshake",
    "handshake_with_peers": "handshake",
    "merge_shard_tables": "replica_merge",
    "plan_transfer": "transfer_plan",
    "summarize_unsupported": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
