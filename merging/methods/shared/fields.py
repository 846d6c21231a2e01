"""Parameters that several methods share."""

from __future__ import annotations

SCALING_HELP = "Factor on the merged task vector: 0 gives the pretrained model back."
SEED_HELP = "Of the random draws. The same seed gives the same masks on any machine."
