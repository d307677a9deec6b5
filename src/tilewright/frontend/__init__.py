"""What brings programs in: ONNX models, nests in Python and C, builders of the reference architectures."""

from tilewright.frontend import c as c, nests as nests, zoo as zoo
from tilewright.frontend.onnx import (
    ReadModel as ReadModel,
    Shapes as Shapes,
    Source as Source,
    checked_constants as checked_constants,
    checked_shapes as checked_shapes,
    import_onnx as import_onnx,
    read_onnx as read_onnx,
)
from tilewright.frontend.sources import OpenSource as OpenSource
