"""The command line: ``tilewright compile | run | bench | verify | explain | profile | demo | …``."""

from tilewright.cli.main import main as main
