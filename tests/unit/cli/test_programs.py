"""Programs from Python files: which name is taken, where sizes go, what of a file is refused."""

import click
import pytest

from tilewright.cli.programs import names_program, open_program
from tilewright.ir import Program

FILE = """
from beside import TWO
from tilewright import lang

def program(h: int, w: int = 8):
    x = lang.placeholder((h, w), name="X")
    return lang.program([x], [lang.compute((h, w), lambda i, j: x[i, j] * TWO, name="Y")])

fixed = program(4)
number = 3

def nothing(h: int):
    return h
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "beside.py").write_text("TWO = 2.0\n")
    path = tmp_path / "twice.py"
    path.write_text(FILE)
    return str(path)


def test_a_python_file_is_a_program_and_a_model_is_none():
    assert names_program("a/b.py") and names_program("b.py:other")
    assert not names_program("b.onnx") and not names_program("zoo:resnet50:small")


def test_a_function_of_sizes_takes_them_by_name(file):
    program, rest = open_program(file, {"h": 6, "n": 2})
    assert isinstance(program, Program)
    assert [e.as_int() for e in program.outputs[0].shape] == [6, 8]
    assert rest == {"n": 2}


def test_a_program_is_taken_by_its_name(file):
    program, _ = open_program(f"{file}:fixed", {})
    assert [e.as_int() for e in program.outputs[0].shape] == [4, 8]


@pytest.mark.parametrize(
    ("name", "shapes", "message"),
    [
        ("", {}, "'program' in .* is a function of sizes: give --shape h=N"),
        ("", {"h": (1, 2)}, "h of 'program' in .* is one size, got 2 numbers"),
        (":number", {}, "there is no 'number' in"),
        (":other", {}, "'twice.py:NAME' says another name"),
        (":nothing", {"h": 2}, "'nothing' in .* returns int, and no program"),
    ],
)
def test_what_is_no_program_is_refused(file, name, shapes, message):
    with pytest.raises(click.UsageError, match=message):
        open_program(file + name, shapes)


def test_a_file_that_raises_is_named_with_what_it_raised(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("import there_is_no_such_module\n")
    with pytest.raises(click.UsageError, match=r"bad.py' cannot be run: ModuleNotFoundError: No"):
        open_program(str(path), {})
    with pytest.raises(click.UsageError, match="there is no file"):
        open_program(str(tmp_path / "none.py"), {})
