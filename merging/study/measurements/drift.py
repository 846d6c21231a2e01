"""Feature drift: how far a merged model's features are from each expert's on that expert's own images (LOT, Eq. 4).

Cumulative drift runs both models end to end. Layer-isolated drift replaces one tensor of the expert by the merged one,
with the expert's own inputs: for a weight that is X_k (T - τ_k)ᵀ, whose squared norm LOT minimizes summed
over the tasks. Its squares come from the Gram matrices of the inputs in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cosine_similarity

from merging.base.devices import choose_device, move_tensor
from merging.base.numerics.linear_algebra import to_float64, to_numbers
from merging.base.progress import Meter
from merging.engine.evaluation.image_features import BATCH
from merging.engine.layer_inputs import CapturedInputs
from merging.engine.outputs import MERGED
from merging.engine.run_inputs import RunInputs
from merging.engine.stream import Stream
from merging.images.batch_sizes import limit_batch
from merging.images.image_encoder import Encoder
from merging.methods import registry
from merging.methods.moments import Moments
from merging.methods.shared.least_squares import as_matrices
from merging.methods.slot import Slot
from merging.models.checkpoint import Checkpoint
from merging.models.families import Parameter, Role
from merging.models.model_references import PRETRAINED
from merging.models.tower_names import is_transposed
from merging.recipes.recipe import Exemplars
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.tasks.context import QUIET, Context

if TYPE_CHECKING:
    from merging.engine.modules.modules import Modules
    from merging.images.benchmarks.benchmark import Benchmark

SPLIT, LIMIT, SEED = "choosing", 256, 0  # the images of cumulative drift: at most so many a task, a seeded draw
TOKENS = ("class", "mean")  # the features at a place: the class token, or the mean over all tokens
STEM, OUTPUT = "stem", "embedding"
FEATURES, LAYERS = "features", "layers"  # stages of the work
MEASURING = "Measuring every layer"
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MergeModels:
    """The models of one merge; ``merged`` maps each task to its model, most often the same one.

    ``modules`` sit on the merged model and change its embedding alone.
    """

    pretrained: Checkpoint
    experts: Mapping[str, Checkpoint]
    merged: Mapping[str, Checkpoint]
    modules: Modules | None = None


def measure_drift(subject: Subject, context: Context) -> MeasurementResult:
    """The tables "cumulative", "isolated" and "objective" of a run.

    Raises:
        CheckpointError, TaskError: what the run merged cannot be read, or the benchmark lacks images for it.
    """
    subject.refuse_modules(routed_only=True)
    opened, benchmark = subject.open_on_benchmark, subject.benchmark
    drawn = subject.recipe.exemplars or Exemplars()
    images = {task: choosing_images(benchmark, task) for task in opened.experts}
    exemplars = benchmark.exemplars(drawn.per_task, drawn.seed)
    device, stages = choose_device(context.device), subject.split_context(context, {FEATURES: 2.0, LAYERS: 3.0})
    with subject.merged_by_task(stages) as merged:
        models = MergeModels(opened.pretrained, opened.experts, merged, subject.modules)
        meter = stages[FEATURES].meter(sum(map(len, images.values())))
        cumulative = cumulative_drift(models, images, device, meter)
        own = {task: exemplars[task] for task in images}
        isolated, objective = isolated_drift(models, own, device, stages[LAYERS])
    counts = [len(shown) for shown in own.values()]
    n = {"images": max(map(len, images.values())), "exemplars": max(counts), "fewest_exemplars": min(counts)}
    notes = {**n, "split": SPLIT, "exemplar_seed": drawn.seed}
    return MeasurementResult({"cumulative": cumulative, "isolated": isolated, "objective": objective}, notes)


def choosing_images(benchmark: Benchmark, task: str) -> Tensor:
    """Preprocessed images (n, 3, h, w) of the choosing half: all of them, or a seeded draw of ``LIMIT``."""
    images, _ = benchmark.images(task, SPLIT)
    order = np.random.default_rng(SEED).permutation(len(images))[:LIMIT]
    return benchmark.preprocess(images[np.sort(order)])


# Cumulative drift


def cumulative_drift(
    models: MergeModels, images: Mapping[str, Tensor], device: torch.device | str = "cpu", meter: Meter | None = None
) -> pd.DataFrame:
    """How far each task's features have drifted from its expert's after every part of the network.

    One row per task, model (the merged one, and the pretrained one as a scale), place (stem, every block, the final
    embedding) and token: cosine, the mean of 1 - cos over the n images, and l1, the mean absolute difference per
    dimension (at the embedding that is the representation bias of Surgery). The embedding has one vector, which
    counts as both tokens.
    """
    pretrained = Encoder.from_checkpoint(models.pretrained, device)
    last, merged = models.pretrained, pretrained
    frames = []
    for task, expert in models.experts.items():
        own = Encoder.from_checkpoint(expert, device, fallback=models.pretrained)
        if models.merged[task] is not last:  # most often one model serves all tasks
            last = models.merged[task]
            merged = Encoder.from_checkpoint(last, device, fallback=models.pretrained)
        ends = None if models.modules is None else partial(models.modules.on(merged.device).features, task=task)
        frames.append(_task_rows(task, own, {MERGED: merged, PRETRAINED: pretrained}, images[task], meter, ends))
    return pd.concat(frames, ignore_index=True)


def _task_rows(
    task: str,
    own: Encoder,
    others: Mapping[str, Encoder],
    images: Tensor,
    meter: Meter | None,
    ends: Callable[[Tensor], Tensor] | None = None,
) -> pd.DataFrame:
    """The rows of one task; ``ends`` gives the embedding of the merged model where that is not its tower's own."""
    places = [STEM, *(f"block {block}" for block in range(own.architecture.layers)), OUTPUT]
    sums = np.zeros((len(others), len(places), len(TOKENS), 2))
    with torch.inference_mode():
        for batch in images.split(limit_batch(BATCH, own.architecture, own.device)):
            inputs = move_tensor(batch, own.device, batch.dtype)
            drifting = [
                _tokens_by_depth(other, inputs, ends if name == MERGED else None) for name, other in others.items()
            ]
            together = zip(_tokens_by_depth(own, inputs), *drifting, strict=True)
            for place, (reference, *drifted) in enumerate(together):
                for model, tokens in enumerate(drifted):
                    sums[model, place] += _distances(tokens, reference)
            if meter is not None:
                meter.advance(len(batch), "Measuring feature drift", task)
    means = sums / len(images)
    rows = [
        (task, model, place, position, token, *means[i, position, j], len(images))
        for i, model in enumerate(others)
        for position, place in enumerate(places)
        for j, token in enumerate(TOKENS)
    ]
    return pd.DataFrame(rows, columns=["task", "model", "place", "position", "token", "cosine", "l1", "n"])


def _tokens_by_depth(
    encoder: Encoder, images: Tensor, ends: Callable[[Tensor], Tensor] | None = None
) -> Iterator[Tensor]:
    """Tokens (n, tokens, width) after the stem and after each block, then the embedding as one token (n, 1, d)."""
    x = images
    for section in range(encoder.sections):
        x = encoder.run(section, x)
        yield x if x.ndim == 3 else (x if ends is None else ends(images))[:, None]


def _distances(tokens: Tensor, reference: Tensor) -> Floats:
    """Sums over images (len(TOKENS), 2) of 1 - cos and of the mean absolute difference, for each of ``TOKENS``."""
    sums = []
    for a, b in ((tokens[:, 0], reference[:, 0]), (tokens.mean(dim=1), reference.mean(dim=1))):
        one, other = a.cpu().double(), b.cpu().double()
        cosine = 1 - cosine_similarity(one, other, dim=-1)
        sums.append([float(cosine.clamp(min=0).sum()), float((one - other).abs().mean(dim=-1).sum())])
    return np.array(sums)


# Layer-isolated drift


def isolated_drift(
    models: MergeModels, exemplars: Mapping[str, Tensor], device: torch.device | str = "cpu", context: Context = QUIET
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Drift of every single layer, and the objective of LOT for every tensor.

    The first table has a row per tensor and task: mean_square, ‖Δ‖² / (n · outputs), and relative, ‖Δ‖ / ‖output of the
    expert's layer‖. The second has a row per tensor with Σ_k ‖Δ_k‖² for the merged weights, the pretrained ones, the
    mean of the experts, and LOT's own solution (the least on the input directions above its cut-off; a merge that also
    moves in the others can go lower).
    """
    device = torch.device(device)
    captured = CapturedInputs(models.experts, exemplars, device, like=models.pretrained)
    inputs = RunInputs(models.pretrained, models.experts, captured, device)
    layers = [
        layer_outputs(expert, exemplars[task], device, models.pretrained) for task, expert in models.experts.items()
    ]
    meter = context.meter(inputs.work)
    return isolated_tables(Stream(inputs, (), False, meter, MEASURING), models.merged, layers)


def isolated_tables(
    slots: Iterable[Slot], merged: Mapping[str, Checkpoint], layers: Sequence[LayerOutputs]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The two tables of ``isolated_drift`` from whole slots; ``layers`` are of the experts, in the slots' order."""
    isolated, objective = [], []
    for slot in slots:
        squares = _energies(slot, _merge_changes(slot, merged) - slot.task_vectors, layers)
        outputs = np.array([layer[slot.name] for layer in layers], np.float64)
        relative = np.sqrt(
            np.divide(squares, outputs[:, 0], out=np.full(len(squares), np.nan), where=outputs[:, 0] > 0)
        )
        isolated += [(slot.name, *row) for row in zip(slot.experts, squares / outputs[:, 1], relative, strict=True)]
        objective.append((slot.name, float(squares.sum()), *_objective_references(slot, layers)))
    return (
        pd.DataFrame(isolated, columns=["tensor", "task", "mean_square", "relative"]),
        pd.DataFrame(objective, columns=["tensor", MERGED, PRETRAINED, "mean", "least"]),
    )


def _merge_changes(slot: Slot, merged: Mapping[str, Checkpoint]) -> Tensor:
    """What the merge added to the pretrained tensor, for each task (K, *S)."""
    base = slot.pretrained
    read = [merged[task].read(slot.name).to(base.device, base.dtype) for task in slot.experts]
    turned = slot.parameter.transposed and base.ndim == 2  # slots have such matrices as (d_out, d_in)
    return torch.stack([tensor.mT if turned else tensor for tensor in read]) - base


def _objective_references(slot: Slot, layers: Sequence[LayerOutputs]) -> tuple[float, float, float]:
    """LOT's objective Σ_k ‖Δ_k‖² for the pretrained tensor, for the mean of the experts, and for LOT's solution."""
    if slot.inputs is not None:
        notes: dict[str, float] = {}
        lot = registry.find_merge("lot")
        lot.run(replace(slot, note=lambda table, **row: notes.update(row)), lot.params.build({"scaling": 1.0}), None)
        return notes["drift_zero"], notes["drift_mean"], notes["drift"]
    vectors = to_float64(slot.task_vectors)
    counts = torch.tensor([layer[slot.name].rows for layer in layers], dtype=vectors.dtype, device=vectors.device)
    weighted = torch.tensordot(counts / counts.sum(), vectors, 1)
    zero, mean, least = (
        float(_energies(slot, change - vectors, layers).sum())
        for change in (torch.zeros_like(weighted), vectors.mean(dim=0), weighted)
    )
    return zero, mean, least


def _energies(slot: Slot, differences: Tensor, layers: Sequence[LayerOutputs]) -> Floats:
    """‖Δ_k‖² (K,): how far the outputs of the slot's layer move from each expert's if its tensor differs so (K, *S)."""
    exact = to_float64(differences)
    if slot.inputs is None:  # added to every row
        squares = [layer[slot.name].rows * d.square().sum() for layer, d in zip(layers, exact, strict=True)]
    elif slot.role == Role.NORM_SCALE:
        squares = [(moments.energy() * d.square()).sum() for moments, d in zip(slot.inputs, exact, strict=True)]
    else:
        pairs = zip(slot.inputs, as_matrices(slot, exact), strict=True)
        squares = [output_energy(moments, matrix) for moments, matrix in pairs]
    return np.array(to_numbers(*squares)).clip(min=0)  # of Gram matrices, rounding may leave less than zero


def output_energy(moments: Moments, matrix: Tensor) -> Tensor:
    """‖X Mᵀ‖² () of the rows X (n, d_in) and a matrix (d_out, d_in)."""
    if (rows := moments.rows) is not None:
        return (to_float64(rows) @ matrix.T).square().sum()
    return (matrix * (matrix @ moments.gram())).sum()


class LayerOutput(NamedTuple):
    """The output of a layer of an expert for all exemplars: ‖Y‖², how many numbers, and in how many rows."""

    energy: float
    size: int
    rows: int


LayerOutputs = Mapping[str, LayerOutput]  # by the names of the layer's tensors


def layer_outputs(
    expert: Checkpoint, images: Tensor, device: torch.device | str = "cpu", like: Checkpoint | None = None
) -> dict[str, LayerOutput]:
    """The outputs of every layer of an expert on images (n, 3, h, w), under the name of each of the layer's tensors."""
    named = {parameter.name: parameter for parameter in expert.parameters}
    encoder = Encoder.from_checkpoint(expert, device, fallback=like)
    outputs: dict[str, LayerOutput] = {}

    def collect(name: str, rows: Tensor) -> None:
        weight = to_float64(expert.read(name).to(device))
        bias = name.removesuffix("weight") + "bias"
        columns = _as_columns(weight, named[name])
        inputs = to_float64(rows)
        y = inputs * columns if named[name].role == Role.NORM_SCALE else inputs @ columns
        if bias in named:
            y = y + to_float64(expert.read(bias).to(device))
        _add(outputs, (name, bias), y, len(rows))
        if named[name].role == Role.CONV:
            _add_embedded(outputs, expert, y, device)

    with torch.inference_mode():
        for batch in images.split(limit_batch(BATCH, encoder.architecture, encoder.device)):
            encoder(move_tensor(batch, encoder.device, batch.dtype), collect)
    return outputs


def _add(outputs: dict[str, LayerOutput], names: Sequence[str], y: Tensor, rows: int) -> None:
    energy = float(y.square().sum().cpu())
    for name in names:
        earlier = outputs.get(name, LayerOutput(0.0, 0, 0))
        outputs[name] = LayerOutput(earlier.energy + energy, earlier.size + y.numel(), earlier.rows + rows)


def _add_embedded(
    outputs: dict[str, LayerOutput], expert: Checkpoint, patches: Tensor, device: torch.device | str
) -> None:
    """The tokens that class and positional embedding are added to, from the patches' own rows."""
    names = {p.part: p.name for p in expert.parameters if p.role == Role.EMBEDDING}
    first, places = (
        to_float64(expert.read(names[part]).to(device)) for part in ("class_embedding", "positional_embedding")
    )
    tokens = patches.reshape(-1, len(places) - 1, patches.shape[-1])
    images = len(tokens)
    tokens = torch.cat([first.expand(images, 1, -1), tokens], dim=1) + places
    _add(outputs, tuple(names.values()), tokens, images)


def _as_columns(weight: Tensor, parameter: Parameter) -> Tensor:
    """A weight in the shape for rows @ weight: (d, out), or (d,) for a scale."""
    if parameter.role == Role.NORM_SCALE or is_transposed(parameter):
        return weight
    return weight.flatten(1).T
