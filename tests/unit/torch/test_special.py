"""Special functions against torch's in double precision, from the smallest numbers to infinity."""

import extras

extras.need_torch()

import pytest
import torch

from tilewright.frontend import torch as frontend
from torch_checks import compiled, traced

aten = torch.ops.aten
STRANGE = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    0.5,
    -3.25,
    16.0,
    15.99999,
    -2.0,
    float("inf"),
    float("-inf"),
    float("nan"),
]

#: One of each way in which functions are put together; torch's samples have the others.
FUNCTIONS = [
    *(aten.lgamma, aten.digamma, aten.erfc, aten.erfinv, aten.special_i1),
    *(aten.special_modified_bessel_k1, aten.special_bessel_y0),
]


def numbers():
    draw = torch.Generator().manual_seed(0)
    edges = torch.cat(
        [
            2.0 ** torch.arange(-120.0, 30.0, 7),
            torch.nextafter(2.0 ** torch.arange(-9.0, 9), torch.tensor(0.0)),
        ]
    )
    return torch.cat(
        [torch.tensor(STRANGE), edges, torch.randn(200, generator=draw) * 5, torch.linspace(-30, 60, 300)]
    )


@pytest.mark.few(3)
@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_functions(function):
    x = numbers()
    found, own, exact = compiled(lambda x: [function(x)], x)(x)[0], function(x), function(x.double())
    for kind in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(kind(found), kind(own))
    finite = found.isfinite()
    # where a function crosses zero what counts is its size around
    wrong = (found.double() - exact).abs() / exact.abs().clamp(min=0.01)
    assert wrong[finite].max() < 1e-5


def test_half_precision_is_computed_in_single_and_double_is_left_to_torch():
    x = torch.linspace(0.1, 5, 20).bfloat16()
    torch.testing.assert_close(compiled(lambda x: [torch.lgamma(x)], x)(x)[0], torch.lgamma(x))
    (refused,) = frontend.read_module(traced(torch.lgamma, x.double())).refused.values()
    assert "double precision" in refused.reason
