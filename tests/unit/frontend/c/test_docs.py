"""docs/c.md: its examples compute what gcc makes of them, and what it says is refused is refused so."""

import re
from pathlib import Path

import numpy as np
import pytest

from c_nests import GCC, differences, drawn, original
from tilewright.driver import Nest
from tilewright.frontend.c import read_c
from tilewright.support import ProgramError

PAGE = (Path(__file__).parents[4] / "docs" / "c.md").read_text()
EXAMPLES = re.findall(r"^```c\n(.*?)^```", PAGE, re.M | re.S)
REFUSED = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|$", PAGE, re.M)


@pytest.mark.skipif(GCC is None, reason="gcc compiles the examples")
@pytest.mark.parametrize("text", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples(text, tmp_path):
    path = tmp_path / "k.c"
    path.write_text(text)
    compiled = original(path)
    for n in (0, 1, 8, 13):
        sizes = {p.name: {"n": n, "m": 9}.get(p.name, 200) for p in compiled.nest.arguments.params}
        arrays = drawn(compiled.nest, compiled.nest.at(sizes), np.random.default_rng(n))
        want = {name: array.copy() for name, array in arrays.items()}
        compiled(want, sizes)
        returned = want.pop(compiled.nest.result, None)
        for name in (*compiled.nest.contents, compiled.nest.result):
            arrays.pop(name, None), want.pop(name, None)
        assert Nest(compiled.nest, threads=2, sizes=sizes)(**arrays) == returned
        assert not differences(arrays, want)


@pytest.mark.parametrize(("body", "error"), REFUSED)
def test_refusals(body, error):
    head = "void f(int n, double x[n], double a)"
    with pytest.raises(ProgramError, match=re.escape(error)) as caught:
        read_c(f"{head} {{\n{body}\n}}\nvoid loops(void) {{ for (;;) ; }}", "k.c", name="f")
    assert str(caught.value.where).startswith("k.c:2:")


def test_the_page_has_examples():
    assert len(EXAMPLES) >= 4 and len(REFUSED) >= 12
