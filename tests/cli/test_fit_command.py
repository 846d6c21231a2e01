"""The command fit: it ends with 1 where something is wrong, and states every distance."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file

from merging.base.files.strict_json import parse_json
from merging.cli.main import main


@pytest.fixture
def family(tmp_path: Path) -> tiny.Family:
    return tiny.write_family(tmp_path, experts=("a", "b"))


def call(family: tiny.Family, *words: str) -> int:
    experts = [f"--expert={name}={path}" for name, path in family.experts.items()]
    return main(["fit", f"--pretrained={family.pretrained}", *experts, *words])


def test_it_ends_with_1_where_something_is_probably_wrong(
    family: tiny.Family, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(family) == 0
    family.experts["b"].write_bytes(family.experts["a"].read_bytes())
    assert call(family) == 1
    assert "b: same file twice" in capsys.readouterr().out
    family.experts["b"].write_bytes(family.pretrained.read_bytes())
    assert call(family) == 1 and "b: not changed" in capsys.readouterr().out
    tiny.write(family.experts["b"], tiny.pretrained(seed=8), torch.float32)
    assert call(family) == 1 and "b: unrelated" in capsys.readouterr().out
    assert call(family, "--json") == 1
    facts = json.loads(capsys.readouterr().out)
    assert (
        facts["verdict"] == "doubtful"
        and len(facts["doubts"]) == 1
        and facts["doubts"][0].startswith("b does not look fine-tuned")
    )


def test_one_verdict_says_in_json_what_the_exit_code_says(
    family: tiny.Family, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str) -> tuple[int, str]:
        code, facts = call(family, "--json", *words), json.loads(capsys.readouterr().out)
        assert "ok" not in facts
        return code, facts["verdict"]

    assert said() == (0, "fits")
    tiny.write(family.experts["b"], tiny.pretrained(seed=8), torch.float32)
    assert said() == (1, "doubtful")
    state = load_file(family.experts["b"])
    tiny.write(family.experts["b"], state | {"visual.proj": state["visual.proj"][:, :3].contiguous()}, torch.float32)
    assert said() == (1, "does not fit") and said("--keep") == (0, "does not fit")


def test_it_ends_with_0_where_nothing_has_to_be_done(family: tiny.Family) -> None:
    state = load_file(family.experts["b"]) | {"visual.extra": torch.ones(3)}
    tiny.write(family.experts["b"], state, torch.float16)
    assert call(family) == 0


def test_an_activation_counts_for_all(family: tiny.Family, capsys: pytest.CaptureFixture[str]) -> None:
    about = {"architecture": json.dumps({**tiny.ARCHITECTURE, "quick_gelu": False})}
    save_file(load_file(family.experts["b"]), family.experts["b"], about)
    assert call(family) == 1
    assert "b: activation: expected quick_gelu, found gelu." in capsys.readouterr().out
    assert call(family, "--activation", "quick_gelu") == 0


def test_json_states_every_distance(family: tiny.Family, capsys: pytest.CaptureFixture[str]) -> None:
    base = load_file(family.pretrained)
    expert = load_file(family.experts["a"])
    assert call(family, "--json") == 0
    facts = parse_json(capsys.readouterr().out.encode(), "the report")
    assert list(facts["experts"]) == ["a", "b"]
    change = sum(float((expert[name] - base[name]).double().square().sum()) for name in base)
    size = sum(float(base[name].double().square().sum()) for name in base)
    assert facts["experts"]["a"]["ratio"] == pytest.approx((change / size) ** 0.5, rel=1e-6)
    assert facts["experts"]["a"]["cosine"] == pytest.approx(0.9913, abs=1e-4)
    assert facts["experts"]["a"]["sampled"] is False


def test_json_of_a_distance_that_is_not_defined_is_null(
    family: tiny.Family, capsys: pytest.CaptureFixture[str]
) -> None:
    zeros = {name: torch.zeros_like(value) for name, value in load_file(family.pretrained).items()}
    tiny.write(family.pretrained, zeros, torch.float32)
    assert call(family, "--json") == 0
    printed = capsys.readouterr().out
    assert json.loads(printed)["experts"]["a"] == {"ratio": None, "cosine": None, "sampled": False}
    assert "NaN" not in printed and "Infinity" not in printed
    assert call(family) == 0
    assert "a: no weights to compare." in capsys.readouterr().out
