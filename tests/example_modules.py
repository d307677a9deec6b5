"""The modules of ``examples/``, which is no package."""

import importlib.util
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "examples"


def load_example(name):
    """The module ``examples/<name>.py``."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
