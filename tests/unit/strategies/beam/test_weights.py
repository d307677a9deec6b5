"""Networks as data: read back as they were written, refused where they are not of this version's features."""

import json

import numpy as np
import pytest
from tests.native_kernel import STATED

from tilewright.strategies.beam.network import NAMES
from tilewright.strategies.beam.weights import (
    GainErrors,
    fresh,
    gain_errors,
    network_from_json,
    shipped,
    to_json,
)
from tilewright.support import ArtefactError
from tilewright.target import AARCH64_NEON, X86_AVX2

ERRORS = GainErrors(untrained=1.75, trained=1.5)


def changed(change):
    data = json.loads(to_json(fresh(3), ERRORS, {}))
    change(data)
    return json.dumps(data)


def test_a_network_is_read_back_to_six_digits():
    network = fresh(3)
    text = to_json(network, ERRORS, {"command": "made up"})
    again, errors = network_from_json(text)
    assert errors == ERRORS
    for name in NAMES:
        np.testing.assert_allclose(again.weights[name], network.weights[name], rtol=1e-5)
    assert to_json(again, errors, {"command": "made up"}) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the network is not JSON"),
        ("[]", "not a network"),
        (changed(lambda d: d.update(version=1)), "not a network"),
        (changed(lambda d: d["features"].pop()), "trained on other features"),
        (changed(lambda d: d["terms"].reverse()), "trained on other features or terms"),
        (changed(lambda d: d["weights"].pop("h")), "must have the weights a, a0"),
        (changed(lambda d: d["weights"]["o"].pop()), "'o' are not finite numbers of shape"),
        (changed(lambda d: d["weights"].update(o="x")), "'o' are not finite numbers of shape"),
        (changed(lambda d: d["weights"]["o0"].__setitem__(0, float("nan"))), "'o0' are not finite"),
        (changed(lambda d: d.pop("gain_errors")), "must have its errors of gains"),
        (changed(lambda d: d["gain_errors"].pop("trained")), "must have its errors of gains"),
        (changed(lambda d: d["gain_errors"].update(trained=0.9)), "the trained network's error of gains"),
        (changed(lambda d: d["gain_errors"].update(untrained="2")), "the untrained network's error of gains"),
        (" " * (1 << 21), "at most"),
    ],
)
def test_other_files_are_refused(text, message):
    with pytest.raises(ArtefactError, match=message):
        network_from_json(text)


def test_the_networks_of_the_package_can_be_read():
    network = shipped(STATED)
    if STATED.llvm_triple.startswith("x86_64"):
        assert network is not None
        assert network.weights["o0"].any()
    else:
        assert network is None


def test_targets_without_a_file_have_the_errors_of_where_they_were_measured():
    assert shipped(AARCH64_NEON) is None
    assert gain_errors(AARCH64_NEON) == gain_errors(X86_AVX2) != ERRORS
