"""``python -m tilewright``: the command line, for a checkout or where scripts are not on the path."""

import sys

from tilewright.cli import main

if __name__ == "__main__":
    sys.exit(main())
