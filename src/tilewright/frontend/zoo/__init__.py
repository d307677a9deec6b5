"""The seven architectures that Tilewright is judged by, built with random weights as ONNX models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from onnx import ModelProto

from tilewright.frontend.zoo.builder import ModelBuilder as ModelBuilder
from tilewright.frontend.zoo.convolutional import (
    mobilenet_v2 as mobilenet_v2,
    resnet3d18 as resnet3d18,
    resnet18 as resnet18,
    resnet34 as resnet34,
    resnet50 as resnet50,
)
from tilewright.frontend.zoo.transformers import (
    BERT_BASE as BERT_BASE,
    GPT2_SMALL as GPT2_SMALL,
    TINYBERT_4 as TINYBERT_4,
    TransformerSize as TransformerSize,
    bert as bert,
    gpt2 as gpt2,
)

#: Sequence length of the three language models.
SEQUENCE = 128


class Architecture(Protocol):
    """Builds a model."""

    def __call__(self, *, batch: int = 1) -> ModelProto:
        """The model for inputs of ``batch`` images or sequences."""


#: The architectures at their published sizes: `FULL["resnet18"]()` builds one, `(batch=16)` for 16 images.
FULL: Mapping[str, Architecture] = MappingProxyType(
    {
        "resnet18": resnet18,
        "resnet50": resnet50,
        "mobilenet_v2": mobilenet_v2,
        "resnet3d18": resnet3d18,
        "bert_base": lambda batch=1: bert(BERT_BASE, batch=batch, length=SEQUENCE),
        "tinybert4": lambda batch=1: bert(TINYBERT_4, batch=batch, length=SEQUENCE),
        "gpt2": lambda batch=1: gpt2(GPT2_SMALL, batch=batch, length=SEQUENCE),
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
