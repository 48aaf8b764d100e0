"""`towline refit plan`: the numbers that a user decides by, and what it says of what cannot be."""

import json
import pathlib
import subprocess

import pytest
import torch
from safetensors.torch import save_file

from tests.python.apps.conftest import BINARIES


def plan(*words: object) -> tuple[int, str, str]:
    done = subprocess.run([BINARIES / "towline", "refit", "plan", *map(str, words)], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def document(*words: object) -> dict[str, object]:
    code, out, err = plan(*words, "--json")
    assert code == 0, err
    return json.loads(out)


def test_a_dense_model_moves_what_the_rank_needs_and_nothing_more() -> None:
    made = document("--scenario", "llama3-70b:fsdp64->tp8")
    assert made["schema"] == "towline.refit.plan/1" and made["rank_count"] == 8
    totals = made["plan"]
    assert totals["wire_bytes"] == totals["useful_bytes"] == 17_640_734_720
    assert (totals["run_count"], totals["rule_count"], totals["session_count"]) == (1_324_240, 23_760, 64)
    assert totals["staging_bytes"] == 0
    assert totals["coverage"]["written_bytes"] == totals["coverage"]["parameter_bytes"]
    assert made["balance"]["seconds_at_least"] == pytest.approx(17_640_734_720 / 50e9)


def test_staging_stays_bounded_where_the_reference_stages_the_model() -> None:
    made = document("--scenario", "deepseek-v3:pp16ep16->tp32")["plan"]
    assert made["staging_bytes"] < 1 << 30
    assert made["wire_bytes"] <= 1.05 * made["useful_bytes"]
    pulled = document("--scenario", "deepseek-v3:pp16ep16->tp32", "--reads", "plain", "--staging", "1MiB")["plan"]
    assert pulled["staging_bytes"] < 2 << 20


def test_all_ranks_ask_the_trainer_evenly() -> None:
    balance = document("--scenario", "deepseek-v3:pp16ep16->ep32", "--all-ranks")["balance"]
    assert balance["egress_bytes_max"] < 1.5 * balance["egress_bytes_mean"]


def test_a_tensor_is_explained() -> None:
    name = "model.layers.3.mlp.down_proj.weight"
    explained = document("--scenario", "llama3-70b:fsdp64->tp8", "--explain", name)["explain"]
    assert explained["form"] == "strided" and explained["run_count"] == 8192 and explained["rule_count"] == 64
    assert explained["copies"] == [f"narrow(1, 0, 3584) -> {name} at element 0"]
    assert explained["seconds"]["strided"] < explained["seconds"]["plain"] and explained["seconds"]["packed"] is None
    code, out, err = plan("--scenario", "llama3-70b:fsdp64->tp8", "--explain", "nothing")
    assert (code, out) == (1, "") and err == "towline: error: tensor 'nothing': the model has none of this name\n"


def llama(path: pathlib.Path) -> pathlib.Path:
    """Two layers; 4 heads of 64, 2 for keys and values."""
    shapes = {"model.embed_tokens.weight": (100, 256), "model.norm.weight": (256,), "lm_head.weight": (100, 256)}
    for layer in range(2):
        prefix = f"model.layers.{layer}."
        shapes |= {
            f"{prefix}input_layernorm.weight": (256,),
            f"{prefix}self_attn.q_proj.weight": (256, 256),
            f"{prefix}self_attn.k_proj.weight": (128, 256),
            f"{prefix}self_attn.v_proj.weight": (128, 256),
            f"{prefix}self_attn.o_proj.weight": (256, 256),
            f"{prefix}mlp.gate_proj.weight": (512, 256),
            f"{prefix}mlp.up_proj.weight": (512, 256),
            f"{prefix}mlp.down_proj.weight": (256, 512),
        }
    save_file({name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}, path)
    return path


def test_a_checkpoints_own_tensors_are_planned(tmp_path: pathlib.Path) -> None:
    path = llama(tmp_path / "llama.safetensors")
    words = ["--checkpoint", path, "--trainer", "fsdp:3", "--engine", "tp:4", "--head-dim", "64"]
    made = [document(*words, "--rank", rank)["plan"] for rank in range(4)]
    assert made[0]["useful_bytes"] == made[3]["useful_bytes"] + 2 * 2 * (32 - 4) * 256, "the last has 4 of the 100 rows"
    assert [one["coverage"]["partially_written_count"] for one in made] == [0, 0, 0, 2]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--scenario", "x"], 2, "scenario 'x': expected MODEL:TRAINER->ENGINE, such as qwen3-235b:fsdp64->dp8ep8"),
        (
            ["--scenario", "gpt:fsdp2->tp2"],
            2,
            "scenario 'gpt:fsdp2->tp2': model 'gpt' is none of llama3-70b, qwen3-30b, qwen3-235b, deepseek-v3, kimi-k2",
        ),
        (
            ["--scenario", "kimi-k2:fsdp0->tp2"],
            2,
            "layout 'fsdp0': at 'fsdp0': expected one of fsdp, tp, pp, ep, rep and a number from 1 to 65536, such as fsdp8",
        ),
        (["--scenario", "kimi-k2:fsdp2tp2->tp2"], 2, "layout 'fsdp2tp2': fsdp cuts rows, tp, pp and ep cut as Megatron does; give one"),
        ([], 2, "refit plan: give either --scenario or --checkpoint"),
        (
            ["--scenario", "llama3-70b:fsdp64->tp8", "--trainer", "fsdp:2"],
            2,
            "--trainer and --engine are of --checkpoint; a scenario has its own",
        ),
        (
            ["--scenario", "qwen3-235b:tp3->tp8"],
            1,
            "tensor 'model.embed_tokens.weight': 151936 rows or columns are not divisible by tp 3",
        ),
        (["--scenario", "llama3-70b:fsdp2->tp8", "--rank", "8"], 1, "rank 8 of an engine of 8 ranks (tp8)"),
    ],
)
def test_what_cannot_be_is_named(words: list[str], code: int, message: str) -> None:
    assert plan(*words) == (code, "", f"towline: error: {message}\n")
