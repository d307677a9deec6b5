"""What brings programs in: ONNX models, nests in Python and C, builders of the reference architectures."""

from tilewright.frontend import c, nests, zoo
from tilewright.frontend.onnx import ReadModel, Shapes, Source, import_onnx, read_onnx

__all__ = ["ReadModel", "Shapes", "Source", "c", "import_onnx", "nests", "read_onnx", "zoo"]
