"""Whether models of one size count their tokens alike, by the tokenizers beside them."""

from __future__ import annotations

import json

import other_kinds
import pytest
import torch
from safetensors.torch import save_file

import merging
from merging.base.errors import CompatibilityError
from merging.base.files.strict_json import MAX_VALUES
from merging.cli.main import main
from merging.models.formats.model_sources import open_checkpoint
from merging.models.inspection.fit_check import check_fit
from merging.models.team import tokenizers
from merging.sharing.catalog import fit_reports

WORDS = [f"w{number}" for number in range(20)]
SWAPPED = [WORDS[0], WORDS[2], WORDS[1], *WORDS[3:]]
UNCHECKED = (
    "b: the order of its tokens was not checked: that needs a tokenizer.json, vocab.json or vocab.txt beside its "
    "weights and beside the pretrained model's."
)


@pytest.fixture
def team(tmp_path):
    """The folders of a pretrained Llama and of two experts of it, under their names; no tokenizer lies in them."""
    base, paths = other_kinds.pretrained("Llama"), {}
    states = {"pretrained": base, "a": other_kinds.expert(base, 1), "b": other_kinds.expert(base, 2)}
    for name, state in states.items():
        paths[name] = tmp_path / name
        paths[name].mkdir()
        save_file({n: value.contiguous() for n, value in state.items()}, paths[name] / "model.safetensors")
    return paths


def with_words(team, **others):
    """The pretrained model and {name: folder} of the experts, each with WORDS or what ``others`` say as vocabulary."""
    for name, folder in team.items():
        words = others.get(name, WORDS)
        (folder / "vocab.json").write_text(json.dumps({word: at for at, word in enumerate(words)}), "utf-8")
    return team["pretrained"], {name: team[name] for name in ("a", "b")}


def test_equal_sizes_in_another_order_are_refused(team):
    base, experts = with_words(team, b=SWAPPED)
    with pytest.raises(CompatibilityError) as refused:
        merging.merge(base, experts, "weight_averaging", device="cpu")
    assert str(refused.value) == (
        "b numbers its tokens differently from the pretrained model (2 of 20 shared tokens have another id). Merge "
        "models of one tokenizer, or leave the vocabularies alone (vocabulary: pretrained)."
    )
    kept = merging.merge(base, experts, "weight_averaging", vocabulary="pretrained", device="cpu").state_dict
    assert torch.equal(kept["lm_head.weight"], other_kinds.pretrained("Llama")["lm_head.weight"])


def test_equal_sizes_in_one_order_fit(team):
    report = check_fit(*with_words(team))
    assert report.ok and not any("tokens" in note for note in report.notes)


def test_no_token_in_common_is_said(team):
    base, experts = with_words(team, b=[word.upper() for word in WORDS])
    assert (
        check_fit(base, experts)
        .text()
        .startswith("b has no token in common with the pretrained model. Merge models of")
    )


def test_without_tokenizers_the_report_says_that_order_was_not_checked(team, capsys):
    base, experts = with_words(team)
    (team["b"] / "vocab.json").unlink()
    report = check_fit(base, experts)
    assert report.ok and [note for note in report.notes if "tokens" in note] == [UNCHECKED]
    words = ["fit", "--pretrained", str(base), "--expert", f"a={experts['a']}", "--expert", f"b={experts['b']}"]
    assert main(words) == 0
    assert UNCHECKED in capsys.readouterr().out.splitlines()
    assert main([*words, "--json"]) == 0
    assert UNCHECKED in json.loads(capsys.readouterr().out)["notes"]
    (base / "vocab.json").unlink()
    assert UNCHECKED.replace("b:", "a:") in check_fit(base, experts).notes


def test_an_adapter_that_leaves_the_tokens_alone_has_nothing_to_check(team, tmp_path):
    rank = torch.ones(2, 16)
    at = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    (tmp_path / "lora").mkdir()
    save_file(
        {at + "A.weight": rank, at + "B.weight": rank.T.contiguous()}, tmp_path / "lora/adapter_model.safetensors"
    )
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 2}
    (tmp_path / "lora" / "adapter_config.json").write_text(json.dumps(config), "utf-8")
    experts = {"b": tmp_path / "lora"}
    assert UNCHECKED not in check_fit(team["pretrained"], experts).notes
    with_words(team | {"lora": tmp_path / "lora"}, lora=SWAPPED)  # trained with another tokenizer than the model's
    assert [problem.problem for problem in check_fit(team["pretrained"], experts).errors] == ["other tokens"]


def test_a_large_tokenizer_is_read(tmp_path):
    pairs = [["a", "b"]] * MAX_VALUES
    stated = {"model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": pairs}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(stated), "utf-8")
    assert tokenizers.read_tokens(tmp_path) == {"a": 0, "b": 1, "ab": 2}


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_lines_of_words_end_at_line_feeds_alone(tmp_path, end):
    words = ["[PAD]", "a\u2028b", "\x85", "", "z"]
    (tmp_path / "vocab.txt").write_bytes(((end or "\n").join(words) + end).encode())
    assert tokenizers.read_tokens(tmp_path) == {word: at for at, word in enumerate(words)}


def test_a_tokenizer_that_is_put_right_is_read_again(team, tmp_path):
    base, experts = with_words(team, b=SWAPPED)
    below = open_checkpoint(base, "pretrained")
    opened = {name: open_checkpoint(path, name, like=below) for name, path in experts.items()}
    fit_reports.store_report(tmp_path / "store", below, opened, check_fit(below, opened))
    assert not fit_reports.find_report(tmp_path / "store", below, opened).ok
    with_words(team)
    assert fit_reports.find_report(tmp_path / "store", below, opened) is None
    assert check_fit(below, opened).ok
