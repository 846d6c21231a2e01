"""A way through the app with a T5: a set of models, a merge, masks by tower, an export, and back into Transformers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import peers
import pytest
import small_networks
import torch
from app_server import serve
from browser_tab import App, new_tab
from playwright.sync_api import Browser, expect
from safetensors.torch import load_file

import merging
from merging.sharing.catalog.model_set_store import make_model_set as make_set
from merging.sharing.catalog.model_set_store import store_model_set as keep_set

pytestmark = [pytest.mark.browser, pytest.mark.full]
PATIENCE = 180_000  # ms: jobs are processes of their own
EXPERTS = ("qasc", "rte")


@pytest.fixture
def t5(tmp_path: Path) -> Path:
    """A folder with a pretrained T5 and two experts, as Transformers writes them, and a set of them in a store."""
    model = small_networks.small("t5")
    model.save_pretrained(tmp_path / "pretrained")
    base = {name: value.clone() for name, value in model.state_dict().items()}
    for seed, name in enumerate(EXPERTS):
        draw = torch.Generator().manual_seed(seed)
        model.load_state_dict({key: v + 0.02 * torch.randn(v.shape, generator=draw) for key, v in base.items()})
        model.tie_weights()
        model.save_pretrained(tmp_path / name)
    team = make_set("T5 team", str(tmp_path / "pretrained"), {name: str(tmp_path / name) for name in EXPERTS})
    keep_set(tmp_path / "store", team)
    return tmp_path


@pytest.fixture
def own(chromium: Browser, library: Path, t5: Path) -> Iterator[App]:
    """The app on a store with that set."""
    with serve(library, t5) as url:
        context = chromium.new_context(viewport={"width": 1400, "height": 1100})
        yield new_tab(context, url)
        context.close()


def choose(app: App, label: str, option: str) -> None:
    """Choose an option of a select box."""
    app.page.get_by_role("combobox", name=label).first.click()
    app.page.get_by_role("option", name=option).first.click()
    app.settled()


def test_from_a_set_of_t5_to_a_folder_that_transformers_loads(own: App, t5: Path) -> None:
    page = own.open("/merge?chain=ties").page
    choose(own, "Models", "T5 team")
    expect(own.text("tensors of every checkpoint fit")).to_be_visible(timeout=PATIENCE)
    choose(own, "Start from a combination in the papers", "T5 · Task Arithmetic")
    expect(page.get_by_test_id("stMultiSelect")).to_contain_text("qasc")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".st-key-result")).to_contain_text("is done", timeout=PATIENCE)

    page.get_by_role("link", name="Export", exact=True).click()
    own.settled().charted()
    run_id = re.search(r"selected_runs=([0-9a-f]{12})", page.url)
    assert run_id is not None
    expect(page.get_by_text("open_clip", exact=True)).to_have_count(0)
    page.get_by_role("button", name="Export the model").click()
    expect(page.get_by_role("button", name="Download (zip)")).to_be_visible(timeout=PATIENCE)
    loaded = peers.transformers().T5ForConditionalGeneration.from_pretrained(
        t5 / "store" / "exports" / f"{run_id[1]}-hf"
    )
    expected = merging.merge(
        t5 / "pretrained", {name: t5 / name for name in EXPERTS}, "task_arithmetic", {"scaling": 0.4}
    ).state_dict
    for name in load_file(t5 / "pretrained" / "model.safetensors"):
        torch.testing.assert_close(loaded.state_dict()[name], expected[name])

    own.open(f"/masks?run={run_id[1]}").charted()
    page.get_by_role("radiogroup", name="Tower").get_by_text("decoder", exact=True).click()
    own.wait_for_address("tower=decoder")
    own.settled().charted()
    assert not own.problems and not own.outside()
