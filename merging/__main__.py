"""``python -m merging``."""

import gc
import sys

gc.disable()  # until the command begins: loading modules leaves nothing to collect, and looking takes a fifth of it

from merging.cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
