"""A way through the app: a folder of experts, the fit report, a merge, an export, and back into Transformers."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import peers
import pytest
import torch
from browser_tab import App
from namings import to_naming
from playwright.sync_api import expect

import merging
from merging.models.checkpoint import MappingCheckpoint
from merging.models.formats.model_sources import open_checkpoint

pytestmark = [pytest.mark.browser, pytest.mark.full]
PATIENCE = 180_000  # ms: jobs are processes of their own
SIZES = {"image_size": 32, "patch_size": 16, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 128, "projection_dim": 12}  # fmt: skip
EXPERTS = ("cars", "dtd", "eurosat")


def write_hub(folder: Path) -> Path:
    """A pretrained model and experts, each as the folder that Transformers' save_pretrained writes."""
    library = peers.transformers()
    torch.manual_seed(0)
    model = library.CLIPVisionModelWithProjection(library.CLIPVisionConfig(**SIZES))
    model.save_pretrained(folder / "clip-tiny")
    base = {name: value.clone() for name, value in model.state_dict().items()}
    for name in EXPERTS:
        moved = {key: value + 0.02 * value.std() * torch.randn_like(value) for key, value in base.items()
                 if value.is_floating_point() and value.numel() > 1}  # fmt: skip
        model.load_state_dict({**base, **moved})
        model.save_pretrained(folder / f"clip-tiny_{name}")
    (folder / "cut.safetensors").write_bytes((folder / "clip-tiny" / "model.safetensors").read_bytes()[:5000])
    return folder


def test_from_a_folder_of_experts_to_a_model_that_loads(app: App, tmp_path: Path) -> None:
    hub, page = write_hub(tmp_path / "hub"), app.open("/models").page
    field = page.get_by_label("Your folder or file", exact=True)
    field.fill(str(hub))
    field.press("Enter")
    expect(page.get_by_text("Models that belong together")).to_be_visible(timeout=PATIENCE)
    app.settled()
    expect(app.text("1 file cannot be read")).to_be_visible()
    expect(app.text("truncated: the header promises")).to_be_visible()
    expect(app.text("tensors of every checkpoint fit")).to_be_visible()
    page.get_by_text("Fit report: what matches").click()
    expect(app.text("tensors with")).to_be_visible()
    expect(app.text("Every number of every checkpoint was read")).to_be_visible()

    page.get_by_role("button", name="Add to the Merge page").click()
    app.settled()
    page.reload()  # the set is kept, the typed folder is not
    app.settled()
    made = (
        page.get_by_test_id("stVerticalBlock").or_(page.get_by_test_id("stHorizontalBlock")).filter(has_text="eurosat")
    )
    made.filter(has=page.get_by_role("link", name="Open in Merge")).last.get_by_role("link").click()
    app.settled()
    expect(page.get_by_test_id("stMultiSelect")).to_contain_text("eurosat")
    expect(app.text("not evaluated")).to_be_visible()
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".st-key-result")).to_contain_text("is done", timeout=PATIENCE)

    page.get_by_role("link", name="Export", exact=True).click()
    app.settled().charted()
    expect(app.text("Where does this model come from?")).to_be_visible()
    page.get_by_role("button", name="Export the model").click()
    expect(page.get_by_role("button", name="Download (zip)")).to_be_visible(timeout=PATIENCE)
    app.settled()
    run_id = re.search(r"selected_runs=([0-9a-f]{12})", page.url)
    assert run_id is not None
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download (zip)").click()
    waiting.value.save_as(tmp_path / "merged.zip")
    zipfile.ZipFile(tmp_path / "merged.zip").extractall(tmp_path)
    check_export(tmp_path / f"{run_id[1]}-hf", hub)


def check_export(folder: Path, hub: Path) -> None:
    """What was exported loads in Transformers and is what the library merges."""
    assert str(hub) not in (folder / "README.md").read_text() + (folder / "recipe.yaml").read_text()
    images = peers.random_images(SIZES["image_size"])
    found = peers.by_transformers(folder, images)
    assert peers.alike(found, peers.ours(open_checkpoint(folder), images))
    experts = {name: hub / f"clip-tiny_{name}" for name in EXPERTS}
    merged = merging.merge(hub / "clip-tiny", experts, "task_arithmetic", edits=["lwptv"])
    expected = MappingCheckpoint(to_naming(merged.state_dict, "open_clip"), "expected")
    vision = {"head_width": SIZES["hidden_size"] // SIZES["num_attention_heads"]}
    expected.metadata = {"architecture": json.dumps({"vision_cfg": vision, "quick_gelu": True})}
    assert peers.alike(found, peers.ours(expected, images))
