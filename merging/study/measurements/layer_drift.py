"""Layer-isolated drift and LOT's objective of any network, from files of the experts' layer inputs.

No network runs: the rows X_k, or their Gram matrices, determine how far the outputs X_k (T - τ_k)ᵀ of every layer move.
Moments are these rows or Gram matrices of one layer in one expert. A team is the pretrained model and its experts with
their tensors under shared names, to which the names in an expert's file are translated.
The formulas are those of ``drift``. Embedding tables and other tensors without input rows are left out. A bias has
the rows of its weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from merging.base.devices import choose_device
from merging.base.errors import TaskError
from merging.base.numerics.linear_algebra import to_float64
from merging.base.text import first_few
from merging.engine.layer_inputs import CallerInputs
from merging.engine.run_inputs import RunInputs
from merging.engine.stream import Stream
from merging.methods.moments import Moments
from merging.methods.shared.least_squares import as_matrices
from merging.methods.slot import Slot
from merging.models.checkpoint import Checkpoint
from merging.models.families import Role
from merging.models.team.team_names import rename_to_team
from merging.recipes.data_files import DataFiles
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.study.measurements.drift import (
    LAYERS_STAGE,
    MEASURING_TEXT,
    LayerOutput,
    build_isolated_tables,
    output_energy,
)
from merging.study.runs.captured_files import CapturedFiles
from merging.tasks.context import Context

NO_FILES_MESSAGE = (
    "The recipe of this run names no layer inputs. Name a file for every expert; merging.capture makes them "
    "from your own data. On the command line: --layer-inputs NAME=FILE for each expert."
)
BIAS_SUFFIXES = {"weight": "bias", "gamma": "beta"}  # suffix of a weight's name -> suffix of its bias's name


def measure_layer_drift(subject: Subject, context: Context) -> MeasurementResult:
    """The tables "isolated" and "objective" of a run, as in ``drift``.

    Raises:
        CheckpointError: a checkpoint of the run, or a file of layer inputs, cannot be read.
        NeedsError: the files do not fit the models. TaskError: an expert has no file.
    """
    subject.refuse_modules(routed_only=True)
    opened, device, stages = (
        subject.checkpoints,
        choose_device(context.device),
        subject.split_context(context, {LAYERS_STAGE: 1.0}),
    )
    captured = opened.captured_files
    if subject.layer_inputs:
        files = DataFiles.build(layer_inputs=subject.layer_inputs)
        captured = CapturedFiles.open(replace(subject.recipe, data_files=files), None)
    if not captured.layer_inputs:
        raise TaskError(NO_FILES_MESSAGE)
    if experts_without_files := [name for name in opened.experts if name not in captured.layer_inputs]:
        raise TaskError(
            f"Layer inputs are needed of every expert; there are none of {first_few(experts_without_files)}."
        )
    input_source = CallerInputs(captured.layer_inputs, opened.experts, opened.pretrained, device)
    names = {
        name for expert, file in captured.layer_inputs.items() for name in rename_to_team(file, opened.experts[expert])
    }
    biases = {bias for name in names if (bias := _bias_name(name)) in opened.pretrained.infos}
    inputs = RunInputs(opened.pretrained, opened.experts, input_source, device, subset=frozenset(names | biases))
    per_task = subject.store.get_run(subject.run_id).per_task
    with subject.open_models(stages) as models:
        merged = {task: models[task if per_task else "merged"] for task in opened.experts}
        scalar_count = sum(opened.pretrained.infos[p.name].numel for p in inputs.in_capture_order) * (
            len(opened.experts) + 1
        )
        meter = stages[LAYERS_STAGE].meter(scalar_count)
        stream = Stream(inputs, stages=(), in_pieces=False, meter=meter, phase=MEASURING_TEXT)
        layers: list[dict[str, LayerOutput]] = [{} for _ in opened.experts]
        isolated, objective = build_isolated_tables(_note_outputs(stream, opened.experts, layers), merged, layers)
    counts = [output.rows for layer in layers for output in layer.values()]
    opened_files = captured.layer_inputs.items()
    notes = {
        "rows": max(counts),
        "fewest_rows": min(counts),
        "files": {name: file.name for name, file in opened_files},
        "digests": {name: file.digest() for name, file in opened_files},
        "doubts": list(CapturedFiles(captured.layer_inputs).list_doubts(opened.digests())),
    }
    return MeasurementResult({"isolated": isolated, "objective": objective}, notes)


def _note_outputs(
    slots: Iterable[Slot], experts: Mapping[str, Checkpoint], layers: Sequence[dict[str, LayerOutput]]
) -> Iterator[Slot]:
    """Yield the slots, after adding the outputs of each slot's layer to every expert's mapping in ``layers``.

    Moments are read once. A bias that precedes its weight is yielded at the end.
    """
    early_biases = []
    for slot in slots:
        if (inputs := slot.inputs) is None:
            if slot.name in layers[0]:
                yield slot
            else:
                early_biases.append(slot)
            continue
        weights = to_float64(slot.pretrained) + to_float64(slot.task_vectors)
        if slot.role != Role.NORM_SCALE:
            weights = as_matrices(slot, weights)
        bias = _bias_name(slot.name)
        for moments, weight, expert, layer in zip(inputs, weights, experts.values(), layers, strict=True):
            bias_values = to_float64(expert.read(bias).to(weight.device)) if bias in expert.infos else None
            layer[slot.name] = output = _sum_layer_outputs(moments, weight, bias_values)
            if bias_values is not None:
                layer[bias] = output
        yield replace(slot, read_inputs=partial(_return_inputs, inputs))  # later readers get the same moments
    yield from (slot for slot in early_biases if slot.name in layers[0])


def _return_inputs(inputs: tuple[Moments, ...]) -> tuple[Moments, ...]:
    return inputs


def _bias_name(name: str) -> str:
    """The name of the bias that belongs to a weight; empty if the weight's name has another form."""
    parent, _, last_part = name.rpartition(".")
    prefix, _, suffix = last_part.rpartition("_")  # packed attention has in_proj_weight and in_proj_bias
    if suffix not in BIAS_SUFFIXES:
        return ""
    return f"{parent}." * bool(parent) + f"{prefix}_" * bool(prefix) + BIAS_SUFFIXES[suffix]


def _sum_layer_outputs(moments: Moments, weight: Tensor, bias: Tensor | None) -> LayerOutput:
    """The outputs of a layer with ``weight`` W (d_out, d_in) or w (d,) and ``bias`` b: ‖X Wᵀ + b‖², or ‖X ⊙ w + b‖²."""
    total = moments.total()
    energy = (moments.energy() * weight.square()).sum() if weight.ndim == 1 else output_energy(moments, weight)
    if bias is not None:
        sums = total * weight if weight.ndim == 1 else weight @ total
        energy = energy + 2 * (bias @ sums) + moments.count * bias.square().sum()
    return LayerOutput(max(0.0, float(energy.cpu())), moments.count * len(weight), moments.count)
