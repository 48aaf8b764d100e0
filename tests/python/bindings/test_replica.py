"""A pull into torch tensors, between processes and within one, and every way it can be refused."""

import multiprocessing
import pathlib
import threading

import numpy
import pytest
import torch
from safetensors.torch import save_file

import towline


def model() -> dict[str, torch.Tensor]:
    """Every kind that this torch has, a scalar, an empty one, and a name that is not ASCII."""
    torch.manual_seed(1)
    floats = {
        str(dtype).removeprefix("torch."): torch.randn(33, 7).to(dtype)
        for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128)
    }
    integers = {
        str(dtype).removeprefix("torch."): torch.randint(0, 100, (5, 3, 2)).to(dtype)
        for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)
    }
    odd = {"scalar": torch.tensor(3.5), "empty": torch.empty(0, 4), "层.权重": torch.randn(1000, 100)}
    return {**floats, **integers, **odd}


def blank(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and a[name].shape == b[name].shape and torch.equal(a[name], b[name]) for name in a
    )


def serve_until_told(server: str, ready: "multiprocessing.Queue[str]", stop: "multiprocessing.Queue[None]") -> None:
    with towline.serve(model(), model="across", server=server) as replica:
        assert replica.worker_id is not None
        ready.put(replica.worker_id)
        stop.get()


def test_a_pull_from_another_process_fills_the_tensors_given(server: str) -> None:
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Queue(), context.Queue()
    source = context.Process(target=serve_until_told, args=(server, ready, stop))
    source.start()
    try:
        worker_id = ready.get(timeout=60)
        tensors = blank(model())
        addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
        with towline.pull("across", into=tensors, server=server) as replica:
            assert replica.report is not None
            assert replica.report.from_worker_id == worker_id
            assert replica.report.tensor_count == replica.report.verified_count == len(tensors)
            assert replica.report.bytes == sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        assert same(tensors, model())
        assert {name: tensor.data_ptr() for name, tensor in tensors.items()} == addresses
    finally:
        stop.put(None)
        source.join(30)
    assert source.exitcode == 0


def test_a_pull_without_tensors_makes_them_and_they_outlive_the_replica(server: str) -> None:
    with towline.serve(model(), model="made", server=server):
        replica = towline.pull("made", server=server)
        tensors = replica.tensors
        replica.close()
    assert same(tensors, model())
    tensors["float32"].add_(1)  # ours to write


def test_a_replica_that_pulled_serves_the_next(server: str) -> None:
    with towline.serve(model(), model="chain", worker_id="first", server=server):
        second = towline.pull("chain", worker="first", server=server)
        second.serve("chain", worker_id="second")
    with second, towline.pull("chain", worker="second", server=server) as third:
        assert third.report is not None and third.report.from_worker_id == "second"
        assert third.report.verified_count == len(model())
        assert same(third.tensors, model())


@pytest.mark.parametrize("digests", [True, False])
def test_tensors_that_were_pulled_into_are_a_verified_source(server: str, digests: bool) -> None:
    first = {"w": torch.arange(1000.0), "b": torch.ones(7)}
    with towline.serve(first, model="onward", server=server), towline.Replica(server=server) as middle:
        target = {**blank(first), "own": torch.full((3,), 5.0)}
        middle.register(target, digests=digests)
        middle.pull("onward")
        middle.serve("onward-2")
        with towline.pull("onward-2", server=server) as last:
            assert last.report is not None
            assert last.report.verified_count == (3 if digests else 2)
            assert same(last.tensors, {**first, "own": target["own"]})


def test_a_checkpoint_is_served_from_disk(server: str, tmp_path: pathlib.Path) -> None:
    tensors = {name: tensor for name, tensor in model().items() if not tensor.is_complex()}
    save_file(tensors, tmp_path / "model.safetensors")
    with towline.serve(tmp_path / "model.safetensors", model="disk", server=server) as replica:
        assert replica.report is not None and replica.report.path.startswith("disk")
        assert same(replica.tensors, tensors)
        with towline.pull("disk", server=server) as pulled:
            assert same(pulled.tensors, tensors)


def test_memory_registered_by_allocation_is_pulled_all_the_same(server: str, tmp_path: pathlib.Path) -> None:
    tensors = {f"w{i}": torch.randn(100 + i, 7).to(torch.bfloat16) for i in range(20)}
    save_file(tensors, tmp_path / "m.safetensors")
    with towline.serve(tmp_path / "m.safetensors", model="pooled", server=server, pool_reg=True):
        with towline.pull("pooled", server=server, pool_reg=True) as replica:
            assert replica.report is not None and replica.report.verified_count == len(tensors)
            assert same(replica.tensors, tensors)
        target = blank(tensors)  # memory of torch's: no allocation of ours, so by tensor
        with towline.pull("pooled", into=target, server=server, pool_reg=True):
            assert same(target, tensors)


def test_numpy_arrays_are_filled_too(server: str) -> None:
    source = {"a": numpy.arange(12, dtype=numpy.float32).reshape(3, 4), "b": numpy.array([True, False])}
    target = {name: numpy.zeros_like(array) for name, array in source.items()}
    with towline.serve(source, model="numpy", server=server), towline.pull("numpy", into=target, server=server):
        pass
    assert all((source[name] == target[name]).all() for name in source)


def test_a_parameter_with_a_gradient_is_filled(server: str) -> None:
    target = torch.nn.Parameter(torch.zeros(4))
    with towline.serve({"w": torch.arange(4.0)}, model="parameter", server=server):
        towline.pull("parameter", into={"w": target}, server=server).close()
    assert target.tolist() == [0, 1, 2, 3] and target.requires_grad


# Refusals.


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"w": torch.zeros(5)}, "size"),
        ({"w": torch.zeros(4, dtype=torch.int32)}, "dtype"),
        ({"w": torch.zeros(2, 2)}, "shape"),
    ],
)
def test_a_tensor_that_does_not_match_is_named_and_left_alone(
    server: str, wrong: dict[str, torch.Tensor], words: str
) -> None:
    with towline.serve({"w": torch.arange(4.0)}, model="mismatch", server=server):
        with pytest.raises(RuntimeError, match="'w'") as caught:
            towline.pull("mismatch", into=wrong, server=server)
    assert isinstance(caught.value, towline.Error) and caught.value.code == "failed_precondition"
    assert words in str(caught.value)
    assert not wrong["w"].any()


def test_tensors_that_only_one_side_has_are_reported_or_refused(server: str) -> None:
    target = {"w": torch.zeros(4), "mine": torch.zeros(1)}
    with towline.serve({"w": torch.arange(4.0), "theirs": torch.zeros(2)}, model="partial", server=server):
        with towline.pull("partial", into=target, server=server) as replica:
            assert replica.report is not None
            assert (replica.report.local_only, replica.report.source_only) == (["mine"], ["theirs"])
        with pytest.raises(towline.Error, match="mine"):
            towline.pull("partial", into=target, require_exact_match=True, server=server)


def test_an_unknown_model_is_a_lookup_error(server: str) -> None:
    with pytest.raises(LookupError, match="nobody-has-this"):
        towline.pull("nobody-has-this", server=server)


def test_an_absent_server_is_a_connection_error() -> None:
    with pytest.raises((ConnectionError, TimeoutError), match="127.0.0.1:1"):
        towline.pull("m", server="127.0.0.1:1", deadline=2.0, rpc_deadline=1.0)


def test_an_unknown_setting_names_the_nearest(server: str) -> None:
    with pytest.raises(ValueError, match="deadline"):
        towline.pull("m", server=server, deadlin=5)


def test_a_missing_checkpoint_is_named(server: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(LookupError, match="absent.safetensors"):
        towline.serve(tmp_path / "absent.safetensors", model="m", server=server)


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.zeros(4, 4).t(), "contiguous"),
        ([1, 2], "neither"),
        (numpy.zeros((4, 4)).T, "contiguous"),
        (numpy.arange(3, dtype=">i4"), "other order"),
        (numpy.frombuffer(b"1234", dtype=numpy.uint8), "read-only"),
        (numpy.array([object()]), "no tensor's"),
        (torch.quantize_per_tensor(torch.zeros(4), 1.0, 0, torch.qint8), "quantized"),
        (torch.zeros(4).to_sparse(), "sparse"),
        (torch.zeros(4, dtype=torch.complex64).conj(), "lazy view"),
    ],
)
def test_what_cannot_be_used_in_place_is_refused(server: str, tensor: object, words: str) -> None:
    with towline.Replica(server=server) as replica, pytest.raises(ValueError, match=words):
        replica.register({"w": tensor})


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", 5, None], ids=ascii)
def test_what_is_no_name_is_refused(server: str, name: object) -> None:
    with towline.Replica(server=server) as replica, pytest.raises(ValueError, match="name"):
        replica.register({name: torch.zeros(1)})


@pytest.mark.parametrize("rank", [-1, 2**32])
def test_what_is_no_rank_is_refused(server: str, rank: int) -> None:
    with towline.Replica(server=server) as replica, pytest.raises(ValueError, match="rank"):
        replica.pull("m", rank=rank)


def test_a_closed_replica_says_so(server: str) -> None:
    replica = towline.Replica(server=server)
    replica.close()
    replica.close()
    with pytest.raises(RuntimeError, match="closed"):
        replica.pull("m")


def test_waiting_releases_the_interpreter(server: str) -> None:
    """Another thread runs while a call waits: the server accepts and never answers."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = "127.0.0.1:%d" % silent.getsockname()[1]
        ticks = 0
        done = threading.Event()

        def wait() -> None:
            with pytest.raises(towline.Error):
                towline.pull("m", server=address, deadline=1.0, rpc_deadline=1.0)
            done.set()

        thread = threading.Thread(target=wait)
        thread.start()
        while not done.wait(0.01):
            ticks += 1
        thread.join()
    assert ticks > 10
