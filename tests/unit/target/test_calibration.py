import json
import logging
from dataclasses import replace

import pytest

from tilewright.support import TargetError
from tilewright.target import X86_AVX2, X86_AVX512, calibrated, detect, keep_calibration

MEASURED = replace(X86_AVX512.quantities, page_walk=48.0, fork_seconds=5e-6)


def test_what_was_measured_is_kept_for_the_machine_it_was_measured_on(tmp_path):
    path = tmp_path / "folder" / "calibration.json"
    assert calibrated(X86_AVX512, path) == X86_AVX512
    assert keep_calibration(X86_AVX512, MEASURED, path) == path
    found = calibrated(X86_AVX512, path)
    assert found.quantities == MEASURED.rounded() and found.page_walk == 50.1
    assert calibrated(found, path) == found
    assert calibrated(X86_AVX2, path) == X86_AVX2
    keep_calibration(X86_AVX2, replace(X86_AVX2.quantities, page_walk=20.0), path)
    assert calibrated(X86_AVX512, path) == found
    keep_calibration(X86_AVX512, None, path)
    assert calibrated(X86_AVX512, path) == X86_AVX512
    assert calibrated(X86_AVX2, path).page_walk == 20.0


def test_detection_gives_what_was_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    table = detect(calibration=False)
    assert detect() == table
    keep_calibration(table, replace(table.quantities, past_share=0.25))
    assert detect().past_share == 0.251
    assert detect().fingerprint == table.fingerprint
    assert detect(calibration=False) == table


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "holds no measured quantities of version 1"),
        ("[]", "holds no measured quantities of version 1"),
        ('{"format": "tilewright-calibration", "version": 2}', "holds no measured quantities"),
        ('{"format": "tilewright-calibration", "version": 1}', "'machines' are no quantities"),
        (
            '{"format": "tilewright-calibration", "version": 1, "machines": {"x": {}}}',
            "have exactly the fields",
        ),
        (" " * ((1 << 22) + 1), "holds no measured quantities"),
    ],
)
def test_a_damaged_file_is_told_and_the_table_counts(tmp_path, caplog, text, message):
    path = tmp_path / "calibration.json"
    path.write_text(text)
    with caplog.at_level(logging.WARNING, "tilewright"):
        assert calibrated(X86_AVX512, path) == X86_AVX512
        assert message in caplog.text and "--calibrate" in caplog.text
        keep_calibration(X86_AVX512, MEASURED, path)
    assert len(json.loads(path.read_text())["machines"]) == 1


def test_a_folder_in_place_of_the_file_is_told(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "tilewright"):
        assert calibrated(X86_AVX512, tmp_path) == X86_AVX512
    assert "cannot be read" in caplog.text


def test_a_place_that_cannot_be_looked_up_is_told(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "tilewright"):
        assert calibrated(X86_AVX512, tmp_path / ("n" * 300)) == X86_AVX512
        assert calibrated(X86_AVX512, tmp_path / "none") == X86_AVX512
    assert caplog.text.count("cannot be read: File name too long") == 1 and "none" not in caplog.text


def test_quantities_of_other_levels_are_refused():
    with pytest.raises(TargetError, match="has 4 memory levels"):
        X86_AVX512.with_quantities(replace(MEASURED, bandwidths=(1.0, 2.0)))
