"""Finding NIXL, making an agent of it (the part that edits the process's environment, as UCX wants it), and the
addresses and ranges that an agent takes."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from towline import _core, errors
from towline.compat.modelexpress import envs

logger = logging.getLogger("modelexpress.nixl_transfer")

Range = tuple[int, int, int, int]  # remote address, local address, bytes, remote device

NIXL_MODULES = ("nixl_cu13", "nixl_cu12", "nixl")


def find_nixl() -> Any:
    """The installed NIXL's API module, or None."""
    for name in NIXL_MODULES:
        try:
            return importlib.import_module(f"{name}._api")
        except ModuleNotFoundError as error:
            if error.name not in (name, f"{name}._api"):
                raise
    return None


@contextlib.contextmanager
def _ucx_tls() -> Iterator[None]:
    """For the agent's creation alone: NIXL_UCX_TLS, or no UCX_TLS where it says TCP only."""
    before = os.environ.get("UCX_TLS")
    wanted = envs.get("NIXL_UCX_TLS")
    if wanted:
        os.environ["UCX_TLS"] = wanted
    elif before == "tcp":
        del os.environ["UCX_TLS"]
    try:
        yield
    finally:
        if before is not None:
            os.environ["UCX_TLS"] = before
        else:
            os.environ.pop("UCX_TLS", None)


def _pin_nic(device_id: int) -> None:
    probes, card = _core.parse_nic_pin(os.environ.get("MX_RDMA_NIC_PIN"), device_id)
    if probes:
        logger.warning("MX_RDMA_NIC_PIN: probing cards is not supported; name them in a list, one a device")
    elif card:
        os.environ["UCX_NET_DEVICES"] = card


def create(nixl: Any, name: str, backends: Sequence[str], listen_port: int | None, device_id: int) -> Any:
    """An agent, with a listen thread on the port when one is given. The card and UCX_MEM_EVENTS stay set."""
    _pin_nic(device_id)
    if list(backends) == ["UCX"] and envs.get("MX_UCX_DISABLE_MEM_EVENTS"):
        os.environ.setdefault("UCX_MEM_EVENTS", "n")
    with _ucx_tls():
        port = {} if listen_port is None else {"listen_port": listen_port}
        config = nixl.nixl_agent_config(backends=list(backends), enable_listen_thread=listen_port is not None, **port)
        return nixl.nixl_agent(name, config)


def prepare_read(
    agent: Any, backends: Sequence[str], peer: str, ranges: Sequence[Range], mem_type: str, local_mem_type: str, device: int
) -> Any:
    """The handle of one read of all ranges; `device` is ours."""
    sides = (
        (peer, [(remote, size, remote_device) for remote, _, size, remote_device in ranges], mem_type),
        ("", [(local, size, device) for _, local, size, _ in ranges], local_mem_type),
    )
    remote_side, local_side = (
        agent.prep_xfer_dlist(agent_name=name, xfer_list=list_, mem_type=kind, backends=list(backends)) for name, list_, kind in sides
    )
    indices = list(range(len(ranges)))
    return agent.make_prepped_xfer(
        operation="READ",
        local_xfer_side=local_side,
        local_indices=indices,
        remote_xfer_side=remote_side,
        remote_indices=list(indices),
        backends=list(backends),
    )


@contextlib.contextmanager
def runtime_errors() -> Iterator[None]:
    """The client's callers expect RuntimeError of whatever the core refuses."""
    try:
        yield
    except errors.Error as error:
        raise RuntimeError(str(error)) from error


def numeric_address(peer: str, host: str, port: int) -> str:
    """The host's address as an agent's listen thread wants it: numeric, IPv6 without brackets and with its scope."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not isinstance(port, int) or not 0 < port < 65536:
        raise RuntimeError(f"peer '{peer}': {port!r} is no port")
    try:
        resolved = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM)[0][4]
        return socket.getnameinfo(resolved, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]
    except (OSError, UnicodeError) as error:
        raise RuntimeError(f"peer '{peer}': host '{host}' cannot be resolved: {error}") from error
