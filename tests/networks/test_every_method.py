"""Every method on a few kinds of networks, and methods that read rows on all of them."""

from __future__ import annotations

import family_files
import pytest
import torch
from daily import some_of
from family_files import EVERY_KIND, KINDS

import merging
from merging.base.errors import FamilyError, NeedsError
from merging.methods import registry
from merging.methods.method import Needs
from merging.models.formats.model_sources import open_checkpoint

FEW = some_of(("T5", "GPT-2", "Mixtral", "ResNet"), "T5", "ResNet")
METHODS = [method for method in registry.list_methods() if method.role != "adapt"]
OF_CLIP = {"adamerging", "localize_and_stitch", "regmean_pp"}  # which run images through CLIP towers
GRADIENTS = {"fisher": "fisher", "tatr": "sensitivity"}
# Linear weights without rows: experts of a layer, a pooling query's attention, attention of one sequence to another.
ROWLESS = {"Mixtral": 24, "Qwen3-MoE": 24, "SigLIP": 1, "torch Transformer": 2}
NORMS_WITHOUT = {"Gemma": 5}  # which scale by 1 + w


def loss(model, batch):
    return model(**batch).logits.flatten(1).square().mean(1)


@pytest.fixture(scope="module")
def rows_of(files_of):
    """A function that gives the layer inputs of a kind's experts."""
    found = {}

    def of(kind):
        if kind not in found:
            experts = files_of(kind)[1].items()
            given = [KINDS[kind].given()]
            found[kind] = {n: merging.capture(family_files.load(kind, path), given, like=path) for n, path in experts}
        return found[kind]

    return of


def gradients(kind, files, which):
    base, experts = files
    paths = {name: path if which == "fisher" else base for name, path in experts.items()}
    return {
        name: merging.gradient_means(family_files.load(kind, path), [KINDS[kind].given()], loss, which, like=path)
        for name, path in paths.items()
    }


@pytest.mark.full
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.key)
@pytest.mark.parametrize("kind", FEW)
def test_a_method_gives_finite_numbers_under_the_pretrained_models_names(kind, method, files_of, rows_of):
    base, experts = files_of(kind)
    chain = (method.key, ()) if method.role == "merge" else ("task_arithmetic", (method.key,))
    data = {}
    if method.key in OF_CLIP:
        with pytest.raises(FamilyError, match="runs images through CLIP towers; this is "):
            merging.merge(base, experts, method.key, device="cpu")
        return
    if method.key in GRADIENTS:
        if kind == "Mixtral":
            with pytest.raises(NeedsError, match="holds the experts of a layer in one tensor"):
                gradients(kind, (base, experts), GRADIENTS[method.key])
            return
        data = {"gradients": gradients(kind, (base, experts), GRADIENTS[method.key])}
    elif method.needs != Needs.NOTHING:
        data = {"layer_inputs": rows_of(kind)}
    result = merging.merge(base, experts, chain[0], edits=chain[1], device="cpu", **data)
    infos = open_checkpoint(base).infos
    for state in (result.task_state_dicts or {"": result.state_dict}).values():
        assert list(state) == list(infos)
        for name, value in state.items():
            assert (tuple(value.shape), value.dtype) == (infos[name].shape, infos[name].dtype)
            assert value.isfinite().all()


@EVERY_KIND
def test_rows_enter_every_linear_weight_but_those_listed(kind, files_of, rows_of):
    base, experts = files_of(kind)
    rows, parameters = rows_of(kind), open_checkpoint(base).parameters
    for role, without in (("linear", ROWLESS), ("norm_scale", NORMS_WITHOUT)):
        names = [p.name for p in parameters if p.role == role]
        assert sum(name not in rows["a"] for name in names) == without.get(kind, 0)
    merged = merging.merge(base, experts, "lot", {"scaling": 1.0}, layer_inputs=rows, device="cpu").state_dict
    mean = merging.merge(base, experts, "weight_averaging", device="cpu").state_dict
    assert all(value.isfinite().all() for value in merged.values())
    linear = next(p.name for p in parameters if p.role == "linear" and p.name in rows["a"])
    assert not torch.allclose(merged[linear], mean[linear], atol=1e-5)
