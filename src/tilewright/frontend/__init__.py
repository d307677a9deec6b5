"""What brings programs in: ONNX models, and the builders of the reference architectures."""

from tilewright.frontend import zoo
from tilewright.frontend.onnx import Shapes, Source, import_onnx

__all__ = ["Shapes", "Source", "import_onnx", "zoo"]
