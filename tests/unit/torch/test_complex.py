"""Complex numbers: arithmetic, transforms, what moves them, across what torch runs and as ends of graphs."""

import extras

extras.need_torch()

import pytest
import torch

from tilewright.torch import Options, compile_graph
from torch_checks import check, traced


def drawn(*shape, dtype=torch.complex64, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_arithmetic(dtype):
    x, y = drawn(3, 4, dtype=dtype), drawn(4, dtype=dtype, seed=1)
    check(
        lambda x, y: [x + y, x - 2 * y, x * y, x / y, 1 / x, x * (2 - 1j), x.add(y, alpha=2), x + y.real],
        x,
        y,
    )
    check(
        lambda x, y: [x.abs(), x.angle(), x.exp(), x.conj() * y, -x, x == y, x != x, x.to(y.real.dtype)], x, y
    )


def test_quotients_of_large_and_small_numbers():
    x = torch.tensor([1e30 + 1e30j, 1e-30 - 2e-30j, 3 + 4j, 0.5j])
    check(lambda x, y: x / y, x, x.flip(0))


def test_products_and_sums():
    x, y = drawn(2, 3, 4), drawn(2, 4, 3, seed=1)
    check(
        lambda x, y: [
            x @ y,
            x[0] @ y[0].imag.to(x.dtype),
            x.sum(1),
            x.mean((0, 2)),
            torch.where(x.real > 0, x, y.mT),
        ],
        x,
        y,
    )


def test_elements_move():
    x = drawn(2, 3, 4)
    check(
        lambda x: [x.permute(2, 0, 1) + 0, x.flip(1), torch.cat([x, x * 1j], 2), x[:, 1:, ::2] * 1, x.mT + 0],
        x,
    )
    check(
        lambda x: [
            torch.stack([x.real, x.imag]),
            x.reshape(6, 4)[torch.tensor([5, 0])],
            *(y * 2 for y in x.split(2, 2)),
        ],
        x,
    )
    check(
        lambda x: [torch.view_as_complex(x), torch.complex(x[..., 0], x[..., 1])],
        drawn(3, 2, dtype=torch.float32),
    )
    check(lambda x: [torch.view_as_real(x.mT), torch.polar(x.abs(), x.angle())], x)


@pytest.mark.few(2)
@pytest.mark.parametrize("norm", ["forward", "ortho", "backward"])
def test_transforms(norm):
    x, z = drawn(3, 6, dtype=torch.float32), drawn(3, 5)
    check(
        lambda x: [torch.fft.rfft(x, norm=norm), torch.fft.fft2(x, norm=norm), torch.fft.ihfft(x, norm=norm)],
        x,
    )
    check(
        lambda z: [
            torch.fft.fftn(z, norm=norm),
            torch.fft.ifft(z, 7, 0, norm),
            torch.fft.irfft(z, 9, norm=norm),
        ],
        z,
    )
    check(lambda z: [torch.fft.irfftn(z, (4, 8), norm=norm), torch.fft.hfft(z, norm=norm)], z)


def test_spectra_and_rotations_of_users():
    signal = drawn(40, dtype=torch.float32)
    check(lambda x, w: torch.fft.rfft(x.unfold(0, 8, 4) * w).abs().square(), signal, torch.hann_window(8))
    turns = torch.polar(torch.ones(5, 2), torch.arange(10.0).reshape(5, 2))

    def rotated(q, turns):
        pairs = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(-2)

    check(rotated, drawn(3, 5, 4, dtype=torch.float32), turns)


def test_what_is_not_read_is_torchs():
    x = drawn(3, 3)
    function = lambda x: (x * 2).tan() + x  # noqa: E731
    run = compile_graph(traced(function, x), Options())
    torch.testing.assert_close(run(x)[0], function(x))
