"""Options of Merge for networks other than CLIP: vocabularies, a tower alone, and files of the user's own data."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from app.reading import listed_models, recipes
from app.session.draft import Draft
from merging.models.model_references import NAMED
from merging.models.team.vocabulary_choices import COMMON, PRETRAINED
from merging.recipes.data_files import DataFiles

WHOLE, TOWER = "", "clip"  # values of a recipe's family
FAMILIES = {WHOLE: "all of it", TOWER: "its CLIP image encoder alone"}
VOCABULARIES = {COMMON: "the rows that all have", PRETRAINED: "none: the pretrained model's"}
VOCABULARY_HELP = (
    "Tables with one row for each token: input and output embeddings. Rows that only an expert has are left out. "
    "Choose the pretrained model's if the experts number their tokens differently."
)
EXPERT = "{expert}"  # in a typed path: the name of each expert
FILES = {  # by key of a recipe: label, the function that writes the files
    "layer_inputs": ("Files of layer inputs", "capture"),
    "gradients": ("Files of gradients", "gradient_means"),
}
ONLY_NAMED = "This server reads only files whose names start with models:, like those of models."


def pick_family(current: Draft) -> None:
    """Ask whether the whole network is merged, if it contains a CLIP image encoder beside other parts."""
    if recipes.holds_clip(current.pretrained):
        current.family = st.segmented_control(
            "Merge", list(FAMILIES), default=current.family, format_func=FAMILIES.__getitem__, required=True,
            key=f"family{current.merge.uid}",
        )  # fmt: skip


def pick_vocabulary(current: Draft) -> None:
    """Ask which rows of the vocabulary tables are merged, if the network has any."""
    if recipes.has_vocabulary(current.pretrained, current.family):
        current.vocabulary = st.segmented_control(
            "Merged rows of vocabularies", list(VOCABULARIES), default=current.vocabulary, required=True,
            format_func=VOCABULARIES.__getitem__, key=f"vocabulary{current.merge.uid}", help=VOCABULARY_HELP,
        )  # fmt: skip


def draw_file_fields(current: Draft, experts: Mapping[str, str]) -> bool:
    """Fields for the paths of layer inputs and gradients that the chain reads; returns whether they are valid."""
    files = {"layer_inputs": dict(current.given_data.layer_inputs), "gradients": dict(current.given_data.gradients)}
    valid = True
    for key in current.data_files_read:
        label, writer = FILES[key]
        typed = st.text_input(
            label, _pattern(files[key]), key=f"{key}{current.merge.uid}", max_chars=1000,
            placeholder=f"/data/{key}/{EXPERT}.safetensors",
            help=f"One file for each expert, written by {writer} of the library merging; {EXPERT} stands for its name.",
        ).strip()  # fmt: skip
        if not typed:
            files[key] = {}
        elif EXPERT not in typed and len(experts) > 1 and typed != _pattern(files[key]):
            st.error(f"Write {EXPERT} in the path in place of the expert's name.")
            valid = False
        elif EXPERT in typed or typed != _pattern(files[key]):
            files[key] = {name: typed.replace(EXPERT, name) for name in current.experts}
        if not (
            listed_models.is_local() or all(path.startswith(NAMED) for path in (typed, *files[key].values()) if path)
        ):
            st.error(ONLY_NAMED, icon=":material/error:")
            valid, files[key] = False, {}
    current.given_data = DataFiles.build(files["layer_inputs"], files["gradients"])
    return valid


def _pattern(named: Mapping[str, str]) -> str:
    """One path with EXPERT in it that stands for all these files, else the first path; empty without files."""
    if not named:
        return ""
    patterns = {_with_expert(path, name) for name, path in named.items()}
    return patterns.pop() if len(patterns) == 1 else next(iter(named.values()))


def _with_expert(path: str, name: str) -> str:
    """A path with EXPERT in place of the last occurrence of an expert's name before the file's ending."""
    stem, dot, ending = path.rpartition(".")
    return f"{EXPERT.join(stem.rsplit(name, 1))}{dot}{ending}" if name and dot else path
