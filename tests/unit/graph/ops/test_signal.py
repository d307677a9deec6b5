"""Fourier transforms: long ones in two steps, the same as numpy's in all forms."""

import numpy as np
import pytest
from onnx import helper

import onnx_models as tiny
import tilewright

CASES = [
    ((3, 400, 1), 1),
    ((3, 400, 2), 1),
    ((2, 128, 5, 2), 1),
    ((2, 6, 144, 1), 2),
    ((2, 131, 1), 1),
    ((2, 250, 2), 1),
    ((2, 97, 1), 1),
]


def transform(x, axis, **attributes):
    node = helper.make_node("DFT", ["x", "", "axis"], ["y"], **attributes)
    bins = x.shape[axis] // 2 + 1 if attributes.get("onesided") else x.shape[axis]
    shape = (*x.shape[:axis], bins, *x.shape[axis + 1 : -1], 2)
    model = tiny.model(
        [node], [tiny.tensor("x", x.shape)], [tiny.tensor("y", shape)], {"axis": np.array(axis)}
    )
    (made,) = tilewright.compile(model, threads=1).run(None, {"x": x})
    return made[..., 0] + 1j * made[..., 1]


@pytest.mark.few(3)
@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_transforms_are_those_of_numpy(shape, axis):
    for form in ("whole", "inverse", "onesided")[: 3 if shape[-1] == 1 else 2]:
        check(shape, axis, form)


def check(shape, axis, form):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    signal = x[..., 0].astype(complex) + (1j * x[..., 1] if shape[-1] == 2 else 0)
    wanted = (np.fft.ifft if form == "inverse" else np.fft.fft)(signal, axis=axis)
    if form == "onesided":
        wanted = np.take(wanted, range(shape[axis] // 2 + 1), axis)
    made = transform(x, axis, **({} if form == "whole" else {form: 1}))
    assert np.abs(made - wanted).max() < 1e-7 * np.abs(wanted).max()
