"""PyTorch at the door: the back end of ``torch.compile``, and ``from_torch``. An extra."""

from tilewright.torch.backend import backend, backend_of
from tilewright.torch.model import TorchModel, from_torch
from tilewright.torch.options import Options
from tilewright.torch.pieces import CompiledPiece, Share, compile_graph

__all__ = [
    "CompiledPiece",
    "Options",
    "Share",
    "TorchModel",
    "backend",
    "backend_of",
    "compile_graph",
    "from_torch",
]
