"""The command ``evaluate``."""

from __future__ import annotations

import click

from merging.base.errors import MergingError
from merging.cli.call import Call
from merging.cli.exit_codes import DONE
from merging.cli.model_options import ModelType, activation_option, architecture_option
from merging.cli.options import Command, argument, device_option
from merging.cli.output import encode_json, report_progress, sampled_images, score_table
from merging.models.formats.model_sources import ModelRef


@click.command(cls=Command)
@argument("checkpoint", type=ModelType("the checkpoint"), help="a file, or bundled:NAME")
@activation_option
@architecture_option
@device_option
@click.pass_obj
def evaluate(call: Call, checkpoint: ModelRef, activation: str | None, architecture: str, device: str) -> int:
    """Accuracy of a checkpoint on the benchmark."""
    from merging.engine.evaluation.evaluate import evaluate as score
    from merging.images.benchmarks.benchmark import SPLITS, Benchmark
    from merging.images.benchmarks.image_draws import REPORTING, draws
    from merging.models.architecture import with_activation, with_architecture
    from merging.models.head_detection import refuse_head
    from merging.models.stated_architecture import StatedArchitecture

    stated, benchmark = StatedArchitecture.parse(architecture), Benchmark.load()
    opened = with_activation(with_architecture(refuse_head(checkpoint.open()), stated), activation or "")
    if reason := benchmark.misfit(opened):
        raise MergingError(f"{opened.name} cannot be evaluated: {reason}")
    with report_progress(None) as progress:
        scores = score(opened, benchmark, context=call.context(progress, device))
    sampled = {split: draws(benchmark.folder, split) for split in SPLITS}
    if call.json:
        rows = scores.to_dict("records")
        print(encode_json([row | sampled_images(sampled[str(row["split"])].get(str(row["task"]))) for row in rows]))
    else:
        print(score_table(scores, sampled={key: draw.text for key, draw in sampled[REPORTING].items()}))
    return DONE
