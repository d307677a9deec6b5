"""Language models with random weights: prompts and tokens a second, and the share of the memory's bandwidth.

    python benchmarks/llm.py [--models small,qwen3] [--bits 0,8,4] [--lengths 128,512] [--tokens 32] [--json]
                             [--against transformers,llama.cpp,onnxruntime-genai] [--accuracy 0.02]
                             [--threads 2]

Checkpoints of published shapes are written with random numbers in bf16, and loaded as `tilewright.llm.load`
loads any: `--bits 0` multiplies by them as they are, 8 and 4 round them to blocks of 32. A row an engine,
bits and length of a prompt: milliseconds of the prompt and of a token after it (medians and minima, of
engines in turns); of ours seconds of compiling, bytes of weights, and the part of the bandwidth, as measured
in this run, that reading all weights in the least time of a token takes.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from arguments import names, parser_of
from llm_peers import ENGINES
from safetensors.numpy import save_file

from tilewright import llm
from tilewright.driver import measure_limits, optional_module
from tilewright.support import available_cpus
from tilewright.target import detect

#: Prompts, with what follows them, of each engine: they take turns.
ROUNDS = 3
#: Entries of configurations: of the published models, the first blocks where a name says so.
SHAPES = {
    "small": {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 4, "num_attention_heads": 8}
    | {"num_key_value_heads": 4, "head_dim": 64, "vocab_size": 8192},
    "qwen3": {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
    }
    | {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True},
    "qwen3-6-blocks": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 6}
    | {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 32768}
    | {"tie_word_embeddings": True},
}


def write(folder: Path, shape: dict[str, int], longest: int) -> None:
    """A checkpoint of Qwen3's family with numbers that are about as large as trained ones."""
    rng = np.random.default_rng(0)
    hidden, inner, depth = shape["hidden_size"], shape["intermediate_size"], shape["head_dim"]
    rows, keys = shape["num_attention_heads"] * depth, shape["num_key_value_heads"] * depth
    made = {}

    def add(name: str, *sizes: int) -> None:
        values = (
            rng.standard_normal(sizes, np.float32) / np.sqrt(sizes[-1]) if len(sizes) > 1 else np.ones(sizes)
        )
        made[f"{name}.weight"] = values.astype(ml_dtypes.bfloat16)

    add("model.embed_tokens", shape["vocab_size"], hidden)
    add("model.norm", hidden)
    if not shape.get("tie_word_embeddings"):
        add("lm_head", shape["vocab_size"], hidden)
    for n in range(shape["num_hidden_layers"]):
        at = f"model.layers.{n}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            add(f"{at}.{name}", hidden)
        for name in ("q_norm", "k_norm"):
            add(f"{at}.self_attn.{name}", depth)
        for name, out, into in (
            ("q", rows, hidden),
            ("k", keys, hidden),
            ("v", keys, hidden),
            ("o", hidden, rows),
        ):
            add(f"{at}.self_attn.{name}_proj", out, into)
        for name, out, into in (("gate", inner, hidden), ("up", inner, hidden), ("down", hidden, inner)):
            add(f"{at}.mlp.{name}_proj", out, into)
    entries = {
        **shape,
        "model_type": "qwen3",
        "max_position_embeddings": longest,
        "architectures": ["Qwen3ForCausalLM"],
    }
    (folder / "config.json").write_text(json.dumps(entries))
    save_file(made, folder / "model.safetensors", metadata={"format": "pt"})


class Ours:
    """Tilewright's model: greedy tokens."""

    name = "tilewright"

    def __init__(self, model: llm.LanguageModel, tokens: int) -> None:
        self._model, self._tokens = model, tokens

    def start(self, ids: Sequence[int]) -> int:
        """Read a prompt; the first token."""
        self._made = self._model.generate(ids, tokens=self._tokens)
        return next(self._made).id

    def step(self, ids: Sequence[int]) -> int:
        """The next token."""
        return next(self._made).id


class Transformers:
    """The package that checkpoints are written for, in f32."""

    name = "transformers"

    def __init__(self, folder: Path, threads: int) -> None:
        self._torch, transformers = optional_module("torch"), optional_module("transformers")
        self._torch.set_num_threads(threads)
        self._model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=self._torch.float32
        ).eval()

    def start(self, ids: Sequence[int]) -> int:
        """Read a prompt; the first token."""
        self._past = None
        return self.step(ids)

    def step(self, ids: Sequence[int]) -> int:
        """Read more tokens; the next one."""
        with self._torch.no_grad():
            made = self._model(self._torch.tensor([list(ids)]), past_key_values=self._past, use_cache=True)
        self._past = made.past_key_values
        return int(made.logits[0, -1].argmax())


def timed(engines: Sequence[Any], length: int, tokens: int) -> dict[str, tuple[list[float], list[float]]]:
    """Milliseconds of prompts with their first token, and of later ones, of engines in turns."""
    ids = [int(n) for n in np.random.default_rng(1).integers(3, 8000, length)]
    found: dict[str, tuple[list[float], list[float]]] = {engine.name: ([], []) for engine in engines}
    for _ in range(ROUNDS):
        for engine in engines:
            prompts, later = found[engine.name]
            marks, token = [time.perf_counter()], engine.start(ids)
            marks.append(time.perf_counter())
            for _ in range(tokens - 1):
                token = engine.step([token])
                marks.append(time.perf_counter())
            steps = [1e3 * (after - before) for before, after in pairwise(marks)]
            prompts.append(steps[0])
            later += steps[1:]
    return found


def main() -> None:
    """Measure, and print a row for each thing."""
    parser = parser_of(__doc__)
    parser.add_argument("--models", default="small", help=f"of {', '.join(SHAPES)}, by commas")
    parser.add_argument("--bits", default="0,8,4")
    parser.add_argument("--lengths", default="128,512")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--against", default="")
    parser.add_argument("--accuracy", default="auto")
    parser.add_argument("--threads", type=int, default=available_cpus())
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    lengths, limits = [int(n) for n in names(given.lengths)], measure_limits(detect(), given.threads)
    for name in names(given.models):
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            longest = max(lengths) + given.tokens
            write(folder, SHAPES[name], longest)
            rows: list[dict[str, object]] = []
            for bits in map(int, names(given.bits)):
                start = time.perf_counter()
                how = given.accuracy if bits else "auto"
                model = llm.load(
                    folder, capacity=longest, threads=given.threads, bits=bits or None, accuracy=how
                )
                compiled, nbytes = time.perf_counter() - start, model.model.constant_bytes
                engines: list[Any] = [Ours(model, given.tokens)]
                for other in names(given.against):
                    if other == "transformers":
                        engines += [] if bits else [Transformers(folder, given.threads)]
                    elif bits in ENGINES[other].bits:
                        engines.append(ENGINES[other](folder, SHAPES[name], longest, bits, given.threads))
                for length in lengths:
                    for engine, (prompts, later) in timed(engines, length, given.tokens).items():
                        row = {"engine": engine, "bits": bits, "length": length}
                        row |= {"prompt_ms": statistics.median(prompts), "prompt_least": min(prompts)}
                        row |= {"token_ms": statistics.median(later), "token_least": min(later)}
                        if engine == "tilewright":
                            row |= {"accuracy": how, "compile_s": compiled, "weights": nbytes}
                            # all but the table of embeddings, in bf16, of which a token reads a row
                            read = nbytes - 2 * SHAPES[name]["vocab_size"] * SHAPES[name]["hidden_size"]
                            row["bandwidth"] = read / (min(later) / 1e3) / limits.bandwidth(read)
                        rows.append(row)
            for row in rows:
                print(json.dumps({"model": name, **row}) if given.json else f"{name:15} {row}", flush=True)


if __name__ == "__main__":
    main()
