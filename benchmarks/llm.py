"""Language models with random weights: prompts and tokens a second, and the share of the memory's bandwidth.

    python benchmarks/llm.py [--models small,qwen3] [--bits 0,8,4] [--lengths 128,512] [--tokens 32]
                             [--against transformers] [--accuracy 0.02] [--threads 2] [--json]

Checkpoints of published shapes are written with random numbers in bf16, and loaded as `tilewright.llm.load`
loads any: `--bits 0` multiplies by them as they are, 8 and 4 round them to blocks of 32. A row a model,
bits and length of a prompt: seconds of compiling, bytes of weights, milliseconds of the prompt and of a token
after it (medians), and the part of the bandwidth, as measured in this run, that reading all weights once a
token takes.
Against `transformers` (bf16 made f32), the prompt and its tokens are timed in the same process.
"""

import json
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
from arguments import names, parser_of
from safetensors.numpy import save_file

from tilewright import llm
from tilewright.driver import measure_limits, optional_module
from tilewright.support import available_cpus
from tilewright.target import detect

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


def timed(model: llm.LanguageModel, length: int, tokens: int) -> tuple[float, float]:
    """Milliseconds of a prompt with its first token, and of a later one."""
    ids = [int(n) for n in np.random.default_rng(1).integers(3, 8000, length)]
    prompts, later = [], []
    for _ in range(3):
        marks = [time.perf_counter()]
        marks += [time.perf_counter() for _ in model.generate(ids, tokens=tokens)]
        prompts.append(marks[1] - marks[0])
        later += [after - before for before, after in pairwise(marks[1:])]
    return 1e3 * statistics.median(prompts), 1e3 * statistics.median(later)


def of_transformers(folder: Path, lengths: list[int], tokens: int, threads: int) -> list[dict[str, object]]:
    """The same of the package that checkpoints are written for."""
    torch, transformers = optional_module("torch"), optional_module("transformers")
    torch.set_num_threads(threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    rows = []
    for length in lengths:
        given = torch.randint(3, 8000, (1, length))
        times = []
        for count in (1, tokens):
            start = time.perf_counter()
            with torch.no_grad():
                model.generate(
                    given, max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0
                )
            times.append(time.perf_counter() - start)
        later = (times[1] - times[0]) / (tokens - 1)
        rows.append(
            {"engine": "transformers", "length": length, "prompt_ms": 1e3 * times[0], "token_ms": 1e3 * later}
        )
    return rows


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
                for length in lengths:
                    prompt, token = timed(model, length, given.tokens)
                    share = nbytes / (token / 1e3) / limits.bandwidth(nbytes)
                    row = {
                        "engine": "tilewright",
                        "bits": bits,
                        "length": length,
                        "accuracy": how,
                        "compile_s": compiled,
                    }
                    row |= {"weights": nbytes, "prompt_ms": prompt, "token_ms": token, "bandwidth": share}
                    rows.append(row)
            if "transformers" in names(given.against):
                rows += of_transformers(folder, lengths, given.tokens, given.threads)
            for row in rows:
                print(json.dumps({"model": name, **row}) if given.json else f"{name:15} {row}", flush=True)


if __name__ == "__main__":
    main()
