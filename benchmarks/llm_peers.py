"""Other engines of language models for `benchmarks/llm.py`: a checkpoint in their form, prompts and tokens.

llama.cpp (package llama-cpp-python) reads a GGUF file that is written here: F32, or Q8_0 and Q4_0, whose
blocks are those that `tilewright.llm.load(bits=…)` rounds to, too. onnxruntime-genai reads what its own
builder makes, with int8 activations (`accuracy_level` 4), as its packages for CPUs have it.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.driver import optional_module
from tilewright.llm.safetensors import read_tensors

#: Names of llama.cpp, by those of the checkpoint.
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
#: Parts of a prompt that are read at once, as in `tilewright.llm`.
PART = 512


def write_gguf(folder: Path, entries: dict[str, int], longest: int, bits: int) -> Path:
    """The checkpoint as a GGUF file of Qwen3 without a vocabulary."""
    gguf: Any = optional_module("gguf")
    path = folder / f"{bits}.gguf"
    kinds = gguf.GGMLQuantizationType
    kind = {0: kinds.F32, 8: kinds.Q8_0, 4: kinds.Q4_0}[bits]
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_context_length(longest)
    writer.add_embedding_length(entries["hidden_size"])
    writer.add_block_count(entries["num_hidden_layers"])
    writer.add_feed_forward_length(entries["intermediate_size"])
    writer.add_head_count(entries["num_attention_heads"])
    writer.add_head_count_kv(entries["num_key_value_heads"])
    writer.add_key_length(entries["head_dim"])
    writer.add_value_length(entries["head_dim"])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e4)
    writer.add_vocab_size(entries["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    for name, array in read_tensors([folder / "model.safetensors"]).items():
        stem = name.removesuffix(".weight")
        if stem.startswith("model.layers."):
            _, _, n, role = stem.split(".", 3)
            own = f"blk.{n}.{NAMES[role]}.weight"
        else:
            own = f"{NAMES[stem]}.weight"
        values = np.asarray(array).astype(np.float32)
        if values.ndim == 2 and bits:
            writer.add_tensor(own, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(own, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class LlamaCpp:
    """llama.cpp by its C interface: greedy tokens."""

    name = "llama.cpp"
    bits = (0, 4, 8)

    def __init__(self, folder: Path, entries: dict[str, int], longest: int, bits: int, threads: int) -> None:
        c = self._c = optional_module("llama_cpp")
        c.llama_backend_init()
        path = write_gguf(folder, entries, longest, bits)
        self._model = c.llama_model_load_from_file(str(path).encode(), c.llama_model_default_params())
        how = c.llama_context_default_params()
        how.n_ctx, how.n_batch, how.n_ubatch = longest, PART, PART
        how.n_threads = how.n_threads_batch = threads
        self._context = c.llama_init_from_model(self._model, how)
        self._scores, self._batch, self._length = entries["vocab_size"], c.llama_batch_init(PART, 0, 1), 0
        if not self._model or not self._context:
            raise RuntimeError("llama.cpp does not read the file")

    def start(self, ids: Sequence[int]) -> int:
        """Read a prompt; the first token."""
        self._c.llama_memory_clear(self._c.llama_get_memory(self._context), True)
        self._length = 0
        for at in range(0, len(ids), PART):
            token = self.step(ids[at : at + PART])
        return token

    def step(self, ids: Sequence[int]) -> int:
        """Read more tokens; the next one."""
        batch, start = self._batch, self._length
        for n, token in enumerate(ids):
            batch.token[n], batch.pos[n], batch.n_seq_id[n] = token, start + n, 1
            batch.seq_id[n][0], batch.logits[n] = 0, n == len(ids) - 1
        batch.n_tokens, self._length = len(ids), start + len(ids)
        if self._c.llama_decode(self._context, batch):
            raise RuntimeError("llama.cpp ran into an error")
        scores = self._c.llama_get_logits_ith(self._context, -1)
        return int(np.ctypeslib.as_array(scores, (self._scores,)).argmax())


def _with_tokens(folder: Path, given: Path, count: int) -> None:
    """The checkpoint with a vocabulary and a token that ends texts, which the builder asks for."""
    tokenizers, transformers = optional_module("tokenizers"), optional_module("transformers")
    if given.exists():
        return
    given.mkdir()
    words = tokenizers.models.WordLevel({f"t{n}": n for n in range(count)}, unk_token="t0")
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(words), unk_token="t0")
    made.save_pretrained(given)
    entries = json.loads((folder / "config.json").read_text())
    (given / "config.json").write_text(json.dumps(entries | {"bos_token_id": 1, "eos_token_id": count - 1}))
    (given / "model.safetensors").symlink_to(folder / "model.safetensors")


class Genai:
    """onnxruntime-genai: greedy tokens."""

    name = "onnxruntime-genai"
    bits = (0, 4)

    def __init__(self, folder: Path, entries: dict[str, int], longest: int, bits: int, threads: int) -> None:
        og = self._og = optional_module("onnxruntime_genai")
        made, given = folder / f"genai-{bits}", folder / "given"
        _with_tokens(folder, given, entries["vocab_size"])
        command = [
            sys.executable,
            "-m",
            "onnxruntime_genai.models.builder",
            "-i",
            str(given),
            "-o",
            str(made),
        ]
        command += ["-p", "int4" if bits else "fp32", "-e", "cpu", "-c", str(folder / "cache")]
        if bits:
            command += ["--extra_options", "int4_accuracy_level=4", "int4_block_size=32"]
        subprocess.run(command, check=True, capture_output=True)
        config = og.Config(str(made))
        config.overlay(
            f'{{"model": {{"decoder": {{"session_options": {{"intra_op_num_threads": {threads}}}}}}}}}'
        )
        self._model, self._longest = og.Model(config), longest

    def start(self, ids: Sequence[int]) -> int:
        """Read a prompt; the first token."""
        how = self._og.GeneratorParams(self._model)
        how.set_search_options(max_length=self._longest, do_sample=False)
        self._generator = self._og.Generator(self._model, how)
        self._generator.append_tokens(np.array([ids], np.int32))
        return self._next()

    def step(self, ids: Sequence[int]) -> int:
        """The next token; the one before is known."""
        return self._next()

    def _next(self) -> int:
        self._generator.generate_next_token()
        return int(self._generator.get_next_tokens()[0])


ENGINES = {engine.name: engine for engine in (LlamaCpp, Genai)}
