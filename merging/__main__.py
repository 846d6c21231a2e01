"""``python -m merging``."""

import sys

from merging.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
