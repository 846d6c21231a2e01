"""Files of the size and names of the experiment smoke, without content: what can be fetched and nothing else."""

from __future__ import annotations

from loopback_hub import LoopbackHub

VISION = "tanganke/clip-vit-base-patch32"
LARGE = 1_000_000  # bytes of each model
MODELS = {
    "openai/clip-vit-base-patch32": {"config.json": b"{}", "pytorch_model.bin": b"p" * LARGE},
    f"{VISION}_mnist": {"config.json": b"{}", "model.safetensors": b"m" * LARGE},
    f"{VISION}_eurosat": {"config.json": b"{}", "model.safetensors": b"e" * LARGE},
}
DATA = {
    "ylecun/mnist": {"mnist/test-00000-of-00001.parquet": b"t" * 500},
    "tanganke/eurosat": {"data/test-00000-of-00001.parquet": b"u" * 600},
}


def add_smoke(hub: LoopbackHub) -> None:
    """Put the repositories on a Hub."""
    for name, files in MODELS.items():
        hub.add("model", name, files)
    for name, files in DATA.items():
        hub.add("dataset", name, files, license="mit" if "mnist" in name else None)
