"""What commands load: a merge neither pandas nor methods that it does not run, which would take longer than reading."""

from __future__ import annotations

from pathlib import Path

from loading import list_loaded_modules


def test_a_merge_loads_neither_pandas_nor_other_methods(tiny_folder: Path, tmp_path: Path) -> None:
    models, out = tiny_folder / "models", tmp_path / "out"
    named = [f"--expert={name}={models / name}.safetensors" for name in ("circles", "digits")]
    words = ["merge", f"--pretrained={models / 'pretrained'}.safetensors", *named, "--edit=lwptv", f"--out={out}"]
    words += ["--no-evaluate", "--device=cpu", f"--store={tmp_path / 'store'}"]
    loaded = list_loaded_modules(f"from merging.cli.main import main\nassert main({words!r}) == 0")
    assert {"torch", "merging.methods.edits.lwptv", "merging.sharing.export.model_card"} <= loaded
    assert not loaded & {"pandas", "merging.methods.merges.ties", "merging.methods.adapts.wemoe"}
    assert (out / "tables" / "saliency.csv").is_file()
