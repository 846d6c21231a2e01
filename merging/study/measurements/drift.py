"""Feature drift: how far a merged model's features are from each expert's on that expert's own images (LOT, Eq. 4).

Cumulative drift runs both models end to end. Layer-isolated drift replaces one tensor of the expert by the merged one,
with the expert's own inputs. For a weight it is Δ_k = X_k (T - τ_k)ᵀ, with the inputs X_k and the task vector τ_k of
expert k and the merged task vector T; LOT minimizes the sum over tasks of its squared
norm, which is computed from the Gram matrices of the inputs in float64.
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
from merging.engine.evaluation.image_features import HEAD_BATCH
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

# The images of cumulative drift: a seeded sample of at most MAX_IMAGES per task.
SPLIT, MAX_IMAGES, SEED = "choosing", 256, 0
# The features after a part of the network: the class token, or the mean over all tokens.
TOKEN_KINDS = ("class", "mean")
STEM, OUTPUT_SECTION = "stem", "embedding"
FEATURES_STAGE, LAYERS_STAGE = "features", "layers"  # stages of the work
MEASURING_TEXT = "Measuring every layer"
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MergeModels:
    """The models of one merge; ``merged`` maps each task to its model, usually one model for all tasks.

    ``modules`` are on top of the merged model and change only its embedding.
    """

    pretrained: Checkpoint
    experts: Mapping[str, Checkpoint]
    merged: Mapping[str, Checkpoint]
    modules: Modules | None = None


def measure_drift(subject: Subject, context: Context) -> MeasurementResult:
    """The tables "cumulative", "isolated" and "objective" of a run.

    Raises:
        CheckpointError, TaskError: a checkpoint of the run cannot be read, or the benchmark lacks images for it.
    """
    subject.refuse_modules(routed_only=True)
    opened, benchmark = subject.checkpoints_on_benchmark, subject.benchmark
    sampling = subject.recipe.exemplars or Exemplars()
    images = {task: sample_choosing_images(benchmark, task) for task in opened.experts}
    exemplars = benchmark.exemplars(sampling.per_task, sampling.seed)
    device, stages = (
        choose_device(context.device),
        subject.split_context(context, {FEATURES_STAGE: 2.0, LAYERS_STAGE: 3.0}),
    )
    with subject.open_models_by_task(stages) as merged:
        models = MergeModels(opened.pretrained, opened.experts, merged, subject.modules)
        meter = stages[FEATURES_STAGE].meter(sum(map(len, images.values())))
        cumulative = cumulative_drift(models, images, device, meter)
        own_exemplars = {task: exemplars[task] for task in images}
        isolated, objective = isolated_drift(models, own_exemplars, device, stages[LAYERS_STAGE])
    counts = [len(exemplars_of_task) for exemplars_of_task in own_exemplars.values()]
    counts_by_name = {
        "images": max(map(len, images.values())),
        "exemplars": max(counts),
        "fewest_exemplars": min(counts),
    }
    notes = {**counts_by_name, "split": SPLIT, "exemplar_seed": sampling.seed}
    return MeasurementResult({"cumulative": cumulative, "isolated": isolated, "objective": objective}, notes)


def sample_choosing_images(benchmark: Benchmark, task: str) -> Tensor:
    """Preprocessed images (n, 3, h, w) of a task's choosing half: all of them, or a seeded sample of ``MAX_IMAGES``."""
    images, _ = benchmark.load_images(task, SPLIT)
    order = np.random.default_rng(SEED).permutation(len(images))[:MAX_IMAGES]
    return benchmark.preprocess(images[np.sort(order)])


# Cumulative drift


def cumulative_drift(
    models: MergeModels, images: Mapping[str, Tensor], device: torch.device | str = "cpu", meter: Meter | None = None
) -> pd.DataFrame:
    """How far each task's features drift from its expert's by every part of the network, on ``images`` (n, 3, h, w).

    One row per task, model (the merged one, and the pretrained one as a scale), place (the part of the network: stem,
    every block, the final embedding) with its position, and token. cosine is the mean of 1 - cos over the n images; l1
    is the mean absolute difference per dimension, which for the embedding is the representation bias of Surgery. The
    embedding has one vector, which counts as both tokens.
    """
    pretrained = Encoder.from_checkpoint(models.pretrained, device)
    loaded_checkpoint, merged = models.pretrained, pretrained
    frames = []
    for task, expert in models.experts.items():
        expert_encoder = Encoder.from_checkpoint(expert, device, fallback=models.pretrained)
        if models.merged[task] is not loaded_checkpoint:  # usually one model serves all tasks
            loaded_checkpoint = models.merged[task]
            merged = Encoder.from_checkpoint(loaded_checkpoint, device, fallback=models.pretrained)
        embed = None if models.modules is None else partial(models.modules.on(merged.device).features, task=task)
        frames.append(
            _build_task_rows(task, expert_encoder, {MERGED: merged, PRETRAINED: pretrained}, images[task], meter, embed)
        )
    return pd.concat(frames, ignore_index=True)


def _build_task_rows(
    task: str,
    expert_encoder: Encoder,
    compared: Mapping[str, Encoder],
    images: Tensor,
    meter: Meter | None,
    embed: Callable[[Tensor], Tensor] | None = None,
) -> pd.DataFrame:
    """The rows of one task; ``embed`` computes the merged model's embedding if modules change its tower's own."""
    sections = [STEM, *(f"block {block}" for block in range(expert_encoder.architecture.layers)), OUTPUT_SECTION]
    sums = np.zeros((len(compared), len(sections), len(TOKEN_KINDS), 2))
    with torch.inference_mode():
        for batch in images.split(limit_batch(HEAD_BATCH, expert_encoder.architecture, expert_encoder.device)):
            inputs = move_tensor(batch, expert_encoder.device, batch.dtype)
            drifting = [
                tokens_by_depth(encoder, inputs, embed if name == MERGED else None)
                for name, encoder in compared.items()
            ]
            by_depth = zip(tokens_by_depth(expert_encoder, inputs), *drifting, strict=True)
            for position, (reference, *drifted) in enumerate(by_depth):
                for model, tokens in enumerate(drifted):
                    sums[model, position] += _sum_distances(tokens, reference)
            if meter is not None:
                meter.advance(len(batch), "Measuring feature drift", task)
    means = sums / len(images)
    rows = [
        (task, model, section, position, token, *means[i, position, j], len(images))
        for i, model in enumerate(compared)
        for position, section in enumerate(sections)
        for j, token in enumerate(TOKEN_KINDS)
    ]
    return pd.DataFrame(rows, columns=["task", "model", "place", "position", "token", "cosine", "l1", "n"])


def tokens_by_depth(
    encoder: Encoder, images: Tensor, embed: Callable[[Tensor], Tensor] | None = None
) -> Iterator[Tensor]:
    """Tokens (n, tokens, width) after the stem and after each block, then the embedding as one token (n, 1, d)."""
    x = images
    for section in range(encoder.sections):
        x = encoder.run_section(section, x)
        yield x if x.ndim == 3 else (x if embed is None else embed(images))[:, None]


def _sum_distances(tokens: Tensor, reference: Tensor) -> Floats:
    """Sums over images (len(TOKENS), 2) of 1 - cos and of the mean absolute difference, for each of ``TOKEN_KINDS``."""
    sums = []
    for a, b in ((tokens[:, 0], reference[:, 0]), (tokens.mean(dim=1), reference.mean(dim=1))):
        exact_a, exact_b = a.cpu().double(), b.cpu().double()
        cosine = 1 - cosine_similarity(exact_a, exact_b, dim=-1)
        sums.append([float(cosine.clamp(min=0).sum()), float((exact_a - exact_b).abs().mean(dim=-1).sum())])
    return np.array(sums)


# Layer-isolated drift


def isolated_drift(
    models: MergeModels, exemplars: Mapping[str, Tensor], device: torch.device | str = "cpu", context: Context = QUIET
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The drift of every single layer on ``exemplars`` {task: (n, 3, h, w)}, and LOT's objective for every tensor.

    The first table has a row per tensor and task: mean_square, ‖Δ‖² / (n · outputs), and relative, ‖Δ‖ / ‖output of the
    expert's layer‖. The second has a row per tensor with Σ_k ‖Δ_k‖² for the merged weights, the pretrained ones, the
    mean of the experts, and LOT's own solution. That is the minimum on the input directions above LOT's cut-off; a
    merge that also changes other directions can be lower.
    """
    device = torch.device(device)
    captured = CapturedInputs(models.experts, exemplars, device, like=models.pretrained)
    inputs = RunInputs(models.pretrained, models.experts, captured, device)
    layers = [
        measure_layer_outputs(expert, exemplars[task], device, models.pretrained)
        for task, expert in models.experts.items()
    ]
    meter = context.meter(inputs.work)
    stream = Stream(inputs, stages=(), in_pieces=False, meter=meter, phase=MEASURING_TEXT)
    return build_isolated_tables(stream, models.merged, layers)


def build_isolated_tables(
    slots: Iterable[Slot], merged: Mapping[str, Checkpoint], layers: Sequence[LayerOutputs]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The two tables of ``isolated_drift`` from slots: one whole tensor each, with pretrained value and task vectors.

    ``layers`` are the outputs of the experts' layers, in the order of the slots' experts.
    """
    isolated, objective = [], []
    for slot in slots:
        squares = _measure_energies(slot, _merge_changes(slot, merged) - slot.task_vectors, layers)
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
    """The difference of each task's merged tensor from the pretrained one (K, *S)."""
    base = slot.pretrained
    stored = [merged[task].read(slot.name).to(base.device, base.dtype) for task in slot.experts]
    transposed = slot.parameter.transposed and base.ndim == 2  # slots have such matrices as (d_out, d_in)
    return torch.stack([tensor.mT if transposed else tensor for tensor in stored]) - base


def _objective_references(slot: Slot, layers: Sequence[LayerOutputs]) -> tuple[float, float, float]:
    """LOT's objective Σ_k ‖Δ_k‖² for the pretrained tensor, for the mean of the experts, and for LOT's solution."""
    if slot.inputs is not None:
        notes: dict[str, float] = {}
        lot = registry.find_merge("lot")
        note_row = replace(slot, note=lambda table, **row: notes.update(row))
        lot.run(note_row, lot.params.build({"scaling": 1.0}), None)  # None: LOT has no survey of all tensors
        return notes["drift_zero"], notes["drift_mean"], notes["drift"]
    vectors = to_float64(slot.task_vectors)
    counts = torch.tensor([layer[slot.name].rows for layer in layers], dtype=vectors.dtype, device=vectors.device)
    weighted = torch.tensordot(counts / counts.sum(), vectors, 1)
    pretrained, mean_of_experts, lot_minimum = (
        float(_measure_energies(slot, change - vectors, layers).sum())
        for change in (torch.zeros_like(weighted), vectors.mean(dim=0), weighted)
    )
    return pretrained, mean_of_experts, lot_minimum


def _measure_energies(slot: Slot, differences: Tensor, layers: Sequence[LayerOutputs]) -> Floats:
    """‖Δ_k‖² (K,): the change of each expert's layer outputs by ``differences`` (K, *S) from its tensor."""
    exact = to_float64(differences)
    if slot.inputs is None:  # added to every row
        squares = [layer[slot.name].rows * d.square().sum() for layer, d in zip(layers, exact, strict=True)]
    elif slot.role == Role.NORM_SCALE:
        squares = [(moments.energy() * d.square()).sum() for moments, d in zip(slot.inputs, exact, strict=True)]
    else:
        pairs = zip(slot.inputs, as_matrices(slot, exact), strict=True)
        squares = [output_energy(moments, matrix) for moments, matrix in pairs]
    return np.array(to_numbers(*squares)).clip(min=0)  # rounding may make results from Gram matrices negative


def output_energy(moments: Moments, matrix: Tensor) -> Tensor:
    """‖X Mᵀ‖², a scalar, of the rows X (n, d_in) that ``moments`` are of and a ``matrix`` M (d_out, d_in)."""
    if (rows := moments.rows) is not None:
        return (to_float64(rows) @ matrix.T).square().sum()
    return (matrix * (matrix @ moments.gram())).sum()


class LayerOutput(NamedTuple):
    """The outputs Y of an expert's layer for all exemplars: ‖Y‖², its number of entries, and its number of rows."""

    energy: float
    size: int
    rows: int


LayerOutputs = Mapping[str, LayerOutput]  # by the names of the layer's tensors


def measure_layer_outputs(
    expert: Checkpoint, images: Tensor, device: torch.device | str = "cpu", fallback: Checkpoint | None = None
) -> dict[str, LayerOutput]:
    """The outputs of every layer of an expert on images (n, 3, h, w), under the name of each tensor of the layer."""
    parameters = {parameter.name: parameter for parameter in expert.parameters}
    encoder = Encoder.from_checkpoint(expert, device, fallback=fallback)
    outputs: dict[str, LayerOutput] = {}

    def collect(name: str, rows: Tensor) -> None:
        weight = to_float64(expert.read(name).to(device))
        bias = name.removesuffix("weight") + "bias"
        columns = _arrange_as_columns(weight, parameters[name])
        inputs = to_float64(rows)
        y = inputs * columns if parameters[name].role == Role.NORM_SCALE else inputs @ columns
        if bias in parameters:
            y = y + to_float64(expert.read(bias).to(device))
        _add_outputs(outputs, (name, bias), y, len(rows))
        if parameters[name].role == Role.CONV:
            _add_embedded(outputs, expert, y, device)

    with torch.inference_mode():
        for batch in images.split(limit_batch(HEAD_BATCH, encoder.architecture, encoder.device)):
            encoder(move_tensor(batch, encoder.device, batch.dtype), collect)
    return outputs


def _add_outputs(outputs: dict[str, LayerOutput], names: Sequence[str], layer_output: Tensor, rows: int) -> None:
    energy = float(layer_output.square().sum().cpu())
    for name in names:
        earlier = outputs.get(name, LayerOutput(0.0, 0, 0))
        outputs[name] = LayerOutput(earlier.energy + energy, earlier.size + layer_output.numel(), earlier.rows + rows)


def _add_embedded(
    outputs: dict[str, LayerOutput], expert: Checkpoint, patches: Tensor, device: torch.device | str
) -> None:
    """Add the outputs of the embeddings: the tokens that enter the first block, from the rows of ``patches``."""
    names = {p.part: p.name for p in expert.parameters if p.role == Role.EMBEDDING}
    class_token, positions = (
        to_float64(expert.read(names[part]).to(device)) for part in ("class_embedding", "positional_embedding")
    )
    tokens = patches.reshape(-1, len(positions) - 1, patches.shape[-1])
    images = len(tokens)
    tokens = torch.cat([class_token.expand(images, 1, -1), tokens], dim=1) + positions
    _add_outputs(outputs, tuple(names.values()), tokens, images)


def _arrange_as_columns(weight: Tensor, parameter: Parameter) -> Tensor:
    """A weight in the shape for rows @ weight: (d_in, d_out), or (d,) for a scale."""
    if parameter.role == Role.NORM_SCALE or is_transposed(parameter):
        return weight
    return weight.flatten(1).T
