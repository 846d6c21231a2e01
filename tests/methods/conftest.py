"""A small family of experts with labeled exemplars."""

from __future__ import annotations

import common_checks
import pytest


@pytest.fixture(scope="module")
def family():
    return common_checks.family()


@pytest.fixture(scope="module")
def shown(family):
    return common_checks.labeled_exemplars(family[1])
