"""Configurations of decoders: what is left out, and what is refused; test_decoder.py compares the models."""

import pytest

from decoder_folders import CONFIGURATIONS
from tilewright.llm.families import FAMILIES, read_decoder
from tilewright.support import ModelError, UnsupportedOperatorError

LLAMA = CONFIGURATIONS["llama"] | {"model_type": "llama"}


def test_every_family_has_a_configuration_that_is_compared():
    assert {kind.split("_biased")[0] for kind in CONFIGURATIONS} == {*FAMILIES}


def test_what_configurations_leave_out_is_the_familys():
    gemma = read_decoder(
        {**LLAMA, "model_type": "gemma2", "tie_word_embeddings": None, "num_hidden_layers": 4}
    )
    assert gemma.windows == (4096, 0, 4096, 0) and (gemma.softcap, gemma.final_softcap) == (50.0, 30.0)
    assert gemma.depth == 256 and gemma.scale == 1 / 16
    assert read_decoder({**LLAMA, "num_key_value_heads": None}).kv_heads == 4
    qwen = read_decoder({**LLAMA, "model_type": "qwen2"})
    assert qwen.windows == (0, 0) and not qwen.biases ^ {"q", "k", "v"}
    scaled = read_decoder({**CONFIGURATIONS["gpt2"], "model_type": "gpt2", "scale_attn_weights": False})
    assert scaled.scale == 1.0 and scaled.inner == 4 * 48


def test_blocks_may_say_which_have_windows():
    kinds = ["full_attention", "sliding_attention"]
    entries = {**LLAMA, "model_type": "mistral", "sliding_window": 8, "layer_types": kinds}
    assert read_decoder(entries).windows == (0, 8)
    assert read_decoder({**entries, "sliding_window": None}).windows == (0, 0)
    with pytest.raises(ModelError, match="layer_types of the configuration is no list of 2 blocks"):
        read_decoder({**entries, "layer_types": kinds[:1]})
    with pytest.raises(UnsupportedOperatorError, match="blocks of the type 'chunked_attention'"):
        read_decoder({**entries, "layer_types": ["chunked_attention", "full_attention"]})


def test_the_decoder_of_a_model_for_pictures_too_is_taken():
    assert read_decoder(
        {"model_type": "gemma3", "text_config": {**LLAMA, "model_type": "gemma3_text"}}
    ).family.unit


@pytest.mark.parametrize(
    ("change", "kind", "problem"),
    [
        ({"model_type": "rwkv"}, UnsupportedOperatorError, "the architecture 'rwkv' of the language model"),
        ({"model_type": ["llama"]}, UnsupportedOperatorError, "the architecture"),
        ({"hidden_act": "mish"}, UnsupportedOperatorError, "the activation 'mish'"),
        ({"use_bidirectional_attention": True}, UnsupportedOperatorError, "in both directions"),
        ({"hidden_size": 0}, ModelError, "says hidden_size is 0"),
        ({"vocab_size": None}, ModelError, "says vocab_size is None"),
        ({"num_hidden_layers": True}, ModelError, "says num_hidden_layers is True"),
        ({"rms_norm_eps": "1"}, ModelError, "says rms_norm_eps is '1'"),
        ({"num_key_value_heads": 3}, ModelError, "4 heads of 12 numbers do not share 3"),
        ({"rope_scaling": 3}, ModelError, "the rotary embedding of the configuration is no JSON object"),
    ],
)
def test_entries_that_cannot_be_are_refused(change, kind, problem):
    with pytest.raises(kind, match=problem):
        read_decoder(LLAMA | change)
