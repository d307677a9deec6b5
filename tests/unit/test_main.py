"""The command line as a process: what it imports, and how it ends when interrupted."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tilewright
from tilewright.__main__ import INTERRUPTED
from tilewright.cli.main import _COMMANDS

COMMANDS = Path(tilewright.__file__).parent / "cli" / "commands"


def test_help_lists_every_command_and_imports_none():
    code = (
        "import sys; from tilewright.cli import main; main(['--help']); "
        "heavy = ('tilewright.cli.commands', 'llvmlite', 'onnx'); "
        "print([m for m in sys.modules if m.startswith(heavy)])"
    )
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert text.endswith("[]\n")
    files = {path.stem for path in COMMANDS.glob("*.py")} - {"__init__"}
    assert set(_COMMANDS) == files
    assert all(f"  {name} " in text for name in files)


@pytest.mark.parametrize("seconds", [0.4, 1.5])
def test_an_interruption_while_importing_is_one_word(seconds):
    code = "import tilewright.__main__ as m, sys; print('there', flush=True); sys.exit(m.entry())"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "compile", "zoo:resnet18"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TILEWRIGHT_CACHE": "0"},
    )
    assert process.stdout.readline() == "there\n"
    time.sleep(seconds / 10)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    # once commands run, click ends the line that it interrupts
    assert (process.returncode, errors.removeprefix("\n")) == (INTERRUPTED, "interrupted\n")
