"""A lesson on this machine: its runs and sweeps, found by their recipes, and the view on screen."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from merging.base.errors import LessonError, MergingError, StoreError
from merging.base.text import did_you_mean
from merging.teaching.lesson import REFERENCES, Lesson

if TYPE_CHECKING:
    import pandas as pd

    from merging.images.benchmarks.benchmark import Benchmark
    from merging.recipes.recipe import Recipe
    from merging.study.analysis.measurement_store import StoredMeasurement
    from merging.study.runs.run import Run
    from merging.study.runs.run_store import Store
    from merging.study.sweeps.sweep import Sweep

EXPERT = "expert"
Result = TypeVar("Result")


@dataclass(frozen=True)
class LessonContext:
    """A lesson with the store and the benchmark from which its facts are read. No model is run.

    ``address`` has the keys and values after "?" in the address of the view on screen, ``preview`` is the table of
    differences of its preview, and ``factors`` are its painted factors (tensor, numel, expert, factor), if
    there are any. Only facts of the view on screen read these three.
    """

    store: Store
    benchmark: Benchmark
    lesson: Lesson
    address: Mapping[str, str] = field(default_factory=dict)
    preview: pd.DataFrame | None = None
    factors: pd.DataFrame | None = None
    _cached: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def with_view(
        self, address: Mapping[str, str], preview: pd.DataFrame | None = None, factors: pd.DataFrame | None = None
    ) -> LessonContext:
        """The same lesson with another view on screen and the same cache."""
        return replace(self, address=dict(address), preview=preview, factors=factors)

    # Runs

    @property
    def runs(self) -> list[Run]:
        """The stored runs that were scored on this benchmark."""

        def list_scored() -> list[Run]:
            return [run for run in self.store.list_runs() if run.has_scores and run.benchmark == self.benchmark.digest]

        return self.compute_once("runs", list_scored)

    @property
    def merges(self) -> list[Run]:
        """The merges of all experts of the benchmark; if models have changed, the merges of the models in use."""
        return self.compute_once("merges", self._list_merges)

    def _list_merges(self) -> list[Run]:
        experts = set(self.benchmark.experts)
        merges = [run for run in self.runs if run.kind == "merge" and set(run.experts) == experts]
        reference_digests: dict[str, str] = {}
        for name in (*self.benchmark.experts, "pretrained"):
            if (run := self.references.get(name)) is not None:
                reference_digests |= run.inputs
        same_models = [run for run in merges if reference_digests.items() <= run.inputs.items()]
        return same_models or merges

    @property
    def references(self) -> dict[str, Run]:
        """Stored evaluations: "pretrained", "multitask", and each expert by its task."""
        return {run.experts[0] if run.kind == EXPERT else run.kind: run for run in self.runs if run.kind != "merge"}

    def build_recipe(self, alias: str) -> Recipe:
        """The recipe of an alias on all experts of the benchmark.

        Raises:
            LessonError: the alias does not exist, is a sweep, or has an invalid recipe.
        """
        from merging.recipes.presets import find_preset
        from merging.recipes.recipe import Recipe

        parts = self._run_parts(alias)
        models = self.benchmark.pretrained, self.benchmark.experts
        try:
            if "preset" in parts:
                return find_preset(str(parts["preset"])).recipe(*models)
            if "chain" in parts:
                return _parse_chain_recipe(str(parts["chain"]), *models)
            return Recipe.from_plain({**parts, "pretrained": models[0], "experts": models[1]})
        except MergingError as error:
            raise LessonError(f"The run {alias} of the lesson {self.lesson.key}: {error}") from None

    def find_alias_run(self, alias: str) -> Run | None:
        """The stored run of an alias or of a reference model; None if there is none. Raises LessonError."""
        if alias in REFERENCES:
            return self.references.get(alias)
        return self.compute_once(("run", alias), lambda: self.find_run(self.build_recipe(alias)))

    def find_run(self, recipe: Recipe) -> Run | None:
        """The stored run of a recipe on all experts, whatever the paths of its files; None if there is none."""
        from merging.study.runs.edit_pairs import find_run, group_by_subject

        runs = (find_run(recipe, group) for group in group_by_subject(self.merges))
        return next((run for run in runs if run is not None), None)

    def require_run(self, alias: str) -> Run:
        """The stored run of an alias or of a reference model; raises StoreError if it is not stored."""
        if (run := self.find_alias_run(alias)) is None:
            what = (
                f"the recipe “{self.build_recipe(alias).title or alias}”"
                if alias not in REFERENCES
                else f"{alias} model"
            )
            raise StoreError(f"There is no run of {what} on this benchmark. Run its recipe.")
        return run

    def list_missing_runs(self) -> list[str]:
        """The aliases of recipes without a stored run."""
        return [
            alias
            for alias, parts in self.lesson.runs.items()
            if "sweep" not in parts and self.find_alias_run(alias) is None
        ]

    def _run_parts(self, alias: str) -> Mapping[str, Any]:
        if alias not in self.lesson.runs:
            near = did_you_mean(alias, self.lesson.runs)
            raise LessonError(f"The lesson {self.lesson.key} has no run {alias!r}.{near}")
        parts = self.lesson.runs[alias]
        if "sweep" in parts:
            raise LessonError(f"{alias!r} of the lesson {self.lesson.key} is a sweep, not a run.")
        return parts

    # Sweeps and addresses

    def find_sweep(self, alias: str) -> Sweep | None:
        """The stored sweep with an alias's axes. Precomputed sweeps come first, then those with more recipes."""
        from merging.study.sweeps import sweep_storage

        parts = self.lesson.runs.get(alias, {})
        if "sweep" not in parts:
            raise LessonError(f"{alias!r} of the lesson {self.lesson.key} is not a sweep.")
        axes = [axis.strip() for axis in str(parts["sweep"]).split("×")]
        listed = sweep_storage.list_sweeps(self.store).values()
        sweeps = [sweep for sweep in listed if [axis.target for axis in sweep.axes] == axes]
        if "title" in parts:
            sweeps = [sweep for sweep in sweeps if sweep.title == parts["title"]]
        sweeps.sort(key=lambda sweep: (sweep_storage.is_own(self.store, sweep.id), -len(sweep.recipes)))
        return sweeps[0] if sweeps else None

    def find_id(self, alias: str) -> str:
        """The id of the run or sweep of an alias; empty if it is not stored."""
        result = self.find_sweep(alias) if "sweep" in self.lesson.runs.get(alias, {}) else self.find_alias_run(alias)
        return "" if result is None else result.id

    def resolve_view(self, view: Mapping[str, str]) -> dict[str, str]:
        """A view with ids in place of aliases, without keys whose run or sweep is not stored."""
        resolved = {}
        for key, value in view.items():
            pieces = [self.find_id(part[1:]) if part.startswith("@") else part for part in value.split(",")]
            if all(pieces) or not value:
                resolved[key] = ",".join(pieces)
        return resolved

    # Measurements

    def find_measurement(self, key: str, run: Run | None = None) -> StoredMeasurement:
        """A stored measurement of a run, of the experts (found by any merge of them), or of the benchmark.

        Raises:
            NotMeasured: the measurement is not stored.
        """
        from merging.study.analysis import measurement_store
        from merging.study.analysis.measurement_registry import find_measurement
        from merging.study.analysis.measurement_subject import SubjectKind

        subject = find_measurement(key).subject
        if run is None and subject == SubjectKind.EXPERTS:
            run = self.merges[0] if self.merges else None
        run_id = "" if run is None or subject == SubjectKind.BENCHMARK else run.id
        find = partial(measurement_store.find_measurement_result, key, self.store, self.benchmark, run_id)
        if (measured := self.compute_once(("measured", key, run_id), find)) is None:
            owner = f" of “{run.name}”" if run is not None and subject == SubjectKind.RUN else ""
            raise NotMeasured(f"“{find_measurement(key).title}”{owner} has not been measured here.", key, run_id)
        return measured

    def compute_once(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """The result of ``compute``, which is called once per key for this context."""
        if key not in self._cached:
            self._cached[key] = compute()
        result: Result = self._cached[key]
        return result

    def list_tasks(self, over: str, inside: Sequence[str]) -> list[str]:
        """The keys of the data sets in a group: "in" (those of merged experts), "out", or the key of one data set.

        Raises:
            LessonError: the benchmark has no such data set.
        """
        keys = [task.key for task in self.benchmark.tasks]
        if over == "in":
            return [key for key in keys if key in inside]
        if over == "out":
            return [key for key in keys if key not in inside]
        if over in keys:
            return [over]
        known = ("in", "out", *keys)
        raise LessonError(f"over is in, out or a data set of the benchmark; got {over!r}.{did_you_mean(over, known)}")


class NotMeasured(StoreError):  # noqa: N818 - a state of the store, not a failure
    """A fact needs a measurement that is not stored: ``measure`` is its key, ``run`` the id of its run or empty."""

    def __init__(self, text: str, measure: str = "", run: str = "") -> None:
        super().__init__(text)
        self.measure, self.run = measure, run


def _parse_chain_recipe(text: str, pretrained: str, experts: Mapping[str, str]) -> Recipe:
    from merging.recipes.chain_text import parse_chain
    from merging.recipes.recipe import Recipe

    chain = parse_chain(text)
    return Recipe.build(
        chain.merge[0], chain.merge[1], list(chain.edits), pretrained, experts, "", chain.exemplars or None,
        chain.count_dead_params, chain.activation, chain.architecture, adapt=chain.adapt,
        test_data=chain.test_data or None,
    )  # fmt: skip
