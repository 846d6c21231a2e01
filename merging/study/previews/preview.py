"""The result of a preview. It is no run: it has no id, no store takes it, and its table has columns of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from merging.study.previews.preview_samples import HALF, PreviewSample

if TYPE_CHECKING:
    import pandas as pd

CHANGES, ANSWERS = "changes", "answers"
FACTS = ("n", "device", "title", "reference", "rounded")


@dataclass(frozen=True, kw_only=True, eq=False)
class Preview:
    """What a chain would score on a sample of the choosing half, against a reference on the same images.

    ``tables`` holds "changes" (a row for in domain, out of domain, H-score and each task; see ``paired_differences``)
    and "answers" (a row for every image: task, place in the choosing half, label, whether each model is right, and the
    predicted class, -1 where several models answer). ``n`` counts images. ``reference`` and ``title`` name the two
    models. ``rounded`` says that tokens were kept in half precision, so that close calls may differ from a run's.
    """

    tables: Mapping[str, pd.DataFrame]
    n: int
    sample: PreviewSample
    device: str
    title: str
    reference: str
    rounded: bool = False
    half: str = HALF

    @property
    def seed(self) -> int:
        """The seed of the draw and of the intervals."""
        return self.sample.seed

    @property
    def changes(self) -> pd.DataFrame:
        """The table of differences."""
        return self.tables[CHANGES]

    def to_plain(self) -> dict[str, Any]:
        """The preview as plain data for another process, without the answers."""
        rows = self.changes.to_dict("records")
        sample = {"per_task": self.sample.per_task, "seed": self.sample.seed}
        return {CHANGES: rows, "sample": sample, **{name: getattr(self, name) for name in FACTS}}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Self:
        """The preview that ``plain`` wrote."""
        import pandas as pd

        sample = PreviewSample(**data["sample"])
        return cls(tables={CHANGES: pd.DataFrame(data[CHANGES])}, sample=sample, **{name: data[name] for name in FACTS})
