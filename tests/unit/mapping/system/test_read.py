"""Machine files: what they describe, and what is wrong with them, by the node's name."""

import json

import pytest

from machine_programs import MATMUL, machine_of, small
from tilewright.mapping.system import load_machine, parse_machine, shipped_machines
from tilewright.support import TargetError


def test_the_shipped_ones():
    assert shipped_machines() == ("clusters", "davinci", "fused", "gemmini")
    clusters = load_machine("clusters")
    assert clusters.streams == ("c0", "c1", "c2", "c3")
    assert clusters.memories["c2.ra"].uses == 1
    assert [m.name for m in load_machine("davinci").path("gm", "l0a", "core")] == ["gm_l1", "l1_l0a"]


def test_modes_of_operands():
    machine = machine_of(small())
    modes = {n: {b.name: i.mode(b.name) for b in i.operands} for n, i in machine.instructions.items()}
    assert modes == {"matmul": {"A": "r", "B": "r", "C": "w"}, "matmul_add": {"A": "r", "B": "r", "C": "rw"}}


def test_a_file(tmp_path):
    (tmp_path / "m.json").write_text(json.dumps(small()))
    assert load_machine(tmp_path / "m.json").fingerprint == machine_of(small()).fingerprint


def broken(path, value):
    data = small()
    at = data
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("schema",), "x", "not of schema"),
        (("version",), 2, "version 1"),
        (("name",), 3, "the machine: name must be a text"),
        (("homes",), "x", "unknown field 'homes'"),
        (("home",), "x", "home is 'x', which is no memory"),
        (("issue",), 0, "issue must be positive"),
        (("units",), [], "it has no unit"),
        (("units",), {}, "units must be a list"),
        (("units", 0), 3, "unit must be an object"),
        (("units", 0, "queue"), 0, "unit 'u0': queue must be positive"),
        (("units", 0, "places"), [], "places must give memories"),
        (("units", 0, "places", "matmul"), {"A": ["a"], "B": ["b"]}, "no memory is given for operand 'C'"),
        (("units", 0, "places", "matmul", "D"), ["a"], "it has no operand 'D'"),
        (("units", 0, "places", "matmul", "A"), ["z"], "operand 'A': there is no memory 'z'"),
        (("units", 0, "places", "matmul", "A"), ["b"], "its operands cannot all be placed"),
        (("units", 0, "places", "divide"), {}, "there is no such instruction"),
        (("memories", 1, "bytes"), 0, "memory 'a': bytes, align and uses must be positive"),
        (("memories", 1, "bytes"), "1k", "memory 'a': bytes must be an integer"),
        (("memories", 1, "align"), 3, "memory 'a': bytes must be a multiple of align"),
        (("memories", 1, "name"), "b", "two memory nodes called 'b'"),
        (("memories", 1, "size"), 3, "memory 'a' has an unknown field 'size'"),
        (
            ("channels",),
            [{"name": "c", "bytes_per_cycle": 0}],
            "channel 'c': bytes_per_cycle must be positive",
        ),
        (("moves", 0, "to"), "z", "move 'load_a': there is no memory 'z'"),
        (("moves", 0, "to"), "dram", "move 'load_a': it leads from 'dram' back to itself"),
        (("moves", 0, "latency"), -1, "move 'load_a': bytes_per_cycle and queue must be positive"),
        (("moves", 0, "streams"), [], "move 'load_a': no stream issues it"),
        (("moves", 0, "streams"), ["z"], "move 'load_a': no unit has the stream 'z'"),
        (("moves", 0, "streams"), "s", "move 'load_a': streams must be a list of names"),
        (("moves", 0, "channels"), ["z"], "move 'load_a': there is no channel 'z'"),
        (("moves", 0, "name"), "u0", "a move and a unit are both called 'u0'"),
        (("moves", 0, "transposes"), 1, "transposes must be true or false"),
        (("moves",), [], "nothing brings operand 'A' into 'a'"),
        (("instructions", 0, "semantics"), 3, "semantics must be the text of a program"),
        (("instructions", 0, "semantics"), ["x"], "its semantics are no program"),
        (("instructions", 0, "semantics"), ['program("e")'], "its semantics have no output"),
        (("instructions", 0, "chained"), ["A"], "the chained operand 'A' is no output"),
        (("instructions", 0, "cycles"), None, "is no formula of cycles"),
        (
            ("instructions", 0, "semantics"),
            [x.replace("param(1, 4)", "param(1, 9999999)") for x in MATMUL],
            "the size 'm' has no upper bound",
        ),
        (
            ("instructions", 0, "semantics"),
            [*MATMUL[:1], "q = param(1, 4)", *MATMUL[1:]],
            "the size 'q' is the extent of no axis",
        ),
        (
            ("instructions", 0, "semantics"),
            [x.replace("param(1, 4)", "param(9, 4)") for x in MATMUL],
            "instruction 'matmul': its semantics are no program: program 'matmul': parameter 'm'",
        ),
        (("instructions", 0, "cycles"), "m - 5", "instruction 'matmul': 'm - 5' gives no number of cycles"),
        (("groups",), [{"index": "c d", "count": 2}], "a group's index must be a name"),
    ],
)
def test_contradictions_name_the_node(path, value, message):
    with pytest.raises(TargetError, match=message):
        machine_of(broken(path, value))


def test_a_channel_named_twice():
    data = small(channels=[{"name": "bus", "bytes_per_cycle": 8}])
    data["moves"][0]["channels"] = ["bus", "bus"]
    with pytest.raises(TargetError, match="move 'load_a': it names the channel 'bus' twice"):
        machine_of(data)


UNEQUAL = [line.replace("i = par(0, m)", "i = par(0, m + 1)") for line in MATMUL]
UNEQUAL = [
    line.replace("f32[m, n]", "f32[m + 1, n]").replace("f32[m, k]", "f32[m + 1, k]") for line in UNEQUAL
]


def test_an_instruction_that_can_never_be_matched():
    message = "instruction 'matmul': no program can be it: .* the extent of axis 'i' has no bound"
    with pytest.raises(TargetError, match=message):
        machine_of(broken(("instructions", 0, "semantics"), UNEQUAL))


def test_moves_in_a_circle_bring_nothing():
    """Two memories that only feed each other: neither can ever hold anything."""
    data = small()
    data["memories"].append({"name": "d", "bytes": 64})
    data["moves"][0].update({"from": "d"})
    data["moves"].append({**data["moves"][0], "name": "back", "from": "a", "to": "d"})
    with pytest.raises(
        TargetError, match="unit 'u0', instruction 'matmul': nothing brings operand 'A' into 'a'"
    ):
        machine_of(data)


def test_an_instruction_that_no_unit_executes():
    data = small()
    for u in data["units"]:
        del u["places"]["matmul"]
    with pytest.raises(TargetError, match="no unit executes the instruction 'matmul'"):
        machine_of(data)


def test_too_many_nodes():
    data = small(groups=[{"index": "c", "count": 10_000, "memories": [{"name": "x{c}", "bytes": 8}]}])
    with pytest.raises(TargetError, match="more than 10000 memory nodes"):
        machine_of(data)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(TargetError, match="cannot be read"):
        load_machine(tmp_path / "none.json")
    (tmp_path / "long.json").write_bytes(b" " * ((4 << 20) + 1))
    with pytest.raises(TargetError, match="more than 4194304 bytes"):
        load_machine(tmp_path / "long.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(TargetError, match="is not UTF-8"):
        load_machine(tmp_path / "bytes.json")
    for text in ("{", "[" * 100_000, '{"version": ' + "9" * 5000 + "}"):
        with pytest.raises(TargetError, match="the machine is no JSON"):
            parse_machine(text)


def test_questions_about_nodes_that_there_are_not():
    machine = machine_of(small())
    with pytest.raises(TargetError, match="machine 'small' has no instruction 'conv'"):
        machine.instruction("conv")
    with pytest.raises(TargetError, match="no path of moves that stream 's' issues leads from 'a' to 'dram'"):
        machine.path("a", "dram", "s")
