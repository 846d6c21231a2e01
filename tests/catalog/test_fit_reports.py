"""Fit reports are kept until a file changes."""

from __future__ import annotations

from pathlib import Path

import tiny
import torch

from merging.cli.main import main
from merging.models.formats.model_sources import open_checkpoint
from merging.models.inspection.fit_check import check_fit
from merging.models.inspection.fit_report import FitReport
from merging.sharing.catalog import fit_reports


def test_a_report_is_kept_until_a_file_changes(tmp_path: Path) -> None:
    family = tiny.write_family(tmp_path / "models")
    store = tmp_path / "store"
    arguments = [f"--expert={name}={path}" for name, path in family.experts.items()]
    assert main(["fit", f"--pretrained={family.pretrained}", *arguments, "--values", "--keep", f"--store={store}"]) == 0

    def find() -> FitReport | None:
        below = open_checkpoint(family.pretrained, "pretrained")
        opened = {name: open_checkpoint(path, name, like=below) for name, path in family.experts.items()}
        return fit_reports.find_report(store, below, opened)

    found = find()
    assert found is not None and found.ok and set(found.distances) == set(family.experts)
    below = open_checkpoint(family.pretrained)
    assert found == check_fit(below, {n: open_checkpoint(p, n) for n, p in family.experts.items()}, values=True)
    next(iter((store / "checks").iterdir())).write_text("{}")
    assert find() is None
    tiny.write(family.pretrained, tiny.pretrained(3), torch.float32)
    assert find() is None
