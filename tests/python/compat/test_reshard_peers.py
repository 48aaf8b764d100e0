"""The refit face's peers and records: handshake, many-peer reads, coverage. Rows of reshard.md 7.2."""

import json
import logging
import types
from typing import Any

import pytest
import torch

from modelexpress.refit import reshard
from modelexpress.refit.reshard import handshake
from modelexpress.refit.reshard.receiver import ReshardReceiver
from modelexpress.refit.reshard.slice_plan import PullSegment
from modelexpress.refit.reshard.transfer_plan import TransferPlan
from modelexpress.refit.reshard.transport import ReadDescriptor

# --- handshake ---


class Dialler:
    """Answers each agent after so many failures; remembers what it was asked."""

    def __init__(self, **failures: int) -> None:
        self.failures = failures
        self.calls: list[tuple[str, str, int, float]] = []

    def fetch_remote_and_wait(self, agent: str, host: str, port: int, timeout_seconds: float) -> None:
        self.calls.append((agent, host, port, timeout_seconds))
        if self.failures.get(agent, 0) > 0:
            self.failures[agent] -= 1
            raise ConnectionError(f"{agent} is not up")

    def order(self) -> list[str]:
        return [call[0] for call in self.calls]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time goes by in pauses alone, which are remembered."""
    pauses: list[float] = []
    clock = types.SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append)
    monkeypatch.setattr(handshake, "time", clock)
    return pauses


def test_each_healthy_peer_is_dialled_once_in_order() -> None:
    manager = Dialler()
    reshard.handshake_with_peers(manager, {"a": "h1:1", "b": "[::1]:22"}, 100.0, 7.0)
    assert manager.calls == [("a", "h1", 1, 7.0), ("b", "[::1]", 22, 7.0)]
    reshard.handshake_with_peers(manager, {}, 0.0)


def test_a_failing_peer_goes_to_the_back_and_answered_ones_are_left_alone(no_pause: list[float]) -> None:
    manager = Dialler(a=2)
    reshard.handshake_with_peers(manager, {"a": "h:1", "b": "h:2"}, 100.0, 7.0)
    assert manager.order() == ["a", "b", "a", "a"]
    assert no_pause == [2.0], "after as many failures as there are peers left"


def test_attempts_are_bounded_by_what_is_left_and_the_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = Dialler()
    reshard.handshake_with_peers(manager, {"a": "h:1"}, 0.25, 7.0)
    assert manager.calls[0][3] == 0.25, "not rounded up"
    monkeypatch.setenv("MX_RESHARD_HANDSHAKE_ATTEMPT_S", "3")
    reshard.handshake_with_peers(manager, {"a": "h:1"})
    monkeypatch.setenv("MX_RESHARD_HANDSHAKE_ATTEMPT_S", "inf")
    reshard.handshake_with_peers(manager, {"a": "h:1"})
    assert [call[3] for call in manager.calls[1:]] == [3.0, 20.0]


def test_exhaustion_names_who_has_not_answered() -> None:
    manager = Dialler(b=99)
    with pytest.raises(RuntimeError) as refused:
        reshard.handshake_with_peers(manager, {"a": "h:1", "b": "h:2", "c": "no port"}, 5.0, 1.0)
    text = str(refused.value)
    assert "1 of 3 peer(s) answered" in text and "b@h:2 (" in text and "attempt(s), ConnectionError: b is not up" in text
    assert "c@no port" in text and "ValueError" in text


def test_only_planned_trainers_are_dialled() -> None:
    plan = TransferPlan(segments=[PullSegment("s1", 0, "p", 0, 4)])
    agents, endpoints = {"s1": "a1", "s2": "a2"}, {"a1": "h:1", "a2": "h:2"}
    assert reshard.handshake_endpoints_for_plan(plan, agents, endpoints) == {"a1": "h:1"}
    assert reshard.handshake_endpoints_for_plan(TransferPlan(), agents, endpoints) == {}
    with pytest.raises(RuntimeError, match="'a1'"):
        reshard.handshake_endpoints_for_plan(plan, agents, {"a2": "h:2"})


# --- reads from many peers ---


class Manager:
    def __init__(self, failing: str = "", drain_fails: bool = False) -> None:
        self.failing = failing
        self.drain_fails = drain_fails
        self.calls: list[Any] = []

    def post_read_batch(self, remote_agent_name: str, ranges: Any, mem_type: Any = None) -> str:
        self.calls.append(("post", remote_agent_name, ranges, mem_type))
        if remote_agent_name == self.failing:
            raise ConnectionError("post failed")
        return f"handle of {remote_agent_name}"

    def await_read_batches(self, posted: Any, timeout_seconds: Any = None) -> tuple[int, int, float]:
        self.calls.append(("await", list(posted), timeout_seconds))
        if self.drain_fails:
            raise TimeoutError("drain failed")
        return 24, 3, 0.1

    def execute_read_batch(self, remote_agent_name: str, ranges: Any, mem_type: Any = None, timeout_seconds: Any = None) -> Any:
        self.calls.append(("execute", remote_agent_name, ranges, mem_type, timeout_seconds))
        return sum(one[2] for one in ranges), len(ranges), 0.1


DESCRIPTORS = [ReadDescriptor("s1", 1, 2, 8), ReadDescriptor("s2", 3, 4, 8), ReadDescriptor("s1", 5, 6, 8)]


def transport(manager: Manager) -> Any:
    return reshard.NixlReshardTransport(manager, {"s1": "a1", "s2": "a2"}, {"s1": 7, "s2": 8}, "VRAM", 30.0)


def test_every_batch_is_posted_before_any_is_awaited() -> None:
    manager = Manager()
    made = transport(manager)
    made.read(DESCRIPTORS)
    assert manager.calls == [
        ("post", "a1", [(1, 2, 8, 7), (5, 6, 8, 7)], "VRAM"),
        ("post", "a2", [(3, 4, 8, 8)], "VRAM"),
        ("await", ["handle of a1", "handle of a2"], 30.0),
    ]
    assert (made.bytes_moved, made.reads_issued) == (24, 3)
    made.read([])
    assert len(manager.calls) == 3


@pytest.mark.parametrize(("text", "serial"), [("1", True), (" ", True), ("False", True), ("false", False), ("0", False), ("", False)])
def test_serial_reads_are_one_peer_after_the_other(text: str, serial: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MX_RESHARD_SERIAL_READS", text)
    manager = Manager()
    transport(manager).read(DESCRIPTORS)
    kinds = [call[0] for call in manager.calls]
    assert kinds == (["execute", "execute"] if serial else ["post", "post", "await"])


@pytest.mark.parametrize("drain_fails", [False, True])
def test_a_failed_post_drains_and_is_told(drain_fails: bool) -> None:
    manager = Manager(failing="a2", drain_fails=drain_fails)
    with pytest.raises(ConnectionError, match="post failed"):
        transport(manager).read(DESCRIPTORS)
    assert manager.calls[-1] == ("await", ["handle of a1"], 30.0)


def test_an_unknown_session_is_found_before_anything_is_posted() -> None:
    manager = Manager()
    with pytest.raises(KeyError):
        transport(manager).read([*DESCRIPTORS, ReadDescriptor("s3", 0, 0, 1)])
    with pytest.raises(KeyError, match="no remote device id"):
        reshard.NixlReshardTransport(manager, {"s1": "a1"}).read(DESCRIPTORS[:1])
    assert manager.calls == []


# --- coverage ---

LAYOUT = {"big": ((100,), torch.float32), "half": ((100,), torch.bfloat16), "small": ((4,), torch.uint8)}


def cover(params: Any, caplog: pytest.LogCaptureFixture, capture: Any = None, plan: Any = None, layout: Any = None) -> Any:
    caplog.set_level(logging.INFO)
    caplog.clear()
    stub = types.SimpleNamespace(_global_rank=4)
    ReshardReceiver._log_coverage(
        stub, capture or reshard.CaptureResult(), LAYOUT if layout is None else layout, params, plan or TransferPlan()  # type: ignore[arg-type]
    )
    (line,) = [one for one in caplog.records if one.getMessage().startswith("MX_REFIT_COVERAGE ")]
    return json.loads(line.getMessage().removeprefix("MX_REFIT_COVERAGE ")), line.levelname


def test_coverage_is_by_bytes(caplog: pytest.LogCaptureFixture) -> None:
    record, level = cover(list(LAYOUT), caplog)
    assert (record["schema"], record["rank"], record["coverage_pct"], level) == ("refit-coverage-v1", 4, 100.0, "INFO")
    record, level = cover(["big"], caplog)
    assert (record["dest_bytes"], record["engine_bytes"], record["coverage_pct"], level) == (400, 604, 66.2252, "WARNING")
    assert (record["params_installed"], record["params_never_written_sample"]) == (1, ["half", "small"])
    assert cover([], caplog, layout={})[0]["coverage_pct"] == 0.0


def test_what_is_unsupported_is_sampled(caplog: pytest.LogCaptureFixture) -> None:
    names = [f"e{i}" for i in range(12)]
    capture = reshard.CaptureResult(unsupported=names, unsupported_reasons={name: "x" * 200 for name in names})
    record, level = cover(list(LAYOUT), caplog, capture, TransferPlan(fallback=names))
    assert (record["unsupported"], record["fallback"], level) == (12, 12, "WARNING")
    assert len(record["unsupported_sample"]) == 10 and all(len(one) <= 120 for one in record["unsupported_sample"])


def test_the_gate_is_off_until_it_is_asked_for(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    cover(["big"], caplog)
    monkeypatch.setenv("MX_RESHARD_REQUIRE_FULL_COVERAGE", "1")
    with pytest.raises(reshard.IncompleteRefit, match=r"66.23%.*1 of 3.*half.*never checked") as refused:
        cover(["big"], caplog)
    assert not isinstance(refused.value, reshard.UnsupportedReshard) and caplog.records, "the line comes first"
    monkeypatch.setenv("MX_RESHARD_COVERAGE_FLOOR", "0.6")
    cover(["big"], caplog)
    monkeypatch.setenv("MX_RESHARD_COVERAGE_FLOOR", "1.5")
    with pytest.raises(ValueError, match=r"fraction in \[0.0, 1.0\]"):
        cover(["big"], caplog)
    monkeypatch.setenv("MX_RESHARD_COVERAGE_FLOOR", "much")
    cover(list(LAYOUT), caplog)
    stray = {**LAYOUT, "stray": ((2,), torch.uint8)}
    cover(list(LAYOUT), caplog, layout=stray)  # 604 of 606 bytes: above the default floor
