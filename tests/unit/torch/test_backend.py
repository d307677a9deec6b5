"""Modules through ``torch.compile``: forward, backward, what falls back, options, sizes."""

import extras

extras.need_torch()

import copy
import importlib.metadata
import threading
from collections import Counter

import pytest
import torch

from tilewright.support import InputError, UnsupportedOperatorError
from tilewright.torch import Options, Share, backend, backend_of


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(function, share=None, **options):
    return torch.compile(function, backend=backend_of(Options.of(options), share or Share()))


class Block(torch.nn.Module):
    """Convolution, statistics of a batch, a residual, a pool."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.down = torch.nn.Conv2d(3, 4, 1)
        self.head = torch.nn.Linear(4, 5)

    def forward(self, x):
        y = torch.relu(self.norm(self.conv(x)) + self.down(x))
        return self.head(torch.nn.functional.max_pool2d(y, 2).mean((2, 3)))


def test_inference_and_training_equal_torchs():
    module, x = Block(), torch.randn(2, 3, 6, 6)
    other = copy.deepcopy(module)
    share = Share()
    made = compiled(module, share)
    for _ in range(2):
        for each, run in ((module, made), (other, other)):
            each.zero_grad()
            run(x).square().sum().backward()
        for a, b in zip(module.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)
    for a, b in zip(module.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(a, b)
    assert share.nodes and not share.eager
    module.eval()
    other.eval()
    with torch.no_grad():
        torch.testing.assert_close(made(x), other(x), rtol=1e-4, atol=1e-5)


def trained(model, made, batch, steps):
    """The losses of so many steps."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(made(batch).flatten(0, -2), torch.arange(6) % 4)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def test_a_transformer_learns_as_with_torch():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(4, 8), layer, torch.nn.Linear(8, 4))
    other, batch, share = copy.deepcopy(model), torch.tensor([[0, 1, 2], [3, 1, 0]]), Share()
    losses = trained(model, compiled(model, share), batch, 12)
    assert losses == pytest.approx(trained(other, other, batch, 12), rel=1e-4)
    assert losses[-1] < losses[0] and not share.eager


def test_random_numbers_are_torchs_own():
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3))
    share, x = Share(), torch.randn(5, 4)
    made = compiled(module, share)
    torch.manual_seed(3)
    expected = module(x)
    torch.manual_seed(3)
    torch.testing.assert_close(made(x), expected)
    assert share.pieces == 2
    assert share.eager == Counter({"aten.native_dropout.default (the operator is not read)": 1})
    assert "torch runs 1 x aten.native_dropout" in str(share)


def test_what_draws_numbers_keeps_its_order():
    def function(x):
        a = torch.nn.functional.dropout(x.exp(), 0.5)
        b = torch.nn.functional.dropout(x, 0.5)
        return a * 2 + b, torch.rand_like(a)

    x = torch.randn(64)
    torch.manual_seed(5)
    expected = function(x)
    torch.manual_seed(5)
    torch.testing.assert_close(compiled(function)(x), expected)


def test_fallback_can_be_forbidden():
    def function(x):
        return torch.special.airy_ai(x) + 1

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="operator is not read") as caught:
        compiled(function, fallback=False)(torch.ones(3))
    error = caught.value.inner_exception
    assert isinstance(error, UnsupportedOperatorError)
    (place, _) = error.nodes[0]
    assert "test_backend.py" in place.name and place.operator == "aten.special_airy_ai.default"

    class Inner(torch.nn.Module):
        def forward(self, x):
            return torch.special.airy_ai(x)

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        compiled(torch.nn.Sequential(torch.nn.ReLU(), Inner()), fallback=False)(torch.ones(3))
    ((place, _),) = caught.value.inner_exception.nodes
    assert place.name.startswith("1, File ")


def test_unknown_options_are_refused():
    with pytest.raises(InputError, match="no option 'thread'") as caught:
        backend(None, [], options={"thread": 2})
    assert "threads" in caught.value.hint


INSTALLED = importlib.metadata.entry_points(group="torch_dynamo_backends", name="tilewright")


@pytest.mark.skipif(not INSTALLED, reason="a checkout on the path, not installed: no entry points")
def test_torch_finds_the_back_end_by_its_name():
    assert "tilewright" in torch._dynamo.list_backends(())
    made = torch.compile(lambda x: x * 2 + 1, backend="tilewright", options={"threads": 1})
    assert made(torch.ones(3)).tolist() == [3.0, 3.0, 3.0]


def test_one_plan_is_for_all_sizes():
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softmax(1))
    share = Share()
    made = torch.compile(module, backend=backend_of(Options(), share), dynamic=True)
    for batch, length in ((2, 9), (5, 6), (2, 9), (7, 12)):
        x = torch.randn(batch, length, 4, requires_grad=True)
        found, expected = made(x), module(x)
        torch.testing.assert_close(found, expected)
        y = torch.randn(found.shape)
        found, expected = (torch.autograd.grad((out * y).sum(), x)[0] for out in (found, expected))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert not share.eager and share.pieces == 2


OPEN = {
    "attention": (
        lambda q, k: torch.nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True),
        lambda n: [torch.randn(n, 2, n + 3, 4, requires_grad=True) for _ in range(2)],
    ),
    "places": (
        lambda x, i: x[i, i.flip(0)] * x[:, :1],
        lambda n: [torch.randn(n, n, requires_grad=True), torch.randint(0, n, (n,))],
    ),
    "parts": (
        lambda x: torch.slice_scatter(x * 2, x[:, 1:], 1, 0, -1) + torch.select_scatter(x, x[:, 0], 1, -1),
        lambda n: [torch.randn(n, n + 1, requires_grad=True)],
    ),
}


@pytest.mark.parametrize("kind", OPEN)
def test_gradients_have_one_plan_for_all_sizes(kind):
    function, given = OPEN[kind]
    share = Share()
    made = torch.compile(function, backend=backend_of(Options(), share), dynamic=True)
    for size in (3, 6):
        args = given(size)
        found, expected = made(*args), function(*args)
        torch.testing.assert_close(found, expected)
        wanted, y = [x for x in args if x.requires_grad], torch.randn(found.shape)
        for a, b in zip(*(torch.autograd.grad(out, wanted, y) for out in (found, expected)), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert not share.eager and share.pieces == 2


def test_numbers_of_modules_are_tensors_of_one_plan():
    class Scaled(torch.nn.Module):
        factor = 4.0

        def forward(self, x):
            return x * (2.0 / self.factor)

    module, share = Scaled(), Share()
    made = torch.compile(module, backend=backend_of(Options(), share), dynamic=True)
    for module.factor in (4.0, 5.0, 7.0):
        torch.testing.assert_close(made(torch.ones(3)), torch.full((3,), 2 / module.factor))
    assert not share.eager


def test_sizes_that_no_plan_is_for():
    share = Share()
    made = torch.compile(
        lambda x: x.sort(0).values + x.shape[0] / 3, backend=backend_of(Options(), share), dynamic=True
    )
    for size in (5, 9):
        x = torch.randn(size)
        torch.testing.assert_close(made(x), x.sort(0).values + size / 3)
    beyond = torch.compile(lambda x: x + 1, backend=backend_of(Options(), share), dynamic=True)
    assert [beyond(torch.ones(size)).sum() for size in (3, 5000)] == [6, 10000]


def test_sizes_are_numbers():
    made = torch.compile(
        lambda x: (x.mean() / x.shape[0], x.shape[0] * 2, torch.arange(x.shape[0])),
        backend=backend_of(Options(), Share()),
        dynamic=True,
    )
    for size in (3, 8):
        mean, twice, numbers = made(torch.ones(size))
        torch.testing.assert_close(mean, torch.tensor(1 / size))
        assert twice == 2 * size and numbers.tolist() == [*range(size)]


def test_views_and_updates_of_arguments():
    def function(x, y):
        x.add_(1)
        y[1:3] = x[0]
        return x.t(), y[0], x

    args, others = ([torch.ones(3, 3), torch.zeros(4, 3)] for _ in range(2))
    found, expected = compiled(function)(*args), function(*others)
    torch.testing.assert_close([*found, *args], [*expected, *others])
    assert found[0].data_ptr() == args[0].data_ptr()


def test_frozen_weights_follow_their_changes():
    module, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    made = compiled(module, freeze=True)
    with torch.no_grad():
        torch.testing.assert_close(made(x), module(x))
        module.weight.mul_(2)
        torch.testing.assert_close(made(x), module(x))
        module.load_state_dict({"weight": torch.eye(4), "bias": torch.zeros(4)})
        torch.testing.assert_close(made(x), x)


def test_weights_that_are_not_frozen_are_read_in_each_run():
    module, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    made = compiled(module)
    with torch.no_grad():
        made(x)
        module.weight.data.zero_()
        torch.testing.assert_close(made(x), module.bias.expand(2, 4))


def test_results_are_not_overwritten_and_threads_do_not_disturb_each_other():
    made = compiled(lambda x: torch.softmax(x, 1) @ x)
    xs = [torch.randn(16, 16) for _ in range(4)]
    expected = [torch.softmax(x, 1) @ x for x in xs]
    made(xs[0])
    found = [None] * 4

    def run(at):
        found[at] = [made(xs[at]) for _ in range(20)]

    threads = [threading.Thread(target=run, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for results, right in zip(found, expected, strict=True):
        for each in results:
            torch.testing.assert_close(each, right)


STRANGE = {
    "complex": (lambda x: torch.fft.rfft(x).abs(), torch.randn(8)),
    "data decides": (lambda x: x[x > 0] + 1, torch.randn(8)),
    "control flow": (lambda x: x + 1 if x.sum() > 0 else x - 1, torch.ones(3)),
    "an alias": (lambda x: (x, x.view(-1), x + 1), torch.ones(2, 3)),
    "a constant": (lambda x: (torch.arange(3), x), torch.ones(2)),
    "no tensors": (lambda x: 3, torch.ones(2)),
    "negative bits": (lambda x: torch._neg_view(x) + 1, torch.ones(3)),
    "print": (lambda x: (x + 1, torch._dynamo.graph_break(), x * 2)[::2], torch.ones(3)),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", STRANGE)
def test_what_is_strange_is_right(kind):
    function, x = STRANGE[kind]
    torch.testing.assert_close(compiled(function)(x), function(x))


def hooked():
    """A module with hooks of each kind that dynamo and autograd know."""
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    module[0].register_forward_hook(lambda _, given, made: made * 2)
    module[1].register_forward_pre_hook(lambda _, given: (given[0] + 1,))
    module[0].weight.register_hook(lambda gradient: gradient * 3)
    module[1].register_full_backward_hook(lambda _, given, made: (given[0] * 2,))
    return module


# that a tensor of the graph is no leaf
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_hooks():
    module, x = hooked(), torch.randn(2, 3)
    found = []
    for run in (compiled(module), module):
        module.zero_grad()
        y = run(x)
        y.sum().backward()
        found.append([y.detach(), *(p.grad.clone() for p in module.parameters())])
    torch.testing.assert_close(*found)


def test_sizes_that_are_marked():
    made = compiled(lambda x: x * 2 + x.shape[0])
    for size in (3, 5, 7):
        x = torch.ones(size)
        torch._dynamo.mark_static(x, 0)
        torch.testing.assert_close(made(x), torch.full((size,), 2.0 + size))
    x = torch.ones(4)
    torch._dynamo.mark_dynamic(x, 0)
    made = compiled(lambda x: x * 2)
    for each in (x, torch.ones(9), torch.ones(1)):
        torch.testing.assert_close(made(each), each * 2)


def test_arguments_that_share_memory():
    def function(x, y):
        x.add_(1)
        return y * 2

    for first, second in ((slice(4), slice(4)), (slice(4), slice(2, 6)), (slice(2, 6), slice(4))):
        torch._dynamo.reset()  # its guards do not tell these apart
        made = compiled(function)
        found, expected = (torch.arange(6.0) for _ in range(2))
        torch.testing.assert_close(
            made(found[first], found[second]), function(expected[first], expected[second])
        )
        torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning")
def test_tensors_of_other_kinds_are_torchs():
    x = torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.quint8)
    torch.testing.assert_close(compiled(lambda x: x.dequantize() + 1)(x), x.dequantize() + 1)
    assert compiled(torch.nn.Linear(3, 2, device="meta"))(torch.ones(1, 3, device="meta")).is_meta
    sparse = torch.eye(3).to_sparse()
    torch.testing.assert_close(
        compiled(lambda x: (x @ torch.ones(3, 3)) + 1)(sparse), torch.full((3, 3), 2.0)
    )


def test_autocast_and_half_precision():
    module, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = compiled(module)(x), module(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected)
