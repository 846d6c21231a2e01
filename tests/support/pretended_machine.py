"""A plugin of pytest, ``-p pretended_machine``: the machine has the pretend accelerator, and "auto" takes it."""

from __future__ import annotations

import devices
import torch
from pretend_device import NAME

import merging.base.devices

for names in (devices.ACCELERATORS, devices.DEVICES, devices.WITH_FLOAT64):
    names.append(NAME)
_choose = merging.base.devices.choose_device


def _chosen(name: str = "auto") -> torch.device:
    return _choose(NAME if name == "auto" else name)


merging.base.devices.choose_device = _chosen  # before other modules take it from there
