"""Layers of networks in int8 on the machine `gemmini`: cycles, utilisation, seconds of scheduling.

A part of `benchmarks/mapping.py` (`--only layers`): MLPerf Tiny's four networks and ResNet-50's layers, one
image (`tests/accelerator_networks.py`). A layer is a product or convolution of bytes with bias, activation
and narrowing to bytes, its input padded already. Utilisation is the multiply-adds over those that the array
could do in the layer's cycles; ``bound`` is the array or the bandwidth of the home memory, whichever would
take longer with each tensor moved once, and ``roofline`` how near to that the layer comes. Seconds are of
the processor.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from accelerator_networks import NETWORKS, Layer, program
from tilewright.mapping import system

ARRAY = 16 * 16


def rows() -> Iterator[dict[str, Any]]:
    """One row a layer that differs from others, and one a network."""
    machine = system.load_machine("gemmini")
    done: dict[Layer, dict[str, Any]] = {}
    for name, layers in NETWORKS.items():
        cycles, work, slowest = 0, 0, 0.0
        for layer, times in Counter(layers).items():
            if layer not in done:
                done[layer] = row(layer, machine)
            found = done[layer]
            cycles += times * found["cycles"]
            work += times * layer.work
            slowest = max(slowest, found["schedule_s"])
            yield {"network": name, "times": times, **found}
        yield {
            "network": name,
            "cycles": cycles,
            "utilisation": round(work / cycles / ARRAY, 3),
            "slowest_schedule_s": slowest,
        }


def row(layer: Layer, machine: system.SystemGraph) -> dict[str, Any]:
    made = program(layer)
    start = time.process_time()
    streams = system.schedule(made, machine)
    scheduled = time.process_time() - start
    cycles = system.time_streams(streams, machine).cycles
    (h, w), (kh, kw), s = layer.out, layer.taps, layer.stride
    n = layer.oc or layer.ic
    moved = ((h - 1) * s + kh) * ((w - 1) * s + kw) * layer.ic + kh * kw * layer.ic * (layer.oc or 1)
    moved += 4 * n + h * w * n
    array, memory = layer.work / ARRAY, moved / machine.channels["dram"].bytes_per_cycle
    return {
        "layer": str(layer),
        "cycles": cycles,
        "utilisation": round(layer.work / cycles / ARRAY, 3),
        "bound": "array" if array > memory else "memory",
        "roofline": round(max(array, memory) / cycles, 3),
        "schedule_s": round(scheduled, 2),
    }
