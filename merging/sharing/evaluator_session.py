"""Sweeps of networks other than CLIP: each point is merged, exported temporarily, and measured by a program."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from merging.base.errors import CheckpointError, RecipeError
from merging.base.files import atomic
from merging.base.files.disk import STORE_REMEDY, explain_os_errors
from merging.base.files.records import JsonRecords
from merging.base.files.short_digest import short_digest
from merging.base.text import printable
from merging.models.formats.model_sources import open_checkpoint
from merging.models.model_references import PRETRAINED
from merging.recipes.recipe import Recipe
from merging.sharing.evaluator_program import Evaluator
from merging.sharing.export.model_export import export
from merging.sharing.measure_runs import EVALUATION_FOLDER, open_temporary_folder
from merging.study.runs.estimate import EVALUATING, MERGING
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import OpenedRecipe, open_inputs
from merging.study.runs.run import THIS_MACHINE
from merging.study.runs.run_store import Store
from merging.study.score_table import MAX_ORIGIN_CHARACTERS, PROGRAM
from merging.study.sweeps.point_computation import STAGES
from merging.study.sweeps.points import VERSION, Point
from merging.study.sweeps.sweep import VALUES, NamedPoint, Sweep, SweepPoint
from merging.study.sweeps.sweep_session import WHOLE_SWEEP, SweepOutcome, SweepSession, run_sweep
from merging.tasks.context import QUIET, Context

PROGRAMS_FOLDER = "programs"  # of a store: the name of each program that has measured points


def find_network(sweep: Sweep) -> str:
    """The name of the network that a sweep merges; empty for CLIP, and for files that cannot be opened.

    Raises:
        RecipeError: the sweep merges several kinds of networks, or it is a line or a plane between models.
    """
    networks = list(dict.fromkeys(_find_recipe_network(recipe) for recipe in sweep.recipes))
    if not any(networks):
        return ""
    if len(networks) > 1:
        got = " and ".join(name or "CLIP" for name in networks)
        raise RecipeError(f"All recipes of a sweep must merge the same kind of network; got {got}.")
    if sweep.kind != VALUES:
        raise RecipeError(f"A sweep of {networks[0]} can only vary values of the recipe; a {sweep.kind} needs CLIP.")
    return networks[0]


def _find_recipe_network(recipe: Recipe) -> str:
    try:
        return open_checkpoint(recipe.pretrained, PRETRAINED, family=recipe.family).network
    except CheckpointError:
        return ""  # planning the sweep reports the error


@dataclass
class ProgramSession(SweepSession):
    """The shared inputs of a sweep's points if a program measures them; the benchmark's images are not used."""

    store: Store = field(kw_only=True)
    program: Evaluator = field(kw_only=True)

    def __post_init__(self) -> None:
        """Do nothing: the base class samples the benchmark's images here."""

    def open_checkpoints(self, recipe: Recipe) -> OpenedRecipe:
        """The checkpoints of a recipe."""
        return open_inputs(recipe)

    def plan_sweep(self, sweep: Sweep) -> list[NamedPoint]:
        """Every point of a sweep, named by its run and the program. Raises CheckpointError as ``open_inputs``."""
        return [self.plan_point(point) for point in sweep.points]

    def plan_point(self, point: SweepPoint) -> NamedPoint:
        """The point with its name and its run's id."""
        opened_recipe = self.open_checkpoints(point.recipe)
        run_id = opened_recipe.run_id(self._digests(opened_recipe))
        return NamedPoint(point, _compute_point_name(run_id, self.program.command_digest), run_id)

    def compute(self, planned: NamedPoint, context: Context) -> tuple[Point, dict[str, Any]]:
        """The point, and facts about it; the merged model and its folder are removed, also after an error."""
        stages = context.split(dict.fromkeys(STAGES, 1.0))
        # A point is computed completely: a sweep pauses only between points.
        merge_contexts = replace(stages[MERGING], pause=None).split({"merging": 1.0, "writing": 1.0})
        with open_temporary_folder(self.store) as folder:
            temporary_store = Store(folder / "store", libraries=())  # without precomputed runs
            merged_run = execute(
                planned.point.recipe,
                temporary_store,
                evaluate=False,
                need_model=True,
                context=merge_contexts["merging"],
            )
            export(merged_run, folder / "model", context=merge_contexts["writing"])
            shutil.rmtree(temporary_store.root, ignore_errors=True)
            scores = self.program.measure(folder / "model", stages[EVALUATING])
        point = Point(planned.name, scores.columns, merged_run.device, THIS_MACHINE, program=self.program.name)
        return point, {PROGRAM: self.program.name, "run": planned.run_id}


def _compute_point_name(run_id: str, command_digest: str) -> str:
    return short_digest(json.dumps([VERSION, PROGRAM, run_id, command_digest]))


def rename_points(planned: Sequence[NamedPoint], command_digest: str) -> list[NamedPoint]:
    """The plan of the same sweep for the program whose command line has the digest ``command_digest``."""
    return [replace(one, name=_compute_point_name(one.run_id, command_digest)) for one in planned]


def list_programs(store: Store) -> dict[str, str]:
    """{digest of the command line: name} of the programs that have measured points, the latest first."""
    records = JsonRecords(store.root / PROGRAMS_FOLDER, VERSION)
    names = {command: records.read(command, lambda record: str(record["name"])) for command in records.names()}
    return {command: printable(name, MAX_ORIGIN_CHARACTERS) for command, name in names.items() if name}


def run_program_sweep(
    sweep: Sweep, session: ProgramSession, *, context: Context = QUIET, share: tuple[int, int] = WHOLE_SWEEP
) -> SweepOutcome:
    """Let a program measure the missing points. Returns and raises the same as ``run_sweep``.

    ``share`` (k, n) is every nth point from the kth, counted from 0.
    """
    store, program = session.store, session.program
    atomic.remove_leftovers(store.root / EVALUATION_FOLDER)
    with explain_os_errors("The name of the program", STORE_REMEDY):
        JsonRecords(store.root / PROGRAMS_FOLDER, VERSION).write(program.command_digest, {"name": program.name})
    session = replace(session, context=context)
    return run_sweep(sweep, store, session.benchmark, context=context.without_workers(), share=share, session=session)
