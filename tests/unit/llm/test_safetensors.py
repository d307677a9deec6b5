"""Weights in safetensors files: mapped as they are, and files that are cut off or malformed."""

import json

import ml_dtypes
import numpy as np
import pytest

from decoder_folders import safetensors
from tilewright.llm.safetensors import read_tensors, shards
from tilewright.support import ModelError, UnsupportedOperatorError


def test_tensors_are_views_of_the_file(tmp_path):
    rng = np.random.default_rng(0)
    types = (np.float64, np.float32, np.float16, ml_dtypes.bfloat16)
    arrays = {np.dtype(each).name: rng.random((3, 5)).astype(each) for each in types}
    arrays["nothing"] = np.zeros((0, 4), np.float32)
    (tmp_path / "a.safetensors").write_bytes(safetensors(arrays))
    found = read_tensors([tmp_path / "a.safetensors"])
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
        base = found[name]
        while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
            base = base.base
        assert isinstance(base, np.memmap) and not found[name].flags.writeable


def test_files_of_the_package_itself_are_read(tmp_path):
    package = pytest.importorskip("safetensors.numpy")
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.float16)}
    package.save_file(arrays, tmp_path / "a.safetensors")
    for name, array in read_tensors([tmp_path / "a.safetensors"]).items():
        np.testing.assert_array_equal(array, arrays[name], strict=True)


def _file(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"abc", "are cut off: there is no header"),
        ((1 << 40).to_bytes(8, "little") + b"{}", "the header has 1099511627776 bytes"),
        (_file({"a": {}})[:-2], "are cut off, or no safetensors file"),
        (_file(b"{"), "a header that cannot be read"),
        (_file([1]), "a header that is no JSON object"),
        (_file({"a": 3}), "'a' .* has no type, shape and place"),
        (_file({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}), "no type, shape and place"),
        (
            _file({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}),
            "the shape .2. of F32 in 4 bytes",
        ),
        (_file({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"abc"), "the file is cut off"),
    ],
)
def test_malformed_files_are_refused(tmp_path, content, problem):
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match=problem):
        read_tensors([tmp_path / "a.safetensors"])


def test_missing_files_and_other_elements_are_refused(tmp_path):
    with pytest.raises(ModelError, match="are missing"):
        read_tensors([tmp_path / "a.safetensors"])
    (tmp_path / "a.safetensors").write_bytes(safetensors({"a": np.zeros(2, np.int64)}))
    with pytest.raises(UnsupportedOperatorError, match=r"'a' .* has elements of I64"):
        read_tensors([tmp_path / "a.safetensors"])


def test_files_are_those_that_the_index_names(tmp_path):
    for name in ("b.safetensors", "a.safetensors"):
        (tmp_path / name).touch()
    assert [path.name for path in shards(tmp_path, {})] == ["a.safetensors", "b.safetensors"]
    assert shards(tmp_path, {"weight_map": {"x": "c.safetensors"}}) == [tmp_path / "c.safetensors"]
    for wrong in ({"weight_map": 3}, {"weight_map": {"x": 3}}):
        with pytest.raises(ModelError, match="names no files"):
            shards(tmp_path, wrong)
    with pytest.raises(ModelError, match=r"names '\.\./c\.safetensors'"):
        shards(tmp_path, {"weight_map": {"x": "../c.safetensors"}})
