"""Trained networks as data: JSON with what they were trained on, one file for each family of targets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from math import isfinite
from typing import Any, Final

import numpy as np

from tilewright.strategies.beam.cost import TERMS
from tilewright.strategies.beam.features import ALGORITHM, FEATURES
from tilewright.strategies.beam.network import Network, new_network
from tilewright.support import ArtefactError
from tilewright.target import GpuTarget, Target

FORMAT: Final = "tilewright-beam-network"
VERSION: Final = 2
#: Longest text that is read.
MAX_BYTES: Final = 1 << 20
#: Significant digits of a weight in a file.
DIGITS: Final = 6
#: The file whose errors are taken for targets that have none.
MEASURED: Final = "x86_64"


@dataclass(frozen=True, slots=True)
class GainErrors:
    """By how many times gains by a model are off at most, on pipelines that it was not trained on.

    Of 19 of 20 gains of its picks over other states, at least 1.

    ``trained``: with the network of the file; ``untrained``: the coefficients of the machine alone.
    """

    untrained: float
    trained: float

    def __post_init__(self) -> None:
        """Raises ArtefactError for what is no error of a gain."""
        for name, value in asdict(self).items():
            if not isinstance(value, float | int) or not isfinite(value) or value < 1:
                raise ArtefactError(f"the {name} network's error of gains is no number of at least 1")


def fresh(seed: int = 0) -> Network:
    """A network that has not been trained: its factors are all 1."""
    return new_network(ALGORITHM, len(FEATURES), len(TERMS), seed)


def shipped(target: Target) -> Network | None:
    """The network that comes with the package for targets like this one, ``None`` where there is none."""
    text = _text(_family(target))
    return None if text is None else network_from_json(text)[0]


def gain_errors(target: Target | GpuTarget) -> GainErrors:
    """The errors of models for targets like this one; where none were measured, those of :data:`MEASURED`."""
    text = _text(_family(target)) or _text(MEASURED)
    assert text is not None
    return network_from_json(text)[1]


def _family(target: Target | GpuTarget) -> str:
    triple: str = getattr(target, "llvm_triple", "")
    return triple.partition("-")[0]


def _text(family: str) -> str | None:
    file = files("tilewright.strategies.beam") / "weights" / f"{family}.json"
    return file.read_text() if family and file.is_file() else None


def to_json(network: Network, errors: GainErrors, made: Mapping[str, Any]) -> str:
    """The versioned text of a network with its errors; ``made`` says how it was made and predicts."""
    weights = {
        name: np.array([f"{v:.{DIGITS}g}" for v in w.ravel()], float).reshape(w.shape).tolist()
        for name, w in network.weights.items()
    }
    data = {
        "format": FORMAT,
        "version": VERSION,
        "made": dict(made),
        "gain_errors": asdict(errors),
        "features": list(FEATURES),
        "terms": list(TERMS),
        "weights": weights,
    }
    # one line a field: files that differ in a weight differ in a line
    return "{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in data.items()) + "\n}\n"


def network_from_json(text: str) -> tuple[Network, GainErrors]:
    """Read a network and its errors. Raises ArtefactError for other formats, versions, features and terms."""
    if len(text) > MAX_BYTES:
        raise ArtefactError(f"the network has {len(text)} bytes; at most {MAX_BYTES} are read")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"the network is not JSON: {error}", hint="is the file complete?") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
        raise ArtefactError(f"not a network: its format is not {FORMAT!r}, version {VERSION}")
    if data.get("features") != list(FEATURES) or data.get("terms") != list(TERMS):
        raise ArtefactError("the network was trained on other features or terms", hint="train it again")
    errors = data.get("gain_errors")
    if not isinstance(errors, dict) or set(errors) != {"untrained", "trained"}:
        raise ArtefactError("the network must have its errors of gains, untrained and trained")
    expected, given = fresh().weights, data.get("weights")
    if not isinstance(given, dict) or set(given) != set(expected):
        raise ArtefactError(f"the network must have the weights {', '.join(expected)}")
    weights = {}
    for name, like in expected.items():
        try:
            array = np.array(given[name], float)
        except (ValueError, TypeError):
            array = np.empty(0)
        if array.shape != like.shape or not np.isfinite(array).all():
            raise ArtefactError(
                f"the network's weights {name!r} are not finite numbers of shape {like.shape}"
            )
        weights[name] = array
    return Network(weights), GainErrors(**errors)
