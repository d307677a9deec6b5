"""Logging: one logger tree below `tilewright`, silent until a program asks for it, and then on stderr."""

import logging
import sys
from typing import TextIO

ROOT = "tilewright"
_FORMAT = "%(asctime)s %(levelname).1s %(name)s: %(message)s"
_TIME = "%H:%M:%S"


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to whatever `sys.stderr` is at the moment of the message, so redirection works."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def get_logger(name: str) -> logging.Logger:
    """The logger of a module; pass `__name__`."""
    return logging.getLogger(name if name == ROOT or name.startswith(ROOT + ".") else f"{ROOT}.{name}")


def configure_logging(level: str | int = "WARNING") -> None:
    """Show the package's messages of at least this level on stderr. Calling it again changes the level.

    For programs (the command line); a library never calls it.
    """
    logger = logging.getLogger(ROOT)
    logger.setLevel(level)
    logger.propagate = False
    if not any(isinstance(handler, _StderrHandler) for handler in logger.handlers):
        handler = _StderrHandler()
        handler.setFormatter(logging.Formatter(_FORMAT, _TIME))
        logger.addHandler(handler)
