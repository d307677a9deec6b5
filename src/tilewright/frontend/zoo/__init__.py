"""The seven architectures that Tilewright is judged by, built with random weights as ONNX models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from onnx import ModelProto

from tilewright.frontend.zoo.builder import ModelBuilder
from tilewright.frontend.zoo.convolutional import mobilenet_v2, resnet3d18, resnet18, resnet50
from tilewright.frontend.zoo.transformers import (
    BERT_BASE,
    GPT2_SMALL,
    TINYBERT_4,
    TransformerSize,
    bert,
    gpt2,
)

#: Sequence length of the three language models.
SEQUENCE = 128

#: The architectures at their published sizes, batch 1: `FULL["resnet18"]()` builds one.
FULL: Mapping[str, Callable[[], ModelProto]] = MappingProxyType(
    {
        "resnet18": resnet18,
        "resnet50": resnet50,
        "mobilenet_v2": mobilenet_v2,
        "resnet3d18": resnet3d18,
        "bert_base": lambda: bert(BERT_BASE, length=SEQUENCE),
        "tinybert4": lambda: bert(TINYBERT_4, length=SEQUENCE),
        "gpt2": lambda: gpt2(GPT2_SMALL, length=SEQUENCE),
    }
)

#: The same architectures made small: every kind of layer, odd tails where the original has them.
#: They run in well under a second.
SMALL: Mapping[str, Callable[[], ModelProto]] = MappingProxyType(
    {
        "resnet18": lambda: resnet18(image=32, width=0.125, depth=0.5, classes=10),
        "resnet50": lambda: resnet50(image=32, width=0.125, depth=0.34, classes=10),
        "mobilenet_v2": lambda: mobilenet_v2(image=32, width=0.25, depth=0.5, classes=10),
        "resnet3d18": lambda: resnet3d18(frames=4, image=16, width=0.125, depth=0.5, classes=10),
        "bert_base": lambda: bert(
            replace(BERT_BASE, layers=2, hidden=32, heads=4, inner=64, vocabulary=50, positions=16), length=8
        ),
        "tinybert4": lambda: bert(
            replace(
                TINYBERT_4,
                layers=1,
                hidden=39,
                heads=3,
                inner=75,
                vocabulary=50,
                positions=16,
                decomposed_norm=True,
            ),
            length=7,
        ),
        "gpt2": lambda: gpt2(
            replace(GPT2_SMALL, layers=2, hidden=32, heads=4, inner=64, vocabulary=50, positions=16), length=8
        ),
    }
)

__all__ = [
    "BERT_BASE",
    "FULL",
    "GPT2_SMALL",
    "SEQUENCE",
    "SMALL",
    "TINYBERT_4",
    "ModelBuilder",
    "TransformerSize",
    "bert",
    "gpt2",
    "mobilenet_v2",
    "resnet18",
    "resnet3d18",
    "resnet50",
]
