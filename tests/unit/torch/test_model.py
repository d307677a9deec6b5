"""``from_torch``: exported modules, their weights, sizes, files."""

import extras

extras.need_torch()

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.export.graph_signature import InputKind, OutputKind

import tilewright
from tilewright.support import InputError, ModelError, UnsupportedOperatorError
from tilewright.torch import Options, TorchModel

#: Torch's own export uses what torch warns of.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.register_buffer("shift", torch.arange(3.0))

    def forward(self, x, *, scale=None):
        y = self.layer(x) + self.shift
        return {"y": y if scale is None else y * scale, "sum": (y.sum(), 7)}


def test_a_module_is_called_as_it_was():
    net, x, scale = Net(), torch.randn(2, 4), torch.tensor(3.0)
    model = tilewright.from_torch(net, (x,), {"scale": scale})
    torch.testing.assert_close(model(x, scale=scale), net(x, scale=scale))
    assert not model.share.eager
    with pytest.raises(InputError, match="was compiled for arguments"):
        model(x)


def test_weights_stay_the_modules():
    net, x = Net(), torch.randn(2, 4)
    model = tilewright.from_torch(net, (x,))
    with torch.no_grad():
        net.layer.weight.zero_()
        net.shift.add_(5)
    torch.testing.assert_close(model(x), net(x))


def test_exported_programs_with_open_sizes():
    net, x = Net(), torch.randn(2, 4)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(net, (x,), dynamic_shapes={"x": {0: batch}})
    model = tilewright.from_torch(program)
    for size in (3, 1, 9):
        x = torch.randn(size, 4)
        torch.testing.assert_close(model(x), net(x))


def test_buffers_that_the_module_changes():
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    net, x = Counts(), torch.ones(2)
    model = tilewright.from_torch(net, (x,))
    assert [model(x)[0].item(), model(x)[0].item(), net.calls.item()] == [1, 2, 2]
    with pytest.raises(UnsupportedOperatorError, match="cannot be saved as one"):
        model.save("unused.tw")


def test_saved_models_need_no_torch(tmp_path):
    net, x = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU()).eval(), torch.randn(1, 1, 5, 5)
    tilewright.from_torch(net, (x,)).save(tmp_path / "net.tw")
    (found,) = tilewright.load(tmp_path / "net.tw")(x.numpy())
    np.testing.assert_allclose(found, net(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_refusals():
    with pytest.raises(InputError, match="takes a module or an exported program, not function"):
        tilewright.from_torch(lambda x: x, (torch.ones(2),))

    with pytest.raises(ModelError, match="found at least two devices, cpu and meta"):
        tilewright.from_torch(torch.nn.Linear(3, 2, device="meta"), (torch.ones(1, 3),))
    model = tilewright.from_torch(torch.nn.Linear(3, 2), (torch.ones(1, 3),))
    with pytest.raises(InputError, match="on the device 'meta'") as caught:
        model(torch.ones(1, 3, device="meta"))
    assert "tensor.cpu()" in caught.value.hint
    with pytest.raises(InputError, match=r"got the shape \[2, 3\]"):
        model(torch.ones(2, 3))
    with pytest.raises(InputError, match="got elements of float64"):
        model(torch.ones(1, 3, dtype=torch.float64))

    class Decides(torch.nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(ModelError, match="torch cannot export the module Decides") as caught:
        tilewright.from_torch(Decides(), (torch.ones(2),))
    assert "torch.compile" in caught.value.hint

    class Airy(torch.nn.Module):
        def forward(self, x):
            return torch.special.airy_ai(x)

    with pytest.raises(UnsupportedOperatorError, match=r"aten\.special_airy_ai"):
        tilewright.from_torch(Airy(), (torch.ones(2),), options={"fallback": False})
    with pytest.raises(UnsupportedOperatorError, match="cannot be saved as one"):
        tilewright.from_torch(Airy(), (torch.ones(2),)).save("unused.tw")


@pytest.mark.parametrize("kind", [InputKind.TOKEN, OutputKind.LOSS_OUTPUT])
def test_programs_that_take_or_give_more_than_tensors(kind):
    spec = SimpleNamespace(kind=kind, target=None)
    ends = ([spec], []) if isinstance(kind, InputKind) else ([], [spec])
    signature = SimpleNamespace(input_specs=ends[0], output_specs=ends[1])
    lowered = SimpleNamespace(call_spec=None, graph_signature=signature, constants={}, state_dict={})
    program = SimpleNamespace(run_decompositions=lambda table: lowered, constants={}, state_dict={})
    with pytest.raises(UnsupportedOperatorError, match=r"the module (takes a token|gives a loss_output)"):
        TorchModel(program, Options())
