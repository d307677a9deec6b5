"""What brings programs in: ONNX models, and the builders of the reference architectures."""

from tilewright.frontend import zoo
from tilewright.frontend.onnx import import_onnx

__all__ = ["import_onnx", "zoo"]
