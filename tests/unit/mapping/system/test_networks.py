"""Layers of int8 networks on the systolic array."""

import pytest

from accelerator_networks import NETWORKS, Layer, program
from machine_programs import check
from tilewright.mapping import system

SMALL = (
    Layer(7, 9, 1, 20, (3, 3), 2),  # one channel: rows of the image are columns of the array
    Layer(6, 5, 3, None, (3, 3)),
    Layer(6, 7, 4, None, (3, 3), 2),
    Layer(5, 5, 18, 20, (1, 1)),
    Layer(6, 6, 5, 18, (1, 1), 2),
    Layer(4, 5, 17, 6, (3, 3)),
    Layer(1, 1, 40, 12, (1, 1)),
)


@pytest.mark.parametrize("layer", SMALL, ids=str)
def test_layers_are_right(layer):
    machine = system.load_machine("gemmini")
    made = program(layer)
    check(made, system.schedule(made, machine), machine)


@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_all_layers_are_instructions(network):
    machine = system.load_machine("gemmini")
    for layer in dict.fromkeys(NETWORKS[network]):
        selection = system.select(program(layer), machine, system.Heuristics())
        assert not selection.uncovered, layer
        assert [u.instruction for u in selection.uses] == ["matmul_add", "add_row", "relu", "narrow"], layer
