"""The options that name models, and say what their files do not say of them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from merging.checkpoints.families import ACTIVATIONS
from merging.cli.exit_codes import UsageError
from merging.cli.option_types import ArchitectureType, CheckpointType
from merging.cli.options import Decorated, option

activation_option = option(
    "--activation",
    type=click.Choice(ACTIVATIONS),
    help="of the models, where nothing beside their weights says so, or in place of what it says",
)
architecture_option = option(
    "--architecture",
    type=ArchitectureType(),
    default="",
    metavar="TEXT",
    help="of the models, where nothing beside their weights says so: heads=12,activation=gelu, a name such as "
    "ViT-B-32, or a config.json",
)


def _experts(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    """{name: checkpoint}."""
    from merging.recipes.chain_text import parse_experts

    problems: list[str] = []
    experts = parse_experts(texts, problems)
    if problems:
        raise UsageError(problems)
    return experts


def checkpoint_options(function: Decorated) -> Decorated:
    """The options ``--pretrained`` and ``--expert``; the command gets ``pretrained`` and ``experts``, {name: file}."""
    pretrained = option(
        "--pretrained", type=CheckpointType("the pretrained model"), required=True, help="a file, or bundled:pretrained"
    )
    expert = option(
        "--expert",
        "experts",
        multiple=True,
        callback=_experts,
        metavar="NAME=FILE",
        help="an expert; give one for each",
    )
    return pretrained(expert(function))
