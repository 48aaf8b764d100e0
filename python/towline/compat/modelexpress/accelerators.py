"""What a manager asks of an accelerator. torch is looked up at each call, so that a test may replace its functions."""

from __future__ import annotations

from typing import Any

NIXL_ACCELERATOR_MEM_TYPE = "VRAM"


class AcceleratorBackend:
    """One family of accelerators. Making one touches no driver."""

    name = ""
    torch_device_type = ""
    nixl_mem_type = NIXL_ACCELERATOR_MEM_TYPE
    _rdma_p2p = _pool_reg = _vmm = _gds = False

    def _torch_module(self) -> Any:
        import torch

        return getattr(torch, self.torch_device_type)

    def set_device(self, device_id: int) -> None:
        self._torch_module().set_device(device_id)

    def current_device(self) -> int:
        return int(self._torch_module().current_device())

    def synchronize(self, device_id: int | None = None) -> None:
        self._torch_module().synchronize(device_id)

    def empty_cache(self) -> None:
        self._torch_module().empty_cache()

    def torch_device(self, device_id: int) -> Any:
        import torch

        return torch.device(self.torch_device_type, device_id)

    def is_accel_tensor(self, tensor: Any) -> bool:
        return bool(tensor.device.type == self.torch_device_type)

    def supports_rdma_p2p(self) -> bool:
        return self._rdma_p2p

    def supports_pool_reg(self) -> bool:
        return self._pool_reg

    def supports_vmm(self) -> bool:
        return self._vmm

    def supports_gds(self) -> bool:
        return self._gds


class CudaBackend(AcceleratorBackend):
    name = torch_device_type = "cuda"
    _rdma_p2p = _pool_reg = _vmm = _gds = True


class XpuBackend(AcceleratorBackend):
    name = torch_device_type = "xpu"
    _rdma_p2p = True


_BACKENDS = {backend.torch_device_type: backend for backend in (CudaBackend, XpuBackend)}


def get_backend(device_type: str) -> AcceleratorBackend:
    """By torch's device type. Raises ValueError for one that is not supported."""
    if device_type not in _BACKENDS:
        raise ValueError(f"accelerator '{device_type}' is not supported; there are {', '.join(sorted(_BACKENDS))}")
    return _BACKENDS[device_type]()


def query_address_range(address: int) -> tuple[str | None, int, int]:
    """One driver query: the error's name or None, base, bytes."""
    from cuda.bindings import driver

    error, base, size = driver.cuMemGetAddressRange(address)
    if error != driver.CUresult.CUDA_SUCCESS:
        return error.name, 0, 0
    return None, int(base), int(size)
