"""Models that nobody has seen, as users make them: do they run, are they right, and how fast are they?

    python benchmarks/fresh_models.py --seed 7 --count 12 --threads 2 --json
    python benchmarks/fresh_models.py --seed 7 --models unet,lstm --forms open,open+dynamic

A seed draws sizes (widths, depths, heads, images, lengths, odd ones among them) for so many of ``FAMILIES``;
torch exports each network, and it is measured in each of ``FORMS``: an exporter (``traced``, at an operator
set that is drawn; ``dynamo``; ``open``: traced with batch and image sizes left open), and after ``+`` what
onnxruntime's tools make of it, as in `variants.py`. A row a model and form: ``ok``; ``wrong``, further from
onnxruntime than what its own optimisations change; ``refused`` by us; ``broken``, an error that is
none of the user's; ``skipped``, where torch, the tool or onnxruntime does not do it, with the reason. Exit
status 1 for all but ``ok`` and ``skipped``. Needs ``pip install torch onnxscript``.
"""

import json
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any, Final

import numpy as np
import onnx
import torch
import torch_images as images
import torch_networks as networks
import torch_sequences as sequences
from arguments import add_turns, names, parser_of
from torch import nn
from torch_exports import export
from torch_models import TorchModel
from torch_networks import model_of
from torch_parts import Layers, conv
from variants import Arrays, Turns, apart, compared, made_variant, session_of

import tilewright
from tilewright.support import UserError

FORMS: Final = (
    *(
        "traced",
        "traced+dynamic",
        "traced+qoperator",
        "traced+qdq",
        "traced+f16",
        "traced+int4",
        "traced+int4_qdq",
    ),
    *("dynamo", "dynamo+dynamic", "dynamo+qdq", "dynamo+f16", "dynamo+int4"),
    *("open", "open+dynamic", "open+f16"),
)
OPSETS: Final = (11, 13, 14, 16, 17, 18)
MOST: Final = 2
"""Open sizes may be so many times those of the example, and as much smaller."""


IMAGE: Final = {0: "batch", 2: "height", 3: "width"}
BATCH: Final = {0: "batch"}
"""Axes that a network leaves open."""


class Residual(nn.Module):
    """Stages of residual blocks over images of any size."""

    def __init__(self, widths: list[int], depth: int, groups: int) -> None:
        super().__init__()
        self.first = conv(3, widths[0], 3, 2)
        self.down = Layers(conv(a, b, 3, 2) for a, b in pairwise(widths))
        self.blocks = Layers(
            Layers(
                nn.Sequential(conv(width, width, 3, 1, groups), conv(width, width, 1, act=None))
                for _ in range(depth)
            )
            for width in widths[1:]
        )
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for down, blocks in zip(self.down, self.blocks, strict=True):
            x = down(x)
            for block in blocks:
                x = torch.relu(x + block(x))
        return self.head(x.mean((2, 3)))


class Draws(Random):
    """What sizes are drawn from."""

    def image(self, *sizes: int, channels: int = 3) -> torch.Tensor:
        """One image or two, of one of the sizes."""
        size = self.choice(sizes)
        return torch.randn(self.choice((1, 1, 2)), channels, size, size)

    def of(self, step: int, low: int, high: int) -> int:
        """A multiple of a step."""
        return step * self.randint(low, high)


def residual(r: Draws) -> TorchModel:
    """Residual blocks, grouped or not."""
    widths = [r.choice((16, 24, 40)), *(2 * r.choice((16, 24, 40, 48, 65)) for _ in range(2))]
    return model_of(Residual(widths, r.randint(1, 3), r.choice((1, 1, 2))), x=r.image(64, 97, 128))


def vision_transformer(r: Draws) -> TorchModel:
    """Patches and attention."""
    return model_of(networks.VisionTransformer(r.of(24, 3, 10), r.randint(1, 4)), x=r.image(224))


def unet(r: Draws) -> TorchModel:
    """Down and up again by transposed convolutions."""
    return model_of(networks.UNet(r.of(4, 2, 6)), x=r.image(64, 96, 132))


def bilinear_unet(r: Draws) -> TorchModel:
    """Down and up again by bilinear enlargement."""
    return model_of(images.BilinearUNet(r.of(4, 2, 6)), x=r.image(64, 96, 128))


def efficientnet(r: Draws) -> TorchModel:
    """Depthwise windows whose channels are scaled."""
    blocks, before = [conv(3, 16, 3, 2, act=nn.SiLU)], 16
    for _ in range(r.randint(3, 6)):
        after = r.of(8, 2, 10)
        blocks.append(
            networks.MobileBlock(before, after, r.choice((3, 5)), r.choice((1, 2)), r.choice((1, 4, 6)))
        )
        before = after
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 100)]
    return model_of(nn.Sequential(*blocks, *head), x=r.image(64, 112, 150))


def convnext(r: Draws) -> TorchModel:
    """Large windows, channels last between them."""
    return model_of(networks.ConvNext((r.of(8, 3, 8), r.of(8, 6, 14)), r.randint(1, 3)), x=r.image(96, 160))


def densenet(r: Draws) -> TorchModel:
    """Channels that are joined again and again."""
    return model_of(networks.DenseNet(r.of(8, 3, 8), r.of(4, 3, 8), r.randint(2, 4)), x=r.image(64, 112))


def windows(r: Draws) -> TorchModel:
    """Attention within shifted windows."""
    window, depth = r.choice(((7, 2), (8, 3), (4, 2)))
    return model_of(networks.ShiftedWindows(r.of(24, 2, 6), 3, window, depth), x=r.image(224))


def decoder(r: Draws) -> TorchModel:
    """A language model."""
    tokens, words = r.choice((1, 7, 32, 50, 96)), r.choice((1000, 5003, 32000))
    module = networks.Decoder(r.of(64, 2, 8), tokens, r.randint(1, 3), words)
    return model_of(module, x=torch.randint(0, 1000, (1, tokens)))


def waves(r: Draws) -> TorchModel:
    """Dilated convolutions of one dimension."""
    return model_of(networks.Waves(r.of(8, 3, 9)), x=torch.randn(1, 1, r.choice((999, 2000, 4096))))


def recurrent(kind: type[nn.LSTM] | type[nn.GRU], r: Draws) -> TorchModel:
    """Recurrent layers, in one direction or both."""
    features, hidden, both = r.choice((24, 40, 64)), r.choice((48, 64, 100, 192)), r.random() < 0.5
    layers = kind(features, hidden, r.choice((1, 2)), batch_first=True, bidirectional=both)
    tagger = networks.Tagger(layers, hidden * (2 if both else 1), r.randint(5, 40))
    return model_of(tagger, x=torch.randn(1, r.randint(10, 120), features))


def experts(r: Draws) -> TorchModel:
    """Rows that choose their weights."""
    width = r.choice((32, 48, 96))
    return model_of(networks.Experts(width, r.randint(3, 8)), x=torch.randn(r.randint(5, 80), width))


def mixer(r: Draws) -> TorchModel:
    """Products along tokens and channels in turn."""
    return model_of(images.Mixer(r.of(32, 3, 9), 196, r.randint(1, 3)), x=r.image(224))


def segformer(r: Draws) -> TorchModel:
    """Attention to a smaller image."""
    return model_of(images.Segformer(r.of(16, 2, 5)), x=r.image(96, 128))


def dilated_pyramid(r: Draws) -> TorchModel:
    """Dilated windows side by side, enlarged to the image."""
    return model_of(images.DilatedPyramid(r.of(8, 3, 9)), x=r.image(96, 160))


def super_resolution(r: Draws) -> TorchModel:
    """Channels turned into pixels."""
    return model_of(networks.SuperResolution(r.of(8, 2, 5)), x=r.image(40, 72, channels=1))


def reader(r: Draws) -> TorchModel:
    """Convolutions, then recurrent layers along the line."""
    return model_of(sequences.Reader(r.randint(11, 90)), x=torch.randn(1, 1, 32, r.of(8, 10, 30)))


def recommender(r: Draws) -> TorchModel:
    """Sums of embeddings."""
    rows = r.choice((1, 7, 64))
    categories = torch.randint(0, 5000, (rows, 8, 4))
    return model_of(sequences.Recommender(), x=torch.randn(rows, 13), categories=categories)


FAMILIES: Final[dict[str, tuple[Callable[[Draws], TorchModel], dict[int, str]]]] = {
    "residual": (residual, IMAGE),
    "efficientnet": (efficientnet, IMAGE),
    "vision_transformer": (vision_transformer, BATCH),
    "unet": (unet, BATCH),
    "decoder": (decoder, BATCH),
    "lstm": (partial(recurrent, nn.LSTM), {0: "batch", 1: "steps"}),
    "windows": (windows, BATCH),
    "convnext": (convnext, IMAGE),
    "densenet": (densenet, IMAGE),
    "bilinear_unet": (bilinear_unet, BATCH),
    "gru": (partial(recurrent, nn.GRU), {0: "batch", 1: "steps"}),
    "waves": (waves, BATCH),
    "experts": (experts, {0: "rows"}),
    "mixer": (mixer, BATCH),
    "segformer": (segformer, BATCH),
    "dilated_pyramid": (dilated_pyramid, IMAGE),
    "super_resolution": (super_resolution, IMAGE),
    "reader": (reader, BATCH),
    "recommender": (recommender, {0: "rows"}),
}
"""How a network of each kind is drawn, and which axes of its inputs may be open."""


class SkippedError(Exception):
    """What is not made or run by torch, a tool or onnxruntime."""


def exported(network: TorchModel, exporter: str, opset: int, axes: dict[int, str]) -> onnx.ModelProto:
    """The network as an exporter writes it."""
    open_axes = dict.fromkeys(network.inputs, axes) if exporter == "open" else None
    return export(
        network,
        max(opset, 18) if exporter == "dynamo" else opset,
        dynamo=exporter == "dynamo",
        open_axes=open_axes,
    )


def attempt(what: str, make: Callable[[], Any]) -> Any:
    """What a tool makes. Raises SkippedError with the tool's reason, whatever that is."""
    try:
        return make()
    except Exception as error:
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise SkippedError(f"{what}: {first[0][:200]}") from error


def enlarged(array: np.ndarray, axes: Iterable[int]) -> np.ndarray:
    """The array ``MOST`` times along each of the axes."""
    for axis in axes:
        array = np.concatenate([array] * MOST, axis)
    return array


def row_of(network: TorchModel, form: str, opset: int, axes: dict[int, str], turn: Turns) -> dict[str, Any]:
    """What became of a network in a form."""
    exporter, _, variant = form.partition("+")
    feeds: Arrays = {key: tensor.numpy() for key, tensor in network.inputs.items()}
    plain = attempt("torch", lambda: exported(network, exporter, opset, axes))
    model = attempt("the tool", lambda: made_variant(variant or "f32", plain, feeds))
    # what onnxruntime cannot run is nothing to compare with
    exact = attempt("onnxruntime", lambda: session_of(plain, turn.threads, plain=True).run(None, feeds))
    attempt("onnxruntime", lambda: session_of(model, turn.threads, plain=True).run(None, feeds))
    ranges = others = None
    if exporter == "open":
        others = {name: enlarged(array, axes) for name, array in feeds.items()}
        attempt("onnxruntime", lambda: session_of(model, turn.threads).run(None, others))
        sizes = {name: next(iter(feeds.values())).shape[axis] for axis, name in axes.items()}
        ranges = {name: (max(1, n // MOST), n * MOST) for name, n in sizes.items()}
    f32 = None
    if variant:
        own = tilewright.compile(plain, threads=turn.threads, dynamic=ranges)
        f32 = partial(own.run, None, feeds)
    row = compared(model, feeds, turn, exact=exact, f32=f32, dynamic=ranges, other_sizes=others)
    if not variant:
        with torch.inference_mode():
            made = network.module(*network.inputs.values())
        expected = [each.numpy() for each in (made if isinstance(made, tuple) else (made,))]
        row["difference_from_torch"] = apart(exact, expected)
    return {"status": "ok" if row["right"] else "wrong", **row}


def judged(name: str, seed: int, form: str, turn: Turns) -> dict[str, Any]:
    """The row of a model and form; the same for the same seed."""
    r = Draws(f"{name} {seed}")
    torch.manual_seed(seed)
    draw, axes = FAMILIES[name]
    network, opset = draw(r), r.choice(OPSETS)
    shapes = {key: list(tensor.shape) for key, tensor in network.inputs.items()}
    row: dict[str, Any] = {
        "benchmark": "fresh_models",
        "network": name,
        "seed": seed,
        "form": form,
        "inputs": shapes,
        "parameters": sum(each.numel() for each in network.module.parameters()),
        "opset": opset,
    }
    try:
        return {**row, **row_of(network, form, opset, axes, turn)}
    except SkippedError as error:
        return {**row, "status": "skipped", "reason": str(error)}
    except UserError as error:
        return {**row, "status": "refused", "reason": str(error)[:300]}
    except Exception as error:  # noqa: BLE001 - whatever a user would meet is a finding
        return {**row, "status": "broken", "reason": f"{type(error).__name__}: {error}"[:300]}


def shown(row: dict[str, Any]) -> str:
    """A row as one line of text."""
    text = f"{row['network']} {row['form']}: {row['status']}"
    if "reason" in row:
        return f"{text}: {row['reason']}"
    own = f", {row['ours_to_our_f32']:.2f} of f32" if "ours_to_our_f32" in row else ""
    both = f"{row['ours_ms'][0]:.3f} ms, onnxruntime {row['onnxruntime_ms'][0]:.3f}"
    return f"{text}: {both} ({row['onnxruntime_to_ours']:.2f}){own}, difference {row['difference']:.1e}"


def main() -> int:
    """Measure and print; 1 where a model is wrong, refused or breaks."""
    parser = parser_of(__doc__)
    parser.add_argument("--models", default=",".join(FAMILIES), help="which kinds, by commas")
    parser.add_argument("--forms", default=",".join(FORMS), help="which forms, by commas")
    parser.add_argument("--seed", type=int, default=1, help="what sizes and weights are drawn from")
    parser.add_argument("--count", type=int, default=len(FAMILIES), help="how many networks")
    add_turns(parser, rounds=3, seconds=0.05)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(arguments.threads)
    turn = Turns(arguments.threads, arguments.rounds, arguments.seconds)
    kinds, counts = names(arguments.models), Counter[str]()
    for n in range(arguments.count):
        for form in names(arguments.forms):
            row = judged(kinds[n % len(kinds)], arguments.seed + n // len(kinds), form, turn)
            counts[row["status"]] += 1
            print(json.dumps(row) if arguments.json else shown(row), flush=True)
    print(dict(counts), file=sys.stderr)
    return int(counts.total() > counts["ok"] + counts["skipped"])


if __name__ == "__main__":
    sys.exit(main())
