"""Folders of language models: what is found in them, and what is refused of untrusted files."""

import json

import pytest

from tilewright.llm.folder import MAX_BYTES, read_folder
from tilewright.support import InputError, ModelError


def _write(folder, name, data):
    (folder / name).write_text(data if isinstance(data, str) else json.dumps(data))


def test_the_file_that_the_configuration_names_is_taken(tmp_path):
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).touch()
    assert read_folder(tmp_path).model.name == "a.onnx"
    _write(tmp_path, "genai_config.json", {"model": {"decoder": {"filename": "b.onnx"}}})
    assert read_folder(tmp_path).model.name == "b.onnx"
    assert read_folder(tmp_path / "a.onnx").model.name == "a.onnx"
    # names do not lead out of the folder
    _write(tmp_path, "genai_config.json", {"model": {"decoder": {"filename": "../b.onnx"}}})
    assert read_folder(tmp_path).model == tmp_path / "a.onnx"


def test_weights_are_taken_where_there_is_no_model(tmp_path):
    (tmp_path / "model.safetensors").touch()
    _write(tmp_path, "config.json", {"model_type": "llama"})
    found = read_folder(tmp_path)
    assert found.model is None and found.weights == (tmp_path / "model.safetensors",)
    assert found.configuration == {"model_type": "llama"}
    _write(tmp_path, "model.safetensors.index.json", {"weight_map": {"a": "b.safetensors"}})
    assert read_folder(tmp_path).weights == (tmp_path / "b.safetensors",)
    for name in ("model.gguf", "model.onnx"):
        (tmp_path / name).touch()
        assert read_folder(tmp_path).model == tmp_path / name


def test_chat_templates_stand_beside_tokenizers(tmp_path):
    (tmp_path / "model.onnx").touch()
    assert read_folder(tmp_path).chat is None
    _write(tmp_path, "tokenizer_config.json", {"chat_template": "a", "bos_token": "<s>"})
    assert (read_folder(tmp_path).chat.text, read_folder(tmp_path).chat.tokens) == ("a", {"bos_token": "<s>"})
    _write(tmp_path, "chat_template.jinja", "b")
    assert read_folder(tmp_path).chat.text == "b"
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ModelError, match=r"the configuration .* cannot be read"):
        read_folder(tmp_path)


def test_ends_and_lengths_are_read_from_any_of_the_configurations(tmp_path):
    (tmp_path / "model.onnx").touch()
    assert read_folder(tmp_path).ends == frozenset() and read_folder(tmp_path).positions is None
    _write(tmp_path, "config.json", {"eos_token_id": 7, "max_position_embeddings": 64})
    assert read_folder(tmp_path).ends == {7} and read_folder(tmp_path).positions == 64
    _write(tmp_path, "generation_config.json", {"eos_token_id": [3, 4, "x", True]})
    assert read_folder(tmp_path).ends == {3, 4}


def test_where_there_is_no_model_that_is_said(tmp_path):
    with pytest.raises(InputError, match="has no ONNX or GGUF file, and no weights") as found:
        read_folder(tmp_path)
    assert "optimum-cli" in found.value.hint
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(InputError) as found:
        read_folder(tmp_path)
    assert "files of pickles are not read" in found.value.hint
    with pytest.raises(InputError, match="there is no language model"):
        read_folder(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("content", "problem"),
    [("{", "cannot be read"), ("[1]", "is no JSON object"), (" " * (MAX_BYTES + 1), "has more than")],
)
def test_malformed_configurations_are_refused(tmp_path, content, problem):
    (tmp_path / "model.onnx").touch()
    _write(tmp_path, "config.json", content)
    with pytest.raises(ModelError, match=problem):
        read_folder(tmp_path)


def test_a_malformed_tokenizer_is_refused(tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "model.onnx").touch()
    _write(tmp_path, "tokenizer.json", {"model": 3})
    with pytest.raises(ModelError, match=r"the tokenizer .* cannot be read"):
        read_folder(tmp_path)
