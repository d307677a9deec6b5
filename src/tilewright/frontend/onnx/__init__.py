"""ONNX models: reading them safely, and importing them as typed graphs."""

from tilewright.frontend.onnx.importer import Shapes, import_onnx
from tilewright.frontend.onnx.load import LoadedModel, Source, load

__all__ = ["LoadedModel", "Shapes", "Source", "import_onnx", "load"]
