"""Decoders as graphs: the one table of their blocks, with weights as the files have them.

    x = embedding[ids] * scale + places                     places are GPT-2's alone
    x = x + after(attention(norm(x)))                       each block; `after` is Gemma's alone
    x = x + after(down(activation(gate(norm(x))) * up(norm(x))))
    logits = cap(head(norm(x)))

What a family has of it, and where the weights are, :mod:`tilewright.llm.families` says. Inputs and outputs
are named as Optimum and onnxruntime-genai name them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper

from tilewright.frontend import ReadModel, read_onnx, zoo
from tilewright.ir import dtype_of
from tilewright.llm.families import JOINED, Decoder
from tilewright.llm.formats import Blocks, quantised
from tilewright.support import InputError, ModelError, quoted

Array = npt.NDArray[Any]

MS: Final = "com.microsoft"
_ROWS: Final = ("batch", "sequence")
#: What checkpoints put before the names of weights, those of whole models and of bare ones.
_PREFIXES: Final = ("model.", "", "transformer.", "language_model.model.", "model.language_model.")

#: What some checkpoints keep beside weights: tables that follow from sizes, and heads tied to the embedding.
_UNREAD: Final = (".inv_freq", ".attn.bias", ".attn.masked_bias", "lm_head.weight")


def read_weights(
    decoder: Decoder,
    weights: Mapping[str, Array | Blocks],
    capacity: int,
    bits: int | None = None,
    cache: str = "f32",
) -> ReadModel:
    """The model of a decoder for texts of up to ``capacity`` tokens, with the weights of its files by name;
    matrices of products are rounded to ``bits``, unless the files have them in blocks. Its caches are of the
    type ``cache``.

    Raises ModelError for weights that are missing, or have other shapes than the configuration says,
    InputError for more tokens than there are learned places.
    """
    kind = helper.np_dtype_to_tensor_dtype(dtype_of(cache).numpy)
    return _Writer(decoder, _Weights(decoder, weights), capacity, bits, kind).model()


@dataclass(slots=True)
class _Weights:
    """Weights by their role."""

    decoder: Decoder
    given: Mapping[str, Array | Blocks]
    used: set[str] = field(default_factory=set)

    def array(self, role: str, n: int, shape: tuple[int, ...], end: str = "weight") -> Array:
        """A weight that has no blocks."""
        found = self.find(role, n, shape, end)
        if isinstance(found, Blocks):
            raise ModelError(f"the weight of {quoted(role)} is in blocks of {found.bits} bits")
        return found

    def find(self, role: str, n: int, shape: tuple[int, ...], end: str = "weight") -> Array | Blocks:
        """The weight of a role in a block, [out, in] or [out]; a part of what is joined in the file."""
        decoder = self.decoder
        names = decoder.family.names
        name = f"{names[role].format(n=n)}.{end}"
        full = next((p + name for p in self._prefixes() if p + name in self.given), None)
        if full is None:
            raise ModelError(
                f"the files have no weight {quoted(name)}", hint="are all files of the model in the folder?"
            )
        self.used.add(full)
        array = self.given[full]
        if not isinstance(array, Blocks) and array.dtype.kind == "i":
            raise ModelError(f"the weight {quoted(full)} has whole numbers, and nothing says what they mean")
        group = next((g for g in JOINED if role in g), (role,))
        parts = [part for part in group if names.get(part) == names[role]]
        rows = [_rows(decoder, part) if len(parts) > 1 else shape[0] for part in parts]
        if decoder.family.turned and role in _PRODUCTS and not isinstance(array, Blocks) and array.ndim == 2:
            array = array.T
        wanted = (sum(rows), *shape[1:])
        if array.shape != wanted:
            raise ModelError(
                f"the weight {quoted(full)} is {list(array.shape)}, by the configuration {list(wanted)}"
            )
        start = sum(rows[: parts.index(role)])
        return array[start : start + shape[0]]

    def check_all_used(self) -> None:
        """Refuse blocks that have more than the family's. Other parts, such as those for images, are left."""
        prefix = self._prefixes()[0]
        left = [name for name in self.given if name.startswith(prefix) and name not in self.used]
        if odd := [name for name in left if not name.endswith(_UNREAD)]:
            raise ModelError(f"the weight {quoted(min(odd))} of the files is none that the family has")

    def _prefixes(self) -> list[str]:
        """What may stand before names: first what stands before the embedding's."""
        name = f"{self.decoder.family.names['embedding']}.weight"
        return sorted(_PREFIXES, key=lambda prefix: prefix + name not in self.given)


_PRODUCTS: Final = ("q", "k", "v", "o", "gate", "up", "down")


def _rows(decoder: Decoder, role: str) -> int:
    """How many numbers a product makes of a token."""
    d = decoder
    if role in ("gate", "up"):
        return d.inner
    return {"q": d.heads * d.depth, "k": d.kv_heads * d.depth, "v": d.kv_heads * d.depth}.get(role, d.hidden)


@dataclass(slots=True)
class _Writer:
    decoder: Decoder
    weights: _Weights
    capacity: int
    bits: int | None
    cache: int
    b: zoo.ModelBuilder = field(default_factory=lambda: zoo.ModelBuilder("decoder"))
    arrays: dict[str, Array] = field(default_factory=dict)

    def model(self) -> ReadModel:
        d, b = self.decoder, self.b
        ids = b.input("input_ids", _ROWS, TensorProto.INT64)
        mask = b.input("attention_mask", ["batch", "total"], TensorProto.INT64)
        table = self.constant("embedding", self.weights.array("embedding", 0, (d.vocabulary, d.hidden)))
        x = self.wide(b.node("Gather", table, ids, stem="embedded"), table)
        if d.family.scaled:
            x = b.node("Mul", x, b.scalar(math.sqrt(d.hidden)), stem="embedded.scaled")
        if "places" in d.family.names:
            x = b.node("Add", x, self._places(), stem="embedded.placed")
        lengths = b.node("ReduceSum", mask, b.ints(1), stem="lengths", keepdims=0)
        last = b.node("Sub", lengths, b.constant(np.array(1)), stem="last")
        shape = b.node("Shape", mask, stem="mask.shape")
        total = b.node("Gather", shape, b.constant(np.array(1)), stem="total64")
        keys = (
            b.node("Cast", last, stem="last_keys", to=TensorProto.INT32),
            b.node("Cast", total, stem="total", to=TensorProto.INT32),
        )
        for n in range(d.layers):
            x = self._block(x, n, keys)
        x = self.norm(x, "norm", 0)
        role = "embedding" if d.tied else "head"
        head = self.weights.find(role, 0, (d.vocabulary, d.hidden))
        scores = self.product(x, "head", head)
        if d.final_softcap:
            cap = b.scalar(d.final_softcap)
            scores = b.node("Mul", b.node("Tanh", b.node("Div", scores, cap)), cap, stem="capped")
        b.output(scores, "logits", [*_ROWS, d.vocabulary])
        self.weights.check_all_used()
        read = read_onnx(b.build())
        return replace(read, weights={**read.weights, **self.arrays})

    def _places(self) -> str:
        d, b = self.decoder, self.b
        if self.capacity > d.positions:
            raise InputError(
                f"texts of {self.capacity} tokens, where the model has {d.positions} learned places",
                hint=f"load(…, capacity={d.positions})",
            )
        table = self.constant("places", self.weights.array("places", 0, (d.positions, d.hidden)))
        where = b.input("position_ids", _ROWS, TensorProto.INT64)
        return self.wide(b.node("Gather", table, where, stem="placed"), table)

    def _block(self, x: str, n: int, keys: tuple[str, str]) -> str:
        d, b = self.decoder, self.b
        after = "attention.after" in d.family.names
        y = self.norm(x, "attention.norm", n)
        q, k, v = (self.linear(y, role, n, d.hidden) for role in "qkv")
        if d.family.head_norms:
            q, k = (
                self.heads_normed(each, f"{role}.norm", n, count)
                for each, role, count in ((q, "q", d.heads), (k, "k", d.kv_heads))
            )
        past, present = (
            [f"{stem}.{n}.{kind}" for kind in ("key", "value")] for stem in ("past_key_values", "present")
        )
        for name in past:
            b.input(name, ["batch", d.kv_heads, self.capacity, d.depth], self.cache)
        rope = d.ropes[n]
        tables = [self.shared(f"rope.{d.ropes.index(rope)}.{i}", rope, i) for i in (0, 1)] if rope else []
        inputs = [q, k, v, *past, *keys, *tables]
        attended, *states = b.nodes(
            "GroupQueryAttention",
            inputs,
            3,
            f"{n}.attention",
            domain=MS,
            num_heads=d.heads,
            kv_num_heads=d.kv_heads,
            do_rotary=int(rope is not None),
            local_window_size=d.windows[n] or -1,
            scale=d.scale,
            softcap=d.softcap,
            rotary_interleaved=int(d.interleaved),
        )
        for state, name in zip(states, present, strict=True):
            b.output(state, name, ["batch", d.kv_heads, self.capacity, d.depth], self.cache)
        y = self.linear(attended, "o", n, d.heads * d.depth)
        y = self.norm(y, "attention.after", n) if after else y
        x = b.node("Add", x, y, stem=f"{n}.attended")
        y = self.norm(x, "mlp.norm", n)
        gated = "gate" in d.family.names
        inner = self.activation(self.linear(y, "gate" if gated else "up", n, d.hidden), n)
        if gated:
            inner = b.node("Mul", inner, self.linear(y, "up", n, d.hidden), stem=f"{n}.gated")
        y = self.linear(inner, "down", n, d.inner)
        y = self.norm(y, "mlp.after", n) if after else y
        return b.node("Add", x, y, stem=f"{n}.out")

    def norm(self, x: str, role: str, n: int, size: int = 0) -> str:
        """A norm over the last axis."""
        d, b = self.decoder, self.b
        weight = self.weights.array(role, n, (size or d.hidden,)).astype(np.float32)
        inputs = [x, self.constant(f"{n}.{role}.weight", weight + 1 if d.family.unit else weight)]
        if d.family.centred:
            bias = self.weights.array(role, n, (size or d.hidden,), "bias").astype(np.float32)
            inputs.append(self.constant(f"{n}.{role}.bias", bias))
        op = "LayerNormalization" if d.family.centred else "SimplifiedLayerNormalization"
        domain = {} if d.family.centred else {"domain": MS}
        return b.node(op, *inputs, stem=f"{n}.{role}", axis=-1, epsilon=d.epsilon, **domain)

    def heads_normed(self, x: str, role: str, n: int, heads: int) -> str:
        """A norm of each head."""
        b, depth = self.b, self.decoder.depth
        split = b.node("Reshape", x, b.ints(0, 0, heads, depth), stem=f"{n}.{role}.split")
        return b.node("Reshape", self.norm(split, role, n, depth), b.ints(0, 0, heads * depth))

    def linear(self, x: str, role: str, n: int, before: int) -> str:
        """A product with a role's matrix, and its bias."""
        rows = _rows(self.decoder, role)
        y = self.product(x, f"{n}.{role}", self.weights.find(role, n, (rows, before)))
        if role not in self.decoder.biases:
            return y
        bias = self.weights.array(role, n, (rows,), "bias").astype(np.float32)
        return self.b.node("Add", y, self.constant(f"{n}.{role}.bias", bias), stem=f"{n}.{role}.biased")

    def product(self, x: str, stem: str, matrix: Array | Blocks) -> str:
        """Rows times a matrix [out, in]."""
        if self.bits and not isinstance(matrix, Blocks):
            matrix = rounded if (rounded := quantised(matrix, self.bits)) else matrix
        if isinstance(matrix, Blocks):
            parts = {"numbers": matrix.packed(), "scale": matrix.scale, "zero": matrix.zero}
            inputs = [self.constant(f"{stem}.{name}", array) for name, array in parts.items()]
            sizes = {"N": matrix.shape[0], "K": matrix.shape[1]}
            how = {"bits": matrix.bits, "block_size": matrix.block}
            return self.b.node("MatMulNBits", x, *inputs, stem=stem, domain=MS, **sizes, **how)
        weight = self.constant(f"{stem}.weight", matrix.T)
        return self.b.node("MatMul", x, self.wide(weight, weight), stem=stem)

    def wide(self, x: str, weight: str) -> str:
        """What was read of a weight, in f32."""
        if self.arrays[weight].dtype == np.float32:
            return x
        return self.b.node("Cast", x, stem=f"{x}.f32", to=TensorProto.FLOAT)

    def activation(self, x: str, n: int) -> str:
        b, kind = self.b, self.decoder.activation
        if kind == "silu":
            return b.node("Mul", x, b.node("Sigmoid", x), stem=f"{n}.silu")
        if kind == "relu":
            return b.node("Relu", x, stem=f"{n}.relu")
        return b.node("Gelu" if kind == "gelu" else "FastGelu", x, stem=f"{n}.gelu", domain=MS)

    def shared(self, name: str, rope: Any, at: int) -> str:
        """A table of a rotary embedding, made once."""
        return name if name in self.arrays else self.constant(name, rope.tables(self.capacity)[at])

    def constant(self, name: str, array: Array) -> str:
        """A weight, which the model reads where it lies."""
        self.arrays[name] = array
        return self.b.input(name, array.shape, helper.np_dtype_to_tensor_dtype(array.dtype))
