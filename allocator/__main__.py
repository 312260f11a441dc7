"""`python -m allocator` is the command `allocator`."""

import sys

from allocator.cli.main import run

if __name__ == "__main__":
    sys.exit(run())
