"""Memory of a merge: a few tensors times the number of experts, never a model per expert."""

from __future__ import annotations

import measured_memory
import pytest

from merging.models.formats.model_sources import open_checkpoint

EXPERTS = 20


@pytest.mark.full
@measured_memory.ONLY_LINUX
def test_twenty_experts_take_the_memory_of_a_few_tensors(tmp_path):
    """TIES after DARE, which holds random masks, quantile samples and sign votes besides the task vectors."""
    files = measured_memory.tower_files(tmp_path, EXPERTS, width=384, layers=2, patch=16, tokens=50, out=256)
    growth = measured_memory.growth(["dare", "ties"], files, tmp_path / "merged")
    infos = open_checkpoint(files[0]).infos
    assert set(open_checkpoint(tmp_path / "merged").infos) == set(infos)
    models = EXPERTS * sum(info.nbytes for info in infos.values())
    tensors = EXPERTS * max(info.nbytes for info in infos.values())
    assert growth < 3 * tensors < 0.5 * models
