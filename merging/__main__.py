"""``python -m merging``."""

import gc
import sys

gc.disable()  # until the command begins: loading modules leaves nothing to collect, and looking takes a fifth of it

try:
    from merging.cli.main import main
except ModuleNotFoundError as error:
    if (error.name or "merging").startswith("merging"):
        raise
    sys.exit(
        f"Mergescope needs the package {error.name}, which this Python does not have. Install Mergescope with pip, or "
        "type `make app` in a checkout, which installs all it needs into .venv/, and use .venv/bin/python."
    )

if __name__ == "__main__":
    sys.exit(main())
