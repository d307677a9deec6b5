"""The command line: ``tilewright compile | run | bench | verify | explain | demo | targets | doctor``."""

from tilewright.cli.main import main

__all__ = ["main"]
