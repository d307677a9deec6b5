"""The assembler: streams as text, and back; the text is untrusted."""

import pytest

from machine_programs import conv2d, machine_of, small
from tilewright.ir import F32, Index, Param, mod, var
from tilewright.mapping.system import (
    StreamProgram,
    load_machine,
    parse_streams,
    print_streams,
    schedule,
)
from tilewright.mapping.system.stream import Box, Call, Move, Post, Region, Repeat, StreamTensor, Wait
from tilewright.support import ParseError

HEAD = 'machine("m", "0")\nA = tensor(f32[8, 8])\n'
IN = HEAD + 'with stream("s"):\n    '


def test_every_field_is_kept():
    n = Param("n", 1, 9)
    k = var("k")
    moves = Move(
        "load", Box("A", (k * 2, Index(1)), (2, 1), (0, -1)), Region("c", mod(k, 2) * 8, (2, 1), F32)
    )
    call = Call("u", "add", (("m", 2),), (("X", Region("c", Index(0), (), F32)),))
    program = StreamProgram(
        'a "name"',
        "f00",
        (
            StreamTensor("A", (Index(0, ((n, 1),)), Index(4)), F32),
            StreamTensor("B", (Index(4),), F32, output=True, given=True),
            StreamTensor("T", (Index(4),), F32, temp=True),
        ),
        {"s": (Repeat("k", Index(0), Index(0, ((n, 1),)), (moves, call)), Post("e"), Wait("f")), "t": ()},
        (n,),
    )
    assert parse_streams(print_streams(program)) == program


def test_scheduled_programs_read_back():
    machine = load_machine("davinci")
    streams = schedule(conv2d(1, 5, 6, 3, 4, 3, 2, "f16", "f32"), machine)
    assert parse_streams(print_streams(streams)) == streams
    streams = schedule(conv2d(1, 5, 6, 3, 4, 3, 1, "bf16", "f32"), load_machine("clusters"))
    assert parse_streams(print_streams(streams)) == streams
    assert machine_of(small()).fingerprint != machine.fingerprint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text is empty"),
        ("a b", "not the text of instruction streams"),
        ("import os", "expected machine"),
        ('machine("m")', "expected machine"),
        (HEAD + "A = tensor(f32[8])", "line 3: 'A' is declared twice"),
        (HEAD + "n = param(1)", "expected param"),
        (HEAD + "B = tensor(f32[8], 3)", "expected tensor"),
        (HEAD + "B = tensor(f33[8])", "expected a type and shape"),
        (HEAD + "B = tensor(f32[8], evil=True)", "'evil' says nothing"),
        (HEAD + "print(A)", "expected a declaration or a stream"),
        (HEAD + 'with stream("s", "t"):\n    pass', "expected stream"),
        (IN + 'pass\nwith stream("s"):\n    pass', "two streams called 's'"),
        (IN + 'move("l", A[0:8, 0:8])', "line 4: move takes three arguments"),
        (IN + "post()", "expected post"),
        (IN + "move(1, A[0:8, 0:8], A[0:8, 0:8])", "a name in quotes"),
        (IN + 'move("l", A[0:8], A[0:8, 0:8])', "has 2 dimensions"),
        (IN + 'move("l", A[0, 0:8], A[0:8, 0:8])', "expected low:extent"),
        (IN + 'move("l", B[0:8], A[0:8, 0:8])', "there is no tensor 'B'"),
        (IN + 'move("l", 3, A[0:8, 0:8])', "expected a box of a tensor"),
        (IN + 'move("l", box(A[0:8, 0:8]), A[0:8, 0:8])', "expected box"),
        (IN + 'move("l", box(A[0:8, 0:8], dims=(0,)), A[0:8, 0:8])', "leaves out"),
        (IN + 'move("l", box(A[0:8, 0:8], dims=(0, 0)), A[0:8, 0:8])', "are wrong"),
        (IN + 'move("l", at("c", 0), A[0:8, 0:8])', "expected at"),
        (IN + 'move("l", at("c", x, f32[8]), A[0:8, 0:8])', "x is no index here"),
        (IN + "for i in range(3):\n        pass", "expected range"),
        (
            IN + "for i, j in range(0, 3):\n        pass",
            "expected for name in range",
        ),
        (
            IN + "for i in range(0, 3):\n        for i in range(0, 3):\n            pass",
            "the loop variable 'i' is in use",
        ),
        (
            IN + 'for i in range(0, 3):\n        move("l", A[0:i, 0:1], 1)',
            "an integer",
        ),
        (
            IN + 'for i in range(0, 3):\n        move("l", at("c", 0, f32[i]), A[0:1, 0:1])',
            "must be constant",
        ),
        (IN + 'call("u", "f", dict(3))', "sizes are given by name"),
        (IN + 'call("u", "f", dict(m=1), **x)', "an argument is given twice"),
        (IN + f'move("l", at("c", {"1+" * 1200}1, f32[8]), A[0:1, 0:1])', "nested too deeply"),
        (HEAD + " " * (64 << 20), "more than"),
    ],
)
def test_what_is_no_text_of_streams(text, message):
    with pytest.raises(ParseError, match=message):
        parse_streams(text)
