"""The refit face: digests of shards. Rows of reshard.md 7.2, verify; the tables that carry them are in
test_reshard_rendezvous.py."""

from typing import Any

import pytest
import torch

from modelexpress import envs
from modelexpress.refit.reshard.verify import published_digest, shard_region, tensor_digest


def test_equal_bytes_have_equal_digests_and_no_others() -> None:
    words = torch.arange(8192, dtype=torch.int32)
    changed = words.clone()
    changed[1234] += 1
    swapped = torch.cat([words[1024:2048], words[:1024], words[2048:]])  # the same values, other rows
    assert tensor_digest(words) == tensor_digest(words.clone())
    assert len({tensor_digest(one) for one in (words, changed, swapped)}) == 3


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32])
def test_the_ragged_tail_counts(dtype: Any) -> None:
    values = torch.arange(1024 + 7).to(dtype)
    changed = values.clone()
    changed[-1] += 1
    assert tensor_digest(values) != tensor_digest(changed) != tensor_digest(values[:-1])


def test_strides_and_place_do_not_count() -> None:
    dense = torch.arange(64, dtype=torch.int32).reshape(8, 8)
    assert tensor_digest(dense[:, ::2]) == tensor_digest(dense[:, ::2].contiguous())
    assert tensor_digest(dense.t()) != tensor_digest(dense)
    payload = torch.arange(1409, dtype=torch.bfloat16)
    for start in (1408, 1409):
        parent = torch.zeros(3 * 1409, dtype=torch.bfloat16)
        parent[start : start + 1409] = payload
        assert tensor_digest(parent.narrow(0, start, 1409)) == tensor_digest(payload)


@pytest.mark.parametrize("half", [17, 1409])
def test_an_odd_half_of_a_fused_tensor_is_as_its_copy(half: int) -> None:
    view = torch.arange(2 * half, dtype=torch.bfloat16).narrow(0, half, half)
    assert view.data_ptr() % 4 == 2
    assert tensor_digest(view) == tensor_digest(view.clone())


def test_a_region_is_the_shard_that_its_publisher_held() -> None:
    full = torch.arange(24, dtype=torch.int32).reshape(4, 6)
    region = shard_region(full.reshape(-1), (4, 6), (1, 2), (2, 3))
    assert torch.equal(region, full[1:3, 2:5]) and region.is_contiguous()
    assert tensor_digest(region) == tensor_digest(full[1:3, 2:5].contiguous())
    whole = shard_region(full, (4, 6), (0, 0), (4, 6))
    assert torch.equal(whole, full) and whole.data_ptr() != full.data_ptr(), "a copy, also of all"


@pytest.mark.parametrize(("shape", "offset", "extent"), [((4, 6), (1,), (2, 3)), ((4, 6), (1, 2), (2,)), ((4, 6, 2), (1, 2), (2, 3))])
def test_unlike_ranks_are_refused(shape: Any, offset: Any, extent: Any) -> None:
    with pytest.raises(ValueError, match="rank mismatch"):
        shard_region(torch.arange(48), shape, offset, extent)


def test_a_parameter_that_learns_has_one_too() -> None:
    parameter = torch.nn.Parameter(torch.ones(5))
    assert tensor_digest(parameter) == tensor_digest(torch.ones(5))


def test_publishing_follows_the_switch_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.arange(64, dtype=torch.int32)
    monkeypatch.delenv("MX_RESHARD_PUBLISH_DIGEST", raising=False)
    assert published_digest(tensor) is None and envs.MX_RESHARD_PUBLISH_DIGEST is False
    monkeypatch.setenv("MX_RESHARD_PUBLISH_DIGEST", "1")
    assert published_digest(tensor) == tensor_digest(tensor) and envs.MX_RESHARD_PUBLISH_DIGEST is True
    monkeypatch.setenv("MX_RESHARD_PUBLISH_DIGEST", "0")
    assert published_digest(tensor) is None
