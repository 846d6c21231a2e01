"""Names made of content are those that stored things bear, and one function makes all of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from app.widgets.fit_report import job_subject
from merging.base import settings
from merging.base.files.short_digest import SHORT_DIGEST, short_digest
from merging.sharing.catalog.model_set_store import make_model_set
from merging.study.sweeps.sweep import Sweep

ROOT = Path(__file__).resolve().parents[2]


def test_stored_reference_models_bear_the_names_that_their_content_gives():
    records = [json.loads(path.read_bytes()) for path in settings.LIBRARY_FOLDER.glob("*/run.json")]
    names = {
        record["id"]: {short_digest(f"{digest} on {record['benchmark']}") for digest in record["inputs"].values()}
        for record in records
        if record["kind"] != "merge"
    }
    assert len(names) == 10 and all(name in made for name, made in names.items())


def test_stored_sweeps_bear_the_names_that_their_content_gives():
    paths = sorted((settings.LIBRARY_FOLDER.parent / "sweeps").glob("*.yaml"))
    assert paths and all(Sweep.from_yaml(path.read_text()).id == path.stem for path in paths)


@pytest.mark.parametrize(
    ("text", "name"),
    [("", "e3b0c44298fc"), ("models:ähnlich/ω.pt", "3448ebc53c55"), (os.fsdecode(b"\xff/a.pt"), "9f88159790e2")],
)
def test_names_of_texts_stay_as_they_are(text, name):
    assert short_digest(text) == name and SHORT_DIGEST.fullmatch(name)


def test_names_of_sets_and_of_choices_of_models_stay_as_they_are():
    assert make_model_set("A", "models:p.pt", {"é": "models:a.pt", "b": "hf:x/y"}).id == "87e391e41c65"
    assert job_subject("models:p.pt", {"é": "\ud800", "b": "hf:x/y"}) == "ec106e8fee5e"


@pytest.mark.parametrize("name", ["0123456789ab\n", "0123456789aB", "0123456789a", "0123456789abc", "٠123456789ab"])
def test_other_names_are_none(name):
    assert not SHORT_DIGEST.fullmatch(name)


def test_no_other_module_shortens_a_digest():
    sources = [path for room in ("merging", "app") for path in (ROOT / room).rglob("*.py")]
    texts = {path.name: path.read_text() for path in sources if path.name != "short_digest.py"}
    assert len(texts) > 100
    assert not [name for name, text in texts.items() if "hexdigest()[:12]" in text or "[0-9a-f]{12}" in text]
