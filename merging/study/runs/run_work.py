"""The computation of one run: it merges, evaluates and writes the run's folder."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from merging.base.errors import MergingError, StoreError
from merging.base.files.disk import free_bytes, link_or_copy
from merging.base.files.records import write_json
from merging.base.files.tables import SCORES, unconverted_tables, write_table
from merging.base.free_memory import free_memory
from merging.base.text import first_few, size_text
from merging.engine import run as engine
from merging.engine.outputs import MERGED
from merging.images.benchmarks import image_draws
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.exemplars import TaskExemplars
from merging.methods.params import Params
from merging.models.architecture import Architecture, activation_in_metadata
from merging.models.formats.model_sources import open_checkpoint
from merging.models.formats.safetensors import SafetensorsWriter
from merging.models.model_references import expert_key
from merging.models.team.task_heads_file import HEADS_FILE as HEADS
from merging.models.team.task_heads_file import write_heads
from merging.recipes.recipe import Recipe
from merging.study.runs.estimate import ADAPTING, EVALUATING, MERGING, Estimate
from merging.study.runs.opened_recipe import OpenedRecipe
from merging.study.runs.run import FACTS, RECIPE, Run
from merging.study.runs.run_answers import write_evaluation
from merging.study.runs.run_facts import run_facts
from merging.study.runs.run_store import Store
from merging.study.runs.whole_tensors import tensors_on_workers
from merging.tasks.context import Context

if TYPE_CHECKING:
    from merging.engine.evaluation.evaluate import Evaluation
    from merging.engine.learning.learning_state import LearningState
    from merging.engine.modules.modules import Modules

UNSCORED_PREFIX = "There is no score for images"
HISTORY_PREFIX = "coefficient_steps"  # the prefix of tables that are stored packed: coefficients at many steps
MAX_NAME_CHARACTERS = 100  # of an expert's name in a file name


@dataclass(frozen=True)
class ChainImages:
    """The images of the benchmark that a chain uses: training images with labels, and images without labels."""

    exemplars: Mapping[str, TaskExemplars] | None = None
    test_data: Mapping[str, TaskExemplars] | None = None

    def count_images(self, tasks: Iterable[str]) -> dict[str, dict[str, int]]:
        """{"exemplars" or "test_data": {task: number of images}} for these tasks; empty for chains without images."""
        kinds = {"exemplars": self.exemplars or {}, "test_data": self.test_data or {}}
        counts = {
            kind: {task: len(images_by_task[task].images) for task in tasks if task in images_by_task}
            for kind, images_by_task in kinds.items()
        }
        return {kind: by_task for kind, by_task in counts.items() if by_task}


@dataclass(frozen=True, eq=False)
class KnownScores:
    """An evaluation that was computed together with those of other models, and the seconds it took."""

    evaluation: Evaluation
    seconds: float


@dataclass
class RunWork:
    """The computation of one run, from opened checkpoints to a published folder."""

    run_id: str
    opened: OpenedRecipe
    digests: Mapping[str, str]
    store: Store
    benchmark: Benchmark | None
    images: ChainImages
    context: Context
    phase_contexts: Mapping[str, Context]  # the context's parts by the phases of the plan
    plan: Estimate
    keep_model: bool
    learning_state: LearningState | None = None  # the state of learning, from which a later run can resume
    known_scores: KnownScores | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    models: dict[str, str] = field(default_factory=dict)
    schemas: dict[str, dict[str, str]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)

    @property
    def recipe(self) -> Recipe:
        return self.opened.recipe

    def merge(self) -> None:
        """Merge, evaluate the merge, and write the folder of the run."""
        self._check_budget()
        with self.store.write_run(self.run_id, replace=self.store.has_run(self.run_id)) as folder:
            started = time.monotonic()
            result = self._merge_to_files(folder)
            self.seconds[MERGING] = time.monotonic() - started
            result = self._adapt_merged(folder, result)
            heads = write_heads(folder, result.heads)
            self.opened.raise_if_changed()
            doubts = *self.opened.doubts, *self.opened.captured_files.list_doubts(self.digests)
            self.warnings.extend((*doubts, *self._list_activation_warnings(), *result.warnings))
            for name, table in unconverted_tables(result.tables).items():
                self.schemas[name] = write_table(folder, name, table, packed=name.startswith(HISTORY_PREFIX))
            (folder / RECIPE).write_text(self.recipe.to_yaml(), "utf-8")
            self._evaluate_models(folder)
            self._record_sizes(folder)
            if not self.keep_model:
                for name in (*self.models.values(), *self.modules, *heads):
                    (folder / name).unlink()
                for name in {name.split("/")[0] for name in self.modules if "/" in name}:
                    (folder / name).rmdir()
                self.models, self.modules = {}, []
            write_json(folder / FACTS, self._build_facts(result.device, self.plan.work))

    def add_scores(self, run: Run) -> None:
        """Evaluate a stored run and write it again with the scores."""
        self.models = {key: path.name for key, path in run.model_paths.items()}
        self.seconds |= {**run.seconds}
        self.warnings.extend(text for text in run.warnings if text not in run.evaluation_warnings)
        with self.store.write_run(self.run_id, replace=True) as folder:
            self.modules = list(run.modules)
            heads_file = {HEADS} & {*run.files}  # empty if the run has no such file
            for name in (*self.models.values(), *self.modules, *heads_file):
                (folder / name).parent.mkdir(exist_ok=True)
                link_or_copy(run.file(name), folder / name)
            for name in run.tables:
                self.schemas[name] = write_table(folder, name, run.table(name), packed=name.startswith(HISTORY_PREFIX))
            (folder / RECIPE).write_text(run.recipe_yaml, "utf-8")
            self._evaluate_models(folder)
            self._record_sizes(folder)
            write_json(folder / FACTS, self._build_facts(run.device, {**self.plan.work, **run.work}))

    def _merge_to_files(self, folder: Path) -> engine.MergeResult:
        """Merge into model files; they are complete when this returns. A sink receives the tensors of one model."""
        with ExitStack() as files:

            def sink(name: str) -> SafetensorsWriter:
                self.models[name] = _choose_file_name(name, self.models.values())
                path = folder / self.models[name]
                return files.enter_context(
                    SafetensorsWriter(path, self.opened.pretrained.infos, self._build_metadata(name))
                )

            on_workers = tensors_on_workers(self.opened, self.context)
            return engine.run_recipe(
                self.recipe, self.opened.pretrained, self.opened.experts,
                layer_inputs=self.opened.captured_files.layer_inputs or None,
                gradients=self.opened.captured_files.gradients or None,
                exemplars=self.images.exemplars, test_data=self.images.test_data, learning_state=self.learning_state,
                make_sink=sink, remote=files.enter_context(on_workers), context=self.phase_contexts[MERGING],
            )  # fmt: skip

    def _adapt_merged(self, folder: Path, merged: engine.MergeResult) -> engine.MergeResult:
        """The result with the recipe's adapt on the merged model in ``folder``; writes the modules there."""
        if self.recipe.adapt is None:
            return merged
        from merging.engine.adapt import adapt  # its imports take a while

        started = time.monotonic()
        adapted = adapt(
            self.recipe,
            self.opened.pretrained,
            self.opened.experts,
            open_checkpoint(folder / self.models[MERGED], MERGED),
            exemplars=self.images.exemplars,
            test_data=self.images.test_data,
            learning_state=self.learning_state,
            context=self.phase_contexts[ADAPTING],
        )
        self.modules = adapted.modules.write(folder)
        self.seconds[ADAPTING] = time.monotonic() - started
        return adapted.add_to(merged)

    def _list_activation_warnings(self) -> Iterator[str]:
        """A warning if images were passed through an activation that no file states."""
        pretrained, tower = self.opened.pretrained, self.benchmark.pretrained_tower if self.benchmark else None
        if self.benchmark is None and self.images == ChainImages():
            return
        if not activation_in_metadata(pretrained):
            name = "QuickGELU" if Architecture.from_checkpoint(pretrained, tower).quick_gelu else "GELU"
            yield (
                f"No file beside the pretrained model's weights states its activation; {name} was assumed for "
                "exemplars and scores. If it has another one, name it in the recipe, or with --activation."
            )

    def _build_metadata(self, name: str) -> dict[str, str]:
        """The metadata of a model file; without facts about this machine or the time, so that bytes repeat."""
        recipe_data = self.recipe.to_plain()
        experts = {key: self.digests[expert_key(key)] for key in self.opened.experts}
        settings = ("exemplars", "test_data", "activation", "architecture", "vocabulary", "edits", "merge", "adapt")
        chain = {key: recipe_data[key] for key in settings if key in recipe_data}
        metadata = {
            "format": "pt",
            "role": MERGED,
            "run": self.run_id,
            "recipe": json.dumps({**chain, "pretrained": self.digests["pretrained"], "experts": experts}),
        }
        if self.recipe.per_task:
            metadata["task"] = name
        if architecture := self.opened.pretrained.metadata.get("architecture"):
            metadata["architecture"] = architecture
        return metadata

    def _evaluate_models(self, folder: Path) -> None:
        """Evaluate the models in ``folder``, if there is a benchmark."""
        if self.benchmark is None:
            return
        if self.known_scores is not None:
            self.schemas |= write_evaluation(folder, self.known_scores.evaluation)
            self.seconds[EVALUATING] = self.known_scores.seconds
            return
        from merging.engine.evaluation.evaluate import (  # its imports take a while
            evaluate_answers,
            evaluate_models,
            list_task_models,
        )
        from merging.engine.evaluation.unknown_task import UNKNOWN_TASK
        from merging.study.runs.scores_on_workers import store_answers_of_workers

        started = time.monotonic()
        paths = {key: folder / name for key, name in self.models.items()}
        context, stored_features = (
            replace(self.phase_contexts[EVALUATING], warn=self._note_warning),
            self.store.features_folder(self.run_id),
        )
        if self.recipe.per_task:
            models = list_task_models(paths, self.benchmark, stored_features)
            evaluation = evaluate_models(models, self.benchmark, context=context)
        else:
            modules = self._read_modules(folder)
            if modules is None:
                store_answers_of_workers(
                    paths[MERGED], self.benchmark, stored_features, self.phase_contexts[EVALUATING]
                )
            # with ``candidate_tasks`` the method predicts the task of an image whose task is unknown
            predicts_task = modules is not None and modules.method.candidate_tasks is not None
            parts = context.split({SCORES: len(self.benchmark.tasks), UNKNOWN_TASK: len(self.opened.experts)})
            scoring_context = parts[SCORES] if predicts_task else context
            evaluation = evaluate_answers(
                paths[MERGED], self.benchmark, modules=modules, stored_features=stored_features, context=scoring_context
            )
            if modules is not None and predicts_task:
                self._evaluate_unknown_task(folder, modules, parts[UNKNOWN_TASK])
        self.schemas |= write_evaluation(folder, evaluation)
        self.seconds[EVALUATING] = time.monotonic() - started

    def _evaluate_unknown_task(self, folder: Path, modules: Modules, context: Context) -> None:
        """Evaluate modules that predict the task, as if the task of an image were unknown: a separate score."""
        from merging.engine.evaluation.unknown_task import UNKNOWN_TASK, evaluate_unknown_task

        assert self.benchmark is not None
        benchmark_tasks = {task.key for task in self.benchmark.tasks}
        if missing := [task for task in modules.tasks if task not in benchmark_tasks]:
            self.warnings.append(
                f"{UNSCORED_PREFIX} whose task is unknown: the benchmark has no head for {first_few(missing)}."
            )
            return
        table = evaluate_unknown_task(modules, self.benchmark, context=context)
        self.schemas[UNKNOWN_TASK] = write_table(folder, UNKNOWN_TASK, table)

    def _note_warning(self, sentence: str) -> None:
        """Note a warning of the run, once."""
        if sentence not in self.warnings:
            self.warnings.append(sentence)

    def _read_modules(self, folder: Path) -> Modules | None:
        """The modules written in ``folder``; None without an adapt."""
        if not self.modules:
            return None
        from merging.engine.modules.reading_modules import read_modules

        return read_modules(folder, open_checkpoint(folder / self.models[MERGED], MERGED))

    def _record_sizes(self, folder: Path) -> None:
        """Record the sizes of the model files, which may be deleted afterwards."""
        pretrained = self.opened.pretrained
        file_bytes = sum((folder / name).stat().st_size for name in self.models.values())
        tensor_bytes = len(self.models) * sum(info.nbytes for info in pretrained.infos.values())
        self.sizes = {"files": file_bytes, "header": file_bytes - tensor_bytes, "dead": pretrained.unused_text.numel}

    def _check_budget(self) -> None:
        """Refuse, before files are written, a run that needs too much memory or disk.

        Raises:
            MergingError: not enough memory. StoreError: not enough room on the disk.
        """
        needed, free = self.plan.anonymous_bytes, free_memory()
        if sentence := self.plan.explain_too_large(free, self.recipe):
            raise MergingError(sentence)
        if needed > free:
            raise MergingError(f"This merge needs about {size_text(needed)} of memory; {size_text(free)} are free.")
        infos = self.opened.pretrained.infos.values()
        copies = len(self.opened.experts) if self.recipe.per_task else 1
        needed = copies * sum(info.nbytes for info in infos)
        free = free_bytes(self.store.root)
        if needed > free:
            subject = f"The merge has {copies} models, which need" if self.recipe.per_task else "The merged model needs"
            raise StoreError(
                f"{subject} {size_text(needed)} on the disk that holds the runs; {size_text(free)} are free."
            )

    def _build_facts(self, device: str, work: Mapping[str, float]) -> dict[str, Any]:
        samplings = [settings for settings in (self.recipe.exemplars, self.recipe.test_data) if settings is not None]
        stages = [step.params for _, step in self.recipe.stages]
        seeds = [values["seed"] for values in map(Params.values, (*stages, *samplings)) if "seed" in values]
        learned = {"adapted_on": self.recipe.adapted_on} if self.recipe.adapted_on else {}
        adapted = {"adapt": self.recipe.adapt.key, "modules": self.modules} if self.recipe.adapt else {}
        return run_facts(
            run_id=self.run_id,
            kind="merge",
            title=self.recipe.title or self.recipe.text(),
            device=device,
            seconds=self.seconds,
            warnings=self.warnings,
            seed=seeds[0] if seeds else None,
            chain=[step.key for step in self.recipe.steps],
            experts=list(self.opened.experts),
            inputs=dict(self.digests),
            benchmark=self.benchmark.digest if self.benchmark else None,
            work={key: value for key, value in work.items() if key in self.seconds},
            per_task=self.recipe.per_task,
            sizes=self.sizes,
            models=self.models,
            tables=self.schemas,
            is_dated=self.store.dated,
            network=self.opened.pretrained.network,
            **adapted,
            **learned,
            **({"images": counts} if (counts := self.images.count_images(list(self.opened.experts))) else {}),
            **(image_draws.read_benchmark_facts(self.benchmark.folder) if self.benchmark else {}),
        )


def _choose_file_name(name: str, used_names: Iterable[str]) -> str:
    """An unused file name for a model; an expert's name is untrusted text, so it is quoted and shortened."""
    if name == MERGED:
        return "model.safetensors"
    stem = f"model.{quote(name, safe='')[:MAX_NAME_CHARACTERS]}"
    while f"{stem}.safetensors" in used_names:
        stem += "_"
    return f"{stem}.safetensors"
