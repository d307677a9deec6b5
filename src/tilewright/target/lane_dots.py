"""Rows of dot products lane by lane: each lane of the result adds products of neighbours in both operands."""

from __future__ import annotations

from tilewright.ir import DType
from tilewright.target.instruction import Emission, Instruction, Placement, contraction, element


def lane_dot(
    name: str,
    emission: Emission,
    lanes: int,
    a: DType,
    b: DType,
    total: DType,
    *,
    features: frozenset[str],
    latency: float,
    per_cycle: float,
) -> Instruction:
    """``result[lane] += a[lane, k] * b[lane, k]`` summed over as many ``k`` as fill a lane of the result.

    An operand may be the same for all lanes.
    """
    operands = ("lane", "k")
    axes = (("lane", lanes), ("k", total.bits // a.bits))
    left, right = element("a", operands, a), element("b", operands, b)
    shared = Placement(broadcast=("lane",))
    return Instruction(
        name=name,
        stage=contraction(axes, element("result", ("lane",), total), left, right),
        placements=(("a", shared), ("b", shared)),
        emission=emission,
        features=features,
        latency=latency,
        per_cycle=per_cycle,
        lanes=("lane",),
    )
