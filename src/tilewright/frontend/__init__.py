"""What brings programs in: ONNX models, and the builders of the reference architectures."""
