"""The engines that a benchmark compares, each as fast as its makers say it is set up: one adapter an engine.

All get the same model, inputs and number of threads, and compute in the precision asked for, or in f32 where
they have no such way. Each is timed from arrays to arrays, by the fastest way in that its interface has for
arrays that stay where they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import onnx

from tilewright import __version__
from tilewright.devices import load_fixed
from tilewright.driver.bench.torch_model import torch_module
from tilewright.driver.compile import compile_model
from tilewright.driver.engines import optional_module
from tilewright.driver.model import CompiledModel
from tilewright.driver.units import Precision
from tilewright.runtime import SavedModel, is_saved_model

Array = npt.NDArray[Any]


class Engine(ABC):
    """One engine with one model loaded. ``module`` is the package that it needs."""

    module: ClassVar[str] = ""

    @abstractmethod
    def __init__(
        self, path: str, feeds: Mapping[str, Array], threads: int, precision: Precision = "f32"
    ) -> None:
        """Load and compile the model for inputs like ``feeds``."""

    @property
    @abstractmethod
    def version(self) -> str:
        """The engine's version."""

    @abstractmethod
    def run(self) -> object:
        """Run once on the inputs given at the start; the results may be any object."""

    @abstractmethod
    def outputs(self) -> list[Array]:
        """The model's outputs in order, as arrays."""


class Tilewright(Engine):
    """Tilewright itself, as ``tilewright.compile`` gives it, bound to the inputs."""

    def __init__(
        self,
        path: str,
        feeds: Mapping[str, Array],
        threads: int,
        precision: Precision = "f32",
        target: str = "cpu",
        accuracy: str | float = "auto",
    ) -> None:
        shapes = {name: array.shape for name, array in feeds.items()}
        if is_saved_model(path):
            model: CompiledModel | SavedModel = load_fixed(path, threads=threads)
        else:
            model = compile_model(
                path,
                target=target,
                threads=threads,
                shapes=shapes,
                precision=precision,
                accuracy=accuracy,
            )
        self._bound = model.bind(feeds)

    @property
    def version(self) -> str:
        """The package's version."""
        return __version__

    def run(self) -> object:
        """One run."""
        return self._bound.run()

    def outputs(self) -> list[Array]:
        """Outputs of one run."""
        return self._bound.run()


class OnnxRuntime(Engine):
    """onnxruntime's CPU provider: all graph optimisations, one session thread pool of the given size.

    Inputs, and the outputs of the first run, are bound.
    """

    module = "onnxruntime"

    def __init__(
        self, path: str, feeds: Mapping[str, Array], threads: int, precision: Precision = "f32"
    ) -> None:
        self._ort = optional_module("onnxruntime")
        options = self._ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = self._ort.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = self._ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 4
        self._session = self._ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._feeds = dict(feeds)  # bound arrays are not kept alive
        self._binding = self._session.io_binding()
        for name, array in self._feeds.items():
            self._binding.bind_cpu_input(name, np.ascontiguousarray(array))
        names = [made.name for made in self._session.get_outputs()]
        for name in names:
            self._binding.bind_output(name)
        self._session.run_with_iobinding(self._binding)
        self._made = self._binding.get_outputs()
        for name, made in zip(names, self._made, strict=True):
            self._binding.bind_ortvalue_output(name, made)

    @property
    def version(self) -> str:
        """The package's version."""
        return str(self._ort.__version__)

    def run(self) -> object:
        """One run."""
        return self._session.run_with_iobinding(self._binding)

    def outputs(self) -> list[Array]:
        """Outputs of one run."""
        self._session.run_with_iobinding(self._binding)
        return [np.asarray(made.numpy()) for made in self._made]


class OpenVino(Engine):
    """OpenVINO's CPU device: latency hint, one stream of the given number of threads, static shapes."""

    module = "openvino"

    def __init__(
        self, path: str, feeds: Mapping[str, Array], threads: int, precision: Precision = "f32"
    ) -> None:
        self._openvino = optional_module("openvino")
        core = self._openvino.Core()
        model = core.read_model(path)
        model.reshape({name: list(array.shape) for name, array in feeds.items()})
        settings = {
            "INFERENCE_PRECISION_HINT": precision,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
        }
        self._request = core.compile_model(model, "CPU", settings).create_infer_request()
        self._feeds = {name: np.ascontiguousarray(array) for name, array in feeds.items()}
        for name, array in self._feeds.items():
            self._request.set_tensor(name, self._openvino.Tensor(array, shared_memory=True))

    @property
    def version(self) -> str:
        """The package's version."""
        return str(self._openvino.__version__)

    def run(self) -> object:
        """One run; inputs and outputs are shared with the engine, not copied."""
        return self._request.infer(share_outputs=True)

    def outputs(self) -> list[Array]:
        """Outputs of one run."""
        made = self._request.infer()
        return [np.array(made[at]) for at in range(len(made))]


class Torch(Engine):
    """PyTorch, eager: the model's nodes as torch functions, in inference mode."""

    module = "torch"

    def __init__(
        self, path: str, feeds: Mapping[str, Array], threads: int, precision: Precision = "f32"
    ) -> None:
        self._torch = optional_module("torch")
        self._torch.set_num_threads(threads)
        self._feeds = {name: self._torch.from_numpy(array.copy()) for name, array in feeds.items()}
        self._module = torch_module(self._torch, onnx.load(path))

    @property
    def version(self) -> str:
        """The package's version."""
        return str(self._torch.__version__)

    def run(self) -> object:
        """One run."""
        with self._torch.inference_mode():
            return self._module(self._feeds)

    def outputs(self) -> list[Array]:
        """Outputs of one run."""
        made = self.run()
        assert isinstance(made, (list, tuple))
        return [tensor.numpy() for tensor in made]


class TorchCompiled(Torch):
    """PyTorch with ``torch.compile`` (inductor), shapes static; it needs a C++ compiler."""

    def __init__(
        self, path: str, feeds: Mapping[str, Array], threads: int, precision: Precision = "f32"
    ) -> None:
        super().__init__(path, feeds, threads, precision)
        self._module = self._torch.compile(self._module, dynamic=False)
        self.run()


ENGINES: Final[Mapping[str, type[Engine]]] = MappingProxyType(
    {
        "tilewright": Tilewright,
        "onnxruntime": OnnxRuntime,
        "openvino": OpenVino,
        "torch": Torch,
        "torch-compile": TorchCompiled,
    }
)
"""The engines by name."""
