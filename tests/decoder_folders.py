"""Small decoders with random weights in folders as Hugging Face writes them: each family, its odd entries."""

import json
import math

import numpy as np

VOCABULARY, HIDDEN, INNER, LAYERS, HEADS, KEY_HEADS = 96, 48, 80, 2, 4, 2
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS,
    "max_position_embeddings": 256,
    "eos_token_id": None,
    "bos_token_id": 1,
    "pad_token_id": 0,
}
_LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.1, 1.2], "long_factor": [2.0, 2.5, 3.0]}
_LOCAL = {"rope_type": "default", "rope_theta": 500.0}

#: Entries of ``config.json`` by family, as older and newer versions of the package write them.
CONFIGURATIONS = {
    "llama": _SIZES
    | {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **_LLAMA3}, "tie_word_embeddings": True},
    "llama_biased": _SIZES
    | {"attention_bias": True, "mlp_bias": True, "rope_scaling": {"type": "linear", "factor": 2.0}},
    "mistral": _SIZES | {"sliding_window": 16, "head_dim": 8},
    "qwen2": _SIZES | {"use_sliding_window": True, "max_window_layers": 1, "sliding_window": 24},
    "qwen3": _SIZES
    | {
        "head_dim": 16,
        "rope_parameters": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "rope_theta": 1e6,
        },
    },
    "gemma": _SIZES | {"head_dim": 16, "hidden_activation": "gelu_pytorch_tanh"},
    "gemma2": _SIZES
    | {"head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 5.0}
    | {"final_logit_softcapping": 8.0, "hidden_activation": "gelu_pytorch_tanh"},
    "gemma3_text": _SIZES
    | {"head_dim": 16, "sliding_window": 16, "sliding_window_pattern": 2, "query_pre_attn_scalar": 16}
    | {"hidden_activation": "gelu_pytorch_tanh"}
    | {"rope_parameters": {"full_attention": {**_LOCAL, "rope_theta": 1e6}, "sliding_attention": _LOCAL}},
    "phi3": _SIZES
    | {"original_max_position_embeddings": 64, "partial_rotary_factor": 0.5, "rope_scaling": _LONG},
    "gpt2": {
        "vocab_size": VOCABULARY,
        "n_embd": HIDDEN,
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_positions": 256,
        "eos_token_id": None,
        "bos_token_id": None,
    },
}


def tensors(kind, dtype=np.float32, layers=LAYERS):
    """The weights of a family by the names of its checkpoints: no norm is one, no bias zero."""
    entries, rng = CONFIGURATIONS[kind], np.random.default_rng(len(kind))
    made = {}

    def matrix(name, out, depth, bias=False, turned=False):
        shape = (depth, out) if turned else (out, depth)
        made[f"{name}.weight"] = rng.standard_normal(shape) / math.sqrt(depth)
        if bias:
            made[f"{name}.bias"] = rng.standard_normal(out) / 4

    def norm(name, size=HIDDEN, bias=False):
        made[f"{name}.weight"] = rng.random(size) + 0.5
        if bias:
            made[f"{name}.bias"] = rng.standard_normal(size) / 4

    if kind == "gpt2":
        matrix("transformer.wte", VOCABULARY, HIDDEN)
        matrix("transformer.wpe", 256, HIDDEN)
        for n in range(layers):
            at = f"transformer.h.{n}"
            for name, out, depth in (
                ("attn.c_attn", 3 * HIDDEN, HIDDEN),
                ("attn.c_proj", HIDDEN, HIDDEN),
                ("mlp.c_fc", 4 * HIDDEN, HIDDEN),
                ("mlp.c_proj", HIDDEN, 4 * HIDDEN),
            ):
                matrix(f"{at}.{name}", out, depth, bias=True, turned=True)
            for name in ("ln_1", "ln_2"):
                norm(f"{at}.{name}", bias=True)
        norm("transformer.ln_f", bias=True)
        return {name: array.astype(dtype) for name, array in made.items()}
    depth = entries.get("head_dim", HIDDEN // HEADS)
    rows, keys = HEADS * depth, KEY_HEADS * depth
    biased = bool(entries.get("attention_bias"))
    made["model.embed_tokens.weight"] = rng.standard_normal((VOCABULARY, HIDDEN)) / 2
    for n in range(layers):
        at = f"model.layers.{n}"
        norm(f"{at}.input_layernorm")
        norm(f"{at}.post_attention_layernorm")
        if kind in ("gemma2", "gemma3_text"):
            norm(f"{at}.pre_feedforward_layernorm")
            norm(f"{at}.post_feedforward_layernorm")
        if kind == "phi3":
            matrix(f"{at}.self_attn.qkv_proj", rows + 2 * keys, HIDDEN)
            matrix(f"{at}.mlp.gate_up_proj", 2 * INNER, HIDDEN)
        else:
            for name, out in (("q", rows), ("k", keys), ("v", keys)):
                matrix(f"{at}.self_attn.{name}_proj", out, HIDDEN, bias=biased or kind == "qwen2")
            for name in ("gate", "up"):
                matrix(f"{at}.mlp.{name}_proj", INNER, HIDDEN, bias=bool(entries.get("mlp_bias")))
        if kind in ("qwen3", "gemma3_text"):
            norm(f"{at}.self_attn.q_norm", depth)
            norm(f"{at}.self_attn.k_norm", depth)
        matrix(f"{at}.self_attn.o_proj", HIDDEN, rows, bias=biased)
        matrix(f"{at}.mlp.down_proj", HIDDEN, INNER, bias=bool(entries.get("mlp_bias")))
    norm("model.norm")
    if not (entries.get("tie_word_embeddings") or kind.startswith("gemma")):
        matrix("lm_head", VOCABULARY, HIDDEN)
    return {name: array.astype(dtype) for name, array in made.items()}


_CODES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
}


def safetensors(arrays):
    """The bytes of a file with the arrays, by the description of the format."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, array in arrays.items():
        places = [at, at := at + array.nbytes]
        header[name] = {"dtype": _CODES[array.dtype.name], "shape": [*array.shape], "data_offsets": places}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays.values())
    return len(text).to_bytes(8, "little") + text + data


def write_folder(folder, kind, shards=1, dtype=np.float32, layers=LAYERS):
    """Write a family's configuration and weights, in one file or in several with their index."""
    arrays = tensors(kind, dtype, layers)
    depth = {"n_layer" if kind == "gpt2" else "num_hidden_layers": layers}
    entries = CONFIGURATIONS[kind] | {"model_type": kind.split("_biased")[0]} | depth
    (folder / "config.json").write_text(json.dumps(entries))
    if shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors(arrays))
        return folder
    index = {}
    for n in range(shards):
        part = dict([*arrays.items()][n::shards])
        name = f"model-{n + 1:05}-of-{shards:05}.safetensors"
        (folder / name).write_bytes(safetensors(part))
        index |= dict.fromkeys(part, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return folder
