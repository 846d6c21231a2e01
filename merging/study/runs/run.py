"""A stored run: small facts are read at once, tables and models on request.

An adapt is a last step of a chain that puts modules, small networks with their own files, on top of the merged model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from merging.base.errors import StoreError
from merging.base.files.atomic import DamagedError
from merging.base.files.plain_yaml import read_plain_yaml
from merging.base.files.tables import SCORES, Columns
from merging.images.benchmarks.answers import ANSWERS
from merging.models.families import Parameter, Role
from merging.recipes.chain_rules import parse_step_entry
from merging.recipes.presets import name_of
from merging.recipes.recipe import Recipe
from merging.tasks.results import Result, ResultKind

if TYPE_CHECKING:
    import pandas as pd

    from merging.engine.modules.modules import Modules
    from merging.models.checkpoint import Checkpoint

FACTS, RECIPE = "run.json", "recipe.yaml"
SALIENCY = "saliency"  # the table of edits that prune whole tensors by their saliency
FORMAT_VERSION = 2  # raised whenever runs that are stored lack something that this version needs
RUN_SEPARATOR = "+"  # between two ids
THIS_MACHINE, PRECOMPUTED = "this machine", "precomputed"
RUN_KINDS = ("merge", "pretrained", "expert", "multitask")
REPORTING_SPLIT = "reporting"  # the split whose scores are reported
NOT_EVALUATED = "Not evaluated"  # the first words of the warning with the reason
NOTHING_TO_DO = "Nothing to do: "  # marks a warning that asks for no action
KIND = ResultKind("run", "runs", FACTS, "Run its recipe again.", large=True)


@dataclass(frozen=True)
class Run:
    """One stored run. The first reading of a table or a model checks its hash.

    ``kind`` is "merge", or the kind of the evaluated checkpoint: "pretrained", "expert", "multitask". ``seconds`` is
    time per phase on ``device``. ``created`` is an ISO time, None for precomputed runs. ``inputs`` are the sha-256
    digests of the checkpoints, as "pretrained" and "experts/<name>". ``experts`` are the names of the merged experts,
    which are the in-domain tasks. ``chain`` holds the keys of the recipe's steps. ``per_task``: the merge has one model
    for each expert. ``sizes`` are the bytes of the model ``files`` and of the ``header`` in them as written, and the
    number of ``dead`` scalars, of the text tensors that published image encoders contain but do not use; empty for
    other kinds than merges.

    ``adapt`` is the key of the adapt on top of the merged model, empty without one; ``modules`` are its files.
    ``adapted_on`` is the split whose images the chain learned from ("choosing", "reporting" or "exemplars"), None if it
    did not learn. ``images`` are the numbers of "exemplars" and "test_data" of each task that the chain used; empty
    without any, and in the bundled library.

    ``test_images`` describes in words which images of the test sets the scores are of; empty if unknown. ``whole``: no
    half of these images was reserved for choosing. ``licenses`` are those that models and data sets state, by name.
    ``network`` is the name of a network other than CLIP; empty for CLIP.
    """

    id: str
    kind: str
    title: str
    provenance: str  # THIS_MACHINE, PRECOMPUTED, or of a pack
    device: str
    seconds: Mapping[str, float]
    created: str | None
    warnings: tuple[str, ...]
    versions: Mapping[str, str]
    seed: int | None
    chain: tuple[str, ...]
    experts: tuple[str, ...]
    inputs: Mapping[str, str]
    benchmark: str | None  # digest of the benchmark that the scores are on
    work: Mapping[str, float]  # the amount of work per phase, for estimates
    per_task: bool
    sizes: Mapping[str, int]
    adapt: str
    adapted_on: str | None
    images: Mapping[str, Mapping[str, int]]
    modules: tuple[str, ...] = field(repr=False)
    models: Mapping[str, str] = field(repr=False)  # "merged" or expert name -> file name
    result: Result
    test_images: str = ""
    whole: bool = False
    licenses: Mapping[str, str] = field(default_factory=dict, repr=False)
    network: str = ""

    @classmethod
    def from_result(cls, result: Result) -> Self | None:
        """The run in a stored result; None if another version of the program wrote it.

        Raises:
            DamagedError: its id is not the name of its folder. KeyError, TypeError: the result is not a run.
        """
        facts, manifest = result.facts, result.manifest
        if facts["format"] != FORMAT_VERSION or facts["kind"] not in RUN_KINDS:
            return None
        if facts["id"] != result.path.name:
            raise DamagedError(f"{FACTS} is that of another run")
        return cls(
            id=facts["id"],
            kind=facts["kind"],
            title=facts["title"],
            provenance=name_provenance(result),
            device=facts["device"],
            seconds=facts["seconds"],
            created=facts["created"],
            warnings=tuple(facts["warnings"]),
            versions=facts["versions"],
            seed=facts["seed"],
            chain=tuple(facts["chain"]),
            experts=tuple(facts["experts"]),
            inputs=facts["inputs"],
            benchmark=facts["benchmark"],
            work=facts["work"],
            per_task=facts.get("per_task", False),
            sizes=facts["sizes"] if facts["kind"] == "merge" else {},
            adapt=facts.get("adapt") or "",
            adapted_on=facts.get("adapted_on"),
            images=facts.get("images", {}),
            test_images=str(facts.get("test_images", "")),
            whole=bool(facts.get("whole", False)),
            licenses={str(name): str(text) for name, text in facts.get("licenses", {}).items()},
            network=str(facts.get("network", "")),
            modules=tuple(name for name in facts.get("modules", ()) if name in manifest),
            models={key: name for key, name in facts["models"].items() if name in manifest},
            result=result,
        )

    @property
    def path(self) -> Path:
        """The folder of the run."""
        return self.result.path

    def columns(self, name: str) -> tuple[str, ...]:
        """The columns of a table; empty if there is no such table."""
        return tuple(self.result.schemas.get(name, ()))

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables, without the scores and the answers that they count."""
        return tuple(name for name in self.result.schemas if name not in (SCORES, ANSWERS))

    def table(self, name: str) -> pd.DataFrame:
        """One of the tables.

        Raises:
            StoreError: there is no such table, or its file is damaged.
        """
        return self.plain_table(name).frame()

    def plain_table(self, name: str) -> Columns:
        """One of the tables, without loading pandas.

        Raises:
            StoreError: as ``table``.
        """
        return self.result.columns(name)

    @property
    def has_scores(self) -> bool:
        """Whether the run was evaluated."""
        return SCORES in self.result.schemas

    @property
    def is_evaluation_done(self) -> bool:
        """Whether the run has scores, or a warning with the reason why it cannot have any."""
        return self.has_scores or bool(self.evaluation_warnings)

    @property
    def cautions(self) -> tuple[str, ...]:
        """The warnings of possible problems with the result, one line each; without the remarks."""
        return tuple(line for line in self._result_warnings if NOTHING_TO_DO not in line)

    @property
    def remarks(self) -> tuple[str, ...]:
        """The warnings that need no check: why the run has no scores, and those that ask for nothing."""
        return *self.evaluation_warnings, *(line for line in self._result_warnings if NOTHING_TO_DO in line)

    @property
    def _result_warnings(self) -> tuple[str, ...]:
        texts = (text for text in self.warnings if text not in self.evaluation_warnings)
        return tuple(line for text in texts for line in text.splitlines())

    @property
    def evaluation_warnings(self) -> tuple[str, ...]:
        """The warnings with the reasons why the run has no scores; empty if it has scores."""
        return tuple(text for text in self.warnings if text.startswith(NOT_EVALUATED))

    @cached_property
    def scores(self) -> pd.DataFrame | None:
        """The table of accuracies of ``merging.engine.evaluation.evaluate.evaluate``; None if it was not evaluated."""
        return self.table(SCORES) if self.has_scores else None

    @cached_property
    def recipe_yaml(self) -> str:
        """The recipe as written; empty for runs of other kinds than "merge"."""
        return self.result.read_checked(RECIPE, lambda path: path.read_text("utf-8")) if RECIPE in self.files else ""

    @cached_property
    def recipe(self) -> Recipe | None:
        """The recipe of a merge; raises RecipeError if this version no longer has one of its methods."""
        return Recipe.from_yaml(self.recipe_yaml) if self.recipe_yaml else None

    @cached_property
    def name(self) -> str:
        """The title in lists, followed by the merge's parameters if the title, as in a paper, does not state them."""
        return name_of(self.title, lambda: parse_step_entry(read_plain_yaml(self.recipe_yaml)["merge"], "merge")[1])

    @property
    def has_model(self) -> bool:
        """Whether the weights are stored, and the modules if it has an adapt (cheap: no hash is computed)."""
        return bool(self.models) and bool(self.modules or not self.adapt)

    @property
    def adapts_on_test(self) -> bool:
        """Whether the chain learned, without labels, from the images of the reported scores; the mark is †."""
        return self.adapted_on == REPORTING_SPLIT

    @property
    def needs_task(self) -> bool:
        """Whether the model needs an image's task; the mark in domain is "per task"."""
        if not self.adapt:
            return self.per_task
        from merging.methods.registry import list_methods  # loads torch, which lists of runs do not need

        return any(method.key == self.adapt and getattr(method, "needs_task", False) for method in list_methods())

    def open_modules(self, merged: Checkpoint | None = None) -> Modules | None:
        """The modules that its adapt put on the merged model, with checked hashes; None without an adapt.

        Raises:
            StoreError: a file is damaged, or only tables are stored.
        """
        if not self.adapt:
            return None
        if not self.has_model:
            raise StoreError(f"Only tables of run {self.id} are stored. Run its recipe again to have its modules.")
        from merging.engine.modules.reading_modules import read_modules

        # Some module files are in subfolders; the others are all in the folder that ``read_modules`` needs.
        folder = {self.file(name).parent for name in self.modules if "/" not in name}.pop()
        return read_modules(folder, merged or self.open_models()["merged"])

    def open_models(self) -> dict[str, Checkpoint]:
        """The checkpoints in ``model_paths``. Raises StoreError if one is damaged."""
        from merging.models.formats.model_sources import open_checkpoint

        return {name: open_checkpoint(path, name) for name, path in self.model_paths.items()}

    @property
    def model_path(self) -> Path | None:
        """The merged model's file; None if only tables are stored, or if there is one model per task."""
        return self.file(self.models["merged"]) if list(self.models) == ["merged"] and not self.per_task else None

    @property
    def model_paths(self) -> dict[str, Path]:
        """The files of all models: {"merged": path}, or {expert: path} for merges with one model per task."""
        return {key: self.file(name) for key, name in self.models.items()}

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of all files within the folder, without the manifest."""
        return tuple(self.result.manifest)

    def file(self, name: str) -> Path:
        """The path of one of the files, after checking its hash. Raises StoreError if it is damaged."""
        return self.result.file(name)


def name_provenance(result: Result) -> str:
    """Where a stored result is from: this machine, a library, or a pack, such as "pack results.msc"."""
    if result.is_own:
        return THIS_MACHINE
    return f"pack {result.pack}" if result.pack else PRECOMPUTED


def have_same_models(run: Run, other_run: Run) -> bool:
    """Whether two runs merged the same checkpoints under the same names, in any order: such runs can be compared."""
    return run.inputs == other_run.inputs


def read_parameters(facts: pd.DataFrame) -> list[Parameter]:
    """The tensors in a table with the columns tensor, role, part, section and order, to which rules of factors apply.

    A rule multiplies the task vectors of the tensors that it selects by a factor.
    """
    columns = (facts[name].tolist() for name in ("tensor", "role", "part", "section", "order"))
    rows = zip(*columns, strict=True)
    return [
        Parameter(name, Role(role), part, section, _parse_block(section), order)
        for name, role, part, section, order in rows
    ]


def _parse_block(section: str) -> int | None:
    name, _, number = section.partition(" ")
    return int(number) if name == "block" else None


def join_run_ids(run_ids: Iterable[str]) -> str:
    """The ids of runs that are measured together, as the subject of the measurement."""
    return RUN_SEPARATOR.join(run_ids)


def split_run_ids(subject: str) -> list[str]:
    """The ids of the runs of a measurement's subject, each once; none for the benchmark."""
    return list(dict.fromkeys(subject.split(RUN_SEPARATOR))) if subject else []
