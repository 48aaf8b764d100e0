"""The client's transfer manager over a NIXL agent. It adapts arguments and looks replaceable names up at each call;
matching, registration, order, waits and the counting of receives are the core's (docs/transfer.md)."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from towline import _core, errors
from towline.compat.modelexpress import accelerators, nixl_agent
from towline.compat.modelexpress.types import ManifestMismatchError, TensorDescriptor
from towline.transfer import find_strided, held

logger = logging.getLogger("modelexpress.nixl_transfer")

FETCH_POLL_SECONDS = 0.01


class _Metrics:
    """Where receives and failed waits are counted. Nothing by default; replace the module's ``transfer_metrics``."""

    def record_nixl_receive(self, result: str) -> None:
        pass

    def record_nixl_error(self, kind: str) -> None:
        pass


transfer_metrics: Any = _Metrics()


def _pool_reg_enabled() -> bool:
    return _core.parse_strict_one(os.environ.get("MX_POOL_REG"))


def _arena_single_mr_forced() -> bool:
    return _core.parse_strict_one(os.environ.get("MX_ARENA_SINGLE_MR"))


def _count_receive(result: str) -> None:
    transfer_metrics.record_nixl_receive(result)


def _count_error(kind: str) -> None:
    transfer_metrics.record_nixl_error(kind)


def _log(level: int, message: str) -> None:
    logger.log(level, "%s", message)


def is_nixl_available() -> bool:
    return nixl_agent.find_nixl() is not None


def _described(tensors: Sequence[TensorDescriptor]) -> list[tuple[str, int, int, int, str]]:
    return [(tensor.name, tensor.addr, tensor.size, tensor.device_id, tensor.dtype) for tensor in tensors]


def _weak_call(method: weakref.WeakMethod[Callable[[], None]]) -> Callable[[], None]:
    """The core is held by the manager: it must not hold the manager in turn."""

    def call() -> None:
        bound = method()
        if bound is not None:
            bound()

    return call


@dataclasses.dataclass
class PostedRead:
    """A batch of ranges under way; :meth:`NixlTransferManager.await_read_batches` ends it."""

    handle: Any
    remote_agent_name: str
    total_bytes: int
    num_ranges: int
    posted_at: float = dataclasses.field(default_factory=time.perf_counter)
    local_ranges: Sequence[tuple[int, int]] = ()  # address, bytes


class NixlTransferManager:
    """One worker's tensors on one NIXL agent. Not locked: one call at a time."""

    # Defaults of an object that was made without its constructor.
    _agent: Any = None
    _core_made: Any = None
    _core_agent: Any = None
    _data_plane_error: str | None = None
    _accelerator: accelerators.AcceleratorBackend = accelerators.CudaBackend()
    _backends: Sequence[str] = ("UCX",)
    _device_id = 0

    def __init__(
        self,
        agent_name: str,
        device_id: int,
        listen_port: int | None = None,
        accelerator_backend: accelerators.AcceleratorBackend | None = None,
    ) -> None:
        text = os.environ.get("MX_NIXL_BACKEND")
        backend = _core.parse_nixl_backend(text)
        if backend is None:
            raise ValueError(f"MX_NIXL_BACKEND={text!r} is not supported; it is UCX or LIBFABRIC")
        self._agent_name = agent_name
        self._device_id = device_id
        self._listen_port = listen_port
        self._accelerator = accelerator_backend or accelerators.CudaBackend()
        self._backends = [backend]
        self._metadata: Any = b""
        self._tensor_descriptors: list[TensorDescriptor] = []
        self._tensors: dict[str, Any] = {}
        self._peers: dict[str, tuple[str, int] | None] = {}
        self._has_exit_hook = False

    @property
    def agent_name(self) -> str:
        return self._agent_name

    @property
    def backends(self) -> list[str]:
        return list(self._backends)

    @property
    def nixl_metadata(self) -> Any:
        return self._metadata

    @property
    def listen_port(self) -> int | None:
        return self._listen_port

    @property
    def tensor_descriptors(self) -> list[TensorDescriptor]:
        return self._tensor_descriptors

    @property
    def data_plane_error(self) -> str | None:
        return self._data_plane_error

    # --- life ---

    def initialize(self) -> None:
        """Makes the agent, once."""
        nixl = nixl_agent.find_nixl()
        if nixl is None:
            raise RuntimeError("NIXL is not available")
        if self._agent is not None:
            return
        self._accelerator.set_device(self._device_id)
        self._agent = nixl_agent.create(nixl, self._agent_name, self._backends, self._listen_port, self._device_id)
        if not self._has_exit_hook:
            atexit.register(self.shutdown)
            self._has_exit_hook = True

    def shutdown(self) -> None:
        """Peers, then registrations in reverse order, then the agent. A second call does nothing."""
        if self._core_made is not None:
            self._core_made.check_idle()
        if getattr(self, "_has_exit_hook", False):
            atexit.unregister(self.shutdown)
            self._has_exit_hook = False
        self.disconnect_remote_agents()
        if self._core_made is not None:
            self._core_made.shutdown()
        self._core_made = self._core_agent = self._agent = None
        self._metadata = b""
        self._tensor_descriptors = []
        self._tensors = {}
        self._peers = {}

    def is_healthy(self) -> bool:
        return self._agent is not None and bool(self._metadata) and self._data_plane_error is None

    def _need_agent(self) -> Any:
        if self._agent is None:
            raise RuntimeError("NIXL agent not initialized")
        return self._agent

    def _core(self) -> Any:
        """The native manager over the agent that is set now."""
        agent = self._need_agent()
        if self._core_made is None or self._core_agent is not agent:
            self._core_made = _core.AgentCore(
                agent,
                self._device_id,
                list(self._backends),
                self._accelerator.nixl_mem_type,
                _weak_call(weakref.WeakMethod(self._synchronize)),
                _log,
                _count_receive,
                _count_error,
            )
            self._core_agent = agent
        return self._core_made

    def _synchronize(self) -> None:
        self._accelerator.synchronize(self._device_id)

    # --- registration ---

    @staticmethod
    def _find_cuda_allocations(descriptors: Sequence[TensorDescriptor]) -> list[tuple[int, int]]:
        """(base, size) of the allocations that hold the tensors; one driver query a tensor."""
        with nixl_agent.runtime_errors():
            return _core.find_allocations(_described(descriptors), accelerators.query_address_range)

    @staticmethod
    def _checked(tensors: Mapping[str, Any]) -> list[tuple[str, Any, int, int, str]]:
        strided = find_strided(tensors)
        if strided is not None:
            raise RuntimeError(f"Tensor '{strided}' is not contiguous; register a contiguous one, a copy would be filled instead")
        return held(tensors)

    def _adopt(self, rows: Sequence[tuple[str, Any, int, int, str]], metadata: Any) -> Any:
        """What was registered is the catalogue: the container is ours, the tensors are the caller's."""
        self._tensors = {name: tensor for name, tensor, *_ in rows}
        self._tensor_descriptors = [
            TensorDescriptor(name, address, size, self._device_id, dtype) for name, _, address, size, dtype in rows
        ]
        self._metadata = metadata
        return metadata

    def _wants_pool(self) -> bool:
        if not _pool_reg_enabled():
            return False
        if self._accelerator.supports_pool_reg():
            return True
        logger.warning("MX_POOL_REG=1: %s cannot register by allocation; registering each tensor", self._accelerator.name)
        return False

    def register_tensors(self, tensors: Mapping[str, Any], force_per_tensor: bool = False) -> Any:
        """Makes the tensors reachable, each or by allocation (MX_POOL_REG); the agent's metadata."""
        core = self._core()
        rows = self._checked(tensors)
        pool = not force_per_tensor and self._wants_pool()
        with nixl_agent.runtime_errors():
            return self._adopt(rows, core.register_tensors(rows, pool, accelerators.query_address_range, True))

    def register_arena(self, arena: Any, tensors: Mapping[str, Any]) -> Any:
        """The same for tensors in an arena: one region where that is right, else each tensor."""
        core = self._core()
        rows = self._checked(tensors)
        maps_memory, single_region = self._accelerator.supports_vmm(), _arena_single_mr_forced()
        pool = self._wants_pool()
        with nixl_agent.runtime_errors():
            return self._adopt(rows, core.register_arena(arena, rows, maps_memory, single_region, pool, accelerators.query_address_range))

    def refresh_agent_metadata(self) -> Any:
        self._metadata = self._need_agent().get_agent_metadata()
        return self._metadata

    # --- host buffers ---

    @staticmethod
    def _check_buffer(buffer: Any, what: str) -> None:
        import torch

        if buffer.device.type != "cpu":
            raise RuntimeError(f"NIXL DRAM {what} must be a CPU tensor")
        if buffer.dtype != torch.uint8:
            raise RuntimeError(f"NIXL DRAM {what} must use torch.uint8")
        if not buffer.is_contiguous():
            raise RuntimeError(f"NIXL DRAM {what} must be contiguous")

    def register_dram_buffer(self, buffer: Any) -> Any:
        """The registration's handle, which the caller deregisters."""
        agent = self._need_agent()
        self._check_buffer(buffer, "buffer")
        handle = agent.register_memory([buffer], backends=self.backends)
        self.refresh_agent_metadata()
        return handle

    def deregister_memory(self, handle: Any) -> None:
        agent = self._need_agent()
        if handle is None:
            return
        agent.deregister_memory(handle)
        self.refresh_agent_metadata()

    def receive_dram_into_buffer(
        self,
        remote_agent_name: str,
        remote_addr: int,
        local_buffer: Any,
        size: int,
        remote_device_id: int = 0,
        remote_mem_type: str = "DRAM",
        timeout_seconds: float | None = None,
    ) -> float:
        """Seconds that the read took."""
        self._need_agent()
        if size < 0:
            raise ValueError(f"NIXL DRAM transfer of {size} bytes: a size is not negative")
        self._check_buffer(local_buffer, "destination")
        if size > local_buffer.numel():
            raise ValueError(f"NIXL DRAM transfer of {size} bytes exceeds destination buffer of {local_buffer.numel()}")
        if size == 0:
            return 0.0
        start = time.perf_counter()
        ranges = [(remote_addr, local_buffer.data_ptr(), size, remote_device_id)]
        read = self._post(remote_agent_name, ranges, remote_mem_type, "DRAM", 0)
        with self._ending([read]):
            self._wait_for_xfer(read.handle, timeout_seconds, "NIXL DRAM transfer")
        return time.perf_counter() - start

    # --- receiving ---

    def receive_from_source(
        self,
        source_metadata: Any,
        source_tensors: Sequence[TensorDescriptor],
        timeout_seconds: float | None = None,
        remote_agent_name: str | None = None,
        require_exact_match: bool = False,
        destination_tensors: Mapping[str, Any] | None = None,
        on_transfer_start: Callable[[], object] | None = None,
    ) -> tuple[int, int, float]:
        """(bytes, tensors, seconds) of what both sides have, by name."""
        core = self._core()
        self._accelerator.set_device(self._device_id)
        catalogue = self._tensors if destination_tensors is None else destination_tensors
        peer = self.add_remote_agent(source_metadata) if remote_agent_name is None else remote_agent_name
        outcome = core.receive(
            peer, _described(source_tensors), self._checked(catalogue), timeout_seconds, bool(require_exact_match), on_transfer_start
        )
        if outcome["rejected"]:
            raise ManifestMismatchError(outcome["message"])
        is_late = outcome["code"] == "deadline_exceeded"
        if outcome["posted"] or is_late:
            self._judge("Transfer", outcome["code"], outcome["message"], outcome["failure"], timeout_seconds)
        elif outcome["code"]:  # nothing went onto the wire, so its health is what it was
            raise RuntimeError(f"Transfer failed: {outcome['message']}")
        return outcome["bytes"], outcome["tensors"], outcome["seconds"]

    def _judge(self, label: str, code: str, details: str, failure: str, timeout: float | None) -> None:
        """Raises what a wait came to, and keeps it for health."""
        if not code:
            self._data_plane_error = None
            return
        if code == "deadline_exceeded":
            self._data_plane_error = f"{label} timed out after {timeout or 0.0:.1f}s: {details}"
            raise TimeoutError(f"{label} timed out: {details}")
        self._data_plane_error = f"{label} failed with status {failure}" if failure else f"{label} failed: {details}"
        raise RuntimeError(self._data_plane_error)

    # --- waits ---

    def _wait_for_xfer(self, handle: Any, timeout: float | None, label: str) -> None:
        self._wait([handle], timeout, label, "no completion")

    def _wait_for_xfers(self, handles: Sequence[Any], timeout: float | None, label: str) -> None:
        self._wait(list(handles), timeout, label, None)

    def _wait(self, handles: list[Any], timeout: float | None, label: str, details: str | None) -> None:
        agent = self._need_agent()
        if not handles:
            return
        report = _core.wait_for_transfers(agent, handles, timeout, _log)
        if report["code"]:
            _count_error("timeout" if report["code"] == "deadline_exceeded" else "status_error")
        outstanding = f"{report['outstanding']} transfer(s) outstanding"
        if details is None and report["code"] == "deadline_exceeded":
            self._data_plane_error = f"{label} timed out after {timeout or 0.0:.1f}s with {outstanding}"
            raise TimeoutError(f"{label} timed out with {outstanding}")
        self._judge(label, report["code"], details or outstanding, report["failure"], timeout)

    # --- ranges ---

    def _post(self, peer: str, ranges: Sequence[nixl_agent.Range], mem_type: str, local_mem_type: str, device: int) -> PostedRead:
        agent = self._need_agent()
        local = [(address, size) for _, address, size, _ in ranges]
        if self._core_agent is agent:
            with nixl_agent.runtime_errors():
                self._core_made.check_quiet(local)
        handle = nixl_agent.prepare_read(agent, self.backends, peer, ranges, mem_type, local_mem_type, device)
        try:
            agent.transfer(handle)
        except BaseException:
            self._release(handle)
            raise
        return PostedRead(handle, peer, sum(size for _, size in local), len(local), local_ranges=local)

    def _release(self, handle: Any) -> bool:
        try:
            self._agent.release_xfer_handle(handle)
        except Exception:
            logger.warning("release_xfer_handle failed, handle leaked", exc_info=True)
            return False
        return True

    def _give_up(self, read: PostedRead) -> None:
        """What the agent does not let go of may still be written: nothing is read into it until it has ended."""
        if self._release(read.handle):
            return
        try:
            self._core().hold_back(read.handle, read.remote_agent_name, list(read.local_ranges))
        except errors.Error as error:
            logger.error("reads from '%s' may still land, and are not watched: %s", read.remote_agent_name, error)

    @contextlib.contextmanager
    def _ending(self, batches: Sequence[PostedRead]) -> Iterator[None]:
        """Lets go of all of them, also when one raises what ends programs."""
        ends: Callable[[PostedRead], object] = self._give_up
        with contextlib.ExitStack() as releases:
            for batch in reversed(batches):
                releases.callback(lambda batch=batch: ends(batch))
            yield
            ends = lambda batch: self._release(batch.handle)  # noqa: E731 - all have ended

    def post_read_batch(
        self,
        remote_agent_name: str,
        ranges: Sequence[tuple[int, int, int, int]],
        mem_type: str | None = None,
        local_mem_type: str | None = None,
    ) -> PostedRead | None:
        """Starts reads of (remote address, local address, bytes, remote device); None when no range has bytes."""
        self._need_agent()
        wanted = [entry for entry in ranges if entry[2] > 0]
        if not wanted:
            return None
        kind = mem_type or self._accelerator.nixl_mem_type
        local_kind = local_mem_type or kind
        return self._post(remote_agent_name, wanted, kind, local_kind, 0 if local_kind == "DRAM" else self._device_id)

    def await_read_batches(
        self, posted: Sequence[PostedRead | None], timeout_seconds: float | None = None
    ) -> tuple[int, int, float]:
        """(bytes, reads, seconds since the earliest post). Every handle is released, however it ends."""
        batches = [batch for batch in posted if batch is not None]
        if not batches:
            return 0, 0, 0.0
        with self._ending(batches):
            self._wait_for_xfers([batch.handle for batch in batches], timeout_seconds, "NIXL reshard READ batch")
        self._accelerator.synchronize(self._device_id)
        seconds = time.perf_counter() - min(batch.posted_at for batch in batches)
        return sum(batch.total_bytes for batch in batches), sum(batch.num_ranges for batch in batches), seconds

    def execute_read_batch(
        self,
        remote_agent_name: str,
        ranges: Sequence[tuple[int, int, int, int]],
        mem_type: str | None = None,
        timeout_seconds: float | None = None,
    ) -> tuple[int, int, float]:
        return self.await_read_batches([self.post_read_batch(remote_agent_name, ranges, mem_type)], timeout_seconds)

    # --- peers ---

    def fetch_remote_and_wait(self, name: str, ip: str, port: int, timeout_seconds: float = 120.0) -> None:
        """Loads a peer from its listen thread. It is tracked only when that succeeds."""
        agent = self._need_agent()
        address = nixl_agent.numeric_address(name, ip, port)
        agent.fetch_remote_metadata(name, address, port)
        until = time.monotonic() + timeout_seconds
        while not agent.check_remote_metadata(name):
            if time.monotonic() >= until:
                raise TimeoutError(f"Timed out waiting for remote metadata from {name} at {ip}:{port}")
            time.sleep(FETCH_POLL_SECONDS)
        self._peers[name] = (ip, port)

    def add_remote_agent(self, metadata: Any) -> str:
        name = self._need_agent().add_remote_agent(metadata)
        if isinstance(name, bytes):
            name = name.decode()
        self._peers.setdefault(name, None)
        return name

    def remove_remote_agent(self, name: str) -> bool:
        """Whether it could be closed; never raises."""
        try:
            self._known_peers().pop(name, None)
            if self._agent is None:
                return False
            if self._core_made is not None and self._core_agent is self._agent:
                return self._core_made.remove_peer(name)
            self._agent.remove_remote_agent(name)
        except Exception as error:
            logger.debug("peer '%s' was not removed: %s", name, error)
            return False
        return True

    def disconnect_remote_agents(self) -> int:
        return sum(self.remove_remote_agent(name) for name in list(self._known_peers()))

    def _known_peers(self) -> dict[str, tuple[str, int] | None]:
        return self.__dict__.setdefault("_peers", {})
