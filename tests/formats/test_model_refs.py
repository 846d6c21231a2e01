"""Models as users name them: located once, opened late, and the same from every folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tiny

from merging.base.errors import CheckpointError
from merging.models.formats import model_sources
from merging.models.formats.model_sources import ModelRef, open_models


def test_it_is_located_once_and_not_before_it_is_needed(
    tiny_family: tiny.Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    located: list[str] = []
    locate = model_sources.locate
    monkeypatch.setattr(model_sources, "locate", lambda text, base: located.append(text) or locate(text, base))
    model = ModelRef(str(tiny_family.pretrained))
    assert not located
    assert model.exists() and not model.is_on_hub and model.fetch() == tiny_family.pretrained
    assert model.open("pretrained").name == "pretrained"
    assert located == [str(tiny_family.pretrained)]


def test_relative_paths_count_from_the_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = tiny.write_family(tmp_path / "models", experts=("a",))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    near = {name: ModelRef(path.name, tmp_path / "models") for name, path in family.experts.items()}
    first, experts = open_models(ModelRef(family.pretrained.name, tmp_path / "models"), near)
    assert first.label == family.pretrained.name and experts["a"].folder == tmp_path / "models"
    assert near["a"].absolute() == str(family.experts["a"])
    assert not ModelRef(family.pretrained.name).exists()


def test_names_mean_the_same_from_every_folder(tmp_path: Path) -> None:
    for text in ("bundled:pretrained", "hf-hub:organization/name", "ViT-B-32/openai"):
        assert ModelRef(text, tmp_path).absolute() == text
    with pytest.raises(CheckpointError, match="no models folder 'nowhere'"):
        ModelRef("models:nowhere/a.pt").exists()


def test_naming_models_loads_no_torch() -> None:
    code = "import sys, merging.models.formats.model_sources; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
