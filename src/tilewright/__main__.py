"""``python -m tilewright``, and the script of that name: the command line, interrupted in its own words."""

import sys
from importlib import import_module

#: The exit status of what a user interrupts: 128 and the number of the signal.
INTERRUPTED = 130


def entry() -> int:
    """Run the command line; its exit status. Importing it may be interrupted, too."""
    try:
        return int(import_module("tilewright.cli").main())
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(entry())
