import json
from dataclasses import replace

import pytest

from tilewright.support import ArtefactError
from tilewright.target import X86_AVX512, Quantities
from tilewright.target.quantities import in_class, quantities_from_data

MEASURED = Quantities(
    clock_hz=3.694e9,
    fma_per_cycle=0.995,
    bandwidths=(64.0, 24.8, 24.9, 4.76),
    page_walk=11.3,
    far_requests=(2, 4),
    stream_gain=1.04,
    fork_seconds=8.77e-7,
)


def test_what_two_runs_measure_alike_is_one_class():
    again = replace(MEASURED, clock_hz=3.71e9, bandwidths=(64.0, 25.2, 24.6, 4.9), page_walk=11.0)
    assert again.digest != MEASURED.digest
    assert again.rounded() == MEASURED.rounded() == again.rounded().rounded()
    assert again.rounded().digest == MEASURED.rounded().digest
    assert MEASURED.rounded().fma_per_cycle == 1.0


@pytest.mark.parametrize("value", [1e-7, 0.5, 1.0, 41.0, 3.7e9])
def test_classes_are_no_further_than_six_per_cent_and_stay(value):
    assert abs(in_class(value) / value - 1) < 0.062
    assert in_class(in_class(value)) == in_class(value)


def test_quantities_are_read_as_they_were_written():
    assert quantities_from_data(json.loads(json.dumps(MEASURED.to_data()))) == MEASURED
    unknown = replace(MEASURED, clock_hz=None)
    assert quantities_from_data(json.loads(json.dumps(unknown.to_data()))) == unknown


def test_what_was_measured_before_lines_were_is_read():
    data = MEASURED.to_data()
    del data["line_seconds"]
    assert quantities_from_data(data) == MEASURED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clock_hz": "fast"}, "'clock_hz' of measured quantities is no number"),
        ({"page_walk": float("nan")}, "'page_walk' of measured quantities is no number"),
        ({"past_share": True}, "'past_share' of measured quantities is no number"),
        ({"fork_seconds": 0}, "'fork_seconds' of measured quantities is no number"),
        ({"far_requests": [1]}, "'far_requests' of measured quantities is no list of 2 numbers"),
        ({"far_requests": [1, 99]}, "'far_requests' of measured quantities is no number from 0 to 16"),
        ({"bandwidths": []}, "'bandwidths' of measured quantities is no list"),
        ({"more": 1}, "have exactly the fields clock_hz"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_other_data_is_refused_by_field(change, message):
    with pytest.raises(ArtefactError, match=message):
        quantities_from_data({**MEASURED.to_data(), **change})


def test_a_fingerprint_says_what_a_machine_is_not_how_fast_it_was():
    measured = X86_AVX512.with_quantities(MEASURED)
    assert measured.quantities == MEASURED
    assert measured.fingerprint == X86_AVX512.fingerprint
    assert replace(X86_AVX512, units=3).fingerprint != X86_AVX512.fingerprint
    assert X86_AVX512.with_quantities(X86_AVX512.quantities) == X86_AVX512
