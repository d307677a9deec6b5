"""Language models: loaded from ONNX files and their folders, text out of them token by token. An extra."""

from tilewright.llm.batch import Batch as Batch, Request as Request
from tilewright.llm.model import LanguageModel as LanguageModel, load as load
from tilewright.llm.sampling import Sampling as Sampling
from tilewright.llm.serve import ServeLimits as ServeLimits, Server as Server, check_host as check_host
