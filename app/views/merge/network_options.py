"""Options of Merge for networks other than CLIP: vocabularies, the image encoder alone, and files of data."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from app.reading import listed_models, recipes
from app.session.draft import Draft
from merging.models.model_references import NAMED
from merging.models.team.vocabulary_choices import COMMON, PRETRAINED
from merging.recipes.data_files import DataFiles

WHOLE_NETWORK, CLIP_TOWER = "", "clip"  # values of a recipe's family
FAMILIES = {WHOLE_NETWORK: "all of it", CLIP_TOWER: "its CLIP image encoder alone"}
VOCABULARIES = {COMMON: "the rows that all have", PRETRAINED: "no rows, all stay pretrained"}
VOCABULARY_HELP = (
    "Vocabularies are tables with one row for each token: input and output embeddings. Rows that only an expert has "
    "are left out. Merge no rows if the experts number their tokens differently."
)
EXPERT_PLACEHOLDER = "{expert}"  # in a typed path: the name of each expert
FILE_FIELDS = {  # by key of a recipe: label, the function that writes the files
    "layer_inputs": ("Files of layer inputs", "capture"),
    "gradients": ("Files of gradients", "gradient_means"),
}
PATH_RULE = "This server reads only files whose names start with models:, like those of models."


def pick_family(current: Draft) -> None:
    """Ask whether the whole network is merged, if it contains a CLIP image encoder beside other parts."""
    if recipes.contains_clip(current.pretrained):
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
    """Draw fields for the paths of layer inputs and gradients that the chain reads; returns whether they are valid."""
    # Paths typed one by one in a recipe stay as they are until the field, which shows their pattern, is changed.
    files = {"layer_inputs": dict(current.data_files.layer_inputs), "gradients": dict(current.data_files.gradients)}
    is_valid = True
    for key in current.data_files_read:
        label, writer = FILE_FIELDS[key]
        typed_path = st.text_input(
            label, _find_path_pattern(files[key]), key=f"{key}{current.merge.uid}", max_chars=1000,
            placeholder=f"/data/{key}/{EXPERT_PLACEHOLDER}.safetensors",
            help=f"One file for each expert, written by {writer} of the library merging; {EXPERT_PLACEHOLDER} stands "
            "for the expert's name.",
        ).strip()  # fmt: skip
        if not typed_path:
            files[key] = {}
        elif EXPERT_PLACEHOLDER not in typed_path and len(experts) > 1 and typed_path != _find_path_pattern(files[key]):
            st.error(f"Write {EXPERT_PLACEHOLDER} in the path in place of the expert's name.")
            is_valid = False
        elif EXPERT_PLACEHOLDER in typed_path or typed_path != _find_path_pattern(files[key]):
            files[key] = {name: typed_path.replace(EXPERT_PLACEHOLDER, name) for name in current.experts}
        if not (
            listed_models.is_local()
            or all(path.startswith(NAMED) for path in (typed_path, *files[key].values()) if path)
        ):
            st.error(PATH_RULE, icon=":material/error:")
            is_valid, files[key] = False, {}
    current.data_files = DataFiles.build(files["layer_inputs"], files["gradients"])
    return is_valid


def _find_path_pattern(paths_by_expert: Mapping[str, str]) -> str:
    """One path with the placeholder that stands for all these files, else the first path; empty without files."""
    if not paths_by_expert:
        return ""
    patterns = {_insert_placeholder(path, name) for name, path in paths_by_expert.items()}
    return patterns.pop() if len(patterns) == 1 else next(iter(paths_by_expert.values()))


def _insert_placeholder(path: str, name: str) -> str:
    """A path with the placeholder in place of the last occurrence of an expert's name before the file's ending."""
    stem, dot, ending = path.rpartition(".")
    return f"{EXPERT_PLACEHOLDER.join(stem.rsplit(name, 1))}{dot}{ending}" if name and dot else path
