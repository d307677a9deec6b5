"""Folders of language models: the files of the model, its tokenizer, and the tokens that end a text.

Files are untrusted: JSON of a limited size, whose entries are checked; a model's files lie in its folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tilewright.driver import optional_module
from tilewright.llm.chat import ChatTemplate, chat_template
from tilewright.llm.safetensors import shards
from tilewright.support import InputError, ModelError, quoted

MAX_BYTES: Final = 16 << 20
"""The largest configuration that is read."""
_WEIGHTS: Final = "model.safetensors"
_CONFIGURATIONS: Final = ("genai_config.json", "generation_config.json", "config.json")


@dataclass(frozen=True, slots=True)
class Folder:
    """What is there of a language model: its ONNX or GGUF file, or else the files of its weights and what
    describes them, a tokenizer or None, tokens that end a text, and how many it was made for, where said.
    """

    model: Path | None
    weights: tuple[Path, ...]
    configuration: Mapping[str, Any]
    tokenizer: Any
    ends: frozenset[int]
    positions: int | None
    chat: ChatTemplate | None = None


def read_folder(source: Path) -> Folder:
    """The parts of a model that is a folder, or a file in one.

    Raises InputError where there is no model, ModelError for configurations that are malformed.
    """
    folder = source if source.is_dir() else source.parent
    known = [_configuration(folder / name) for name in _CONFIGURATIONS]
    # that of onnxruntime-genai has the others' entries under the model
    inner = [entry for each in known for entry in (each, each.get("model")) if isinstance(entry, dict)]
    ends = next((found for entry in inner if (found := _ends(entry))), frozenset())
    lengths = (entry.get(name) for entry in inner for name in ("max_position_embeddings", "context_length"))
    positions = next((n for n in lengths if isinstance(n, int) and n > 0), None)
    path = folder / "tokenizer.json"
    tokenizer = None
    if path.is_file():
        tokenizers = optional_module("tokenizers")
        try:
            tokenizer = tokenizers.Tokenizer.from_buffer(path.read_bytes())
        except (OSError, ValueError) as error:
            raise ModelError(f"the tokenizer {quoted(str(path))} cannot be read: {error}") from None
    model = _model_file(source, inner)
    index = _configuration(folder / f"{_WEIGHTS}.index.json") if model is None else {}
    weights = tuple(shards(folder, index)) if model is None else ()
    if model is None and not weights:
        pickled = any(folder.glob("*.bin"))
        raise InputError(
            f"the folder {quoted(str(source))} has no ONNX or GGUF file, and no weights in safetensors files",
            hint="files of pickles are not read: save_pretrained(FOLDER, safe_serialization=True)"
            if pickled
            else "a folder as Hugging Face writes it, or export the model: "
            "optimum-cli export onnx --model … FOLDER",
        )
    template = folder / "chat_template.jinja"
    text = _text(template) if template.is_file() else None
    chat = chat_template(_configuration(folder / "tokenizer_config.json"), text)
    return Folder(model, weights, known[-1], tokenizer, ends, positions, chat)


def _model_file(source: Path, entries: list[dict[str, Any]]) -> Path | None:
    """The ONNX file, or that of llama.cpp; None where a folder has none."""
    if source.is_file():
        return source
    if not source.is_dir():
        raise InputError(
            f"there is no language model {quoted(str(source))}", hint="a folder, an ONNX or a GGUF file"
        )
    named = [entry["decoder"].get("filename") for entry in entries if isinstance(entry.get("decoder"), dict)]
    names = [name for name in named if isinstance(name, str)] or ["model.onnx", "decoder_model.onnx"]
    # names of paths are not followed out of the folder
    found = [source / name for name in names if Path(name).name == name and (source / name).is_file()]
    found = found or sorted(source.glob("*.onnx")) or sorted(source.glob("*.gguf"))
    return next(iter(found), None)


def _configuration(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    text = _text(path)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the configuration {quoted(str(path))} cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise ModelError(f"the configuration {quoted(str(path))} is no JSON object")
    return data


def _text(path: Path) -> str:
    """What a file says that is not large."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ModelError(f"the configuration {quoted(str(path))} has more than {MAX_BYTES} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"the configuration {quoted(str(path))} cannot be read: {error}") from None


def _ends(entry: dict[str, Any]) -> frozenset[int]:
    found = entry.get("eos_token_id")
    numbers = found if isinstance(found, list) else [found]
    return frozenset(n for n in numbers if isinstance(n, int) and not isinstance(n, bool))
