"""Stored evaluations of the models that merged models are compared with: pretrained, experts, multi-task."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from merging.base.devices import choose_device, describe_device
from merging.base.files.records import write_json
from merging.base.files.short_digest import short_digest
from merging.engine.evaluation.evaluate import Evaluation, evaluate_answers
from merging.images.benchmarks.benchmark import MULTITASK, Benchmark
from merging.images.benchmarks.image_draws import read_benchmark_facts
from merging.models.digest_cache import DIGESTS
from merging.models.model_references import PRETRAINED, expert_key
from merging.study.runs.estimate import EVALUATING
from merging.study.runs.run import FACTS, Run
from merging.study.runs.run_answers import write_evaluation
from merging.study.runs.run_facts import run_facts
from merging.study.runs.run_store import Store
from merging.tasks.context import QUIET, Context


def find_references(
    store: Store, benchmark: Benchmark, *, context: Context = QUIET, compute: bool = True
) -> dict[str, Run]:
    """Stored evaluations of the reference models: {"pretrained", each expert's task, "multitask": run}.

    Missing ones are evaluated if ``compute``.
    """
    runs = {}
    models = benchmark.models()
    parts = context.split(dict.fromkeys(models, 1.0))
    for name, model in models.items():
        checkpoint = model.open(name)
        digest = DIGESTS.digest(checkpoint)
        run_id = _make_id(digest, benchmark)
        if compute and not store.has_run(run_id):
            started = time.monotonic()
            warnings: list[str] = []
            model_context = replace(parts[name], warn=warnings.append)
            evaluation = evaluate_answers(
                checkpoint, benchmark, stored_features=store.features_folder(run_id), context=model_context
            )
            seconds = time.monotonic() - started
            _write_reference(store, benchmark, run_id, name, digest, evaluation, seconds, context.device, warnings)
        if run := store.find(run_id):
            runs[name] = run
    return runs


def reference_id(benchmark: Benchmark, name: str) -> str:
    """The id of the evaluation of a reference model, stored or not; ``name`` is "pretrained" or an expert's task."""
    return _make_id(DIGESTS.digest(benchmark.models()[name].open(name)), benchmark)


def store_reference(
    store: Store, benchmark: Benchmark, name: str, evaluation: Evaluation, seconds: float, device: str,
    warnings: Sequence[str] = (),
) -> str:  # fmt: skip
    """Store the evaluation of a reference model on all tasks, unless they are stored; returns their id."""
    digest = DIGESTS.digest(benchmark.models()[name].open(name))
    run_id = _make_id(digest, benchmark)
    if not store.has_run(run_id):
        _write_reference(store, benchmark, run_id, name, digest, evaluation, seconds, device, warnings)
    return run_id


def _make_id(digest: str, benchmark: Benchmark) -> str:
    return short_digest(f"{digest} on {benchmark.digest}")


def _write_reference(
    store: Store,
    benchmark: Benchmark,
    run_id: str,
    name: str,
    digest: str,
    evaluation: Evaluation,
    seconds: float,
    device: str,
    warnings: Sequence[str],
) -> None:
    kind = name if name in (PRETRAINED, MULTITASK) else "expert"
    titles = {PRETRAINED: "Pretrained", MULTITASK: "Trained on all tasks"}
    in_domain_tasks = {PRETRAINED: [], MULTITASK: list(benchmark.experts)}
    with store.write_run(run_id) as folder:
        schemas = write_evaluation(folder, evaluation)
        facts = run_facts(
            run_id=run_id,
            kind=kind,
            title=titles.get(name) or f"Expert for {benchmark.find_task(name).title}",
            is_dated=store.dated,
            device=describe_device(choose_device(device)),
            seconds={EVALUATING: seconds},
            warnings=list(warnings),
            seed=None,
            chain=[],
            experts=in_domain_tasks.get(name, [name]),
            inputs={name if kind != "expert" else expert_key(name): digest},
            benchmark=benchmark.digest,
            work={},
            models={},
            tables=schemas,
            **read_benchmark_facts(benchmark.folder),
        )
        write_json(folder / FACTS, facts)
