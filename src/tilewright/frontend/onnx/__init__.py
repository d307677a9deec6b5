"""ONNX models: reading them safely, and importing them as typed graphs."""

from tilewright.frontend.onnx.importer import (
    ReadModel as ReadModel,
    checked_constants as checked_constants,
    import_onnx as import_onnx,
    read_onnx as read_onnx,
)
from tilewright.frontend.onnx.load import Source as Source, load as load
from tilewright.frontend.onnx.sizes import Shapes as Shapes, checked_shapes as checked_shapes
