"""Methods on networks other than CLIP: stored orientation does not matter, tables of tokens are no matrices."""

from __future__ import annotations

import other_kinds
import pytest
import torch

import merging
from merging.methods import registry
from merging.methods.method import Needs
from merging.models.families import ROWWISE_ROLES
from merging.models.network_inference import describe_parameters
from merging.models.tensor_info import TensorInfo

DRAWN_BY_PLACE = {"dare", "random_mask"}  # what they draw depends on where a number is stored
MATRIX_METHODS = ("tsv_m", "iso_c", "iso_cts", "drm", "wudi")


def _applies(method):
    return method.needs == Needs.NOTHING or method.reads_layer_inputs


CHAINS = [
    (method.key, ()) if method.role == "merge" else ("weight_averaging", (method.key,))
    for method in registry.list_methods()
    if method.role != "adapt" and _applies(method) and method.key not in DRAWN_BY_PLACE
]


def team(kind):
    base = other_kinds.pretrained(kind)
    return base, {name: other_kinds.expert(base, seed) for seed, name in enumerate("ab", start=1)}


def parameters(state):
    return describe_parameters({name: TensorInfo(tuple(value.shape), value.dtype) for name, value in state.items()})


def rows_of(base, experts, turned):
    """Rows that enter every linear weight, the same for both orientations."""
    draw = torch.Generator().manual_seed(5)
    widths = {p.name: base[p.name].shape[0 if p.name in turned else 1] for p in parameters(base) if p.role == "linear"}
    return {name: {n: torch.randn(40, width, generator=draw) for n, width in widths.items()} for name in experts}


@pytest.mark.full
@pytest.mark.parametrize(
    "merge,edits", CHAINS, ids=lambda value: "-".join(value) if isinstance(value, tuple) else value
)
def test_gpt2_merges_as_its_twin_with_linear_layers(merge, edits):
    base, experts = team("GPT-2")
    turned = {p.name for p in parameters(base) if p.transposed}
    assert len(turned) == 8

    def flipped(state):
        return {name: value.T.contiguous() if name in turned else value for name, value in state.items()}

    def merged(base, experts, turned):
        rows = rows_of(base, experts, turned)
        result = merging.merge(base, experts, merge, edits=edits, layer_inputs=rows, device="cpu")
        return result.task_state_dicts or {"merged": result.state_dict}

    own = merged(base, experts, turned)
    twins = merged(flipped(base), {name: flipped(state) for name, state in experts.items()}, set())
    for model, twin in twins.items():
        for name, value in flipped(twin).items():
            torch.testing.assert_close(own[model][name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", MATRIX_METHODS)
@pytest.mark.parametrize("kind", ["T5", "GPT-2"])
def test_tables_of_tokens_take_the_mean(method, kind):
    base, experts = team(kind)
    params = {"others": "mean"} if method == "wudi" else {}
    merged = merging.merge(base, experts, method, params | {"scaling": 1.0}, device="cpu").state_dict
    for p in parameters(base):
        mean = (experts["a"][p.name] + experts["b"][p.name]) / 2
        if p.role in ROWWISE_ROLES:
            torch.testing.assert_close(merged[p.name], mean)
        elif p.role == "linear":
            assert not torch.allclose(merged[p.name], mean, atol=1e-5)
