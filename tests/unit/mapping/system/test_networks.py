"""Layers of int8 networks on the systolic array, and the closed forms of such arrays."""

import pytest

from accelerator_networks import NETWORKS, Layer, program
from machine_programs import check, gemm, machine_of, small
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


def array(rows, columns, held):
    """A systolic array that holds sums (``output``), or weights, while the others stream through it."""
    data = small(file=1 << 20)
    most = {"m": rows, "n": columns, "k": 1024} if held == "output" else {"m": 1024, "n": columns, "k": rows}
    cycles = f"k + {rows + columns - 2}" if held == "output" else f"m + {2 * rows + columns - 2}"
    for i in data["instructions"]:
        lines = [
            f"{line[0]} = param(1, {most[line[0]]})" if "param" in line else line for line in i["semantics"]
        ]
        i.update(semantics=lines, cycles=cycles, latency=cycles)
    del data["units"][1]
    return machine_of(data)


@pytest.mark.parametrize(
    ("held", "size", "shape", "cycles"),
    [
        ("output", (32, 32), (128, 128, 128), 3039),
        ("output", (16, 16), (64, 48, 100), 1559),
        ("output", (8, 32), (96, 64, 33), 1703),
        ("weights", (32, 32), (128, 128, 128), 3551),
        ("weights", (16, 16), (64, 48, 100), 2309),
        ("weights", (8, 32), (100, 70, 33), 2189),
    ],
)
def test_closed_forms(held, size, shape, cycles):
    """SCALE-Sim's cycles, fold by fold: the array is busy one cycle longer than it counts."""
    (rows, columns), (m, n, k) = size, shape
    machine = array(rows, columns, held)
    timing = system.time_streams(system.schedule(gemm(m, n, k), machine), machine)
    folds = -(-m // rows) * -(-n // columns) if held == "output" else -(-k // rows) * -(-n // columns)
    each = k + rows + columns - 2 if held == "output" else m + 2 * rows + columns - 2
    assert timing.busy["u0"] - 1 == folds * each - 1 == cycles
