"""`python -m toyblocks`: the command line."""

import sys

from toyblocks.cli import main

if __name__ == "__main__":
    sys.exit(main())
