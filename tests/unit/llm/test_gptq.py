"""GPTQ's checkpoints: packed as its package packs, scores of the dequantised model, and what is refused."""

import json

import numpy as np
import pytest

from decoder_folders import CONFIGURATIONS, safetensors, tensors
from tilewright import llm
from tilewright.llm.decoder import read_weights
from tilewright.llm.families import read_decoder
from tilewright.llm.formats import Blocks
from tilewright.llm.gptq import with_blocks
from tilewright.support import ModelError, UnsupportedOperatorError
from unit.llm.test_decoder import TEXT, run_decoder

GROUP = 16


def _packed(numbers, bits):
    """Rows of numbers as words: bits one after the other, by whole numbers of Python."""
    rows = []
    for row in numbers.tolist():
        stream = sum(int(n) << (bits * at) for at, n in enumerate(row))
        rows.append([(stream >> (32 * at)) & 0xFFFFFFFF for at in range(len(row) * bits // 32)])
    return np.array(rows, np.uint32).view(np.int32)


def _matrix(rng, out, depth, bits, less=1):
    """A matrix in GPTQ's parts, and what it means."""
    top = 1 << bits
    numbers, zero = rng.integers(0, top, (out, depth)), rng.integers(less, top, (out, depth // GROUP))
    scale = (rng.random((out, depth // GROUP)) * 0.1 + 0.05).astype(np.float16)
    wide = scale.astype(np.float32).repeat(GROUP, 1) * (numbers - zero.repeat(GROUP, 1))
    parts = {
        "qweight": np.ascontiguousarray(_packed(numbers, bits).T),
        "qzeros": _packed((zero - less).T, bits),
        "scales": np.ascontiguousarray(scale.T),
        "g_idx": (np.arange(depth) // GROUP).astype(np.int32),
    }
    return parts, wide.astype(np.float32)


def _told(bits, **more):
    return {"quantization_config": {"quant_method": "gptq", "bits": bits, "group_size": GROUP, **more}}


@pytest.mark.parametrize(("bits", "form"), [(2, "gptq"), (3, "gptq"), (4, "gptq_v2"), (8, "gptq")])
def test_matrices_mean_what_their_parts_say(bits, form):
    less = int(form == "gptq")
    parts, wide = _matrix(np.random.default_rng(bits), 64, 96, bits, less)
    given = {f"a.{name}": array for name, array in parts.items()} | {"a.bias": np.ones(64)}
    made = with_blocks(given, _told(bits, checkpoint_format=form))
    assert set(made) == {"a.weight", "a.bias"} and isinstance(made["a.weight"], Blocks)
    blocks = made["a.weight"]
    assert blocks.bits == (8 if bits == 8 else 4) and blocks.block == GROUP
    got = (blocks.numbers - blocks.zero.repeat(GROUP, 1)) * blocks.scale.repeat(GROUP, 1)
    np.testing.assert_array_equal(got.astype(np.float32), wide)


def _checkpoint(bits):
    """A small decoder whose products of blocks are GPTQ's, and the same dequantised."""
    rng, plain = np.random.default_rng(3), tensors("qwen3")
    wide, given = dict(plain), {}
    for name, array in plain.items():
        if ".mlp." in name or "_proj" in name:
            if not any(size * bits % 32 or size % GROUP for size in array.shape):
                parts, wide[name] = _matrix(rng, *array.shape, bits)
                given |= {f"{name.removesuffix('.weight')}.{part}": values for part, values in parts.items()}
                continue
        given[name] = array
    return given, wide


def test_scores_are_those_of_the_dequantised_model(tmp_path):
    given, wide = _checkpoint(4)
    assert any(name.endswith("qweight") for name in given)
    entries = CONFIGURATIONS["qwen3"] | {"model_type": "qwen3"}
    exact, _ = run_decoder(read_weights(read_decoder(entries), wide, 64), TEXT)
    (tmp_path / "config.json").write_text(json.dumps(entries | _told(4)))
    (tmp_path / "model.safetensors").write_bytes(safetensors(given))
    model = llm.load(tmp_path, capacity=64, threads=1)
    np.testing.assert_allclose(model.logits(TEXT), exact, atol=1e-4 * np.abs(exact).max())


def test_other_methods_orders_and_parts_are_refused():
    parts, _ = _matrix(np.random.default_rng(0), 32, 32, 4)
    given = {f"a.{name}": array for name, array in parts.items()}
    assert with_blocks(given, {}) is given
    for told, words in (
        ({"quantization_config": {"quant_method": "awq"}}, "weights quantised by 'awq'"),
        ({"quantization_config": 3}, "weights quantised by 'None'"),
        (_told(5), "GPTQ with 5 bits"),
    ):
        with pytest.raises(UnsupportedOperatorError, match=words):
            with_blocks(given, told)
    with pytest.raises(UnsupportedOperatorError, match="in groups by another order"):
        with_blocks(given | {"a.g_idx": parts["g_idx"][::-1]}, _told(4))
    with pytest.raises(ModelError, match="the matrix 'a' is not whole"):
        with_blocks({"a.qweight": parts["qweight"]}, _told(4))
    for wrong in ({"a.scales": parts["scales"][:, :-1]}, {"a.qzeros": parts["qzeros"][:1]}):
        with pytest.raises(ModelError, match="the parts of the matrix 'a' do not fit"):
            with_blocks(given | wrong, _told(4))
