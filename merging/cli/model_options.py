"""The options that name models, and state facts that their files lack."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merging.base.text import printable
from merging.cli.exit_codes import UsageError
from merging.cli.option_types import ArchitectureType
from merging.cli.options import option, option_group
from merging.models.families import ACTIVATIONS, FAMILY_KEYS
from merging.models.formats.model_sources import ModelRef
from merging.models.model_references import BUNDLED_PREFIX
from merging.models.team.vocabulary_choices import COMMON, VOCABULARIES

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class ModelType(click.ParamType[ModelRef | str]):
    """A model by its path or name; a file must exist. ``other_word`` is a word that is accepted in place of a model.

    ``role`` names the model in messages.
    """

    name = "checkpoint"

    def __init__(self, role: str, word: str | None = None) -> None:
        self.role, self.other_word = role, word

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> ModelRef | str:
        """The model, which is not opened yet, or ``other_word``."""
        if value == self.other_word:
            return value
        problems: list[str] = []
        model = find_model(value, self.role, problems)
        if problems:
            raise UsageError(problems)
        return model

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Let the shell complete paths."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


def find_model(text: str, role: str, problems: list[str]) -> ModelRef:
    """The model that a text names. A missing file is added to ``problems``; opening the model reports any other."""
    model = ModelRef(text)
    if not model.exists():
        problems.append(f"The file of {role} was not found: {printable(text, 300)}.")
    return model


def parse_experts(texts: Sequence[str], problems: list[str]) -> dict[str, ModelRef]:
    """{name: model} from 'name=file', or from a file alone, whose stem is the name."""
    experts: dict[str, ModelRef] = {}
    if not texts:
        problems.append("Give at least one expert: --expert NAME=FILE.")
    for text in texts:
        name, equals, reference = text.partition("=")
        if not equals:
            name, reference = Path(text.removeprefix(BUNDLED_PREFIX)).stem, text
        if not name or not reference:
            problems.append(f"Write an expert as NAME=FILE; got {text!r}.")
        elif name in experts:
            problems.append(f"Two experts are called {name!r}; give them different names.")
        else:
            experts[name] = find_model(reference, f"expert {name}", problems)
    return experts


activation_option = option(
    "--activation",
    type=click.Choice(ACTIVATIONS),
    help="of the models, if no file states it, or to replace the stated one",
)
architecture_option = option(
    "--architecture",
    type=ArchitectureType(),
    default="",
    metavar="TEXT",
    help="of the models, if no file states it: heads=12,activation=gelu, a name such as ViT-B-32, or a config.json",
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
    help="of the models, instead of recognizing it: clip takes the CLIP tower out of a larger network, inferred "
    "derives every role from names and shapes",
)


def _parse_expert_texts(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, ModelRef]:
    """{name: model}; with --layout or --mergekit it may be empty."""
    problems: list[str] = []
    if not texts and (ctx.params.get("layout") or ctx.params.get("mergekit")):
        return {}
    experts = parse_experts(texts, problems)
    if problems:
        raise UsageError(problems)
    return experts


def _require_pretrained(ctx: click.Context, param: click.Parameter, model: ModelRef | None) -> ModelRef | None:
    """The pretrained model; None with --layout or --mergekit if these are to name it."""
    if model is None and not (ctx.params.get("layout") or ctx.params.get("mergekit")):
        raise click.MissingParameter(ctx=ctx, param=param)
    return model


def _split_expert_names(ctx: click.Context, param: click.Parameter, text: str) -> list[str]:
    """The names of the experts to use from the folder of --layout. Raises UsageError without --layout."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names and not ctx.params.get("layout"):
        raise UsageError(["--experts chooses among the models of a folder; give it with --layout."])
    return names


def list_named_models(option_texts: Mapping[str, Any]) -> list[ModelRef]:
    """The models that --pretrained and --expert name, from {option: text}."""
    expert_texts = (text.partition("=")[2] for text in option_texts.get("experts", ()))
    return [ModelRef(text) for text in (option_texts.get("pretrained"), *expert_texts) if text]


def _gather_models(
    pretrained: ModelRef | None, experts: Mapping[str, ModelRef], layout: str | None, names: Sequence[str]
) -> dict[str, Any]:
    """The models to merge: those that options name, and those of a folder, which are printed on stderr."""
    if not layout:
        return {"pretrained": pretrained, "experts": experts}
    from merging.sharing.catalog.model_layout import read_layout

    model_layout = read_layout(layout, names, pretrained.text if pretrained else "", experts.keys())
    for line in model_layout.describe():
        print(line, file=sys.stderr)
    layout_experts = {name: ModelRef(text) for name, text in model_layout.experts.items()}
    return {"pretrained": ModelRef(model_layout.pretrained), "experts": {**layout_experts, **experts}}


checkpoint_options = option_group(  # the command gets ``pretrained`` and ``experts``, {name: model}
    _gather_models,
    option(
        "--pretrained",
        type=ModelType("the pretrained model"),
        callback=_require_pretrained,
        help="a file, or bundled:pretrained",
    ),
    option(
        "--expert",
        "experts",
        multiple=True,
        callback=_parse_expert_texts,
        metavar="NAME=FILE",
        help="an expert; repeat the option for each",
    ),
    option(
        "--layout",
        metavar="FOLDER",
        is_eager=True,  # the others depend on it
        help="a folder with the pretrained model and experts, such as checkpoints/ViT-B-32 of the published task "
        "vectors, in place of naming them one by one",
    ),
    option(
        "--experts",
        "names",
        default="",
        callback=_split_expert_names,
        metavar="A,B,C",
        help="experts of --layout (default: all)",
    ),
)


def _parse_files(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    """{expert: file}."""
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
            find_model(file, f"{param.opts[0]} {name}", problems)
    if problems:
        raise UsageError(problems)
    return files


layer_inputs_option = option(
    "--layer-inputs", multiple=True, callback=_parse_files, metavar="NAME=FILE",
    help="the inputs of an expert's layers, written by merging.save_layer_inputs; one file for each expert",
)  # fmt: skip


def _gather_captured_files(layer_inputs: Mapping[str, str], gradients: Mapping[str, str]) -> dict[str, Any]:
    return {"captured_files": {"layer_inputs": layer_inputs, "gradients": gradients}}


data_options = option_group(  # files of data; the command gets ``captured_files``, {key of a recipe: {expert: file}}
    _gather_captured_files,
    layer_inputs_option,
    option(
        "--gradients",
        multiple=True,
        callback=_parse_files,
        metavar="NAME=FILE",
        help="an expert's gradients, written by merging.save_gradients; one file for each expert",
    ),
)
