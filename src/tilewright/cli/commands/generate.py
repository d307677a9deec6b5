"""``tilewright generate``: the text that a language model writes behind a prompt."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from tilewright.cli.options import common_options, loading_options
from tilewright.cli.state import State
from tilewright.llm import Sampling, load


@click.command()
@click.argument("folder", type=click.Path())
@click.option("--prompt", required=True, help="The text to go on from; - reads it from stdin.")
@click.option("--tokens", type=click.IntRange(min=1), help="Tokens to write at most. Default: what fits.")
@click.option("--temperature", default=0.0, show_default=True, help="0 takes the likeliest token each time.")
@click.option("--top-k", default=0, show_default=True, help="Draw of so many likeliest tokens; 0: of all.")
@click.option("--top-p", default=1.0, show_default=True, help="Draw of the likeliest of this probability.")
@click.option("--min-p", default=0.0, show_default=True, help="Least probability, beside the likeliest's.")
@click.option("--repetition-penalty", default=1.0, show_default=True, help="Above 1: fewer repetitions.")
@click.option("--seed", default=0, show_default=True, help="Equal seeds draw equal tokens.")
@click.option("--stop", multiple=True, help="End the text before this one. May be given several times.")
@loading_options
@common_options
def generate(
    state: State,
    folder: str,
    prompt: str,
    tokens: int | None,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    repetition_penalty: float,
    seed: int,
    stop: tuple[str, ...],
    how: dict[str, Any],
) -> None:
    """Write the text that the language model in FOLDER lets follow a prompt.

    FOLDER has config.json, weights as safetensors and tokenizer.json, as Hugging Face writes them, an ONNX
    file as Optimum or onnxruntime-genai write it, or a GGUF file of llama.cpp. The text comes token by token;
    how fast, on stderr.
    """
    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty, seed)
    model = load(folder, **how)
    given = sys.stdin.read() if prompt == "-" else prompt
    start = time.perf_counter()
    first, made = 0.0, []
    for token in model.generate(given, tokens=tokens, sampling=sampling, stop=stop):
        first = first or time.perf_counter() - start
        made.append(token)
        if not state.json:
            click.echo(token.text, nl=False)
    seconds = time.perf_counter() - start
    if state.json:
        text = "".join(token.text for token in made)
        ids = [token.id for token in made]
        state.print_json(
            {
                "command": "generate",
                "model": folder,
                "text": text,
                "tokens": ids,
                "first_s": first,
                "seconds": seconds,
            }
        )
        return
    click.echo()
    later = f", then {(len(made) - 1) / (seconds - first):.1f} a second" if len(made) > 1 else ""
    state.note(f"{len(made)} tokens: the first after {first * 1e3:.1f} ms{later}")
