"""ONNX models: reading them safely, and importing them as typed graphs."""

from tilewright.frontend.onnx.importer import (
    ReadModel,
    checked_constants,
    import_onnx,
    read_onnx,
)
from tilewright.frontend.onnx.load import LoadedModel, Source, load
from tilewright.frontend.onnx.sizes import Shapes, checked_shapes

__all__ = [
    "LoadedModel",
    "ReadModel",
    "Shapes",
    "Source",
    "checked_constants",
    "checked_shapes",
    "import_onnx",
    "load",
    "read_onnx",
]
