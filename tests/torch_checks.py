"""Functions of tensors compiled as one graph, and compared with what torch makes of them."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tilewright.frontend import torch as frontend
from tilewright.torch import CompiledPiece, Options, Share, compile_graph


def traced(function, *args):
    """The graph of a function, taken apart."""
    return make_fx(function, decomposition_table=dict(frontend.decompositions()), tracing_mode="fake")(*args)


def compiled(function, *args):
    """The graph of a function of tensors, compiled; nothing falls back."""
    share = Share()
    run = compile_graph(traced(function, *args), Options(fallback=False), share=share)
    assert isinstance(run, CompiledPiece)
    assert not share.eager
    return run


def check(function, *args, exact=False):
    """What is compiled gives what torch does, infinities, signs of zeros and what is no number included."""
    expected = function(*args)
    expected = expected if isinstance(expected, list | tuple) else [expected]
    found = compiled(function, *args)(*args)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        tolerance = {"rtol": 0, "atol": 0} if exact else {}
        torch.testing.assert_close(a, b, equal_nan=True, **tolerance)
        if b.is_floating_point():
            zero = b == 0
            assert torch.equal(a[zero].signbit(), b[zero].signbit())
