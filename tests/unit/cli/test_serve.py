"""``tilewright serve``: what it refuses before anything is compiled, and what it starts."""

import pytest
from click.testing import CliRunner

from tilewright.cli.commands import serve as command
from tilewright.support import InputError


def _run(*arguments):
    result = CliRunner().invoke(command.serve, [*map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_others_need_a_key(tmp_path):
    with pytest.raises(InputError, match="reached from other machines"):
        _run(tmp_path, "--host", "0.0.0.0")
    with pytest.raises(InputError, match=r"the key in .* cannot be read"):
        _run(tmp_path, "--api-key-file", tmp_path / "nothing")
    (tmp_path / "key").write_text("\n")
    with pytest.raises(InputError, match="has no key"):
        _run(tmp_path, "--host", "0.0.0.0", "--api-key-file", tmp_path / "key")


def test_the_model_is_served_with_what_is_asked(tmp_path, monkeypatch):
    (tmp_path / "key").write_text("secret\n")
    given = {}

    class Fake:
        def __init__(self, *arguments):
            given["server"] = arguments

        def run(self, *place):
            given["place"] = place

    monkeypatch.setattr(command, "load", lambda folder, **options: options)
    monkeypatch.setattr(command, "Server", Fake)
    told = _run(tmp_path, "--port", 8123, "--requests", 2, "--api-key-file", tmp_path / "key", "--queue", 3)
    model, name, key, limits = given["server"]
    assert model["requests"] == 2 and (name, key, limits.queue) == (tmp_path.name, "secret", 3)
    assert given["place"] == ("127.0.0.1", 8123) and "http://127.0.0.1:8123/v1" in told.stderr
