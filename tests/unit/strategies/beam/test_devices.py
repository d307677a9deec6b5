"""Kernels of the beam search on a device (PoCL where it is, else through C): applications beside numpy."""

import sys
from pathlib import Path
from random import Random

import pytest

from devices import LANGUAGES, on_device
from tilewright.cost import Machine
from tilewright.plan import graph_of
from tilewright.strategies.beam.emit import to_plan
from tilewright.strategies.beam.gpu_cost import model_of
from tilewright.strategies.beam.search import BeamSearch, Pricer, Settings
from tilewright.strategies.beam.state import GpuTiling
from tilewright.target import find_target

sys.path.insert(0, str(Path(__file__).parents[4] / "examples" / "pipelines"))

from run import NAMES, application

QUICK = ("harris", "unsharp", "iir_blur", "bilateral_grid")
#: More than this a PoCL compiles for minutes.
OTHERS = ("max_filter", "interpolate", "camera_pipe", "stencil_chain")


def fused(found):
    """How many stages of a state are computed at a block or a thread of another."""
    return sum(place not in ("own", "inline", "") for place in found.state.places)


def check(name):
    assert name in NAMES
    app = application(name)
    machine = Machine(find_target(LANGUAGES[0]), 1)
    g = graph_of(app.program(*app.small))
    search = BeamSearch(g, machine, Pricer(model_of(g, machine)), Random(0), Settings(beam=4, passes=2))
    found = search.run()
    arrays = app.inputs(*app.small)
    for each in dict.fromkeys((found[0], max(found, key=fused))):
        planned = to_plan(g, each.state, machine)
        assert planned.schedule.notes == ()
        assert any(isinstance(t, GpuTiling) for t in each.state.tilings)
        (result,) = on_device(planned.schedule.func, LANGUAGES[0])(arrays).values()
        assert app.check(result, app.reference(arrays)) == ""


@pytest.mark.few(2)
@pytest.mark.parametrize("name", QUICK)
def test_applications(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_more_applications(name):
    check(name)
