"""Experts that probably do not belong are named wherever a run of them is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import odd_experts
import pytest
from models_page import table
from page_harness import press, run_until_idle, words

from app import page_text
from app.reading import page_data
from merging.sharing.catalog.model_set_store import make_model_set as make_set
from merging.sharing.catalog.model_set_store import store_model_set as keep_set


@pytest.fixture
def odd_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a set of models with an odd expert of every kind."""
    odd = odd_experts.write(tmp_path / "odd")
    monkeypatch.setenv("MERGESCOPE_MODELS", str(tmp_path / "odd"))
    made = make_set("Odd", "models:odd/pretrained.safetensors",
                    {name: f"models:odd/{name}.safetensors" for name in odd.experts})  # fmt: skip
    keep_set(tmp_path / "store", made)
    return made.id


@pytest.mark.full
def test_the_result_the_list_and_other_pages_say_it(open_app: Any, library: Path, odd_set: str) -> None:
    at = open_app("merge", library, models=odd_set, chain="ties")
    press(at, "Run")
    at = run_until_idle(at)
    assert not at.exception
    (job,) = page_data.job_queue().list_jobs()
    run = page_data.store().get_run(job.subject)
    assert len(run.cautions) == 3
    (box,) = [warning.value for warning in at.warning if warning.value.startswith("**Check the result:**")]
    assert all(page_text.safe_text(line, 400) in box for line in run.cautions)

    at.switch_page("screens/models.py")
    at.query_params["models_view"], at.query_params["selected_runs"] = "runs", run.id
    at.run()
    assert not at.exception
    rows = table(at).set_index("id")
    assert rows.loc[run.id, "warnings"] == 3 and rows["warnings"].isna().sum() == len(rows) - 1
    assert any(all(page_text.safe_text(line, 400) in warning.value for line in run.cautions) for warning in at.warning)

    del at.query_params["models_view"], at.query_params["selected_runs"]
    at.switch_page("screens/masks.py")
    at.query_params["run"] = run.id
    at.run()
    assert not at.exception and all(page_text.safe_text(line, 400) in words(at) for line in run.cautions)
