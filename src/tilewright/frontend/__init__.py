"""What brings programs in: ONNX models, nests in Python and C, builders of the reference architectures."""

from tilewright.frontend import c, nests, zoo
from tilewright.frontend.onnx import (
    ReadModel,
    Shapes,
    Source,
    checked_constants,
    checked_shapes,
    import_onnx,
    read_onnx,
)
from tilewright.frontend.sources import OpenSource

__all__ = [
    "OpenSource",
    "ReadModel",
    "Shapes",
    "Source",
    "c",
    "checked_constants",
    "checked_shapes",
    "import_onnx",
    "nests",
    "read_onnx",
    "zoo",
]
