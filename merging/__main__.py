"""``python -m merging``."""

import sys

from merging.cli import main

if __name__ == "__main__":
    sys.exit(main())
