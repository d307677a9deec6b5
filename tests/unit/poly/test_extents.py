"""How far accesses reach."""

import pytest

from tilewright.frontend.c import read_c
from tilewright.poly import outermost_extents


@pytest.mark.parametrize(
    ("body", "reach"),
    [
        ("for (int i = 0; i < 5; i++) y[i] = x[2 * i + 1];", (10, 5)),
        ("for (int i = 0; i < 5; i++) if (i < 3 || i == 4) y[i] = x[i + 1];", (6, 5)),
        ("for (int i = 5; i < 5; i++) y[i] = x[i];", (0, 0)),
        ("for (int i = 0; i < 5; i++) if (k[i] > 0) y[i + 2] = x[k[i]];", (None, 7)),
        ("y[3] = x[k[0] & 7];", (None, 4)),
    ],
)
def test_reach(body, reach):
    text = f"void f(const double *x, double *y, int k[9]) {{ {body} }}"
    func = read_c(text, name="f", sizes={"x_size": 1 << 31, "y_size": 1 << 31})
    assert tuple(outermost_extents(func, ["x", "y"]).values()) == reach
