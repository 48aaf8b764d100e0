"""The 46 behaviours of transfer.md 10 through the face: the same rows as the native tests, under the same names."""

import logging
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch

import modelexpress
from modelexpress import accelerators, nixl_transfer
from modelexpress.types import ManifestMismatchError, TensorDescriptor

PEER = "source-agent"


class Spy:
    """What is counted, in order."""

    def __init__(self) -> None:
        self.results: list[str] = []
        self.errors: list[str] = []

    def record_nixl_receive(self, result: str) -> None:
        self.results.append(result)

    def record_nixl_error(self, kind: str) -> None:
        self.errors.append(kind)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments, **keywords: None


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MX_POOL_REG", "MX_ARENA_SINGLE_MR", "MX_NIXL_BACKEND"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.cuda, "set_device", lambda *arguments, **keywords: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *arguments, **keywords: None)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    counted = Spy()
    monkeypatch.setattr(nixl_transfer, "transfer_metrics", counted)
    return counted


def manager(tensors: "dict[str, torch.Tensor] | None" = None) -> Any:
    made = nixl_transfer.NixlTransferManager(agent_name="reader", device_id=0)
    made._agent = mock.MagicMock()
    made._agent.get_agent_metadata.return_value = b"metadata"
    made._agent.check_xfer_state.return_value = "DONE"
    made._tensors = tensors or {}
    return made


def weight() -> torch.Tensor:
    return torch.zeros(4, dtype=torch.float32)


def remote(name: str, size: int = 16, dtype: str = "torch.float32", device: int = 0, addr: int = 0x9000) -> TensorDescriptor:
    return TensorDescriptor(name, addr, size, device, dtype)


def receive(made: Any, *source: TensorDescriptor, **keywords: Any) -> Any:
    return made.receive_from_source(
        source_metadata=b"", source_tensors=list(source), remote_agent_name=PEER, **keywords
    )


class Driver:
    """The CUDA driver's range query, over allocations that the test names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver = pytest.importorskip("cuda.bindings.driver")
        self.allocations: list[tuple[int, int]] = []
        self.asked: list[int] = []
        monkeypatch.setattr(self.driver, "cuMemGetAddressRange", self.query)

    def query(self, address: int) -> tuple[Any, int, int]:
        self.asked.append(address)
        for base, size in self.allocations:
            if base <= address < base + size:
                return self.driver.CUresult.CUDA_SUCCESS, base, size
        return self.driver.CUresult.CUDA_ERROR_INVALID_VALUE, 0, 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


class TestPoolRegEnabled:
    def test_default_is_off(self) -> None:
        assert nixl_transfer._pool_reg_enabled() is False

    def test_explicit_zero_is_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MX_POOL_REG", "0")
        assert nixl_transfer._pool_reg_enabled() is False

    def test_one_is_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MX_POOL_REG", "1")
        assert nixl_transfer._pool_reg_enabled() is True

    @pytest.mark.parametrize("text", ["true", "True", "yes", "on", "2", ""])
    def test_arbitrary_truthy_is_off(self, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
        monkeypatch.setenv("MX_POOL_REG", text)
        assert nixl_transfer._pool_reg_enabled() is False

    def test_read_at_call_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MX_POOL_REG", "1")
        assert nixl_transfer._pool_reg_enabled() is True
        monkeypatch.setenv("MX_POOL_REG", "0")
        assert nixl_transfer._pool_reg_enabled() is False


class TestFindCudaAllocations:
    find = staticmethod(nixl_transfer.NixlTransferManager._find_cuda_allocations)

    def test_empty_returns_empty(self) -> None:
        assert self.find([]) == []

    def test_single_tensor_single_allocation(self, driver: Driver) -> None:
        driver.allocations = [(0x1000, 0x4000)]
        assert self.find([remote("w", addr=0x2000)]) == [(0x1000, 0x4000)]
        assert driver.asked == [0x2000]

    def test_multiple_tensors_same_allocation_dedup(self, driver: Driver) -> None:
        driver.allocations = [(0x1000, 0x4000)]
        assert self.find([remote(name, addr=0x1000 * n) for n, name in enumerate("abc", 1)]) == [(0x1000, 0x4000)]
        assert len(driver.asked) == 3

    def test_multiple_allocations_sorted(self, driver: Driver) -> None:
        driver.allocations = [(0x9000, 0x1000), (0x1000, 0x1000)]
        found = self.find([remote("high", addr=0x9000), remote("low", addr=0x1000)])
        assert found == [(0x1000, 0x1000), (0x9000, 0x1000)]
        assert all(type(value) is int for pair in found for value in pair)

    def test_adjacent_allocations_not_merged(self, driver: Driver) -> None:
        driver.allocations = [(0x1000, 0x1000), (0x2000, 0x1000)]
        assert self.find([remote("a", addr=0x1000), remote("b", addr=0x2000)]) == driver.allocations

    def test_driver_error_raises_runtime_error(self, driver: Driver) -> None:
        with pytest.raises(RuntimeError, match="cuMemGetAddressRange failed") as caught:
            self.find([remote("w", addr=0xABC000)])
        assert "(CUDA_ERROR_INVALID_VALUE)" in str(caught.value) and "0xabc000" in str(caught.value)

    def test_driver_error_includes_tensor_name(self, driver: Driver) -> None:
        with pytest.raises(RuntimeError, match="'w_named'"):
            self.find([remote("w_named")])


class Arena:
    def __init__(self, base: int, used: int, live: int = 1) -> None:
        self.range = (base, used)
        self.live_allocation_count = live

    def registered_range(self) -> tuple[int, int]:
        return self.range


def arena_around(tensor: torch.Tensor, live: int = 1) -> Arena:
    return Arena(tensor.data_ptr() - 64, 4096, live)


def expect_per_tensor(made: Any, tensor: torch.Tensor) -> None:
    made._agent.register_memory.assert_called_once()
    arguments, keywords = made._agent.register_memory.call_args
    assert arguments[0][0] is tensor
    assert keywords == {"backends": ["UCX"]}


def expect_one_region(made: Any, arena: Arena) -> None:
    made._agent.register_memory.assert_called_once_with([(*arena.range, 0, "")], mem_type="VRAM", backends=["UCX"])


class TestRawDescriptorMemType:
    def test_pool_registration_uses_vram_segment(self, monkeypatch: pytest.MonkeyPatch, driver: Driver) -> None:
        monkeypatch.setenv("MX_POOL_REG", "1")
        tensor, made = weight(), manager()
        driver.allocations = [(tensor.data_ptr() & ~0xFFF, 0x10000)]
        assert made.register_tensors({"w": tensor}) == b"metadata"
        made._agent.register_memory.assert_called_once_with(
            [(*driver.allocations[0], 0, "")], mem_type="VRAM", backends=["UCX"]
        )
        assert made.nixl_metadata == b"metadata"

    def test_arena_registration_uses_vram_segment(self) -> None:
        tensor, made = weight(), manager()
        arena = arena_around(tensor)
        assert made.register_arena(arena, {"w": tensor}) == b"metadata"
        expect_one_region(made, arena)

    def test_arena_registration_falls_back_when_tensor_uncovered(self, caplog: pytest.LogCaptureFixture) -> None:
        tensor, made = weight(), manager()
        made.register_arena(Arena(tensor.data_ptr() + 4096, 4096), {"w": tensor})
        expect_per_tensor(made, tensor)
        assert "'w'" in caplog.text

    def test_arena_fallback_bypasses_pool_registration(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MX_POOL_REG", "1")
        tensor, made = weight(), manager()
        made.register_arena(Arena(tensor.data_ptr() + 4096, 4096), {"w": tensor})
        expect_per_tensor(made, tensor)

    def test_receive_transfer_descriptors_use_vram_segment(self) -> None:
        tensor = weight()
        made = manager({"w": tensor})
        received = receive(made, remote("w", device=3))
        assert received[:2] == (16, 1)
        assert made._agent.prep_xfer_dlist.call_args_list == [
            mock.call(agent_name=PEER, xfer_list=[(0x9000, 16, 3)], mem_type="VRAM", backends=["UCX"]),
            mock.call(agent_name="", xfer_list=[(tensor.data_ptr(), 16, 0)], mem_type="VRAM", backends=["UCX"]),
        ]
        keywords = made._agent.make_prepped_xfer.call_args.kwargs
        assert (keywords["operation"], keywords["local_indices"], keywords["remote_indices"]) == ("READ", [0], [0])
        made._agent.add_remote_agent.assert_not_called()

    def test_transfer_start_callback_runs_after_descriptor_preparation(self) -> None:
        made = manager({"w": weight()})
        made._agent.prep_xfer_dlist.side_effect = RuntimeError("descriptor failure")
        started = mock.MagicMock()
        with pytest.raises(RuntimeError, match="^descriptor failure$"):
            receive(made, remote("w"), on_transfer_start=started)
        started.assert_not_called()


class TestReceiveFromSourceManifestValidation:
    @staticmethod
    def expect_refused(made: Any, words: str, *source: TensorDescriptor, **keywords: Any) -> None:
        with pytest.raises(ManifestMismatchError, match=words):
            receive(made, *source, **keywords)
        made._agent.transfer.assert_not_called()

    def test_size_mismatch_raises_manifest_mismatch(self) -> None:
        self.expect_refused(manager({"w": weight()}), "size mismatch", remote("w", 32))

    def test_dtype_mismatch_raises_manifest_mismatch(self) -> None:
        self.expect_refused(manager({"w": weight()}), "dtype mismatch", remote("w", dtype="torch.int32"))

    def test_size_mismatch_raises_for_heterogeneous_source_device(self) -> None:
        self.expect_refused(manager({"w": weight()}), "size mismatch", remote("w", 32, device=5))

    def test_unmatched_name_skips_silently(self) -> None:
        assert receive(manager({"w": weight()}), remote("other")) == (0, 0, 0.0)

    def test_unmatched_name_warns(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING, logger="modelexpress.nixl_transfer"):
            receive(manager({"w": weight()}), remote("other"))
        assert "1 local-only, 1 source-only" in caplog.text

    def test_hetero_name_mismatch_raises(self) -> None:
        made = manager({"w": weight(), "mine": weight()})
        self.expect_refused(made, "Tensor name mismatch.*heterogeneous transfer", remote("w"), require_exact_match=True)

    def test_hetero_source_only_name_mismatch_raises(self) -> None:
        made = manager({"w": weight()})
        self.expect_refused(made, "Tensor name mismatch", remote("w"), remote("theirs"), require_exact_match=True)

    def test_hetero_zero_match_raises(self) -> None:
        self.expect_refused(manager({"w": weight()}), "heterogeneous transfer", remote("x"), require_exact_match=True)
        self.expect_refused(manager(), "No matching tensors.*heterogeneous transfer", require_exact_match=True)

    def test_hetero_matched_name_passes_guard(self) -> None:
        self.expect_refused(manager({"w": weight()}), "size mismatch", remote("w", 32), require_exact_match=True)

    def test_explicit_destination_catalog_overrides_latest_registration(self) -> None:
        made, given = manager({"w": weight()}), weight()
        assert receive(made, remote("v"), remote("w"), destination_tensors={"v": given})[1] == 1
        assert made._agent.prep_xfer_dlist.call_args.kwargs["xfer_list"] == [(given.data_ptr(), 16, 0)]
        assert receive(made, remote("w"), destination_tensors={}) == (0, 0, 0.0)


class TestWaitForXfer:
    @staticmethod
    def bare(*statuses: str) -> Any:
        made = object.__new__(nixl_transfer.NixlTransferManager)
        made._agent = mock.MagicMock()
        made._agent.check_xfer_state.side_effect = statuses
        return made

    def test_returns_on_success(self) -> None:
        made = self.bare("PENDING", "SUCCESS")
        made._wait_for_xfer(object(), None, "test transfer")
        assert made._agent.check_xfer_state.call_count == 2

    def test_raises_labeled_error(self) -> None:
        with pytest.raises(RuntimeError, match="test transfer failed"):
            self.bare("ERROR")._wait_for_xfer(object(), None, "test transfer")


class TestArenaSingleMrForced:
    def test_default_is_off(self) -> None:
        assert nixl_transfer._arena_single_mr_forced() is False

    def test_one_is_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MX_ARENA_SINGLE_MR", "1")
        assert nixl_transfer._arena_single_mr_forced() is True

    def test_read_at_call_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MX_ARENA_SINGLE_MR", "1")
        assert nixl_transfer._arena_single_mr_forced() is True
        monkeypatch.delenv("MX_ARENA_SINGLE_MR")
        assert nixl_transfer._arena_single_mr_forced() is False


class TestMultiAllocationArena:
    def test_multi_allocation_arena_registers_per_tensor(self) -> None:
        tensor, made = weight(), manager()
        made.register_arena(arena_around(tensor, 1019), {"w": tensor})
        expect_per_tensor(made, tensor)

    def test_single_allocation_arena_keeps_one_mr(self) -> None:
        tensor, made = weight(), manager()
        arena = arena_around(tensor)
        made.register_arena(arena, {"w": tensor})
        expect_one_region(made, arena)

    def test_env_override_keeps_one_mr_on_multi_allocation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MX_ARENA_SINGLE_MR", "1")
        tensor, made = weight(), manager()
        arena = arena_around(tensor, 1019)
        made.register_arena(arena, {"w": tensor})
        expect_one_region(made, arena)

    def test_multi_allocation_fallback_bypasses_pool_registration(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MX_POOL_REG", "1")
        tensor, made = weight(), manager()
        made.register_arena(arena_around(tensor, 1019), {"w": tensor})
        expect_per_tensor(made, tensor)

    def test_warning_names_the_allocation_count(self, caplog: pytest.LogCaptureFixture) -> None:
        tensor = weight()
        with caplog.at_level(logging.WARNING):
            manager().register_arena(arena_around(tensor, 1019), {"w": tensor})
        assert "1019 physical allocations" in caplog.text and "MX_ARENA_SINGLE_MR=1" in caplog.text


class TestReceiveOutcomeLabelsAtTheCallSite:
    def test_a_clean_transfer_counts_one_complete(self, spy: Spy) -> None:
        receive(manager({"w": weight()}), remote("w"))
        assert (spy.results, spy.errors) == (["complete"], [])

    def test_a_name_diff_counts_one_partial_and_not_a_complete(self, spy: Spy) -> None:
        receive(manager({"w": weight()}), remote("w"), remote("theirs"))
        assert spy.results == ["partial"]

    def test_a_zero_match_transfer_counts_one_empty(self, spy: Spy) -> None:
        assert receive(manager({"w": weight()}), remote("other")) == (0, 0, 0.0)
        assert spy.results == ["empty"]

    @pytest.mark.parametrize(
        ("tensors", "source", "exact"),
        [
            (["w"], [remote("w", 32)], False),
            (["w"], [remote("w", dtype="torch.int8")], False),
            (["w", "mine"], [remote("w")], True),
            ([], [], True),
        ],
        ids=["size", "dtype", "names", "nothing"],
    )
    def test_every_refusal_counts_one_rejected(
        self, spy: Spy, tensors: "list[str]", source: "list[TensorDescriptor]", exact: bool
    ) -> None:
        with pytest.raises(ManifestMismatchError):
            receive(manager({name: weight() for name in tensors}), *source, require_exact_match=exact)
        assert (spy.results, spy.errors) == (["rejected"], [])

    def test_a_wedged_transfer_counts_a_timeout_and_no_receive(self, spy: Spy) -> None:
        made = manager({"w": weight()})
        made._agent.check_xfer_state.return_value = "PROC"
        with pytest.raises(TimeoutError, match="Transfer timed out"):
            receive(made, remote("w"), timeout_seconds=0.0)
        assert (spy.results, spy.errors) == ([], ["timeout"])
        made._agent.check_xfer_state.assert_not_called()

    def test_an_err_status_counts_a_status_error_and_no_receive(self, spy: Spy) -> None:
        made = manager({"w": weight()})
        made._agent.check_xfer_state.return_value = "ERR"
        with pytest.raises(RuntimeError, match="Transfer failed with status ERR"):
            receive(made, remote("w"))
        assert (spy.results, spy.errors) == ([], ["status_error"])

    def test_a_wedged_batch_counts_a_timeout(self, spy: Spy) -> None:
        made = manager()
        made._agent.check_xfer_state.return_value = "PROC"
        with pytest.raises(TimeoutError, match="2 transfer"):
            made._wait_for_xfers(["a", "b"], 0.0, "batch")
        assert spy.errors == ["timeout"]

    def test_an_err_status_in_a_batch_counts_a_status_error(self, spy: Spy) -> None:
        made = manager()
        made._agent.check_xfer_state.return_value = "ERR"
        with pytest.raises(RuntimeError, match="batch failed"):
            made._wait_for_xfers(["a", "b"], None, "batch")
        assert spy.errors == ["status_error"]
        assert made._agent.check_xfer_state.call_count == 1


def test_the_names_are_those_of_the_client() -> None:
    assert accelerators.NIXL_ACCELERATOR_MEM_TYPE == "VRAM"
    assert modelexpress.nixl_transfer is nixl_transfer
    assert nixl_transfer.logger.name == "modelexpress.nixl_transfer"
