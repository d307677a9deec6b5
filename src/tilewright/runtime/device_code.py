"""What a saved model says of code for a device: its modules, their kernels, and the launches of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

#: Blocks or threads along an axis, at most: devices number them by 32 bits.
_MOST: Final = (1 << 31) - 1
#: Numbers of an entry: module, blocks and threads along three axes, shared bytes, bytes of a scalar.
_NUMBERS: Final = 9


@dataclass(frozen=True, slots=True)
class SavedKernel:
    """A kernel with its grid: the number of its module, how it is called there, bytes of shared memory.

    Sizes and places are passed as integers of ``scalar_bytes``.
    """

    module: int
    symbol: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    scalar_bytes: int
    maps: tuple[tuple[int, ...], ...] = ()
    """Tensor maps, as their numbers."""


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """Code for a device of ``language``, compiled for ``arch`` (or the device that ``identity`` names).

    ``modules`` are offsets and bytes within the section of the code. The calls of the plan are launches:
    their kernels are numbered as in ``kernels``, and ``call_steps`` has the step that each belongs to.
    """

    language: str
    arch: str
    identity: str
    modules: tuple[tuple[int, int], ...]
    kernels: tuple[SavedKernel, ...]
    steps: tuple[str, ...]
    call_steps: tuple[int, ...]

    def as_data(self) -> dict[str, Any]:
        """The entry as plain data."""
        return {
            "language": self.language,
            "arch": self.arch,
            "identity": self.identity,
            "modules": [list(place) for place in self.modules],
            "kernels": [
                [
                    *(each.symbol, each.module, *each.grid, *each.block),
                    *(each.shared_bytes, each.scalar_bytes, *map(list, each.maps)),
                ]
                for each in self.kernels
            ],
            "steps": list(self.steps),
            "call_steps": list(self.call_steps),
        }


def read_device_code(data: object) -> DeviceCode:
    """The entry from plain data. Raises ValueError naming what of it is wrong."""
    if not isinstance(data, dict):
        raise ValueError("device")
    language, arch, identity = (_text(data, key) for key in ("language", "arch", "identity"))
    modules = tuple((place[0], place[1]) for place in (_numbers(each, 2) for each in _items(data, "modules")))
    kernels = tuple(_kernel(each, len(modules)) for each in _items(data, "kernels"))
    steps = tuple(_items(data, "steps"))
    if not all(isinstance(name, str) for name in steps):
        raise ValueError("steps")
    call_steps = tuple(_numbers(data.get("call_steps"), None))
    if any(step >= len(steps) for step in call_steps) or list(call_steps) != sorted(call_steps):
        raise ValueError("call_steps")
    return DeviceCode(language, arch, identity, modules, kernels, steps, call_steps)


def _kernel(data: object, modules: int) -> SavedKernel:
    if not isinstance(data, list) or not data or not isinstance(data[0], str):
        raise ValueError("kernels")
    module, gx, gy, gz, bx, by, bz, shared, scalar = _numbers(data[1 : 1 + _NUMBERS], _NUMBERS)
    maps = tuple(tuple(_numbers(each, None)) for each in data[1 + _NUMBERS :])
    if (
        module >= modules
        or not all(1 <= n <= _MOST for n in (gx, gy, gz, bx, by, bz))
        or scalar not in (4, 8)
    ):
        raise ValueError("kernels")
    return SavedKernel(module, data[0], (gx, gy, gz), (bx, by, bz), shared, scalar, maps)


def _text(data: Mapping[str, object], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str):
        raise ValueError(key)
    return value


def _items(data: Mapping[str, object], key: str) -> list[Any]:
    value = data.get(key)
    if not isinstance(value, list):
        raise ValueError(key)
    return value


def _numbers(data: object, count: int | None) -> list[int]:
    if not isinstance(data, list) or (count is not None and len(data) != count):
        raise ValueError("device")
    if any(type(n) is not int or not 0 <= n < 1 << 62 for n in data):
        raise ValueError("device")
    return data
