"""What charts look like to the three kinds of color blindness.

Simulated with the matrices of Machado, Oliveira and Fernandes (2009), "A physiologically-based model for simulation of
color vision deficiency", IEEE TVCG 15(6), Table 1, severity 1.0, on linear RGB. Differences are distances in CIELAB.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from figure_colors import parts

from viz import theme
from viz.dark_ground import TO_DARK
from viz.figures import revert_figures
from viz.figures.masks import manual_canvas, saliency_figures

Floats = npt.NDArray[np.float64]
KINDS = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
APART = 10.0  # least distance in CIELAB of two colors of categories


def linear(color: str) -> Floats:
    rgb = np.array((parts(color) or (0.0, 0.0, 0.0, 0.0))[:3])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb: Floats) -> Floats:
    """CIELAB of linear RGB, for the white of sRGB."""
    xyz = XYZ @ rgb / (XYZ @ np.ones(3))
    root = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


def as_seen(color: str, kind: str) -> Floats:
    """CIELAB of a color as this kind of color blindness sees it."""
    return lab(np.clip(np.array(KINDS[kind]) @ linear(color), 0, 1))


def nearest(palette: Sequence[str], kind: str) -> tuple[float, str, str]:
    """The smallest distance of two colors of a palette, and which they are."""
    return min(
        (float(np.linalg.norm(as_seen(one, kind) - as_seen(other, kind))), one, other)
        for one, other in itertools.combinations(palette, 2)
    )


def lightness(scale: Sequence[Sequence[object]], kind: str) -> Floats:
    return np.array([as_seen(str(color), kind)[0] for _, color in scale])


def test_the_simulation_is_right_about_known_colors() -> None:
    for matrix in KINDS.values():
        np.testing.assert_allclose(np.sum(matrix, axis=1), 1, atol=2e-6)  # grays stay gray
    np.testing.assert_allclose(lab(linear("#FFFFFF")), [100, 0, 0], atol=0.02)
    np.testing.assert_allclose(lab(linear("#FF0000")), [53.24, 80.09, 67.20], atol=0.1)
    assert nearest(("#00A000", "#C06000"), "deuteranopia")[0] < nearest(("#00A000", "#C06000"), "tritanopia")[0] / 2


SIDES = ("#E08214", "#8073AC")  # of the diverging scale: one run and the other


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("turned", [False, True])
def test_colors_of_categories_stay_apart(kind: str, turned: bool) -> None:
    for palette in (theme.PALETTE, tuple(theme.ROLE_COLORS.values()), SIDES):
        shown = [TO_DARK.get(color, color) if turned else color for color in palette]
        distance, one, other = nearest(shown, kind)
        assert distance >= APART, (one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_scales_stay_in_order(kind: str) -> None:
    assert (np.diff(lightness(theme.SEQUENTIAL, kind)) > 0).all()
    for scale in (theme.DIVERGING, revert_figures.MARGIN_SCALE.colors):
        both = lightness(scale, kind)
        middle = len(both) // 2
        assert (np.diff(both[: middle + 1]) > 0).all() and (np.diff(both[middle:]) < 0).all()
        ends = [as_seen(str(scale[place][1]), kind) for place in (1, -2)]
        assert np.linalg.norm(ends[0] - ends[1]) >= 2 * APART
    steps = [lightness(scale, kind) for scale in (saliency_figures.MASK_SCALE, manual_canvas.FACTOR_COLORS)]
    assert all((np.diff(step) <= 1e-9).all() for step in steps)  # the more is kept, the darker
