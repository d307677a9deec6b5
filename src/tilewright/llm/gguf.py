"""Models in GGUF files of llama.cpp, read through the package `gguf`: what they say, and their weights.

Metadata become the entries of a configuration, weights keep llama.cpp's names; llama's queries and keys have
their rotated numbers side by side there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tilewright.driver import optional_module
from tilewright.llm.families import FAMILIES, JOINED, Decoder, read_decoder
from tilewright.llm.formats import Blocks, blocks_of
from tilewright.llm.safetensors import Array
from tilewright.support import ModelError, UnsupportedOperatorError, get_logger, quoted

_log = get_logger(__name__)

#: Families by the names of architectures; others are called alike.
_ARCHITECTURES: Final = MappingProxyType({"gemma3": "gemma3_text"})
_NAMES: Final = MappingProxyType(
    {
        "embedding": "token_embd",
        "places": "position_embd",
        "norm": "output_norm",
        "head": "output",
        "attention.norm": "blk.{n}.attn_norm",
        "q": "blk.{n}.attn_q",
        "k": "blk.{n}.attn_k",
        "v": "blk.{n}.attn_v",
        "q.norm": "blk.{n}.attn_q_norm",
        "k.norm": "blk.{n}.attn_k_norm",
        "o": "blk.{n}.attn_output",
        "attention.after": "blk.{n}.post_attention_norm",
        "mlp.norm": "blk.{n}.ffn_norm",
        "mlp.after": "blk.{n}.post_ffw_norm",
        "gate": "blk.{n}.ffn_gate",
        "up": "blk.{n}.ffn_up",
        "down": "blk.{n}.ffn_down",
    }
)
_JOINED_NAMES: Final = ("blk.{n}.attn_qkv", "blk.{n}.ffn_up")
#: Entries of configurations, and the metadata that say the same, behind the name of the architecture.
_ENTRIES: Final = MappingProxyType(
    {
        "hidden_size": "embedding_length",
        "intermediate_size": "feed_forward_length",
        "num_hidden_layers": "block_count",
        "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv",
        "head_dim": "attention.key_length",
        "max_position_embeddings": "context_length",
        "rms_norm_eps": "attention.layer_norm_rms_epsilon",
        "layer_norm_epsilon": "attention.layer_norm_epsilon",
        "rope_theta": "rope.freq_base",
        "sliding_window": "attention.sliding_window",
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
        "original_max_position_embeddings": "rope.scaling.original_context_length",
    }
)
#: The largest Gemma of each generation, by its blocks, scales scores by the share of a head in the hidden
#: numbers, the others by the numbers of a head: nothing in files says so (`llama-model.cpp`).
_LARGEST: Final = MappingProxyType({"gemma2": 46, "gemma3": 62})


@dataclass(frozen=True, slots=True)
class GgufModel:
    """A decoder, its weights by name, and the tokens that end a text."""

    decoder: Decoder
    weights: Mapping[str, Array | Blocks]
    ends: frozenset[int]


def read_gguf(path: Path) -> GgufModel:
    """The model in a file. Weights of formats that products do not read packed are made f32, and a line of
    the log says which.

    Raises ModelError for a file that is none, or is cut off, what :func:`read_decoder` raises, and
    InstallationError without the package.
    """
    package = optional_module("gguf")
    try:
        reader = package.GGUFReader(path)
        meta = {name: field.contents() for name, field in reader.fields.items()}
        tensors = {tensor.name: tensor for tensor in reader.tensors}
    except (OSError, ValueError, IndexError, KeyError, OverflowError, TypeError) as error:
        raise ModelError(f"the GGUF file {quoted(str(path))} is malformed or cut off: {error}") from None
    architecture = meta.get("general.architecture")
    kind = _ARCHITECTURES.get(str(architecture), str(architecture))
    if kind not in FAMILIES:
        known = (name for name in FAMILIES if name not in _ARCHITECTURES.values())
        raise UnsupportedOperatorError(
            f"the architecture {quoted(kind)} of {quoted(str(path))}",
            hint=f"known are {', '.join((*known, *_ARCHITECTURES))}",
        )
    weights, wide = {}, set()
    for name, tensor in tensors.items():
        form = tensor.tensor_type.name
        product = len(tensor.shape) == 2 and name.startswith(("blk.", "output."))
        # a tied head is the embedding's matrix, which a look-up reads too
        made = blocks_of(tensor.data, form) if product else None
        if made is None and form not in ("F64", "F32", "F16"):
            wide.add(form)
            made = package.quants.dequantize(tensor.data, tensor.tensor_type)
        weights[name] = tensor.data if made is None else made
    if wide:
        _log.info("weights of %s in %s are read as f32", ", ".join(sorted(wide)), quoted(str(path)))
    end = meta.get("tokenizer.ggml.eos_token_id")
    ends = frozenset({end} if type(end) is int else ())
    decoder = read_decoder(_configuration(meta, str(architecture), kind, weights))
    names = {role: _NAMES[role] for role in decoder.family.names}
    for roles, joined in zip(JOINED, _JOINED_NAMES, strict=True):
        if len({decoder.family.names.get(role) for role in roles}) == 1:
            names |= dict.fromkeys(roles, joined)
    # what is added to norms, and turned, llama.cpp's converter does
    family = replace(decoder.family, names=names, unit=False, turned=False)
    return GgufModel(replace(decoder, family=family, interleaved=kind == "llama"), weights, ends)


def _configuration(
    meta: Mapping[str, Any], architecture: str, kind: str, weights: dict[str, Array | Blocks]
) -> dict[str, Any]:
    """The entries of a configuration; factors of rotary embeddings are taken out of the weights."""
    given = {entry: meta.get(f"{architecture}.{name}") for entry, name in _ENTRIES.items()}
    entries = {entry: value for entry, value in given.items() if value is not None}
    embedding = weights.get("token_embd.weight")
    if embedding is None:
        raise ModelError("the file has no weight 'token_embd.weight'")
    hidden, heads, depth = (entries.get(n) for n in ("hidden_size", "num_attention_heads", "head_dim"))
    turned = meta.get(f"{architecture}.rope.dimension_count")
    sizes = [n for n in (hidden, heads, depth, turned) if isinstance(n, int) and n > 0]
    if isinstance(hidden, int) and isinstance(heads, int) and heads > 0:
        depth = entries.setdefault("head_dim", max(hidden // heads, 1)) if depth is None else depth
        largest = entries.get("num_hidden_layers") == _LARGEST.get(architecture)
        entries["query_pre_attn_scalar"] = hidden / heads if largest else depth
    if len(sizes) and isinstance(turned, int) and isinstance(depth, int) and depth > 0:
        entries["partial_rotary_factor"] = turned / depth
    scaling = {
        "rope_type": meta.get(f"{architecture}.rope.scaling.type"),
        "factor": meta.get(f"{architecture}.rope.scaling.factor"),
        "attention_factor": meta.get(f"{architecture}.rope.scaling.attn_factor"),
    }
    factors = [
        weights.pop(f"rope_{name}.weight", None) for name in ("factors_short", "factors_long", "freqs")
    ]
    short, long, both = (None if a is None or isinstance(a, Blocks) else a.tolist() for a in factors)
    if short is not None or both is not None:
        scaling |= {"rope_type": "longrope", "short_factor": short or both, "long_factor": long or both}
        if both is not None:
            scaling["attention_factor"] = 1.0
    if scaling["rope_type"] not in (None, "none"):
        entries["rope_scaling"] = scaling
    biased = "blk.0.attn_q.bias" in weights
    tied = "output.weight" not in weights
    return entries | {
        "model_type": kind,
        "vocab_size": embedding.shape[0],
        "attention_bias": biased,
        "tie_word_embeddings": tied,
    }
