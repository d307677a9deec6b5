"""Language models: loaded from ONNX files and their folders, text out of them token by token. An extra."""

from tilewright.llm.batch import Batch, Request
from tilewright.llm.model import LanguageModel, load
from tilewright.llm.sampling import Sampling
from tilewright.llm.serve import ServeLimits, Server, check_host
from tilewright.llm.text import Token

__all__ = [
    "Batch",
    "LanguageModel",
    "Request",
    "Sampling",
    "ServeLimits",
    "Server",
    "Token",
    "check_host",
    "load",
]
