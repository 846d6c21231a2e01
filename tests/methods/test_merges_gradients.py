"""Per-example gradients against plain backward passes, and what Fisher merging and TATR make of them."""

from __future__ import annotations

import tempfile
from dataclasses import replace

import common_checks
import numpy as np
import plain_tower
import pytest
import tiny
import torch

import merging
from merging.checkpoints.checkpoint import MappingCheckpoint, UnusedText
from merging.checkpoints.families import describe
from merging.clip.image_encoder import Encoder
from merging.engine import run as engine
from merging.engine.gradients import gather
from merging.engine.inputs import Inputs
from merging.errors import Cancelled, CompatibilityError, MergingError, NeedsError
from merging.formats.opening import open_checkpoint
from merging.methods import registry
from merging.methods.edits.tatr import TatrParams, conflict
from merging.methods.exemplars import TaskExemplars
from merging.methods.merges.fisher import FisherParams, Weighing, fisher
from merging.methods.method import Needs
from merging.methods.slot import Gradients, Slot
from merging.progress import Meter
from merging.recipes.recipe import Recipe
from merging.runs.execute import execute
from merging.runs.store import Store

TATR = registry.edit("tatr")
FISHER = registry.merge("fisher")
(PARAMETER,) = describe(["visual.proj"])


@pytest.fixture(scope="module")
def family():
    return common_checks.family()


@pytest.fixture(scope="module")
def shown(family):
    return common_checks.labeled_exemplars(family[1])


def _inputs(base, experts):
    opened = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    return Inputs(tiny.checkpoint(base), opened, None, torch.device("cpu"), UnusedText())


def _gathered(base, experts, shown, kind, seed=0):
    """{tensor: (K, *S)}"""
    inputs = _inputs(base, experts)
    with gather({kind}, inputs, shown, seed, Meter(0)) as found:
        return {n: found[kind].read(n, 0, v.numel()).reshape(-1, *v.shape) for n, v in base.items()}


def _logits(state, image, task):
    """What a task's head says of one image (classes,), with the tower in the precision of ``state``."""
    tensors = {name.removeprefix("visual."): value for name, value in state.items()}
    encoder = replace(Encoder.of(tiny.checkpoint(tiny.pretrained())), tensors=tensors)
    features = torch.nn.functional.normalize(encoder(image[None].to(state["visual.proj"].dtype)), dim=-1)
    return task.logit_scale * features[0] @ task.head.to(features.dtype).T


def _gradient(state, image, label, task):
    """{tensor: gradient of one image's loss}, by a plain backward pass."""
    leaves = {name: value.clone().requires_grad_() for name, value in state.items()}
    torch.nn.functional.cross_entropy(_logits(leaves, image, task)[None], label.reshape(1)).backward()
    return {name: leaf.grad for name, leaf in leaves.items()}


# --- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [1, 4, 16])
@pytest.mark.slow
def test_absolute_gradients_equal_a_loop_of_backward_passes(family, shown, together, monkeypatch):
    monkeypatch.setattr("merging.engine.gradients.EXAMPLES", together)
    base, experts = family
    found = _gathered(base, experts, shown, Gradients.SENSITIVITY)
    for k, task in enumerate(shown.values()):
        single = [_gradient(base, *pair, task) for pair in zip(task.images, task.labels, strict=True)]
        for name, rows in found.items():
            expected = torch.stack([one[name].abs() for one in single]).mean(dim=0)
            assert torch.allclose(rows[k], expected, rtol=1e-9, atol=1e-12), name


@pytest.mark.slow
def test_squared_gradients_are_of_the_expert_and_of_labels_it_may_predict(family, shown):
    """Of one image: the squared gradient of one of the classes. Other seeds draw other classes."""
    base, experts = family
    one = {n: TaskExemplars(task.images[:1], None, task.head, task.logit_scale) for n, task in shown.items()}
    drawn = set()
    for seed in range(6):
        found = _gathered(base, experts, one, Gradients.FISHER, seed)
        for k, (name, task) in enumerate(one.items()):
            classes = [_gradient(experts[name], task.images[0], torch.tensor(c), task) for c in range(5)]
            fits = [c for c in range(5) if all(torch.allclose(found[n][k], classes[c][n] ** 2, 1e-9) for n in base)]
            assert len(fits) == 1
            drawn.add((name, fits[0]))
    assert len(drawn) > len(one)


@pytest.mark.slow
def test_absolute_gradients_equal_finite_differences(family, shown):
    base, experts = family
    name, task = next(iter(shown.items()))
    found = _gathered(base, {name: experts[name]}, shown, Gradients.SENSITIVITY)

    def losses(state):
        pairs = zip(task.images, task.labels, strict=True)
        return torch.stack([-_logits(state, image, task).log_softmax(0)[label] for image, label in pairs])

    step, generator = 1e-5, np.random.default_rng(0)
    for tensor, value in base.items():
        at = int(generator.integers(value.numel()))
        moved = [value.clone() for _ in range(2)]
        moved[0].view(-1)[at] += step
        moved[1].view(-1)[at] -= step
        slopes = (losses(base | {tensor: moved[0]}) - losses(base | {tensor: moved[1]})) / (2 * step)
        assert float(found[tensor].reshape(-1)[at]) == pytest.approx(float(slopes.abs().mean()), rel=1e-5, abs=1e-8)


@pytest.mark.slow
def test_the_sampled_estimate_is_unbiased(family, shown):
    """Of one image shown very often: against the sum over all classes, within six standard errors everywhere."""
    base, experts = family
    name, task = next(iter(shown.items()))
    count, image, state = 2000, task.images[0], experts[name]
    often = {name: TaskExemplars(image.expand(count, -1, -1, -1), None, task.head, task.logit_scale)}
    found = _gathered(base, {name: state}, often, Gradients.FISHER)
    shares = _logits(state, image, task).softmax(0)
    assert (shares > 0.01).sum() >= 3  # else there is little to draw
    squares = [_gradient(state, image, torch.tensor(c), task) for c in range(5)]
    for tensor, rows in found.items():
        values = torch.stack([one[tensor] ** 2 for one in squares])
        weights = shares.reshape(-1, *[1] * (values.ndim - 1))
        mean = (weights * values).sum(dim=0)
        error = ((weights * (values - mean) ** 2).sum(dim=0) / count).sqrt()
        assert ((rows[0] - mean).abs() <= 6 * error + 1e-12 * mean.max()).all(), tensor
        assert not torch.allclose(rows[0], mean, rtol=1e-4, atol=0.0), tensor


def test_hugging_face_names_give_the_same_gradients(family, shown):
    base, experts = family
    plain = _gathered(base, experts, shown, Gradients.SENSITIVITY)
    renamed = {n: plain_tower.hugging_face(state) for n, state in experts.items()}
    other = _gathered(plain_tower.hugging_face(base), renamed, shown, Gradients.SENSITIVITY)
    for k in range(len(experts)):
        expected = plain_tower.hugging_face({n: rows[k] for n, rows in plain.items()})
        assert all(torch.allclose(other[n][k], expected[n]) for n in other)


def test_label_draws_depend_on_the_experts_name_and_not_on_its_place(family, shown):
    base, experts = family
    forward = _gathered(base, experts, shown, Gradients.FISHER)
    backward = _gathered(base, dict(reversed(experts.items())), shown, Gradients.FISHER)
    assert all(torch.equal(rows, backward[n].flip(0)) for n, rows in forward.items())


def test_the_temporary_file_vanishes(family, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    common_checks.merge(FISHER, *family)
    with pytest.raises(Cancelled):
        common_checks.merge(FISHER, *family, cancel=_after(3))
    assert list(tmp_path.iterdir()) == []


def _after(count):
    calls = iter(range(count))
    return lambda: next(calls, None) is None


def test_gradients_report_progress_and_are_counted_in_it(family, monkeypatch):
    monkeypatch.setattr("merging.engine.gradients.EXAMPLES", 2)
    seen = []
    common_checks.merge(FISHER, *family, progress=seen.append)
    told = [progress for progress in seen if progress.phase == "Computing gradients"]
    assert [progress.detail for progress in told] == [name for name in family[1] for _ in range(3)]
    assert len({progress.total for progress in seen}) == 1
    assert seen[-1].fraction == 1.0 and 0.0 < told[0].fraction < told[-1].fraction < 1.0


def test_too_little_room_for_gradients_is_said(family, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 1000}))
    with pytest.raises(MergingError, match="TMPDIR"):
        common_checks.merge(FISHER, *family)


def test_weights_that_are_not_finite_are_named(family):
    base, experts = family
    bad = {name: dict(state) for name, state in experts.items()}
    bad["expert 1"]["visual.conv1.weight"] = torch.full_like(base["visual.conv1.weight"], float("nan"))
    with pytest.raises(CompatibilityError, match=r"expert 1.*conv1"):
        common_checks.merge(FISHER, base, bad)


# --- what is asked of exemplars --------------------------------------------------------------------------------------


def test_what_is_missing_is_said(family, shown):
    base, experts = family
    images = {name: task.images for name, task in shown.items()}
    unlabeled = {n: TaskExemplars(task.images, head=task.head) for n, task in shown.items()}
    with pytest.raises(NeedsError, match=r"fisher needs unlabeled exemplars .* Missing: a head for expert 0, expert 1"):
        common_checks.merge(FISHER, base, experts, exemplars=images)
    with pytest.raises(NeedsError, match=r"tatr needs labeled exemplars .* Missing: labels for expert 0"):
        common_checks.merge(TATR, base, experts, exemplars=unlabeled)
    common_checks.merge(FISHER, base, experts, exemplars=unlabeled)
    del unlabeled["expert 1"]
    with pytest.raises(NeedsError, match=r"Missing: images for expert 1\. Pass"):
        common_checks.merge(FISHER, base, experts, exemplars=unlabeled)
    with pytest.raises(NeedsError, match="images for expert 0"):
        common_checks.merge(FISHER, base, experts, exemplars=None, layer_inputs=common_checks.layer_inputs(experts))


@pytest.mark.parametrize(
    "wrong,message",
    [
        ({"images": torch.zeros(3, 16, 16)}, r"images \(n, 3, h, w\); got \(3, 16, 16\)"),
        ({"images": [1]}, "got list"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, r"tensor \(6,\) of whole numbers"),
        ({"labels": torch.zeros(6)}, r"one per image; got \(6,\) of torch.float32"),
        ({"labels": torch.full((6,), 5)}, r"0 … 4"),
        ({"head": torch.zeros(5)}, r"\(classes, embed_dim\)"),
    ],
)
def test_exemplars_of_the_wrong_kind_are_refused(shown, wrong, message):
    good = next(iter(shown.values()))
    with pytest.raises(NeedsError, match=message):
        replace(good, **wrong)


@pytest.mark.parametrize(
    "wrong,message",
    [
        ({"images": torch.zeros(6, 3, 8, 8)}, r"exemplars of 'expert 0' must be a tensor \(n, 3, 16, 16\)"),
        ({"images": torch.full((6, 3, 16, 16), float("nan"))}, "'expert 0' hold NaN"),
        ({"head": torch.zeros(5, 9)}, r"head of 'expert 0' must be a tensor \(classes, 8\)"),
        ({"head": torch.full((5, 8), float("inf"))}, "is its head sound"),
    ],
)
def test_exemplars_that_do_not_fit_the_tower_are_refused(family, shown, wrong, message):
    with pytest.raises(NeedsError if "sound" not in message else MergingError, match=message):
        common_checks.merge(TATR, *family, exemplars=shown | {"expert 0": replace(shown["expert 0"], **wrong)})


def test_images_alone_that_are_none_are_refused_with_the_experts_name(family):
    with pytest.raises(NeedsError, match="Exemplars of 'expert 0': Exemplars are a tensor"):
        engine.run(Recipe.build("lot"), tiny.checkpoint(family[0]), _inputs(*family).experts, exemplars={"expert 0": 7})


def test_methods_without_gradients_take_the_same_exemplars(family, shown):
    base, experts = tiny.checkpoint(family[0]), family[1]
    plain = merging.merge(base, experts, "lot", exemplars={n: task.images for n, task in shown.items()}, device="cpu")
    scored = merging.merge(base, experts, "lot", exemplars=shown, device="cpu")
    assert all(torch.equal(value, scored.state_dict[n]) for n, value in plain.state_dict.items())


def test_needs_follow_the_parameters():
    assert Recipe.build("ties", edits=["tatr"]).needs == {Needs.LABELED_EXEMPLARS}
    assert Recipe.build("fisher", edits=["tatr"]).needs == {Needs.LABELED_EXEMPLARS, Needs.EXEMPLARS}
    assert Recipe.build("ties", edits=["tatr"]).exemplars is not None
    for params in ({"sensitivity": "magnitude"}, {"keep": 1.0}):
        recipe = Recipe.build("ties", edits=[("tatr", params)], exemplars={"per_task": 3})
        assert recipe.needs == frozenset() and recipe.exemplars is None


# --- TATR ------------------------------------------------------------------------------------------------------------


def _slot(vectors, kind, gradients):
    vectors, gradients = (torch.tensor(rows, dtype=torch.float64) for rows in (vectors, gradients))
    names = tuple(f"expert {k}" for k in range(len(vectors)))
    return Slot(PARAMETER, names, torch.zeros_like(vectors[0]), vectors, gradients={kind: gradients})


def test_conflict_of_worked_numbers():
    felt, vectors = [[1, 2, 0, 1], [0.5, 0, 3, 1]], [[1, -1, 2, 0], [2, 1, -1, 4]]
    found = conflict(_slot(vectors, Gradients.SENSITIVITY, felt), TatrParams())
    assert found.tolist() == [2.5, 2.0, 6.0, 4.0]


@pytest.mark.parametrize("sensitivity", ["gradient", "magnitude"])
def test_conflict_equals_the_sum_over_pairs(sensitivity):
    draw = torch.Generator().manual_seed(0)
    felt, vectors = torch.rand((5, 40), generator=draw), torch.randn((5, 40), generator=draw)
    slot = _slot(vectors.tolist(), Gradients.SENSITIVITY, felt.tolist())
    found = conflict(slot, TatrParams(sensitivity=sensitivity))
    weights = felt if sensitivity == "gradient" else vectors.abs()
    expected = sum(weights[i].double() * vectors[j].double().abs() for i in range(5) for j in range(5) if i != j)
    assert torch.allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("sensitivity", ["gradient", "magnitude"])
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.99])
def test_so_many_scalars_are_kept(family, sensitivity, keep):
    """⌊ρP⌋ - 1 lie strictly below the ⌊ρP⌋-th smallest; what is masked is pretrained bit for bit, the rest is TA."""
    base, experts = family
    params = {"keep": keep, "sensitivity": sensitivity}
    options = {"exemplars": None} if sensitivity == "magnitude" else {}
    found = common_checks.merge(TATR, base, experts, params, **options).state_dict
    plain = common_checks.merge(registry.merge("task_arithmetic"), base, experts).state_dict
    same = {n: found[n] == plain[n] for n in base}
    masked = sum(int((~mask).sum()) for mask in same.values())
    numel = sum(value.numel() for value in base.values())
    assert numel - masked == max(int(keep * numel) - 1, 0)
    assert all(torch.equal(found[n][~mask], base[n][~mask]) for n, mask in same.items())


@pytest.mark.parametrize("params", [{"keep": 1.0}, {"keep": 1.0, "sensitivity": "magnitude"}])
def test_keeping_everything_is_task_arithmetic(family, params):
    found = common_checks.merge(TATR, *family, params, exemplars=None).state_dict
    plain = common_checks.merge(registry.merge("task_arithmetic"), *family).state_dict
    assert all(torch.equal(value, plain[n]) for n, value in found.items())


def test_dead_parameters_count_in_the_quantile(family):
    base, experts = family
    text = {"token_embedding.weight": torch.zeros(100, 8), "logit_scale": torch.zeros(())}
    carrying = {name: state | text for name, state in experts.items()}
    numel = sum(value.numel() for value in base.values())
    for dead, counted in ((False, numel), (True, numel + 801)):
        edits = [("tatr", {"keep": 0.9, "sensitivity": "magnitude"})]
        found = merging.merge(base | text, carrying, edits=edits, count_dead_params=dead, device="cpu").state_dict
        changed = sum(int((found[n] != base[n]).sum()) for n in base)
        assert changed == int(0.9 * counted) - 1 - (counted - numel)


def test_scalars_without_conflict_stay_when_the_threshold_is_zero(family):
    """One of two experts did not move: by magnitude, nothing conflicts."""
    base, experts = family
    pair = {"a": experts["expert 0"], "b": base}
    found = common_checks.merge(TATR, base, pair, {"sensitivity": "magnitude"}, exemplars=None).state_dict
    plain = common_checks.merge(registry.merge("task_arithmetic"), base, pair).state_dict
    assert all(torch.equal(value, plain[n]) for n, value in found.items())


def test_the_mask_does_not_depend_on_how_tensors_stream(family, shown, monkeypatch):
    """Surveys stream in pieces where the merge takes whole tensors; a scalar at the threshold must not notice."""
    monkeypatch.setattr("merging.engine.inputs.PIECE_CPU", 7)
    monkeypatch.setattr("merging.engine.inputs.BLOCK_CPU", 33)
    base, experts = family
    numel = sum(value.numel() for value in base.values())
    whole = {"scope": "tensor", "density": 1.0}
    result = merging.merge(tiny.checkpoint(base), experts, "ties", whole, ["tatr"], exemplars=shown, device="cpu")
    assert sum(int((result.state_dict[n] != base[n]).sum()) for n in base) == int(0.99 * numel) - 1


# --- Fisher ----------------------------------------------------------------------------------------------------------


def _states(family):
    return torch.stack([torch.cat([v.flatten() for v in state.values()]) for state in family[1].values()])


def _flat(state):
    return torch.cat([value.flatten() for value in state.values()])


def test_fisher_is_the_weighted_mean_of_the_experts(family, shown):
    base, experts = family
    information = _gathered(base, experts, shown, Gradients.FISHER)
    flat = torch.cat([rows.flatten(1) for rows in information.values()], dim=1)
    for normalize in (True, False):
        scaled = flat / flat.norm(dim=1, keepdim=True) if normalize else flat
        weights = scaled + 1e-3 * scaled.mean()
        expected = (weights * _states(family)).sum(dim=0) / weights.sum(dim=0)
        found = common_checks.merge(FISHER, base, experts, {"floor": 1e-3, "normalize": normalize})
        assert torch.allclose(_flat(found.state_dict), expected, rtol=1e-9, atol=1e-12)
    assert found.tables["fisher"]["fisher_norm"].tolist() == pytest.approx(flat.norm(dim=1).tolist())
    assert found.tables["fisher"]["fisher_mean"].tolist() == pytest.approx(flat.mean(dim=1).tolist())


def test_fisher_stays_between_the_experts_and_a_large_floor_averages(family):
    states = _states(family)
    found = _flat(common_checks.merge(FISHER, *family).state_dict)
    slack = 1e-12
    assert ((found >= states.min(dim=0).values - slack) & (found <= states.max(dim=0).values + slack)).all()
    mean = states.mean(dim=0)
    assert (found - mean).norm() > 0.1 * (states[0] - mean).norm()
    averaged = _flat(common_checks.merge(FISHER, *family, {"floor": 1e9}).state_dict)
    assert torch.allclose(averaged, mean, atol=1e-6)


def test_fisher_of_equal_experts_is_the_expert(family):
    base, experts = family
    found = common_checks.merge(FISHER, base, dict.fromkeys(experts, experts["expert 0"])).state_dict
    common_checks.assert_close(found, experts["expert 0"], base)


def test_fisher_of_constant_endless_and_no_information():
    vectors = [[1.0, 2.0, -3.0], [5.0, 0.0, 1.0]]
    even = Weighing((1.0, 1.0), 0.0)

    def merged(information):
        return fisher(_slot(vectors, Gradients.FISHER, information), FisherParams(), even).tolist()

    assert merged([[0.7] * 3] * 2) == pytest.approx([3.0, 1.0, -1.0])
    assert merged([[1e30] * 3, [1.0] * 3]) == pytest.approx(vectors[0])
    assert merged([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]) == [3.0, 0.0, -3.0]


def test_an_expert_that_is_sure_of_everything_is_named(family, shown):
    one_class = replace(shown["expert 1"], head=shown["expert 1"].head[:1], labels=None)
    found = common_checks.merge(FISHER, *family, exemplars=shown | {"expert 1": one_class})
    assert found.warnings == ("fisher all but ignores expert 1: its predictions depend on no weight.",)


def test_after_an_edit_the_information_is_still_the_experts(family, shown):
    """A tensor that LwPTV drops stays pretrained; all others come out as without LwPTV."""
    base, experts = family
    plain = common_checks.merge(FISHER, base, experts).state_dict
    edits = [("lwptv", {"prune_ratio": 0.8})]
    result = merging.merge(tiny.checkpoint(base), experts, "fisher", edits=edits, exemplars=shown, device="cpu")
    kept = result.tables["saliency"].groupby("tensor")["final"].any()
    assert 0 < kept.sum() < len(kept)
    for name, value in result.state_dict.items():
        assert torch.equal(value, plain[name] if kept[name] else base[name]), name


def test_both_in_one_chain(family, shown):
    base, experts = family
    result = merging.merge(tiny.checkpoint(base), experts, "fisher", edits=["tatr"], exemplars=shown, device="cpu")
    plain = common_checks.merge(FISHER, base, experts).state_dict
    numel = sum(value.numel() for value in base.values())
    same = sum(int((result.state_dict[n] == plain[n]).sum()) for n in base)
    assert same == int(0.99 * numel) - 1 and {"fisher", "trust_region"} <= set(result.tables)


# --- from a recipe ---------------------------------------------------------------------------------------------------


def test_labels_belong_to_the_images_that_unlabeled_methods_see(tiny_benchmark):
    images, drawn = tiny_benchmark.exemplars(5, seed=3), tiny_benchmark.labeled_exemplars(5, seed=3)
    for key, task in drawn.items():
        assert torch.equal(task.images, images[key]) and torch.equal(task.head, tiny_benchmark.head(key))
        everything, labels = tiny_benchmark.images(key, "exemplars")
        pool = tiny_benchmark.preprocess(everything)
        at = [int((pool == image).flatten(1).all(dim=1).nonzero()) for image in task.images]
        assert task.labels.tolist() == labels[at].tolist() and task.logit_scale == 100.0


@pytest.mark.parametrize("merge,edits", [("fisher", []), ("task_arithmetic", ["tatr"])])
def test_a_recipe_draws_labeled_exemplars(tmp_path, tiny_benchmark, merge, edits):
    sources = tiny_benchmark.pretrained, tiny_benchmark.experts
    recipe = Recipe.build(merge, {}, edits, *sources, exemplars={"per_task": 4, "seed": 2})
    run = execute(recipe, Store(tmp_path, libraries=()), benchmark=tiny_benchmark, device="cpu")
    assert run.scores is not None and run.seed == 2
    stored = open_checkpoint(run.model_path)
    again = engine.run(
        recipe,
        open_checkpoint(sources[0]),
        {name: open_checkpoint(path) for name, path in sources[1].items()},
        exemplars=tiny_benchmark.labeled_exemplars(4, 2),
        device="cpu",
    )
    assert all(torch.equal(value, stored.read(n)) for n, value in again.state_dict.items())
