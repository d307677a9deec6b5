"""Decoders of all families from their checkpoints: the scores that `transformers` gives, and refusals.

Golden scores are those of the package, written where it is installed: ``pytest --update-golden``.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from decoder_folders import CONFIGURATIONS, HIDDEN, KEY_HEADS, LAYERS, VOCABULARY, tensors, write_folder
from tilewright.graph import evaluate_graph
from tilewright.ir import dtype_of
from tilewright.llm.decoder import read_weights
from tilewright.llm.families import read_decoder
from tilewright.support import InputError, ModelError

GOLDEN = Path(__file__).parent / "golden" / "decoders.json"
TEXT = [int(n) for n in np.random.default_rng(3).integers(0, VOCABULARY, 40)]
PAST = 30


def _entries(kind):
    return CONFIGURATIONS[kind] | {"model_type": kind.split("_biased")[0]}


def _model(kind, weights=None, capacity=40):
    return read_weights(read_decoder(_entries(kind)), tensors(kind) if weights is None else weights, capacity)


def run_decoder(read, ids, past=None, held=0):
    """The scores and the next caches, by the reference evaluation of the graph."""
    sizes = {"batch": 1, "sequence": len(ids), "total": held + len(ids)}
    graph = read.graph(sizes)
    feeds = {
        "input_ids": np.array([ids]),
        "attention_mask": np.ones((1, held + len(ids)), np.int64),
        "position_ids": np.arange(held, held + len(ids))[None],
    }
    names = [name for name in read.inputs() if name.startswith("past")]
    shapes = [graph.types[name].sizes for name in names]
    kinds = [dtype_of(graph.types[name].dtype).numpy for name in names]
    states = past or [np.zeros(shape, kind) for shape, kind in zip(shapes, kinds, strict=True)]
    feeds |= dict(zip(names, states, strict=True))
    made = evaluate_graph(graph, {name: feeds[name] for name in graph.inputs})
    return made["logits"][0], [made[name.replace("past_key_values", "present")] for name in names]


def _of_transformers(folder):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model, told = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not any(told.values())
    with torch.no_grad():
        return model.eval()(torch.tensor([TEXT])).logits[0].numpy()


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_scores_are_those_of_the_package_that_the_files_come_from(kind, update_golden, tmp_path):
    known = json.loads(GOLDEN.read_text()) if GOLDEN.is_file() else {}
    if update_golden:
        scores = _of_transformers(write_folder(tmp_path, kind))
        known[kind] = {"last": scores[-1].round(5).tolist(), "likeliest": scores.argmax(-1).tolist()}
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps(known, sort_keys=True) + "\n")
    read = _model(kind)
    first, states = run_decoder(read, TEXT[:PAST])
    second, states = run_decoder(read, TEXT[PAST:], states, PAST)
    scores = np.concatenate([first, second])
    assert scores.argmax(-1).tolist() == known[kind]["likeliest"]
    # golden ones have five digits behind the point
    np.testing.assert_allclose(scores[-1], known[kind]["last"], atol=2e-4)
    depth = _entries(kind).get("head_dim", HIDDEN // 4)
    heads = 4 if kind == "gpt2" else KEY_HEADS
    assert len(states) == 2 * LAYERS and states[0].shape == (1, heads, len(TEXT), depth)


def test_weights_are_read_where_they_lie():
    weights = tensors("phi3")
    read = _model("phi3", weights)
    for name in ("embedding", "0.q.weight", "1.up.weight", "1.down.weight"):
        assert any(np.shares_memory(read.weights[name], array) for array in weights.values()), name


def test_weights_of_half_the_width_are_computed_with_in_f32():
    half = _model("llama", tensors("llama", np.float16))
    assert half.weights["0.q.weight"].dtype == np.float16
    wanted, _ = run_decoder(
        _model("llama", {n: a.astype(np.float32) for n, a in tensors("llama", np.float16).items()}),
        TEXT,
        None,
    )
    found, _ = run_decoder(half, TEXT)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_matrices_are_rounded_where_that_is_asked():
    weights, sizes = tensors("llama"), {"intermediate_size": 96}
    for n in range(LAYERS):
        for name, more in (
            ("gate", ((0, 16), (0, 0))),
            ("up", ((0, 16), (0, 0))),
            ("down", ((0, 0), (0, 16))),
        ):
            full = f"model.layers.{n}.mlp.{name}_proj.weight"
            weights[full] = np.pad(weights[full], more)
    decoder = read_decoder(_entries("llama") | sizes)
    read = read_weights(decoder, weights, 40, 8)
    # depths of 48 are no whole blocks
    rounded = {node.name.partition("/")[0] for node in read.model.graph.node if node.op_type == "MatMulNBits"}
    assert rounded == {f"{n}.down" for n in range(LAYERS)}
    scores, _ = run_decoder(read, TEXT)
    exact, _ = run_decoder(read_weights(decoder, weights, 40), TEXT)
    assert 0 < np.abs(scores - exact).max() < 0.05 * np.abs(exact).max()


def test_caches_of_another_type_round_keys_and_values_and_nothing_else():
    read = read_weights(read_decoder(_entries("qwen3")), tensors("qwen3"), 40, cache="bf16")
    kinds = {name: type_.dtype for name, type_ in read.inputs().items() if name.startswith("past")}
    assert set(kinds.values()) == {"bf16"}
    scores, states = run_decoder(read, TEXT)
    exact, wide = run_decoder(_model("qwen3"), TEXT)
    assert 0 < np.abs(scores - exact).max() < 0.03 * np.abs(exact).max()
    # of the first block nothing was rounded before
    for made, wanted in zip(states[:2], wide[:2], strict=True):
        np.testing.assert_array_equal(made, wanted.astype(made.dtype))


def test_missing_weights_and_those_of_another_shape_are_refused():
    weights = tensors("llama")
    del weights["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(ModelError, match=r"no weight 'layers\.1\.mlp\.up_proj\.weight'"):
        _model("llama", weights)
    weights = tensors("llama") | {"model.norm.weight": np.ones(HIDDEN, np.int32)}
    with pytest.raises(ModelError, match=r"the weight 'model\.norm\.weight' has whole numbers"):
        _model("llama", weights)
    weights = tensors("phi3")
    name = "model.layers.0.self_attn.qkv_proj.weight"
    weights[name] = weights[name][1:]
    with pytest.raises(ModelError, match=r"is \[95, 48\], by the configuration \[96, 48\]"):
        _model("phi3", weights)
    with pytest.raises(InputError, match="texts of 300 tokens, where the model has 256 learned places"):
        _model("gpt2", capacity=300)


def test_weights_that_no_block_reads_are_refused():
    weights = tensors("llama") | {"model.layers.0.self_attn.q_proj.bias": np.zeros(HIDDEN, np.float32)}
    with pytest.raises(ModelError, match=r"q_proj\.bias' of the files is none that the family has"):
        _model("llama", weights)
