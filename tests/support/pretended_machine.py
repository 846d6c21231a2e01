"""A plugin of pytest, ``-p pretended_machine``: the machine has an accelerator, which is the pretend one."""

from __future__ import annotations

import devices
from pretend_device import NAME

for names in (devices.ACCELERATORS, devices.DEVICES, devices.WITH_FLOAT64):
    names.append(NAME)
