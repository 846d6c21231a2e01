"""Merge fine-tuned CLIP vision experts and measure the effects of the merge.

The public API is small. ``list_methods()`` lists the registered methods, and ``register()`` adds one of yours.
``merge()`` runs a chain of edits and one merge. ``load_modules()`` opens the modules that an adapt put on top of a
merged model. ``preview()`` estimates the scores of a recipe. ``describe()`` lists the tensors of a model. ``capture()``
and ``gradient_means()`` pass data through any torch module. Importing this package is cheap: the
first call that needs torch loads it.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 11):  # noqa: UP036 - pip refuses an older Python, a checkout is imported by any
    # An error would come with a traceback; ``python -m merging`` imports this with "-m" as its first word.
    raise (SystemExit if sys.argv[:1] == ["-m"] else ImportError)(
        f"Mergescope needs Python 3.11 or newer, and this is Python {sys.version_info[0]}.{sys.version_info[1]}."
    )

from merging.base.version import __version__
from merging.tasks.context import Context

# libgomp's threads otherwise spin at barriers, which costs much time next to another busy process (another merge, the
# app's server, a browser). libgomp reads the variable once, when torch loads, so it must be set before.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING:
    import pandas as pd
    from torch.nn import Module

    from merging.base.progress import Cancel, ProgressCallback
    from merging.engine.capture.capture import capture
    from merging.engine.capture.data_files import save_gradients, save_layer_inputs
    from merging.engine.capture.gradient_means import gradient_means
    from merging.engine.capture.gradient_reader import GradientsOf
    from merging.engine.layer_inputs import LayerInputs
    from merging.engine.modules.modules import Modules
    from merging.engine.run import MergeResult
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.images.exemplars import TaskExemplars
    from merging.methods.method import Citation, Edit, Merge, Method, register
    from merging.models.checkpoint import Checkpoint
    from merging.models.formats.model_sources import Source
    from merging.recipes.recipe import Recipe
    from merging.study.previews.preview import Preview
    from merging.study.previews.preview_samples import PreviewSample
    from merging.study.runs.opened_recipe import OpenedRecipe
    from merging.study.runs.run import Run
__all__ = [
    "Citation", "Edit", "Merge", "MergeResult", "Modules", "Preview", "PreviewSample", "TaskExemplars", "__version__",
    "capture", "describe", "gradient_means", "list_methods", "load_modules", "merge", "preview", "recalibrate",
    "register", "save_gradients", "save_layer_inputs",
]  # fmt: skip


def list_methods() -> tuple[Method, ...]:
    """Every registered edit, merge and adapt: key, role, title, needs, params, citation."""
    from merging.methods import registry

    return registry.list_methods()


def merge(  # noqa: PLR0913 - the public contract
    pretrained: Source,
    experts: Mapping[str, Source | Sequence[Source]],
    merge: str = "task_arithmetic",
    params: Mapping[str, Any] | None = None,
    edits: Sequence[tuple[str, Mapping[str, Any]] | str] = (),
    *,
    layer_inputs: LayerInputs | None = None,
    gradients: GradientsOf | None = None,
    exemplars: Mapping[str, Any] | None = None,
    adapt: tuple[str, Mapping[str, Any]] | str | None = None,
    test_data: Mapping[str, Any] | None = None,
    count_dead_params: bool = False,
    activation: str = "",
    architecture: str = "",
    vocabulary: str = "common",
    family: str = "",
    strict: bool = False,
    device: str = "auto",
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
) -> MergeResult:
    """The merged model, and the tables of the chain: ``edits``, one ``merge``, and an ``adapt`` if there is one.

    Args:
        pretrained: a path, a Checkpoint, or a mapping name -> tensor (open_clip or Hugging Face visual names). Files
            get open_clip's names, with q, k and v packed in one tensor; a mapping keeps its names. The parameter
            ``split_qkv`` of some methods splits tensors whose names end in in_proj_weight or in_proj_bias into three.
        experts: ordered mapping expert name -> path | Checkpoint | mapping of tensors, or a list of runs of one task.
        merge: key of a merge; ``params`` are its parameters (those left out take their defaults).
        edits: (key, parameters) pairs, applied to the task vectors in order before the merge.
        layer_inputs: {expert: {parameter name: rows (n, d)}, or a result of ``capture``, or the path of its file}.
        gradients: {expert: a result of ``gradient_means``, or its file}, for Fisher merging and TATR.
        exemplars: {expert: images (n, 3, h, w)}, from which layer inputs are captured, or {expert: TaskExemplars}
            with the labels and heads that methods on gradients also need.
        adapt: key, or key and parameters, of an adapt on top of the merged model; it makes the result's ``modules``.
        test_data: {expert: TaskExemplars(images, head=head)}, to learn from without labels; labels are refused.
        count_dead_params: whether global quantiles count unused text tensors, as published image encoders' code does.
        activation: "quick_gelu" or "gelu", for exemplars; by default that of the metadata beside the weights.
        architecture: facts in no file: "heads=12,activation=gelu", an open_clip name or a configuration's path.
        vocabulary: for language models; "common" merges the tokens of all, "pretrained" leaves the tables unchanged.
        family: "clip" takes the CLIP tower out of a larger network, such as LLaVA, which is otherwise merged whole;
            "inferred" infers every role from names and shapes; by default models are recognized.
        strict: refuse experts of another pretrained model, equal to it, or passed twice, instead of warning.
        device: "auto" (CUDA, then MPS, then CPU) or a torch device name.
        progress, cancel: called with a Progress, and an Event or a callable checked, after every piece of work.

    Raises:
        ParameterError, UnknownMethodError, RecipeError, NeedsError: the recipe cannot run.
        CheckpointError, FamilyError, CompatibilityError: the files cannot be merged, or should not if ``strict``; the
            message names every problem.
        Cancelled: the caller cancelled; nothing is saved.
    """
    stated = {"activation": activation, "architecture": architecture, "family": family, "vocabulary": vocabulary}
    base, inputs = _open(pretrained, experts, merge, params, edits, count_dead_params, stated, adapt)
    _warn(inputs, strict)
    data = {"layer_inputs": layer_inputs, "exemplars": exemplars, "test_data": test_data}
    result = _run(inputs, data, gradients, Context(device, progress, cancel))
    inputs.raise_if_changed()
    return _under_own_names(result, base, inputs.doubts)


def describe(source: Source, family: str = "") -> pd.DataFrame:
    """Every tensor of a checkpoint in forward order: its role in the network, and its treatment by a merge.

    Columns: tensor, tower, section, block, part, role, transposed, tied_to, shape, dtype, becomes ("merged", "mean",
    "kept" or "per task") and told_by ("clip", "facts" or "inferred"). ``source`` and ``family`` are as for ``merge``.

    Raises:
        CheckpointError, FamilyError: the checkpoint cannot be read, or the roles of its tensors cannot be determined.
    """
    from merging.models.formats.model_sources import open_checkpoint
    from merging.models.inspection.tensor_table import tensor_table

    return tensor_table(open_checkpoint(source, family=family))


def load_modules(folder: str | os.PathLike[str], device: str = "cpu") -> Modules:
    """The modules in a folder that ``Modules.save`` or an export wrote, with the merged model beside them.

    Raises:
        CheckpointError: a file is missing, damaged or differs from the folder's list, or the model is another one.
    """
    from merging.engine.modules.reading_modules import load_modules as load

    return load(folder, device)


def recalibrate(model: Module, batches: Iterable[Any]) -> Module:
    """The same module, with the running statistics of its batch norms measured on the batches.

    Batches are tensors (n, ...), or mappings passed as keywords. Without this call, a merged network has the means of
    its experts' running statistics.
    """
    from merging.models.team.recalibrate import recalibrate as measure

    return measure(model, batches)


def preview(
    recipe: Recipe,
    sample: PreviewSample | int | None = None,
    reference: Recipe | Run | None = None,
    *,
    benchmark: Benchmark | None = None,
    device: str = "auto",
    cancel: Cancel | None = None,
) -> Preview:
    """The scores of a recipe on images of the choosing half, as differences to a reference on the same images.

    Args:
        recipe: references to checkpoints, edits and a merge, as in a recipe file.
        sample: the number of images per task, or a ``PreviewSample`` with a seed; None takes the whole choosing half.
        reference: a recipe or a stored run; None is the pretrained model.
        benchmark: the images and heads; default: the bundled ones.
        device: "auto" (CUDA, then MPS, then CPU) or a torch device name.
        cancel: an Event or a callable, checked between two batches.

    Raises:
        ParameterError: ``sample`` is no number of images.
        NeedsError: the chain learns, or needs exemplars; both take longer than a preview may.
        CheckpointError, CompatibilityError, TaskError: the models cannot be merged or do not fit the benchmark.
        Cancelled: the caller cancelled.
    """
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.study.previews.preview_samples import PreviewSample
    from merging.study.previews.previewer import Previewer

    chosen = sample if isinstance(sample, PreviewSample) else PreviewSample(sample)
    previewer, context = Previewer(benchmark or Benchmark.load(), device), Context(device, cancel=cancel)
    return previewer.begin(recipe, chosen, reference, context=context).finish()


def _run(
    inputs: OpenedRecipe,
    data: Mapping[str, Any],
    gradients: GradientsOf | None,
    context: Context,
) -> MergeResult:
    """The merged model of an opened recipe, with the modules of its adapt if it has one."""
    from merging.engine import run as engine

    models = (inputs.pretrained, inputs.experts)
    result = engine.run_recipe(inputs.recipe, *models, **data, gradients=gradients, context=context)
    if inputs.recipe.adapt is None:
        return result
    from merging.engine.adapt import adapt
    from merging.models.checkpoint import MappingCheckpoint

    merged = MappingCheckpoint(result.state_dict, "merged")
    merged.metadata = inputs.pretrained.metadata
    adapted = adapt(inputs.recipe, *models, merged, **data, context=context)
    return adapted.add_to(result)


def _under_own_names(result: MergeResult, base: Checkpoint, doubts: tuple[str, ...]) -> MergeResult:
    """The result with the caller's tensor names, and with the doubts before the other warnings."""
    per_task = result.task_state_dicts
    return dataclasses.replace(
        result,
        state_dict=base.rename_as_in_file(result.state_dict) if result.state_dict else {},
        task_state_dicts=None
        if per_task is None
        else {name: base.rename_as_in_file(state) for name, state in per_task.items()},
        warnings=(*doubts, *result.warnings),
    )


def _warn(inputs: OpenedRecipe, strict: bool) -> None:
    """Log doubts that the models belong together, or raise CompatibilityError for them if ``strict``."""
    from merging.tasks.context import log_warning

    if strict:
        inputs.raise_if_doubtful()
    for doubt in inputs.doubts:
        log_warning(doubt)


def _open(
    pretrained: Source,
    experts: Mapping[str, Source | Sequence[Source]],
    merge: str,
    params: Mapping[str, Any] | None,
    edits: Sequence[tuple[str, Mapping[str, Any]] | str],
    count_dead_params: bool,
    stated: Mapping[str, str],
    adapt: tuple[str, Mapping[str, Any]] | str | None,
) -> tuple[Checkpoint, OpenedRecipe]:
    """The pretrained checkpoint under the caller's tensor names, and the opened recipe of a call of ``merge``."""
    from merging.base.errors import RecipeError
    from merging.models.formats.model_sources import open_models
    from merging.models.formats.named_architecture import named_architecture
    from merging.models.task_checkpoints import flatten_experts
    from merging.recipes import chain_rules
    from merging.recipes.recipe import Recipe
    from merging.study.runs import opened_recipe

    if not isinstance(experts, Mapping):
        raise RecipeError(f"experts is a mapping of name to checkpoint; got {type(experts).__name__}.")
    chain_rules.checked_family(stated["family"])
    base, opened = open_models(pretrained, flatten_experts(experts), stated["family"])
    recipe = Recipe.build(
        merge=merge,
        params=params or {},
        edits=edits,
        pretrained=base.label,
        experts={name: checkpoint.label for name, checkpoint in opened.items()},
        count_dead_params=count_dead_params,
        activation=stated["activation"],
        architecture=named_architecture(stated["architecture"]).text(),
        family=stated["family"],
        vocabulary=stated["vocabulary"],
        adapt=adapt,
    )
    return base, opened_recipe.attach_checkpoints(recipe, base, opened)


# Public names that load on first use -> the modules that define them.
DEFINED_IN = {
    "Citation": "merging.methods.method",
    "Edit": "merging.methods.method",
    "Merge": "merging.methods.method",
    "MergeResult": "merging.engine.run",
    "Modules": "merging.engine.modules.modules",
    "Preview": "merging.study.previews.preview",
    "PreviewSample": "merging.study.previews.preview_samples",
    "TaskExemplars": "merging.images.exemplars",
    "capture": "merging.engine.capture.capture",
    "gradient_means": "merging.engine.capture.gradient_means",
    "register": "merging.methods.method",
    "save_gradients": "merging.engine.capture.data_files",
    "save_layer_inputs": "merging.engine.capture.data_files",
}


def __getattr__(name: str) -> Any:
    if name not in DEFINED_IN:
        raise AttributeError(f"module 'merging' has no attribute {name!r}")
    return getattr(importlib.import_module(DEFINED_IN[name]), name)
