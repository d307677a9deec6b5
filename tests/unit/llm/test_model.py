"""Language models from folders: tokens and texts out of them, like those of onnxruntime run by hand."""

import numpy as np
import onnx
import onnxruntime
import pytest

from decoder_folders import CONFIGURATIONS, tensors, write_folder
from decoder_models import DEPTH, KEY_HEADS, VOCABULARY, decoder
from tilewright import llm
from tilewright.llm.chat import ChatTemplate
from tilewright.llm.families import read_decoder
from tilewright.llm.gguf import GgufModel
from tilewright.support import InputError, ModelError, UnsupportedOperatorError

PROMPT = [3, 7, 11, 2, 5]


def _words():
    """A tokenizer of words: w0, w1 …"""
    tokenizers = pytest.importorskip("tokenizers")
    known = {f"w{n}": n for n in range(VOCABULARY)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("decoder")
    onnx.save(decoder(), made / "model.onnx")
    _words().save(str(made / "tokenizer.json"))
    return made


@pytest.fixture(scope="module")
def model(folder):
    return llm.load(folder, capacity=32, threads=1)


def _by_hand(folder, ids, count):
    """Greedy tokens, and the scores of the last, by onnxruntime."""
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    names = [each.name for each in session.get_inputs()][2:]
    states, new, found = [np.zeros((1, KEY_HEADS, 0, DEPTH), np.float32) for _ in names], ids, []
    for _ in range(count):
        mask = np.ones((1, len(ids) + len(found)), np.int64)
        feeds = {
            "input_ids": np.array([new]),
            "attention_mask": mask,
            **dict(zip(names, states, strict=True)),
        }
        scores, *states = session.run(None, feeds)
        new = [int(scores[0, -1].argmax())]
        found += new
    return found, scores[0]


def test_the_likeliest_tokens_are_those_that_another_engine_finds(model, folder):
    wanted, _ = _by_hand(folder, PROMPT, 20)
    assert [token.id for token in model.generate(PROMPT, tokens=20)] == wanted
    assert model.model.compilations == 0
    _, scores = _by_hand(folder, PROMPT, 1)
    np.testing.assert_allclose(model.logits(PROMPT), scores, atol=1e-4)


def test_texts_go_in_and_out_and_end_where_they_are_told(model):
    text = " ".join(f"w{n}" for n in PROMPT)
    made = [*model.generate(text, tokens=6)]
    whole = "".join(token.text for token in made)
    words = whole.split()
    assert words == [f"w{token.id}" for token in made]
    stopped = "".join(token.text for token in model.generate(text, tokens=6, stop=[words[2]]))
    assert stopped == whole[: whole.index(words[2])]


def test_drawn_tokens_are_the_same_for_equal_seeds(model):
    def drawn(seed):
        sampling = llm.Sampling(temperature=2.0, top_k=40, seed=seed)
        return [token.id for token in model.generate(PROMPT, tokens=8, sampling=sampling)]

    assert drawn(1) == drawn(1) != drawn(2)


def test_a_token_that_ends_texts_is_not_given(model):
    ids = [token.id for token in model.generate(PROMPT, tokens=8)]
    other = llm.LanguageModel(model.model, model._given, model._caches, 32, None, frozenset({ids[2]}))
    assert [token.id for token in other.generate(PROMPT)] == ids[: ids.index(ids[2])]


def test_long_prompts_are_read_in_parts(model, monkeypatch):
    whole = [token.id for token in model.generate(PROMPT * 3, tokens=4)]
    monkeypatch.setattr("tilewright.llm.batch.CHUNK", 4)
    given = []
    step = model.step
    monkeypatch.setattr(model, "step", lambda new, *rest: given.append(len(new[0])) or step(new, *rest))
    assert [token.id for token in model.generate(PROMPT * 3, tokens=4)] == whole
    assert given == [4, 4, 4, 3, 1, 1, 1]


def test_caches_stay_where_they_are(model):
    states = model.states()
    (first,), again = model.step([PROMPT], [len(PROMPT)], states)
    assert model.model.states and all(a is b for a, b in zip(states, again, strict=True))
    assert all(state[:, :, : len(PROMPT)].all() and not state[:, :, len(PROMPT) :].any() for state in states)
    # what was written behind is written over
    model.step([[1, 2]], [len(PROMPT) + 2], states)
    (last,), _ = model.step([PROMPT[-1:]], [len(PROMPT)], states)
    np.testing.assert_allclose(last, first[-1:], atol=1e-5)


def test_models_without_a_cache_read_all_tokens_again(tmp_path):
    onnx.save(decoder(1, cache=False), tmp_path / "plain.onnx")
    onnx.save(decoder(1), tmp_path / "model.onnx")
    other = llm.load(tmp_path / "plain.onnx", capacity=12, threads=1)
    wanted, _ = _by_hand(tmp_path, PROMPT, 4)
    assert [token.id for token in other.generate(PROMPT, tokens=4)] == wanted
    assert other.model.compilations == 0


@pytest.mark.parametrize(
    ("prompt", "options", "problem"),
    [
        ([], {}, "a prompt of 0 tokens"),
        ([1] * 32, {}, "a prompt of 32 tokens and more to follow, where a text may have 32"),
        ([1, 2], {"tokens": 31}, "a prompt of 2 tokens and 31 to follow"),
        ([1, 2], {"tokens": 0}, "a prompt of 2 tokens and 0 to follow"),
        ([1, -2], {}, "a prompt is a text, or a list of the numbers of tokens"),
        ([1], {"stop": "w1"}, "stop is a list of texts"),
    ],
)
def test_bad_prompts_are_refused_at_once(model, prompt, options, problem):
    with pytest.raises(InputError, match=problem):
        model.generate(prompt, **options)
    assert next(model.generate([1], tokens=1)).id >= 0


def test_tokens_of_another_tokenizer_are_refused(model):
    with pytest.raises(InputError, match="out of range"):
        next(model.generate([VOCABULARY + 3]))
    with pytest.raises(InputError, match="a text of 0 tokens"):
        model.logits([])


def test_texts_need_a_tokenizer(model):
    bare = llm.LanguageModel(model.model, model._given, model._caches, 32, None, frozenset())
    with pytest.raises(InputError, match="a text as the prompt needs a tokenizer"):
        bare.generate("w1")
    with pytest.raises(InputError, match="texts that end a text need a tokenizer"):
        bare.generate([1], stop=["w1"])
    assert next(bare.generate([1], tokens=1)).text == ""


def _another_input(graph):
    graph.input.append(onnx.helper.make_tensor_value_info("beams", onnx.TensorProto.INT64, (1,)))


def _other_tokens(graph):
    graph.input[0].name = "tokens"
    graph.node[0].input[1] = "tokens"


def _cache_of_eight(graph):
    graph.input[2].type.tensor_type.shape.dim[2].dim_value = 8


def _open_heads(graph):
    graph.input[2].type.tensor_type.shape.dim[1].dim_param = "heads"


@pytest.mark.parametrize(
    ("change", "kind", "problem"),
    [
        (_another_input, UnsupportedOperatorError, "the input 'beams' is none that language models"),
        (lambda graph: graph.output.pop(1), ModelError, "no next state of the cache 'past_key_values.0.key'"),
        (lambda graph: graph.output.pop(0), ModelError, "no 'logits' of tokens"),
        (_other_tokens, ModelError, "no input 'input_ids' of tokens"),
        (_cache_of_eight, InputError, "texts of 2048 tokens, where the cache .* has room for 8"),
        (_open_heads, ModelError, "it needs one open size"),
    ],
    ids=["input", "present", "logits", "tokens", "cache", "heads"],
)
def test_models_that_are_none_of_language_are_refused(change, kind, problem, tmp_path):
    made = decoder(1)
    change(made.graph)
    onnx.save(made, tmp_path / "model.onnx")
    with pytest.raises(kind, match=problem):
        llm.load(tmp_path)


def test_the_tokenizer_of_another_model_is_refused(folder):
    words = _words()
    words.add_tokens(["w-more"])
    with pytest.raises(ModelError, match="the tokenizer has 97 tokens, and the model scores 96"):
        llm.load(folder, tokenizer=words)


def test_files_of_llama_cpp_say_what_ends_texts(tmp_path, monkeypatch):
    made = GgufModel(
        read_decoder(CONFIGURATIONS["llama"] | {"model_type": "llama"}), tensors("llama"), frozenset({5})
    )
    monkeypatch.setattr("tilewright.llm.model.read_gguf", lambda path: made)
    monkeypatch.setattr("tilewright.llm.model.compile_model", lambda read, **_: read)
    (tmp_path / "a.gguf").touch()
    assert llm.load(tmp_path, capacity=8).ends == llm.load(tmp_path / "a.gguf", capacity=8).ends == {5}
    (tmp_path / "config.json").write_text('{"eos_token_id": 6}')
    assert llm.load(tmp_path, capacity=8).ends == {6}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "phi3"])
def test_two_hundred_tokens_are_those_of_transformers(tmp_path, kind):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = write_folder(tmp_path, kind)
    # as long as LongRoPE has one table
    most = 59 if kind == "phi3" else 200
    other = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    given = torch.tensor([PROMPT])
    wanted = other.generate(given, max_new_tokens=most, do_sample=False, pad_token_id=0)[0].tolist()
    model = llm.load(folder, capacity=len(PROMPT) + most, threads=1)
    assert [token.id for token in model.generate(PROMPT, tokens=most)] == wanted[len(PROMPT) :]
    with torch.no_grad():
        scores = other(torch.tensor([wanted])).logits[0].numpy()
    np.testing.assert_allclose(model.logits(wanted), scores, atol=1e-4)
    assert model.model.compilations == 0


def test_conversations_are_prompts_by_the_template_beside_the_model(tmp_path, model):
    with pytest.raises(InputError, match="conversations need a tokenizer and its chat template"):
        model.chat([{"role": "user", "content": "w1"}])
    pytest.importorskip("jinja2")
    template = ChatTemplate("{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}", {})
    words = _words()
    words.add_special_tokens(["user"])
    chatty = llm.LanguageModel(model.model, model._given, model._caches, 32, words, frozenset(), 1, template)
    assert chatty.chat([{"role": "user", "content": "w1 w2"}]) == [VOCABULARY, 1, 2]


@pytest.mark.parametrize("bits", [3, 4])
def test_matrices_of_checkpoints_alone_are_rounded(folder, bits):
    with pytest.raises(InputError, match=f"bits is {bits}"):
        llm.load(folder, bits=bits)


@pytest.mark.parametrize("cache", ["f16", "bf16"])
def test_caches_of_checkpoints_alone_are_of_another_type(folder, cache):
    with pytest.raises(InputError, match=f"cache is '{cache}'"):
        llm.load(folder, cache=cache)


def test_rounded_activations_and_caches_change_scores_by_their_steps(tmp_path):
    write_folder(tmp_path, "qwen3")
    exact, rounded = (
        llm.load(tmp_path, capacity=32, threads=1, bits=8, accuracy=accuracy, cache=cache)
        for accuracy, cache in (("auto", "f32"), (0.05, "bf16"))
    )
    assert rounded.keeps and {str(state.dtype) for state in rounded.states()} == {"bfloat16"}
    ids = [int(n) for n in np.random.default_rng(2).integers(0, VOCABULARY, 20)]
    wanted, found = exact.logits(ids), rounded.logits(ids)
    assert 0 < np.abs(found - wanted).max() < 0.1 * np.abs(wanted).max()
    # token by token, by another plan, the same
    made = [token.id for token in rounded.generate(ids[:8], tokens=6)]
    scores = rounded.logits([*ids[:8], *made[:-1]])[7:]
    chosen = scores[np.arange(6), made]
    assert np.all(chosen >= scores.max(-1) - 0.05 * np.abs(scores).max())
    assert rounded.model.compilations == 0


def test_models_for_one_text_have_one_request(tmp_path):
    made = decoder(1)
    for value in made.graph.input:
        value.type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(made, tmp_path / "model.onnx")
    with pytest.raises(InputError, match="the model is for 1 texts at once"):
        llm.load(tmp_path, requests=2)


def test_a_capacity_is_a_whole_number(folder):
    with pytest.raises(InputError, match="the capacity is 0"):
        llm.load(folder, capacity=0)
