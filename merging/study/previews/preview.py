"""The result of a preview. Unlike a run it has no id, and its table has its own columns; no preview is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from merging.images.benchmarks.answers import Scored, compare_scored
from merging.images.benchmarks.paired_scores import AVERAGE
from merging.study.previews.preview_samples import HALF, PreviewSample

if TYPE_CHECKING:
    import pandas as pd

CHANGES_TABLE, ANSWERS_TABLE = "changes", "answers"
PLAIN_FIELDS = ("n", "device", "title", "reference", "rounded")


def name_changes(changes: pd.DataFrame, titles: Mapping[str, str]) -> pd.DataFrame:
    """The table of ``compare_models`` with a column "title": the name of the average, or the task's title."""
    names = [
        scope[0].upper() + scope[1:] if group == AVERAGE else titles[scope]
        for scope, group in zip(changes["over"], changes["group"], strict=True)
    ]
    return changes.assign(title=names)[["over", "title", *changes.columns[1:]]]


class StoredModel(NamedTuple):
    """A model's name, its stored scores, and their device."""

    title: str
    scored: Scored
    device: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Preview:
    """The scores of a chain and of a reference on the same sample of the choosing half.

    ``tables`` holds "changes" (a row for in domain, out of domain, H-score and each task; see ``compare_models``)
    and "answers" (a row for every image: task, place, label, right and reference_right, and predicted). place is the
    index in the choosing half; predicted is -1 if several models answer. ``n`` counts images. ``title`` and
    ``reference`` name the two models. ``rounded`` says that tokens were cached in half precision, so close decisions
    may differ from a run's. ``is_from_stored`` says that both models' scores were stored, on all images: then there is
    no table of answers, and intervals are NaN unless the answers behind the scores were stored, too.
    """

    tables: Mapping[str, pd.DataFrame]
    n: int
    sample: PreviewSample
    device: str
    title: str
    reference: str
    rounded: bool = False
    is_from_stored: bool = False
    half: str = HALF

    @property
    def seed(self) -> int:
        """The seed of the sample."""
        return self.sample.seed

    @property
    def changes(self) -> pd.DataFrame:
        """The table of differences."""
        return self.tables[CHANGES_TABLE]

    def to_plain(self) -> dict[str, Any]:
        """The preview as plain data for another process, without the answers."""
        rows = self.changes.to_dict("records")
        sample = {"per_task": self.sample.per_task, "seed": self.sample.seed}
        return {CHANGES_TABLE: rows, "sample": sample, **{name: getattr(self, name) for name in PLAIN_FIELDS}}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Self:
        """The preview that ``to_plain`` wrote."""
        import pandas as pd

        sample = PreviewSample(**data["sample"])
        return cls(
            tables={CHANGES_TABLE: pd.DataFrame(data[CHANGES_TABLE])},
            sample=sample,
            **{name: data[name] for name in PLAIN_FIELDS},
        )

    @classmethod
    def from_stored(
        cls, model: StoredModel, reference: StoredModel, in_domain: Sequence[str], titles: Mapping[str, str]
    ) -> Self | None:
        """The change between two models; without the answers of both, the intervals are NaN.

        None if their images differ. ``in_domain`` are the experts' tasks, ``titles`` those of all tasks.
        """
        columns = ["task", "n"]
        if model.scored.scores[columns].to_numpy().tolist() != reference.scored.scores[columns].to_numpy().tolist():
            return None
        changes = compare_scored(model.scored, reference.scored, in_domain)
        return cls(
            tables={CHANGES_TABLE: name_changes(changes, titles)},
            n=int(model.scored.scores["n"].sum()),
            sample=PreviewSample(),
            device=" and ".join(dict.fromkeys((model.device, reference.device))),
            title=model.title,
            reference=reference.title,
            is_from_stored=True,
        )
