"""Families of decoders: one table of how each departs from Llama's blocks, and configurations read by it.

Sources: the papers of the models, and the configurations that `transformers` writes (``config.json``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from tilewright.llm.rope import Rope
from tilewright.support import ModelError, UnsupportedOperatorError, quoted

_LLAMA: Final[Mapping[str, str]] = MappingProxyType(
    {
        "embedding": "embed_tokens",
        "norm": "norm",
        "head": "lm_head",
        "attention.norm": "layers.{n}.input_layernorm",
        "q": "layers.{n}.self_attn.q_proj",
        "k": "layers.{n}.self_attn.k_proj",
        "v": "layers.{n}.self_attn.v_proj",
        "q.norm": "layers.{n}.self_attn.q_norm",
        "k.norm": "layers.{n}.self_attn.k_norm",
        "o": "layers.{n}.self_attn.o_proj",
        "mlp.norm": "layers.{n}.post_attention_layernorm",
        "gate": "layers.{n}.mlp.gate_proj",
        "up": "layers.{n}.mlp.up_proj",
        "down": "layers.{n}.mlp.down_proj",
    }
)
_GEMMA2: Final[Mapping[str, str]] = MappingProxyType(
    {
        **_LLAMA,
        "attention.after": "layers.{n}.post_attention_layernorm",
        "mlp.norm": "layers.{n}.pre_feedforward_layernorm",
        "mlp.after": "layers.{n}.post_feedforward_layernorm",
    }
)
_PHI3: Final[Mapping[str, str]] = MappingProxyType(
    {
        **_LLAMA,
        **dict.fromkeys(("q", "k", "v"), "layers.{n}.self_attn.qkv_proj"),
        **dict.fromkeys(("gate", "up"), "layers.{n}.mlp.gate_up_proj"),
    }
)
_GPT2: Final[Mapping[str, str]] = MappingProxyType(
    {
        "embedding": "wte",
        "places": "wpe",
        "norm": "ln_f",
        "head": "lm_head",
        "attention.norm": "h.{n}.ln_1",
        **dict.fromkeys(("q", "k", "v"), "h.{n}.attn.c_attn"),
        "o": "h.{n}.attn.c_proj",
        "mlp.norm": "h.{n}.ln_2",
        "up": "h.{n}.mlp.c_fc",
        "down": "h.{n}.mlp.c_proj",
    }
)
#: Parts of a block's products that may stand in one matrix, one behind the other.
JOINED: Final = (("q", "k", "v"), ("gate", "up"))


_ATTENTION: Final = MappingProxyType({"attention_bias": frozenset("qkvo")})
_MLP: Final = MappingProxyType({"mlp_bias": frozenset({"gate", "up", "down"})})
_GEMMA: Final = MappingProxyType(
    {"head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True}
)
_WINDOW: Final = MappingProxyType({"sliding_window": 4096})


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How a family departs from Llama's blocks: names of weights by their role, and what is computed.

    ``biases`` are the roles that have one, ``biased`` those that an entry of the configuration gives one;
    ``defaults`` are entries that configurations may leave out. ``unit`` norms multiply by one more than their
    weight, ``turned`` matrices are [in, out]. Of blocks with windows each ``full``-th has none (0: all have
    one), and those before the one that the entry ``window_from`` names.
    """

    names: Mapping[str, str] = field(default_factory=lambda: _LLAMA)
    defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    biases: frozenset[str] = frozenset()
    biased: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    head_norms: bool = False
    centred: bool = False
    unit: bool = False
    scaled: bool = False
    turned: bool = False
    windows: bool = False
    full: int = 0
    window_from: str = ""


FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        "llama": Family(biased={**_ATTENTION, **_MLP}),
        "mistral": Family(defaults=_WINDOW, windows=True),
        "qwen2": Family(
            defaults={**_WINDOW, "max_window_layers": 28},
            biases=frozenset("qkv"),
            windows=True,
            window_from="max_window_layers",
        ),
        "qwen3": Family(
            defaults={**_WINDOW, "max_window_layers": 28, "head_dim": 128},
            biased=_ATTENTION,
            head_norms=True,
            windows=True,
            window_from="max_window_layers",
        ),
        "gemma": Family(defaults=_GEMMA, biased=_ATTENTION, unit=True, scaled=True),
        "gemma2": Family(
            names=_GEMMA2,
            defaults={
                **_GEMMA,
                **_WINDOW,
                "query_pre_attn_scalar": 256,
                "attn_logit_softcapping": 50.0,
                "final_logit_softcapping": 30.0,
            },
            biased=_ATTENTION,
            unit=True,
            scaled=True,
            windows=True,
            full=2,
        ),
        "gemma3_text": Family(
            names=_GEMMA2,
            defaults={
                **_GEMMA,
                **_WINDOW,
                "query_pre_attn_scalar": 256,
                "rope_theta": 1e6,
                "rope_local_base_freq": 1e4,
            },
            biased=_ATTENTION,
            head_norms=True,
            unit=True,
            scaled=True,
            windows=True,
            full=6,
        ),
        "phi3": Family(names=_PHI3, defaults={"rms_norm_eps": 1e-5}, windows=True),
        "gpt2": Family(
            names=_GPT2,
            defaults={"activation_function": "gelu_new", "tie_word_embeddings": True},
            biases=frozenset({*"qkvo", "up", "down"}),
            centred=True,
            turned=True,
        ),
    }
)
"""By the entry ``model_type`` of configurations."""

_ACTIVATIONS: Final = MappingProxyType(
    {
        "silu": "silu",
        "swish": "silu",
        "gelu": "gelu",
        "gelu_new": "gelu_tanh",
        "gelu_pytorch_tanh": "gelu_tanh",
        "relu": "relu",
    }
)


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder: its family, its sizes, and what its blocks compute. ``windows`` and ``ropes`` are by block;
    a window of 0 reads all tokens before, no rope is for models with learned places. ``interleaved``: pairs
    that are rotated lie side by side.
    """

    family: Family
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    depth: int
    inner: int
    vocabulary: int
    positions: int
    epsilon: float
    activation: str
    windows: tuple[int, ...]
    ropes: tuple[Rope | None, ...]
    biases: frozenset[str]
    scale: float
    tied: bool
    softcap: float = 0.0
    final_softcap: float = 0.0
    interleaved: bool = False


def read_decoder(entries: Mapping[str, Any]) -> Decoder:
    """The decoder that a configuration describes.

    Raises UnsupportedOperatorError for an architecture, an activation or blocks that are not known,
    ModelError for entries that are missing or malformed.
    """
    inner = entries.get("text_config")
    entries = inner if isinstance(inner, dict) else entries
    kind = entries.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        raise UnsupportedOperatorError(
            f"the architecture {quoted(str(kind))} of the language model",
            hint=f"known are {', '.join(FAMILIES)}; others are compiled as ONNX: optimum-cli export onnx",
        )
    c = _Entries({**family.defaults, **entries})
    hidden, heads, layers = (
        c.count(*names)
        for names in (
            ("hidden_size", "n_embd"),
            ("num_attention_heads", "n_head"),
            ("num_hidden_layers", "n_layer"),
        )
    )
    kv_heads = c.count("num_key_value_heads", otherwise=heads)
    depth = c.count("head_dim", otherwise=max(hidden // heads, 1))
    if heads % kv_heads or depth % 2:
        raise ModelError(f"{heads} heads of {depth} numbers do not share {kv_heads} heads of keys")
    positions = c.count("max_position_embeddings", "n_positions")
    windows = _windows(c, family, layers)
    places = ("hidden_activation", "hidden_act", "activation_function")
    name = next((found for place in places if (found := c.entries.get(place))), "silu")
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise UnsupportedOperatorError(
            f"the activation {quoted(str(name))}", hint=f"known are {', '.join(_ACTIVATIONS)}"
        )
    if any(c.entries.get(n) for n in ("scale_attn_by_inverse_layer_idx", "use_bidirectional_attention")):
        raise UnsupportedOperatorError("attention scaled by blocks, or in both directions")
    per_head = c.number("query_pre_attn_scalar", depth)
    given = {role for entry, roles in family.biased.items() if c.entries.get(entry) for role in roles}
    return Decoder(
        family,
        layers,
        hidden,
        heads,
        kv_heads,
        depth,
        # GPT-2's default
        c.count("intermediate_size", "n_inner", otherwise=4 * hidden),
        c.count("vocab_size"),
        positions,
        c.number("rms_norm_eps", c.number("layer_norm_epsilon", 1e-5 if family.centred else 1e-6)),
        _ACTIVATIONS[name],
        windows,
        _ropes(c, family, windows, depth, positions),
        family.biases | given,
        1.0 if c.entries.get("scale_attn_weights") is False else 1 / math.sqrt(per_head),
        c.entries.get("tie_word_embeddings") is True,
        c.number("attn_logit_softcapping", 0.0),
        c.number("final_logit_softcapping", 0.0),
    )


@dataclass(frozen=True, slots=True)
class _Entries:
    entries: Mapping[str, Any]

    def count(self, *names: str, otherwise: int | None = None) -> int:
        """A whole number from 1."""
        found = next((self.entries[n] for n in names if self.entries.get(n) is not None), otherwise)
        if type(found) is not int or found < 1:
            raise ModelError(f"the configuration says {names[0]} is {found!r}", hint="a whole number from 1")
        return found

    def number(self, name: str, otherwise: float) -> float:
        """A number from 0; entries of null are none."""
        found = self.entries.get(name)
        found = otherwise if found is None else found
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < math.inf:
            raise ModelError(f"the configuration says {name} is {found!r}", hint="a number from 0")
        return float(found)


def _windows(c: _Entries, family: Family, layers: int) -> tuple[int, ...]:
    """How many tokens each block reads; 0: all."""
    off = family.window_from and not c.entries.get("use_sliding_window")
    if not family.windows or off or c.entries.get("sliding_window") is None:
        return (0,) * layers
    window, kinds = c.count("sliding_window"), c.entries.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != layers:
            raise ModelError(f"layer_types of the configuration is no list of {layers} blocks")
        if odd := [kind for kind in kinds if kind not in ("sliding_attention", "full_attention")]:
            raise UnsupportedOperatorError(f"blocks of the type {quoted(str(odd[0]))}")
        return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    first = c.count(family.window_from, otherwise=layers) if family.window_from else 0
    each = c.count("sliding_window_pattern", otherwise=family.full) if family.full else 0
    return tuple(0 if n < first or (each and (n + 1) % each == 0) else window for n in range(layers))


def _ropes(
    c: _Entries, family: Family, windows: tuple[int, ...], depth: int, positions: int
) -> tuple[Rope | None, ...]:
    """The rotary embedding of each block: one for those with windows, one for the others."""
    if "places" in family.names:
        return (None,) * len(windows)
    given = c.entries.get("rope_parameters") or c.entries.get("rope_scaling") or {}
    if not isinstance(given, dict):
        raise ModelError("the rotary embedding of the configuration is no JSON object")
    parts = {window: given.get("sliding_attention" if window else "full_attention") for window in {*windows}}
    made = {}
    for window, part in parts.items():
        # what is said of Gemma 3's blocks without windows alone
        local = window and "rope_local_base_freq" in c.entries
        own = part if isinstance(part, dict) else {} if local else given
        theta = c.number("rope_local_base_freq" if local else "rope_theta", 1e4)
        r = _Entries(own)
        kind = own.get("rope_type", own.get("type", "default"))
        share = r.number("partial_rotary_factor", c.number("partial_rotary_factor", 1.0))
        made[window] = Rope(
            int(depth * share),
            r.number("rope_theta", theta),
            # what Phi-3's first configurations call it
            "longrope" if family.names is _PHI3 and kind in ("su", "yarn") else str(kind),
            own,
            c.count("original_max_position_embeddings", otherwise=positions),
            positions,
        )
    return tuple(made[window] for window in windows)
