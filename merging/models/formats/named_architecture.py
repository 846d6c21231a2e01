"""The architecture that a text names: plain fields, a model of open_clip, or a configuration in a file or folder."""

from __future__ import annotations

import importlib.util
import re
from os.path import lexists
from pathlib import Path

from merging.base.errors import CheckpointError
from merging.base.text import did_you_mean, printable
from merging.models.formats.configs import OPEN_CLIP, TRANSFORMERS, architecture_in_config, read_json
from merging.models.model_references import locate
from merging.models.stated_architecture import StatedArchitecture

MODEL_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,79}")
QUICK_GELU_SUFFIX = "quickgelu"  # the suffix of open_clip's models with QuickGELU


def named_architecture(text: str, base: Path | None = None) -> StatedArchitecture:
    """The architecture that a text names: 'heads=12,activation=gelu', 'ViT-B-32', or the path of a configuration.

    An empty text states nothing. A relative path starts at ``base``.

    A model of open_clip states its activation only if its name ends in "quickgelu": OpenAI's weights, which have
    QuickGELU, are also known under the plain name.

    Raises:
        CheckpointError: the text names no architecture, or the configuration is not of a CLIP model.
    """
    if not text.strip():
        return StatedArchitecture()
    path = locate(text, base)
    if "=" in text and not lexists(path):
        return StatedArchitecture.parse(text)
    # A folder of experts may have the name of a model of open_clip, such as ViT-B-32; the model is then meant.
    if lexists(path) and not (path.is_dir() and MODEL_NAME.fullmatch(text) and not _list_configurations(path)):
        return _read_configuration(path)
    if not MODEL_NAME.fullmatch(text) or text.endswith(".json"):
        raise CheckpointError(f"There is no configuration at {printable(text)}.")
    return _find_open_clip_model(text)


def _read_configuration(path: Path) -> StatedArchitecture:
    """The architecture in a configuration file, or in the configuration of a folder."""
    for file in _list_configurations(path) if path.is_dir() else [path]:
        if (config := read_json(file)) is not None and (architecture := architecture_in_config(config)):
            return StatedArchitecture.from_metadata(architecture)
    raise CheckpointError(
        f"{printable(path.name)} is not a configuration of a CLIP model; {OPEN_CLIP}, or {TRANSFORMERS} of "
        "Transformers, is one."
    )


def _list_configurations(folder: Path) -> list[Path]:
    """The configuration files in a folder; a folder that holds only experts has none."""
    return [folder / name for name in (OPEN_CLIP, TRANSFORMERS) if lexists(folder / name)]


def _find_open_clip_model(name: str) -> StatedArchitecture:
    """The architecture of a model of open_clip, from the package's files, because importing open_clip takes seconds."""
    package = importlib.util.find_spec("open_clip")
    if package is None or not package.submodule_search_locations:
        raise CheckpointError(
            f"open_clip, which knows the model {name}, is not installed; state the number of heads instead: heads=12."
        )
    folder = Path(package.submodule_search_locations[0]) / "model_configs"
    config = read_json(folder / f"{name}.json")
    if config is None:
        model_names = [path.stem for path in sorted(folder.glob("*.json"))]
        raise CheckpointError(
            f"open_clip has no model {name!r}.{did_you_mean(name, model_names)} An architecture is one of its models, "
            "the path of a configuration, or fields such as heads=12,activation=gelu."
        )
    architecture = architecture_in_config(config)
    if not {"width", "layers", "patch_size"} <= architecture.get("vision_cfg", {}).keys():
        raise CheckpointError(f"open_clip's {name} is not a vision transformer of CLIP's kind.")
    if not name.endswith(QUICK_GELU_SUFFIX):
        architecture.pop("quick_gelu", None)
    return StatedArchitecture.from_metadata(architecture)
