"""Language models: compiled for all lengths, run token by token.

Graphs are as Optimum and onnxruntime-genai write them: ``input_ids``, and where the model has them
``attention_mask``, ``position_ids`` and a cache, ``past_key_values.N.key`` and ``.value``, of which a run
gives the next one, ``present.N.key`` and ``.value``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tilewright.driver import compile_model
from tilewright.frontend import ReadModel, read_onnx
from tilewright.graph import TensorType
from tilewright.ir import dtype_of
from tilewright.llm.batch import Batch, Request
from tilewright.llm.chat import ChatTemplate
from tilewright.llm.decoder import read_weights
from tilewright.llm.families import read_decoder
from tilewright.llm.folder import read_folder
from tilewright.llm.formats import BITS
from tilewright.llm.gguf import read_gguf
from tilewright.llm.gptq import with_blocks
from tilewright.llm.safetensors import read_tensors
from tilewright.llm.sampling import Sampling
from tilewright.llm.text import TextStream, Token
from tilewright.runtime import Model
from tilewright.support import InputError, ModelError, UnsupportedOperatorError, quoted, whole_number

Array = npt.NDArray[Any]

CAPACITY: Final = 2048
"""Tokens that a text may have, prompt included, unless a caller says otherwise or the model has fewer."""
CACHES: Final = ("f32", "bf16")
"""Types in which keys and values are kept."""
_PLAIN: Final = ("input_ids", "attention_mask", "position_ids")
_PAST = re.compile(r"past\D*(\d+)\.(?:\w+\.)?(key|value)")
_PRESENT = re.compile(r"present\D*(\d+)\.(?:\w+\.)?(key|value)")


@dataclass(frozen=True, slots=True)
class _Cache:
    """An input that is what was kept of the tokens before, the output that is the next one, and what it is
    before the first token: of no tokens, or of all that there is room for, where runs write into it.
    """

    past: str
    present: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def load(
    source: str | Path,
    *,
    capacity: int | None = None,
    threads: int | None = None,
    tokenizer: Any = None,
    requests: int = 1,
    bits: int | None = None,
    accuracy: str | float = "auto",
    cache: str = "f32",
) -> LanguageModel:
    """The language model in a folder, or in a file, compiled for texts of up to ``capacity`` tokens.

    A folder is one as Hugging Face or onnxruntime-genai write it: with an ONNX file, or with ``config.json``
    and weights in safetensors files, of GPTQ as well, or with a GGUF file of llama.cpp, of a family that
    :mod:`tilewright.llm.families` knows; and with ``tokenizer.json``. ``tokenizer`` is one of the package
    ``tokenizers``, in place of the folder's. So many ``requests`` may run as one batch.
    ``bits``, 4 or 8, has matrices of checkpoints rounded to so many, in blocks of 32. ``accuracy`` is that of
    :func:`tilewright.compile`: from about 0.01 on products with matrices in blocks multiply bytes, to which
    activations are rounded block by block. ``cache`` is the type of the keys and values that are kept of
    checkpoints' models: ``f32``, or ``bf16``, half the bytes that long texts read a token.

    Raises InputError where there is no model there, ModelError for one that is no language model, for weights
    that are missing or cut off, and for a tokenizer of another model, UnsupportedOperatorError for another
    family, and what :func:`tilewright.compile` raises.
    """
    folder = read_folder(Path(source))
    most = whole_number(capacity) if capacity is not None else min(CAPACITY, folder.positions or CAPACITY)
    if most is None or most < 1:
        raise InputError(f"the capacity is {capacity!r}", hint="a whole number of tokens, from 1")
    ends = folder.ends
    if bits is not None and (bits not in BITS or (folder.model and folder.model.suffix != ".gguf")):
        raise InputError(
            f"bits is {bits!r}", hint="4 or 8, for safetensors and GGUF files; ONNX files have their own"
        )
    if cache not in CACHES or (cache != CACHES[0] and folder.model and folder.model.suffix != ".gguf"):
        raise InputError(
            f"cache is {cache!r}", hint=f"{' or '.join(CACHES)}; ONNX files have types of their own"
        )
    if folder.model is not None and folder.model.suffix == ".gguf":
        file = read_gguf(folder.model)
        ends = ends or file.ends
        read = read_weights(file.decoder, file.weights, most, bits, cache)
    elif folder.model is not None:
        read = read_onnx(folder.model)
    else:
        tensors = with_blocks(read_tensors(folder.weights), folder.configuration)
        read = read_weights(read_decoder(folder.configuration), tensors, most, bits, cache)
    inputs, outputs = read.inputs(), [value.name for value in read.loaded.outputs]
    kept, together = _stays(read), whole_number(requests)
    if together is None or together < 1 or (together > 1 and not kept):
        raise InputError(
            f"requests is {requests!r}",
            hint="a whole number from 1; more than 1 where caches are read by GroupQueryAttention alone",
        )
    shapes, sizes, empty = _sizes(inputs, most, kept, together)
    presents = {found.groups(): name for name in outputs if (found := _PRESENT.fullmatch(name))}
    caches = []
    for name, shape in empty.items():
        key = _PAST.fullmatch(name)
        present = presents.get(key.groups()) if key else None
        if present is None:
            raise ModelError(f"the model gives no next state of the cache {quoted(name)}")
        caches.append(_Cache(name, present, shape, dtype_of(inputs[name].dtype).numpy))
    if "logits" not in outputs:
        raise ModelError(f"the model gives {', '.join(map(quoted, outputs))}, and no 'logits' of tokens")
    words = tokenizer or folder.tokenizer
    known = next(value for value in read.loaded.outputs if value.name == "logits").type.tensor_type.shape.dim
    scored = known[-1].dim_value if known else 0
    if words is not None and scored and words.get_vocab_size() > scored:
        raise ModelError(
            f"the tokenizer has {words.get_vocab_size()} tokens, and the model scores {scored}",
            hint="it is that of another model",
        )
    state = {cache.past: cache.present for cache in caches} if kept else None
    model = compile_model(read, shapes=shapes, dynamic=sizes, threads=threads, accuracy=accuracy, state=state)
    given = tuple(name for name in _PLAIN if name in inputs)
    return LanguageModel(model, given, tuple(caches), most, words, ends, together, folder.chat)


def _stays(read: ReadModel) -> bool:
    """Whether caches can have room for all tokens from the first on: what reads them is told the lengths."""
    pasts = [name for name in read.inputs() if _PAST.fullmatch(name)]
    readers = [[node for node in read.model.graph.node if name in node.input] for name in pasts]
    return bool(pasts) and all(
        len(nodes) == 1 and nodes[0].op_type == "GroupQueryAttention" and name in nodes[0].input[3:5]
        for name, nodes in zip(pasts, readers, strict=True)
    )


def _sizes(
    inputs: Mapping[str, TensorType], capacity: int, kept: bool, requests: int
) -> tuple[dict[str, int], dict[str, tuple[int, int] | str], dict[str, tuple[int, ...]]]:
    """The sizes that are settled, the ranges of those that are open, and the shapes of caches at first;
    ``kept`` ones have room for all tokens.
    """
    if "input_ids" not in inputs or inputs["input_ids"].rank != 2:
        raise ModelError("the model has no input 'input_ids' of tokens [batch, length]")
    shapes: dict[str, int] = {}
    ranges: dict[str, tuple[int, int] | str] = {}
    empty: dict[str, tuple[int, ...]] = {}
    batch, length = inputs["input_ids"].shape
    if isinstance(batch, str) and requests == 1:
        shapes[batch] = 1
    elif isinstance(batch, str):
        ranges[batch] = (1, requests)
    elif batch != requests:
        raise InputError(f"the model is for {batch} texts at once", hint=f"requests={batch}")
    rows = {batch: requests} if isinstance(batch, str) else {}
    for name, type_ in inputs.items():
        least = 0 if _PAST.fullmatch(name) else 1
        if name not in _PLAIN and not _PAST.fullmatch(name):
            raise UnsupportedOperatorError(
                f"the input {quoted(name)} is none that language models have here",
                hint="input_ids, attention_mask, position_ids and past_key_values.N.key and .value",
            )
        own = [n for n in type_.shape if isinstance(n, str) and n not in shapes]
        own = [n for n in own if n not in rows]
        if least == 0 and kept and type_.rank == 4 and set(own) <= {type_.shape[2]}:
            shapes |= dict.fromkeys(own, capacity)
            known = {**shapes, **rows}
            empty[name] = tuple(n if isinstance(n, int) else known[n] for n in type_.shape)
            if (room := empty[name][2]) < capacity:
                raise InputError(
                    f"texts of {capacity} tokens, where the cache {quoted(name)} has room for {room}",
                    hint=f"load(…, capacity={room})",
                )
            continue
        # expressions of names are what these say
        ranges |= {size: (least, capacity) for size in own if size not in {*ranges} and "+" not in size}
        if least == 0:
            if len(own) != 1 or type_.rank != 4:
                raise ModelError(
                    f"the cache {quoted(name)} is {type_}; it needs one open size, the tokens that it holds"
                )
            sizes = {**shapes, own[0]: 0}
            empty[name] = tuple(n if isinstance(n, int) else sizes[n] for n in type_.shape)
    mask = inputs["attention_mask"].shape[-1] if "attention_mask" in inputs else None
    held = next((n for name in empty for n in inputs[name].shape if n in ranges), None)
    if (
        isinstance(length, str)
        and isinstance(mask, str)
        and mask in ranges
        and mask not in (length, held)
        and not kept
    ):
        # of the tokens that were and the new ones, where the file calls them so that it can be said
        parts = [length] if held is None else [length, held]
        if all(part.isidentifier() for part in (mask, *parts)):
            ranges[mask] = " + ".join(parts)
    return shapes, ranges, empty


class LanguageModel:
    """A compiled language model, which :func:`load` makes."""

    def __init__(
        self,
        model: Model[Any],
        given: tuple[str, ...],
        caches: tuple[_Cache, ...],
        capacity: int,
        tokenizer: Any,
        ends: frozenset[int],
        requests: int = 1,
        template: ChatTemplate | None = None,
    ) -> None:
        self.model = model
        """The compiled model, one plan for all lengths."""
        self.capacity = capacity
        """Tokens that a text may have, prompt included."""
        self.tokenizer = tokenizer
        """Of the package ``tokenizers``; None where there is none."""
        self.ends = ends
        """Tokens that end a text."""
        self.requests = requests
        """Texts that are written at once, at most."""
        self.keeps = bool(getattr(model, "states", {}))
        """Whether runs write into caches where these are."""
        self._given, self._caches, self._template = given, caches, template

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        tokens: int | None = None,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
    ) -> Iterator[Token]:
        """The tokens that follow a prompt, one after the other, with their text.

        At most ``tokens``, by default as many as there is room for; fewer where the model ends the text, or
        one of the texts ``stop`` is there. A prompt of token numbers needs no tokenizer; without one tokens
        have no text. Raises InputError for a prompt of no tokens or of too many, at once.
        """
        batch = self.batch()
        return _tokens(batch, batch.add(prompt, tokens=tokens, sampling=sampling, stop=stop))

    def batch(self) -> Batch:
        """What several requests run in, with caches of their own."""
        return Batch(self, self._request)

    def chat(self, messages: object) -> list[int]:
        """The tokens that the answer to a conversation follows, by the model's own template.

        ``messages`` are mappings with a ``role`` and a ``content``. Raises InputError for others, and where
        the model has no template or no tokenizer.
        """
        if self._template is None or self.tokenizer is None:
            raise InputError(
                "conversations need a tokenizer and its chat template",
                hint="tokenizer.json and tokenizer_config.json beside the model, or the whole text as prompt",
            )
        # the template has written the special tokens
        text = self._template.render(messages)
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def logits(self, prompt: str | Sequence[int]) -> Array:
        """The scores of all tokens at each place of a text, [length, tokens].

        Raises InputError for no tokens or too many.
        """
        ids = self._tokens_of(prompt)
        if not 0 < len(ids) <= self.capacity:
            raise InputError(f"a text of {len(ids)} tokens, where it may have 1 to {self.capacity}")
        scores: Array = self.step([ids], [len(ids)], self.states())[0][0]
        return scores

    def _tokens_of(self, prompt: object) -> list[int]:
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise InputError(
                    "a text as the prompt needs a tokenizer",
                    hint="put tokenizer.json beside the model, or give tokens: generate([1, 2, 3])",
                )
            return list(self.tokenizer.encode(prompt).ids)
        numbers = [whole_number(n) for n in prompt] if isinstance(prompt, Sequence | np.ndarray) else [None]
        ids = [n for n in numbers if n is not None and n >= 0]
        if len(ids) != len(numbers):
            raise InputError("a prompt is a text, or a list of the numbers of tokens")
        return ids

    def _request(
        self,
        prompt: str | Sequence[int],
        *,
        tokens: int | None,
        sampling: Sampling | None,
        stop: Sequence[str],
    ) -> Request:
        ids = self._tokens_of(prompt)
        room = self.capacity - len(ids)
        most = room if tokens is None else whole_number(tokens)
        if not ids or room < 1 or most is None or not 0 < most <= room:
            raise InputError(
                f"a prompt of {len(ids)} tokens and {tokens if tokens is not None else 'more'} to follow, "
                f"where a text may have {self.capacity}",
                hint="a prompt of one token or more, and load(…, capacity=…) for longer texts",
            )
        if stop and self.tokenizer is None:
            raise InputError("texts that end a text need a tokenizer", hint="load(…, tokenizer=…)")
        if isinstance(stop, str) or not all(stop):
            raise InputError("stop is a list of texts", hint="stop=['\\n\\n']")
        decode = (lambda _: "") if self.tokenizer is None else self.tokenizer.decode
        return Request(ids, most, sampling or Sampling(), TextStream(decode, tuple(stop)))

    def states(self) -> list[Array]:
        """Caches before the first token, with a row for each request."""
        return [np.zeros(cache.shape, cache.dtype) for cache in self._caches]

    def step(
        self, new: Sequence[Sequence[int]], totals: Sequence[int], states: list[Array]
    ) -> tuple[Array, list[Array]]:
        """Scores [rows, length, tokens] of new tokens [rows, length], and the next caches.

        ``totals`` are the tokens of each row with the new ones; ``states`` are caches of those before.
        """
        length, ends = len(new[0]), np.array(totals)[:, None]
        plain = {
            "input_ids": np.array(new),
            "attention_mask": np.arange(max(totals)) < ends,
            "position_ids": ends - length + np.arange(length),
        }
        kinds = {info.name: info.dtype for info in self.model.inputs}
        feeds = {name: plain[name].astype(kinds[name]) for name in self._given}
        feeds |= {cache.past: state for cache, state in zip(self._caches, states, strict=True)}
        names = [] if self.keeps else [cache.present for cache in self._caches]
        scores, *made = self.model.run(["logits", *names], feeds)
        return scores.astype(np.float32), states if self.keeps else made


def _tokens(batch: Batch, request: Request) -> Iterator[Token]:
    """The tokens of the only request of a batch."""
    while not request.reason:
        yield from (token for _, token in batch.step())
    if request.error is not None:
        raise request.error
