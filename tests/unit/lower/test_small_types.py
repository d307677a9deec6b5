"""Conversions of small types as arithmetic on bytes: all values, interpreted, in native code and in C."""

import ml_dtypes
import numpy as np
import pytest

from c_kernel import CKernel
from devices import LANGUAGES, checked_by_nvrtc, on_device
from native_kernel import Native
from tilewright import lang
from tilewright.ir import DTYPES, SMALL_DTYPES, run_function, to_function
from tilewright.lower import PIPELINE
from tilewright.schedule import Schedule
from tilewright.support import ProgramError

OTHERS = [DTYPES[name] for name in ("f32", "f16", "bf16", "f64", "i32", "u8", "bool")]
FLOATS = [t for t in SMALL_DTYPES if t.is_float]


def _all(dtype):
    """All values of a small type; of others those on both sides of what rounds up and what rounds down."""
    if dtype.small and dtype.is_float:
        return np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy)
    if dtype.small:
        return np.arange(dtype.min_value, dtype.max_value + 1).astype(dtype.numpy)
    if not dtype.is_float:
        return np.arange(0, 256).astype(dtype.numpy)
    parts = [np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e38, -1e38, 2.0**-127, 2.0**-140, 65519.0])]
    for small in FLOATS:
        known = np.unique(_all(small).astype(np.float64))
        known = known[np.isfinite(known) & (known >= -8)]
        middles = (known[1:] + known[:-1]) / 2
        parts += [known, middles, middles * (1 + 2.0**-12), middles * (1 - 2.0**-12)]
    with np.errstate(over="ignore"):
        return np.unique(np.concatenate(parts)).astype(dtype.numpy)


def _modes(source, target):
    modes = ["saturate"] if source.is_float and not target.is_float else ["wrap", "saturate"]
    return modes + ["bits"] * (source.bits == target.bits and "bool" not in (source.name, target.name))


def _program(source, targets):
    """A stage for each target and mode, of all values."""
    x = lang.placeholder((len(_all(source)),), source, name="X")
    cases = [(target, mode) for target in targets for mode in _modes(source, target)]
    made = [
        lang.compute(x.shape, lambda i, t=target, m=mode: lang.cast(x[i], t, m), name=f"{target}_{mode}")
        for target, mode in cases
    ]
    return lang.program([x], made)


def _same(got, want):
    assert got.keys() == want.keys()
    for name in want:
        assert got[name].dtype == want[name].dtype
        # as numbers: the sign of NaN says nothing, and what is above 4 bits in a byte neither
        np.testing.assert_array_equal(got[name].astype(np.float64), want[name].astype(np.float64), name)


def _targets(source):
    return [*SMALL_DTYPES, *OTHERS] if source.small else SMALL_DTYPES


@pytest.mark.parametrize("source", [*SMALL_DTYPES, *OTHERS], ids=str)
def test_all_values_are_converted_alike(source):
    program, x = _program(source, _targets(source)), _all(source)
    want = lang.evaluate(program, [x])
    _same(run_function(to_function(program), {"X": x}), want)
    _same(Native(Schedule(program).func)({"X": x}, isolated=False), want)


@pytest.mark.parametrize("source", [DTYPES["i4"], DTYPES["f8e5m2"], DTYPES["f32"]], ids=str)
def test_c_converts_them_alike(source):
    program, x = _program(source, _targets(source)), _all(source)
    _same(CKernel(to_function(program))({"X": x}), lang.evaluate(program, [x]))


@pytest.mark.parametrize("source", [DTYPES["f8e4m3fn"], DTYPES["f16"]], ids=str)
def test_devices_convert_them_alike(source):
    targets = [DTYPES["f32"]] if source.small else [DTYPES["f8e4m3fnuz"], DTYPES["u4"]]
    program, x = _program(source, targets), _all(source)
    s = Schedule(program)
    for made in program.outputs:
        s = s.bind(s.loops(made.name)[0], "block.x")
    for language in LANGUAGES:
        _same(on_device(s.func, language)({"X": x}), lang.evaluate(program, [x]))
    checked_by_nvrtc(s.func)


def test_bytes_may_hold_more_than_the_number():
    """Arrays of 4 bits made by views keep what was in their bytes."""
    x = np.array([0x1F, 0xF7, 0x58], np.uint8).view(ml_dtypes.int4)
    X = lang.placeholder((3,), "i4", name="X")
    p = lang.program([X], [lang.compute((3,), lambda i: lang.cast(X[i], "i32"), name="Y")])
    assert Native(Schedule(p).func)({"X": x})["Y"].tolist() == [-1, 7, -8]


def test_numbers_are_found_by_indices_of_few_bits_and_compared():
    X, P = lang.placeholder((16,), "f8e4m3fn", name="X"), lang.placeholder((5,), "u4", name="P")
    p = lang.program(
        [X, P],
        [
            lang.compute((5,), lambda i: X[lang.cast(P[i], "i32")], name="Y"),
            lang.compute((16,), lambda i: lang.select(X[i] < X[0], X[i], X[0]), name="Z"),
        ],
    )
    x = np.linspace(-3, 3, 16).astype(ml_dtypes.float8_e4m3fn)
    feeds = {"X": x, "P": np.array([3, 0, 15, 7, 8]).astype(ml_dtypes.uint4)}
    want = lang.evaluate(p, list(feeds.values()))
    _same(want, {"Y": x[feeds["P"].astype(int)], "Z": np.where(x < x[0], x, x[0])})
    _same(run_function(to_function(p), feeds), want)
    _same(Native(Schedule(p).func)(feeds, isolated=False), want)


def test_the_pass_comes_first_and_leaves_others_alone():
    X = lang.placeholder((4,), name="X")
    func = to_function(lang.program([X], [lang.compute((4,), lambda i: X[i] + 1.0, name="Y")]))
    assert PIPELINE[0].name == "hold_small"
    assert PIPELINE[0].run(func, frozenset()) is func


@pytest.mark.parametrize("name", ["i4", "f8e5m2"])
def test_arithmetic_on_them_is_refused(name):
    X, k = lang.placeholder((4,), name, name="X"), lang.reduce_axis(4, "k")
    for made in (
        lambda: X[0] + X[1],
        lambda: -X[0],
        lambda: lang.sum(X[k], axis=k),
        lambda: lang.minimum(X[0], X[1]),
    ):
        with pytest.raises(ProgramError, match=f"arithmetic on values of type {name}"):
            made()
