"""What nests refuse: the line, what is wrong there, and nothing that is read is run."""

import pytest

from tilewright.frontend.nests.python import read_python, scop
from tilewright.support import ProgramError

HEAD = "def f(A: f64[N, N], x: f64[N], k: i32[N], a: f64):\n"


def refused(body, match, line=2):
    with pytest.raises(ProgramError, match=match) as caught:
        read_python(HEAD + "\n".join("    " + text for text in body.splitlines()), "nest.py")
    assert caught.value.where.path == "nest.py" and caught.value.where.line == line


@pytest.mark.parametrize(
    ("body", "match", "line"),
    [
        ("while a:\n    pass", "while loops are: while e < last", 2),
        ("while a < N:\n    a += 1", "'a' must be an integer that only the end of the loop changes", 2),
        ("e = k[0]\nwhile e < N:\n    e = e + 2\n    e += 1", "'e' must be an integer", 3),
        ("e = k[0]\nwhile e < k[1]:\n    k[2] = e\n    e += 1", "the bound of the loop over 'e' changes", 3),
        ("e = k[0]\nwhile e < N:\n    pass\nelse:\n    pass", "while loops are: while e < last", 3),
        ("x[0] = foo(a)", "there is no function 'foo'", 2),
        ("x[0] = y[0]", "the name 'y' is not declared", 2),
        ("x[0] = A[0]", "'A' has 2 dimensions, got 1 indices", 2),
        ("for i in range(N):\n    x[x[i]] = a", "index 0 of 'x' is no integer", 3),
        ("for i in range(N):\n    x[0.5] = a", "index 0 of 'x' is no integer", 3),
        ("for i in range(x[0]):\n    x[i] = a", "the bounds of loop 'i' are no integers", 2),
        ("for i in range(k[0], N, 2):\n    x[i] = a", "loop 'i' must go up in steps of 1: data decide", 2),
        ("for i in range(0, N, N):\n    x[i] = a", "the step of loop 'i' must be an integer", 2),
        ("for i in range(0, N, 0):\n    x[i] = a", "loop 'i' has no step", 2),
        ("for i in range():\n    x[i] = a", "loops are: for i in range", 2),
        ("for i in range(N):\n    x[i] = a\nelse:\n    pass", "loops are: for i in range", 2),
        ("(x[0], x[1]) = a", "assignments are to names and to elements", 2),
        ("A[0][1] = a", "assignments are to names and to elements", 2),
        ("x[0] = A[0][1]", r"write A\[i, j\], not A\[i\]\[j\]", 2),
        ("x[0] = True", "truth values are not part of nests", 2),
        ("x[0] = [a]", "List expressions are not part of nests", 2),
        ("x[0] = a @ a", "the operator MatMult is not part of nests", 2),
        ("x[0] = sqrt(a, a)", "sqrt takes 1 arguments", 2),
        ("x[0] = pow(a)", "pow takes 2 arguments", 2),
        ("x[0] = k[0] // k[1]", "divisions of integers are supported by constants in indices only", 2),
        ("for i in range(N):\n    x[i // N] = a", "the integers of floordiv must be affine", 3),
        ("x[0] = a if a else 0.0", "conditions are comparisons", 2),
        ("return", "a nest ends at its end", 2),
        ("for i in range(N):\n    i = i + 1", "'i' is the variable of a loop: only the loop changes it", 3),
        ("for i in range(N):\n    for i in range(N):\n        x[i] = a", "the variable of a loop around", 3),
        ("i = 3\nfor i in range(N):\n    x[i] = a", "loop 'i' needs a variable to itself", 3),
        ("N = 3", "'N' is a size, which a nest does not change", 2),
        ("s = 0\nfor i in range(N):\n    s += x[i]", "'s' began as i64, and this is f64", 4),
        ("s = k[0]\ns = 0.5", "'s' began as i32, and this is f64", 3),
        ("with x:\n    pass", "With statements are not part of nests", 2),
    ],
)
def test_statements_and_expressions(body, match, line):
    refused(body, match, line)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("def f(x):\n    pass", "the argument 'x' needs an annotation"),
        ("def f(x: list):\n    pass", "the argument 'x' needs an annotation"),
        ("def f(*x: f64):\n    pass", "plain arguments only"),
        ("def f(x: f64[2.5]):\n    pass", "the extent of an argument must be affine"),
        ("def f(x: f64[N], N: f64[2]):\n    pass", "the name 'N' is declared twice"),
        ("x = 1", "the text must hold one function"),
        ("def f(:", "the text is no Python"),
    ],
)
def test_heads(text, match):
    with pytest.raises(ProgramError, match=match):
        read_python(text)


def test_types_without_arithmetic():
    with pytest.raises(ProgramError, match="the type bf16 is not supported in nests"):
        read_python("def f(x: bf16[N], y: f64[N]):\n    x[0] = x[0] + y[0]")


def test_nests_have_a_largest_size(monkeypatch):
    monkeypatch.setattr("tilewright.frontend.nests.build.MAX_STATEMENTS", 2)
    with pytest.raises(ProgramError, match="the nest has more than 2 statements"):
        read_python("def f(x: f64[2]):\n    x[0] = 1.0\n    x[0] = 2.0\n    x[0] = 3.0")


def test_functions_without_source_and_nests_too_deep():
    exec("def f(a: 'f64'):\n    pass", space := {})
    with pytest.raises(ProgramError, match="a nest is read from its source"):
        scop(space["f"])
    with pytest.raises(ProgramError, match="are nested too deeply"):
        read_python(f"def f(x: f64[2], a: f64):\n    x[0] = {'a + ' * 2000}a")
