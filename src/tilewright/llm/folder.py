"""Folders of language models: the model's file, its tokenizer, and the tokens that end a text.

Files are untrusted: JSON of a limited size, whose entries are checked; a model's file lies in its folder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tilewright.driver import optional_module
from tilewright.support import InputError, ModelError, quoted

MAX_BYTES: Final = 1 << 20
"""The largest configuration that is read."""
_CONFIGURATIONS: Final = ("genai_config.json", "generation_config.json", "config.json")


@dataclass(frozen=True, slots=True)
class Folder:
    """What is there of a language model: its file, a tokenizer or None, the tokens that end a text, and for
    how many tokens it was made, if that is said.
    """

    model: Path
    tokenizer: Any
    ends: frozenset[int]
    positions: int | None


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
            tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:
            if type(error) is not Exception:
                raise
            # the package raises no class of its own
            raise ModelError(f"the tokenizer {quoted(str(path))} cannot be read: {error}") from None
    return Folder(_model_file(source, inner), tokenizer, ends, positions)


def _model_file(source: Path, entries: list[dict[str, Any]]) -> Path:
    if source.is_file():
        return source
    if not source.is_dir():
        raise InputError(
            f"there is no language model {quoted(str(source))}", hint="a folder, or an ONNX file"
        )
    named = [entry["decoder"].get("filename") for entry in entries if isinstance(entry.get("decoder"), dict)]
    names = [name for name in named if isinstance(name, str)] or ["model.onnx", "decoder_model.onnx"]
    # names of paths are not followed out of the folder
    found = [source / name for name in names if Path(name).name == name and (source / name).is_file()]
    found = found or sorted(source.glob("*.onnx"))
    if not found:
        raise InputError(
            f"the folder {quoted(str(source))} has no ONNX file",
            hint="export the model: optimum-cli export onnx --model … FOLDER",
        )
    return found[0]


def _configuration(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ModelError(f"the configuration {quoted(str(path))} has more than {MAX_BYTES} bytes")
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"the configuration {quoted(str(path))} cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise ModelError(f"the configuration {quoted(str(path))} is no JSON object")
    return data


def _ends(entry: dict[str, Any]) -> frozenset[int]:
    found = entry.get("eos_token_id")
    numbers = found if isinstance(found, list) else [found]
    return frozenset(n for n in numbers if isinstance(n, int) and not isinstance(n, bool))
