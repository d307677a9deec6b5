"""Time per resource: closed forms, hazards, queues, channels, and loops that are not run to their end."""

import json
from pathlib import Path

import pytest

from machine_programs import GOING_ON, MATMUL, check, gemm, machine_of, small
from tilewright.ir import F32, Index, var
from tilewright.mapping.system import Heuristics, StreamProgram, schedule, time_streams
from tilewright.mapping.system.stream import Box, Call, Move, Post, Region, Repeat, StreamTensor, Wait


def array(R, C, cycles, K):
    """A systolic array with memory that costs nothing: its own formula for a fold is the instruction's."""
    limits = {"m": R if "k" in cycles else 1 << 19, "n": C, "k": K}

    def sized(lines):
        return [
            f"{line.split(' = ')[0]} = param(1, {limits[line[0]]})" if " = param" in line else line
            for line in lines
        ]

    data = small()
    for i, lines in zip(data["instructions"], (MATMUL, GOING_ON), strict=True):
        i.update(semantics=sized(lines), cycles=cycles, latency=cycles)
    data["memories"] = [{"name": "dram", "bytes": 1 << 30}]
    data["moves"] = []
    data["units"] = data["units"][:1]
    for places in data["units"][0]["places"].values():
        places.update({o: ["dram"] for o in "ABC"})
    return machine_of(data)


class InOrder(Heuristics):
    """Operands as they are named: the heuristics would exchange them where that takes fewer folds."""

    def choose(self, kind, options, state):
        if kind == "mapping":
            return min(range(len(options)), key=lambda n: options[n].cost[2])
        return super().choose(kind, options, state)


def folds(M, N, K, R, C, flow):
    if flow == "os":
        return -(-M // R) * -(-N // C) * (K + R + C - 2) - 1
    return -(-K // R) * -(-N // C) * (M + 2 * R + C - 2) - 1


#: What SCALE-Sim 3.0.0 said, by `benchmarks/scale_sim.py`.
SCALE_SIM = [
    json.loads(line) for line in Path(__file__).with_name("scale_sim.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("said", SCALE_SIM, ids=lambda row: "-".join(map(str, row.values())))
def test_systolic_arrays_take_scale_sims_cycles(said):
    """Output- and weight-stationary, and the closed forms; the last cycle counts from 0 there."""
    size = M, N, K, R, C = tuple(said[name] for name in ("m", "n", "k", "rows", "columns"))
    cycles, depth = (f"k + {R + C - 2}", K) if said["flow"] == "os" else (f"m + {2 * R + C - 2}", R)
    machine = array(R, C, cycles, depth)
    streams = schedule(gemm(M, N, K), machine, InOrder())
    assert time_streams(streams, machine).cycles - 1 == folds(*size, said["flow"]) == said["cycles"]


def streams_of(machine, *items, params=(), **more):
    tensors = (StreamTensor("A", (Index(64),), F32), StreamTensor("C", (Index(64),), F32, output=True))
    streams = {"s": items, **more}
    return StreamProgram(machine.name, machine.fingerprint, tensors, streams, params)


def load(at, n=4, tensor_at=0, mover="load_c"):
    return Move(mover, Box("A", (Index(tensor_at),), (n,), (0,)), Region("c", Index(at), (n,), F32))


def save(at, n=4):
    return Move("store", Region("c", Index(at), (n,), F32), Box("C", (Index(0),), (n,), (0,)))


def test_a_move_takes_latency_and_bandwidth():
    machine = machine_of(small())
    assert time_streams(streams_of(machine, load(0)), machine).cycles == 10 + 1
    assert time_streams(streams_of(machine, load(0, 16)), machine).cycles == 10 + 4


def test_moves_of_one_mover_follow_each_other_and_a_reader_waits():
    machine = machine_of(small())
    assert time_streams(streams_of(machine, load(0, 16), load(64, 16)), machine).cycles == 4 + 14
    assert time_streams(streams_of(machine, load(0, 16), save(0, 16)), machine).cycles == 14 + 14


def test_a_writer_waits_for_readers():
    machine = machine_of(small())
    timing = time_streams(streams_of(machine, load(0, 16), save(0, 16), load(0, 16)), machine, spans=9)
    assert [s.start for s in timing.spans] == [0, 14, 18]


def test_a_channel_is_shared():
    data = small(channels=[{"name": "bus", "bytes_per_cycle": 16}])
    for m in data["moves"]:
        m["channels"] = ["bus"]
    machine = machine_of(data)
    items = load(0, 16), load(64, 16, mover="load_a")
    other = Move("load_a", items[0].source, Region("a", Index(0), (16,), F32))
    assert time_streams(streams_of(machine, items[0], other), machine, spans=2).spans[1].start == 4
    free = machine_of(small())
    assert time_streams(streams_of(free, items[0], other), free, spans=2).spans[1].start == 1


def test_a_full_queue_holds_the_stream_up():
    data = small()
    data["moves"][2]["queue"] = 1
    machine = machine_of(data)
    program = streams_of(machine, load(0, 64), load(256, 64), load(512, 64), save(900))
    timing = time_streams(program, machine, spans=9)
    assert {s.node: s.start for s in timing.spans}["store"] >= 16


def test_accumulators_are_chained_and_other_readers_wait_for_the_latency():
    machine = machine_of(small())

    def product(n, at, unit="u0"):
        refs = (("A", Region("a", Index(0), (4, 4), F32)), ("B", Region("b", Index(0), (4, 4), F32)))
        sizes = (("m", 4), ("n", 4), ("k", 4))
        return Call(unit, n, sizes, (*refs, ("C", Region("c", Index(at), (4, 4), F32))))

    chain = [product("matmul", 0), product("matmul_add", 0)]
    assert time_streams(streams_of(machine, *chain), machine).cycles == 4 + 12
    apart = [product("matmul", 0), product("matmul_add", 0, "u1")]
    assert time_streams(streams_of(machine, *apart), machine).cycles == 12 + 12


def test_loops_are_timed_as_if_they_were_run():
    machine = machine_of(small())
    inner = Repeat("j", Index(0), Index(7), (save(0, 16),))
    nest = Repeat("i", Index(0), Index(50), (load(0, 16), inner, load(64)))
    program = streams_of(machine, nest)
    quick, exact = time_streams(program, machine), time_streams(program, machine, exact=True)
    assert quick == exact
    huge = Repeat("i", Index(0), Index(10**9), nest.body[:1])
    assert time_streams(streams_of(machine, huge), machine).cycles == 14 * 10**9


def test_a_large_product_is_timed_at_once():
    machine = machine_of(small())
    check(gemm(40, 36, 44), schedule(gemm(40, 36, 44), machine), machine)
    timing = time_streams(schedule(gemm(4096, 4096, 4096), machine), machine)
    assert timing.busy["u0"] + timing.busy["u1"] == 4 * 1024**3


def test_an_event_orders_streams_in_time():
    data = small()
    data["units"][1]["stream"] = "t"
    for m in data["moves"]:
        m["streams"] = ["s", "t"]
    machine = machine_of(data)
    moved = Move("load_a", Box("A", (var("v") * 0,), (4,), (0,)), Region("a", Index(0), (4,), F32))
    program = streams_of(machine, load(0, 64), Post("e"), t=(Wait("e"), moved))
    timing = time_streams(program, machine)
    assert timing.streams["t"] == timing.streams["s"] + 11
