"""The options that name models, and say what their files do not say of them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from merging.checkpoints.families import ACTIVATIONS, FAMILY_KEYS
from merging.cli.exit_codes import UsageError
from merging.cli.option_types import ArchitectureType, ModelType
from merging.cli.options import Function, option
from merging.formats.opening import ModelRef
from merging.team.choices import COMMON, VOCABULARIES

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

vocabulary_option = option(
    "--vocabulary",
    type=click.Choice(VOCABULARIES),
    default=COMMON,
    help="of language models: merge the tokens that all have (common), or keep the pretrained model's tables",
)
family_option = option(
    "--family",
    type=click.Choice(FAMILY_KEYS),
    callback=lambda ctx, param, value: value or "",
    help="of the models, where that is not to be recognized: clip takes the CLIP tower out of a larger network, "
    "inferred tells every role from names and shapes",
)


def _experts(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, ModelRef]:
    """{name: model}. None need be given with a folder of them."""
    from merging.recipes.chain_text import parse_experts

    problems: list[str] = []
    if not texts and ctx.params.get("layout"):
        return {}
    experts = parse_experts(texts, problems)
    if problems:
        raise UsageError(problems)
    return experts


def _pretrained(ctx: click.Context, param: click.Parameter, model: ModelRef | None) -> ModelRef | None:
    """The pretrained model, which a folder of models gives, too."""
    if model is None and not ctx.params.get("layout"):
        raise click.MissingParameter(ctx=ctx, param=param)
    return model


def _names(ctx: click.Context, param: click.Parameter, text: str) -> list[str]:
    """Names of experts, which must come from a folder of them."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names and not ctx.params.get("layout"):
        raise UsageError(["--experts chooses among the models of a folder; give it with --layout."])
    return names


def named_models(written: Mapping[str, Any]) -> list[ModelRef]:
    """The models that --pretrained and --expert name as they are written."""

    named = (text.partition("=")[2] for text in written.get("experts", ()))
    return [ModelRef(text) for text in (written.get("pretrained"), *named) if text]


def checkpoint_options(function: Function) -> Function:
    """The options that name what is merged; the command gets ``pretrained`` and ``experts``, {name: model}."""

    @option("--pretrained", type=ModelType("the pretrained model"), callback=_pretrained,
            help="a file, or bundled:pretrained")  # fmt: skip
    @option(
        "--expert",
        "experts",
        multiple=True,
        callback=_experts,
        metavar="NAME=FILE",
        help="an expert; give one for each",
    )
    @option(
        "--layout",
        metavar="FOLDER",
        is_eager=True,  # the others depend on it
        help="a folder with the pretrained model and experts, such as checkpoints/ViT-B-32 of the published task "
        "vectors, in place of naming them one by one",
    )
    @option(
        "--experts", "names", default="", callback=_names, metavar="A,B,C", help="experts of --layout (default: all)"
    )
    @functools.wraps(function)
    def with_models(
        *args: Any,
        pretrained: ModelRef | None,
        experts: Mapping[str, ModelRef],
        layout: str | None,
        names: Sequence[str],
        **others: Any,
    ) -> Any:
        if layout:
            pretrained, experts = _of_layout(layout, names, pretrained, experts)
        return function(*args, pretrained=pretrained, experts=experts, **others)

    return with_models


def _of_layout(
    folder: str, names: Sequence[str], pretrained: ModelRef | None, more: Mapping[str, ModelRef]
) -> tuple[ModelRef, Mapping[str, ModelRef]]:
    """The models of a folder, and experts that are named beside it; what was taken is printed on stderr."""
    from merging.catalog.layouts import read_layout

    layout = read_layout(folder, names, pretrained.text if pretrained else "", more.keys())
    for line in layout.lines():
        print(line, file=sys.stderr)
    experts = {name: ModelRef(text) for name, text in layout.experts.items()}
    return ModelRef(layout.pretrained), {**experts, **more}


def _files_of(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    """{expert: file}."""
    from merging.recipes.chain_text import check_found

    problems: list[str] = []
    files: dict[str, str] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not (name and equals and file):
            problems.append(f"Write {param.opts[0]} as NAME=FILE; got {text!r}.")
        elif name in files:
            problems.append(f"{param.opts[0]} names two files of {name!r}.")
        else:
            files[name] = file
            check_found(ModelRef(file), f"{param.opts[0]} {name}", problems)
    if problems:
        raise UsageError(problems)
    return files


layer_inputs_option = option(
    "--layer-inputs", multiple=True, callback=_files_of, metavar="NAME=FILE",
    help="what enters an expert's layers, written by merging.save_layer_inputs; one for each",
)  # fmt: skip


def data_options(function: Function) -> Function:
    """The options that name files of data; the command gets ``given``, {key of a recipe: {expert: file}}."""

    @layer_inputs_option
    @option("--gradients", multiple=True, callback=_files_of, metavar="NAME=FILE",
            help="an expert's gradients, written by merging.save_gradients; one for each")  # fmt: skip
    @functools.wraps(function)
    def with_data(*args: Any, layer_inputs: Mapping[str, str], gradients: Mapping[str, str], **others: Any) -> Any:
        return function(*args, given={"layer_inputs": layer_inputs, "gradients": gradients}, **others)

    return with_data
