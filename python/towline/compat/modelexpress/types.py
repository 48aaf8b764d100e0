"""What the client's modules pass to each other."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class TensorDescriptor:
    """One tensor: where it lies and what it is."""

    name: str
    addr: int  #: absolute device address, bytes
    size: int  #: bytes
    device_id: int  #: the owner's ordinal
    dtype: str  #: ``str(torch.dtype)``


@dataclasses.dataclass
class WorkerMetadata:
    """One worker of a source."""

    worker_rank: int
    tensors: list[TensorDescriptor]
    nixl_metadata: bytes = b""
    transfer_engine_session_id: str = ""
    metadata_endpoint: str = ""
    agent_name: str = ""
    worker_grpc_endpoint: str = ""
    accelerator: str = ""


@dataclasses.dataclass
class GetMetadataResponse:
    found: bool
    workers: list[WorkerMetadata] = dataclasses.field(default_factory=list)


class ManifestMismatchError(Exception):
    """The two catalogues are incompatible. Try the next candidate, and do not demote the source: a rolling update may
    be why."""
