"""The tensors of a checkpoint as a table: the role of each, the source of the role, and the effect of a merge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from merging.models.families import INFERRED_KEY, Role
from merging.models.network_facts import facts_of
from merging.models.tensor_info import dtype_name
from merging.models.tower_names import is_transposed

if TYPE_CHECKING:
    import pandas as pd

    from merging.models.checkpoint import Checkpoint

COLUMNS = (
    "tensor", "tower", "section", "block", "part", "role", "transposed", "tied_to", "shape", "dtype", "becomes",
    "told_by",
)  # fmt: skip
MERGED_OUTCOME = "merged"
OUTCOMES = {
    Role.STATISTIC: "mean",
    Role.BUFFER: "kept",
    Role.HEAD: "per task",
}  # the effect of a merge by role; all other roles are merged
CLIP_SOURCE, FACTS_SOURCE, INFERRED_SOURCE = "clip", "facts", "inferred"  # sources of a role


def tensor_table(checkpoint: Checkpoint) -> pd.DataFrame:
    """A row for each tensor, in forward order; ``block`` counts within its tower and is missing outside the blocks.

    ``tied_to`` is the first tensor in the file that a network of this kind ties to it, or empty. ``told_by`` is
    the source of the row: CLIP's rules, facts about its kind of network, or names and shapes.

    Raises:
        FamilyError: neither rules nor inference can describe the tensors.
    """
    import pandas as pd

    ignores_facts = not checkpoint.is_inferred or checkpoint.family == INFERRED_KEY
    facts = None if ignores_facts else facts_of(checkpoint.infos)
    groups = facts.tied_groups(checkpoint.infos) if facts else ()
    tied = {name: group[0] for group in groups for name in group[1:]}
    told_by = CLIP_SOURCE if not checkpoint.is_inferred else FACTS_SOURCE if facts else INFERRED_SOURCE
    rows: list[tuple[Any, ...]] = []
    for p in checkpoint.parameters:
        info = checkpoint.infos[p.name]
        becomes = OUTCOMES.get(p.role, MERGED_OUTCOME)
        described = (p.name, p.tower, p.section, p.block, p.part, str(p.role), is_transposed(p), tied.get(p.name, ""))
        rows.append((*described, info.shape, dtype_name(info.dtype), becomes, told_by))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"block": "Int64"})
