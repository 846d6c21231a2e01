"""The shipped checks of methods as tests call them, and the methods that are excused from some, each with a reason.

A method may be excused from a check only by an entry in EXCUSED with a written reason, and the suite fails when such an
entry is no longer needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contexts import context_of

from merging.engine import run as engine
from merging.methods.method import Method
from merging.models.checkpoint import MappingCheckpoint
from merging.study.method_checks.common_checks import CHECKS
from merging.study.method_checks.tiny_team import State
from merging.study.method_checks.trial_merges import capture_inputs as layer_inputs
from merging.study.method_checks.trial_merges import data_for as data
from merging.study.method_checks.trial_merges import draw_exemplars as labeled_exemplars
from merging.study.method_checks.trial_merges import family_of, short_params, try_merge
from merging.study.method_checks.trial_merges import make_family as family
from merging.study.method_checks.trial_merges import require_close as assert_close
from merging.study.method_checks.trial_merges import shortest_recipe as recipe
from merging.study.method_checks.trial_merges import states_of as states
from merging.study.method_checks.trial_merges import without_labels as unlabeled

__all__ = [
    "CHECKS", "EXCUSED", "MappingCheckpoint", "State", "assert_close", "data", "family", "family_of",
    "labeled_exemplars", "layer_inputs", "merge", "recipe", "short_params", "states", "unlabeled",
]  # fmt: skip

EXCUSED: dict[tuple[str, str], str] = {
    ("scaling_zero_gives_pretrained", "mass"): "its scaling is of the models of the second pass",
    ("one_expert_at_full_strength", "mass"): "the merged model below it is task arithmetic at its default",
    ("one_expert_at_full_strength", "surgery"): "the merged model below it is task arithmetic at its default",
    ("one_expert_at_full_strength", "twin"): "the merged model below it is task arithmetic at its default",
    ("one_expert_at_full_strength", "wemoe"): "the merged model below it is task arithmetic at its default",
    ("one_expert_at_full_strength", "lwptv"): "one task vector never deviates from its mean, so everything is pruned",
    ("one_expert_at_full_strength", "dare"): "drops half of the scalars unless told otherwise",
    ("one_expert_at_full_strength", "della"): "drops half of the scalars unless told otherwise",
    ("one_expert_at_full_strength", "magnitude"): "drops the smaller scalars unless told otherwise",
    ("one_expert_at_full_strength", "trim"): "drops the smaller scalars unless told otherwise",
    ("one_expert_at_full_strength", "breadcrumbs"): "drops the largest scalars unless told otherwise",
    ("one_expert_at_full_strength", "random_mask"): "drops most scalars unless told otherwise",
    ("one_expert_at_full_strength", "wise_ft"): "goes half of the way unless told otherwise",
    ("one_expert_at_full_strength", "lines"): "scales deep blocks up unless told otherwise",
    ("one_expert_at_full_strength", "lot"): "directions that the exemplars do not excite are left pretrained",
    ("one_expert_at_full_strength", "iso_c"): "one expert's spectrum is made flat too",
    ("one_expert_at_full_strength", "iso_cts"): "one expert's spectrum is made flat too",
    ("one_expert_at_full_strength", "wudi"): "what is no linear weight stays pretrained",
    ("one_expert_at_full_strength", "adamerging"): "coefficients move away from where they start",
    ("one_expert_at_full_strength", "localize_and_stitch"): "keeps the few scalars that its exemplars need",
    ("one_expert_at_full_strength", "pcb"): "sizes are clipped at their quantiles, and the smallest never win",
}


def merge(
    method: Method, base: State, experts: Mapping[str, State], params: Mapping[str, Any] | None = None, **options: Any
) -> engine.MergeResult:
    """``try_merge`` on the CPU, with the parts of a context among the options."""
    context = context_of(options)
    return try_merge(method, base, experts, params, context=context, **options)
