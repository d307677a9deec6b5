"""``tilewright serve``: a language model over HTTP, for clients of OpenAI's interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tilewright.cli.options import common_options, loading_options
from tilewright.cli.state import State
from tilewright.llm import ServeLimits, Server, check_host, load
from tilewright.support import InputError, quoted


@click.command()
@click.argument("folder", type=click.Path())
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to be reached at.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
@click.option("--api-key-file", type=click.Path(), help="A file with the key that clients have to give.")
@click.option("--requests", type=click.IntRange(min=1), default=4, show_default=True, help="Texts at once.")
@click.option(
    "--queue", type=click.IntRange(min=1), default=64, show_default=True, help="Requests that wait."
)
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), default=600.0, show_default=True)
@loading_options
@common_options
def serve(
    state: State,
    folder: str,
    host: str,
    port: int,
    api_key_file: str | None,
    requests: int,
    queue: int,
    seconds: float,
    how: dict[str, Any],
) -> None:
    """Serve the language model in FOLDER until interrupted: /v1/completions and /v1/chat/completions.

    FOLDER is as for `tilewright generate`. /health says that the server runs, /metrics what it does. A text
    that takes more than --seconds is ended.
    """
    key = None
    if api_key_file is not None:
        try:
            key = Path(api_key_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the key in {quoted(api_key_file)} cannot be read: {error}") from None
        if not key:
            raise InputError(f"the file {quoted(api_key_file)} has no key")
    check_host(host, key)
    model = load(folder, requests=requests, **how)
    server = Server(model, Path(folder).resolve().name, key, ServeLimits(queue=queue, seconds=seconds))
    state.note(f"serving {folder} at http://{host}:{port}/v1")
    server.run(host, port)
