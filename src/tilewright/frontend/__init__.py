"""What brings programs in: ONNX models, nests in Python and C, builders of the reference architectures."""

from tilewright.frontend import c, nests, zoo
from tilewright.frontend.onnx import Shapes, Source, import_onnx

__all__ = ["Shapes", "Source", "c", "import_onnx", "nests", "zoo"]
