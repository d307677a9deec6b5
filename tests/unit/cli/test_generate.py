"""``tilewright generate``: text on stdout, as JSON, and what is said of wrong use."""

import json
from functools import cache

import pytest
from click.testing import CliRunner

from decoder_folders import VOCABULARY, write_folder
from tilewright import llm
from tilewright.cli.commands.generate import generate

tokenizers = pytest.importorskip("tokenizers")
_LOAD = cache(llm.load)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("decoder")
    write_folder(made, "qwen3", shards=2, layers=1)
    known = {f"w{n}": n for n in range(VOCABULARY)}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="w0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(made / "tokenizer.json"))
    return str(made)


@pytest.fixture(autouse=True)
def _compiled_once(monkeypatch):
    monkeypatch.setattr("tilewright.cli.commands.generate.load", _LOAD)


def _run(*arguments, stdin=None):
    return CliRunner().invoke(generate, [*arguments, "--capacity", "16", "--threads", "1"], input=stdin)


def test_the_text_is_printed_and_how_fast_is_said_beside_it(folder):
    plain = _run(folder, "--prompt", "w3 w7", "--tokens", "5")
    assert plain.exit_code == 0 and len(plain.stdout.split()) == 5
    assert plain.stderr.startswith("5 tokens: the first after ")
    read = _run(folder, "--prompt", "-", "--tokens", "5", "--json", stdin="w3 w7")
    told = json.loads(read.stdout)
    assert told["text"] == plain.stdout.rstrip("\n") and len(told["tokens"]) == 5
    assert 0 < told["first_s"] <= told["seconds"]
    model = _LOAD(folder, capacity=16, threads=1)
    assert told["tokens"] == model.logits([3, 7, *told["tokens"]])[1:-1].argmax(-1).tolist()


def test_models_are_loaded_as_options_say(folder):
    asked = ("--prompt", "w3 w7", "--tokens", "3", "--accuracy", "0.05", "--cache", "bf16", "--json")
    told = json.loads(_run(folder, *asked).stdout)
    model = _LOAD(folder, capacity=16, bits=None, accuracy="0.05", cache="bf16", threads=1)
    assert {str(state.dtype) for state in model.states()} == {"bfloat16"}
    assert told["tokens"] == [token.id for token in model.generate([3, 7], tokens=3)]
    wrong = _run(folder, "--prompt", "w3", "--accuracy", "fine")
    assert wrong.exit_code != 0 and "accuracy='fine'" in str(wrong.exception)


def test_wrong_numbers_are_refused_before_anything_is_compiled(folder):
    wrong = _run(folder, "--prompt", "w3", "--top-p", "3")
    assert wrong.exit_code != 0 and "top_p is 3.0" in str(wrong.exception)
