"""GGUF files: models of all families as llama.cpp's converter writes them, and files that are malformed."""

import json
from pathlib import Path

import numpy as np
import pytest

from decoder_folders import CONFIGURATIONS, HIDDEN, INNER, tensors
from tilewright.llm.decoder import read_weights
from tilewright.llm.families import FAMILIES, read_decoder
from tilewright.llm.formats import Blocks
from tilewright.llm.gguf import _ARCHITECTURES, _NAMES, read_gguf
from tilewright.support import ModelError, UnsupportedOperatorError
from unit.llm.test_decoder import TEXT, run_decoder

gguf = pytest.importorskip("gguf")
GOLDEN = json.loads((Path(__file__).parent / "golden" / "decoders.json").read_text())
#: Those whose windows, or factors, llama.cpp's files say.
KINDS = ["llama", "qwen3", "gemma2", "gemma3_text", "phi3", "gpt2"]


def _converted(kind):
    """Weights by llama.cpp's names: turned as linear layers are, one added to norms, pairs side by side."""
    family, entries = FAMILIES[kind], CONFIGURATIONS[kind]
    names = {hf.format(n=n): _NAMES[role].format(n=n) for role, hf in family.names.items() for n in range(2)}
    names |= {
        hf.format(n=n): name.format(n=n)
        for n in range(2)
        for hf, name in (
            ("layers.{n}.self_attn.qkv_proj", "blk.{n}.attn_qkv"),
            ("layers.{n}.mlp.gate_up_proj", "blk.{n}.ffn_up"),
            ("h.{n}.attn.c_attn", "blk.{n}.attn_qkv"),
        )
    }
    made = {}
    for full, array in tensors(kind).items():
        stem, _, end = full.removeprefix("model.").removeprefix("transformer.").rpartition(".")
        name = f"{names[stem]}.{end}"
        if family.unit and "norm" in name:
            array = array + 1
        if family.turned and array.ndim == 2 and name.startswith("blk."):
            array = array.T
        if kind == "llama" and (".attn_q." in name or ".attn_k." in name):
            heads = entries["num_attention_heads" if "_q." in name else "num_key_value_heads"]
            array = array.reshape(heads, 2, -1, HIDDEN).swapaxes(1, 2).reshape(array.shape)
        made[name] = np.ascontiguousarray(array)
    return made


def _write(path, kind, weights=None, **more):
    entries = CONFIGURATIONS[kind]
    name = next((gguf_name for gguf_name, own in _ARCHITECTURES.items() if own == kind), kind)
    writer = gguf.GGUFWriter(path, name)
    heads = entries.get("num_attention_heads", 4)
    depth = entries.get("head_dim", HIDDEN // heads)
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(2)
    writer.add_feed_forward_length(entries.get("intermediate_size", 4 * HIDDEN))
    writer.add_head_count(heads)
    writer.add_head_count_kv(entries.get("num_key_value_heads", heads))
    writer.add_key_length(depth)
    (writer.add_layer_norm_eps if kind == "gpt2" else writer.add_layer_norm_rms_eps)(
        1e-5 if kind in ("gpt2", "phi3") else 1e-6
    )
    writer.add_eos_token_id(7)
    weights = weights or _converted(kind)
    if kind == "llama":
        writer.add_rope_freq_base(5e5)
        plain = 5e5 ** (-np.arange(0, depth, 2) / depth)
        rope = read_decoder(entries | {"model_type": kind}).ropes[0]
        weights = weights | {"rope_freqs.weight": (plain / rope._frequencies(40)[0]).astype(np.float32)}
    if kind == "qwen3":
        writer.add_rope_freq_base(1e6)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(64)
    if kind == "phi3":
        writer.add_rope_dimension_count(depth // 2)
        writer.add_rope_scaling_orig_ctx_len(64)
        grown = np.sqrt(1 + np.log(4) / np.log(64))
        writer.add_rope_scaling_attn_factors(float(grown))
        factors = entries["rope_scaling"]
        weights = weights | {
            f"rope_factors_{name}.weight": np.array(factors[f"{name}_factor"], np.float32)
            for name in ("short", "long")
        }
    if kind.startswith("gemma"):
        writer.add_sliding_window(16)
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(5.0)
        writer.add_final_logit_softcapping(8.0)
    for key, array in weights.items():
        raw = more.get(key)
        writer.add_tensor(key, array, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _scores(path):
    made = read_gguf(path)
    return run_decoder(read_weights(made.decoder, made.weights, len(TEXT)), TEXT)[0], made


#: What files do not say, and llama.cpp takes to be the same in all models of a family.
_UNSAID = {
    "gemma2": {"query_pre_attn_scalar": 16},
    "gemma3_text": {"sliding_window_pattern": 6, "query_pre_attn_scalar": 16},
}


@pytest.mark.parametrize("kind", KINDS)
def test_models_are_those_that_were_converted(tmp_path, kind):
    found, made = _scores(_write(tmp_path / "a.gguf", kind))
    assert made.ends == {7}
    if kind not in ("gemma2", "gemma3_text"):
        np.testing.assert_allclose(found[-1], GOLDEN[kind]["last"], atol=2e-4)
        return
    entries = CONFIGURATIONS[kind] | {"model_type": kind} | _UNSAID[kind]
    if kind == "gemma3_text":
        entries = {name: value for name, value in entries.items() if name != "rope_parameters"}
    wanted = read_weights(read_decoder(entries), tensors(kind), len(TEXT))
    np.testing.assert_allclose(found, run_decoder(wanted, TEXT)[0], atol=1e-4)


def test_weights_in_blocks_stay_packed_and_others_are_made_f32(tmp_path, caplog):
    caplog.set_level("INFO", "tilewright")
    weights = _converted("llama")
    rng = np.random.default_rng(0)
    wide, kinds = {}, {}
    for name, kind in (("blk.0.ffn_gate.weight", "Q4_1"), ("blk.1.ffn_up.weight", "Q5_0")):
        # rows of 48 numbers have no blocks of 32: a file of other sizes says what it says
        array = rng.standard_normal((INNER, 64)).astype(np.float32)
        kinds[name] = getattr(gguf.GGMLQuantizationType, kind)
        weights[name] = gguf.quants.quantize(array, kinds[name])
        wide[name] = gguf.quants.dequantize(weights[name], kinds[name])
    made = read_gguf(_write(tmp_path / "a.gguf", "llama", weights, **kinds))
    assert isinstance(made.weights["blk.0.ffn_gate.weight"], Blocks)
    np.testing.assert_array_equal(made.weights["blk.1.ffn_up.weight"], wide["blk.1.ffn_up.weight"])
    assert "weights of Q5_0 in" in caplog.text and "are read as f32" in caplog.text


def test_products_read_blocks_and_joined_ones_by_rows():
    weights, rng = tensors("phi3"), np.random.default_rng(0)
    exact = {}
    for name in [n for n in weights if "_proj" in n]:
        rows, depth = weights[name].shape
        numbers = rng.integers(0, 16, (rows, depth)).astype(np.uint8)
        scale = (rng.random((rows, depth // 16)) / 16).astype(np.float32)
        zero = (8 + rng.standard_normal(scale.shape)).astype(np.float32)
        weights[name] = Blocks(4, 16, numbers, scale, zero)
        exact[name] = (numbers - np.repeat(zero, 16, 1)) * np.repeat(scale, 16, 1)
    decoder = read_decoder(CONFIGURATIONS["phi3"] | {"model_type": "phi3"})
    found, _ = run_decoder(read_weights(decoder, weights, len(TEXT)), TEXT)
    wanted, _ = run_decoder(read_weights(decoder, weights | exact, len(TEXT)), TEXT)
    np.testing.assert_allclose(found, wanted, atol=2e-4)


def test_blocks_where_none_can_be_are_refused():
    blocks = Blocks(4, 16, np.zeros((96, 48), np.uint8), *[np.zeros((96, 3), np.float32)] * 2)
    decoder = read_decoder(CONFIGURATIONS["llama"] | {"model_type": "llama"})
    with pytest.raises(ModelError, match="the weight of 'embedding' is in blocks of 4 bits"):
        read_weights(decoder, tensors("llama") | {"model.embed_tokens.weight": blocks}, 8)


def test_malformed_files_are_refused(tmp_path):
    whole = _write(tmp_path / "a.gguf", "gpt2").read_bytes()
    for content in (b"", b"abc", whole[:100], whole[:-64], b"GGUF" + b"\xff" * 64):
        (tmp_path / "b.gguf").write_bytes(content)
        with pytest.raises(ModelError, match=r"the GGUF file .* is malformed or cut off"):
            read_gguf(tmp_path / "b.gguf")
    without = _converted("gpt2")
    del without["token_embd.weight"]
    with pytest.raises(ModelError, match="the file has no weight 'token_embd"):
        read_gguf(_write(tmp_path / "c.gguf", "gpt2", without))
    other = gguf.GGUFWriter(tmp_path / "d.gguf", "rwkv6")
    other.add_block_count(1)
    other.write_header_to_file()
    other.write_kv_data_to_file()
    other.write_tensors_to_file()
    other.close()
    with pytest.raises(UnsupportedOperatorError, match="the architecture 'rwkv6' of"):
        read_gguf(tmp_path / "d.gguf")
