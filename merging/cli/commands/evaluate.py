"""The command ``evaluate``."""

from __future__ import annotations

import click

from merging.base.errors import MergingError
from merging.cli.call import Call
from merging.cli.exit_codes import DONE
from merging.cli.model_options import ModelType, activation_option, architecture_option
from merging.cli.options import Command, argument, device_option
from merging.cli.output import collect_draw_facts, encode_json, format_score_table, report_progress
from merging.models.formats.model_sources import ModelRef


@click.command(cls=Command)
@argument("checkpoint", type=ModelType("the checkpoint"), help="a file, or bundled:NAME or bundled:gentle/NAME")
@activation_option
@architecture_option
@device_option
@click.pass_obj
def evaluate(call: Call, checkpoint: ModelRef, activation: str | None, architecture: str, device: str) -> int:
    """Measure the accuracy of a checkpoint on the benchmark."""
    from merging.engine.evaluation.evaluate import evaluate as score
    from merging.images.benchmarks.benchmark import SPLITS, Benchmark
    from merging.images.benchmarks.image_draws import REPORTING, read_draws
    from merging.models.architecture import add_stated_activation, add_stated_architecture
    from merging.models.head_detection import refuse_head
    from merging.models.stated_architecture import StatedArchitecture

    stated_architecture, benchmark = StatedArchitecture.parse(architecture), Benchmark.load()
    model = add_stated_activation(
        add_stated_architecture(refuse_head(checkpoint.open()), stated_architecture), activation or ""
    )
    if reason := benchmark.describe_misfit(model):
        raise MergingError(f"{model.name} cannot be evaluated: {reason}")
    with report_progress(None) as progress:
        scores = score(model, benchmark, context=call.context(progress, device))
    image_draws = {split: read_draws(benchmark.folder, split) for split in SPLITS}
    if call.json:
        rows = scores.to_dict("records")
        print(
            encode_json(
                [row | collect_draw_facts(image_draws[str(row["split"])].get(str(row["task"]))) for row in rows]
            )
        )
    else:
        print(format_score_table(scores, sampled={key: draw.text for key, draw in image_draws[REPORTING].items()}))
    return DONE
