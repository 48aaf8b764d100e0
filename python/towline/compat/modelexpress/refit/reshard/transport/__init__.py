"""Transports of a receiver: any object with ``read(descriptors)``, which returns when every byte has arrived."""

from towline.compat.modelexpress.refit.reshard.transport.base import (
    InMemoryReferenceTransport,
    ReadDescriptor,
    Transport,
)
from towline.compat.modelexpress.refit.reshard.transport.nixl import NixlReshardTransport

__all__ = ["InMemoryReferenceTransport", "NixlReshardTransport", "ReadDescriptor", "Transport"]
