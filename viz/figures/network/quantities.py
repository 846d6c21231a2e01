"""What a network map can show of each tensor: the title, the unit and the color scale of every quantity."""

from __future__ import annotations

from typing import NamedTuple

from viz import theme
from viz.parts import heat_maps

MASK_SCALE = [[0, theme.PRUNED], [0.5, theme.PRUNED], [0.5, theme.KEPT], [1, theme.KEPT]]


class Quantity(NamedTuple):
    """A quantity of tensors, or of each expert in a tensor.

    ``title`` is its name in pickers and above the color bar, ``unit`` the unit after it; ``format`` is that of numbers
    in hover texts (``viz.hover``). ``scale`` is linear, log, diverging or mask.
    """

    title: str
    unit: str = ""
    scale: str = "linear"
    format: str = "percent"
    per_expert: bool = False

    def color_scale(self, difference: bool = False) -> heat_maps.ColorScale:
        """The color scale; that of a ``difference`` of two runs has zero in its middle."""
        title = self.title_with_unit(difference)
        if self.scale == "mask" and not difference:
            return heat_maps.ColorScale(title, False, (0.0, 1.0), colors=MASK_SCALE)
        diverging = difference or self.scale == "diverging"
        return heat_maps.ColorScale(
            title, self.scale == "log" and not difference, None, self.format == "percent", diverging
        )

    def title_with_unit(self, difference: bool = False) -> str:
        """The title with the unit, in one line."""
        return f"{self.title}{', B − A' if difference else ''}{f' ({self.unit})' if self.unit else ''}"


QUANTITIES = {
    "saliency": Quantity("Saliency", "mean |deviation|, units of the weights", "log", "real", True),
    "own_mask": Quantity("Kept by each expert's own mask", scale="mask", format="kept", per_expert=True),
    "final_mask": Quantity("Kept by the final mask", scale="mask", format="kept", per_expert=True),
    "kept_share": Quantity("Scalars that the merge changed", "share of the tensor"),
    "update": Quantity("Size of the task vectors", "L2 norm relative to the weights", "log", per_expert=True),
    "moved": Quantity("Distance from the pretrained weights", "L2 norm relative to the weights", "log"),
    "agreement": Quantity("Sign agreement beyond random signs", "share of positions", "diverging"),
    "cosine": Quantity("Cosine between experts", "mean over pairs", "diverging", "decimal"),
    "drift": Quantity("Layer drift", "relative to the expert's outputs", "log", per_expert=True),
    "put_back_in": Quantity("Putting back gains in domain", "accuracy", "diverging"),
    "put_back_out": Quantity("Putting back gains out of domain", "accuracy", "diverging"),
    "first_order_in": Quantity("Putting back gains in domain, first order", "estimate, accuracy", "diverging"),
    "first_order_out": Quantity("Putting back gains out of domain, first order", "estimate, accuracy", "diverging"),
    "coefficient": Quantity("Learned coefficient", format="decimal", per_expert=True),
    "factor": Quantity("Factor", format="decimal", per_expert=True),
    "bytes": Quantity("Share of the stored bytes", scale="log"),
}
