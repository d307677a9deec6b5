"""Text piece by piece: whole characters, and nothing of what ends it."""

from tilewright.llm.text import TextStream

PIECES = ["Hä", "user", "s: ", "sto", "ck", " st", "op", "!"]


def _decode(tokens):
    return b"".join(bytes([t]) for t in tokens).decode(errors="replace")


def _stream(pieces, stops=()):
    stream = TextStream(lambda tokens: "".join(pieces[t] for t in tokens), tuple(stops))
    return stream, [stream.push(n) for n in range(len(pieces))]


def test_pieces_are_the_whole_text():
    stream, given = _stream(PIECES)
    assert given == PIECES and stream.finish() == ""


def test_what_may_be_a_stop_is_kept_back_until_it_is_none():
    stream, given = _stream(PIECES[:5], ["stop"])
    assert given == ["Hä", "user", "s: ", "", "stock"]
    assert stream.finish() == "" and not stream.stopped


def test_a_stop_ends_the_text_before_it():
    stream, given = _stream(PIECES, ["stop", "ck s"])
    assert "".join(given[:6]) == "Häusers: sto" and stream.stopped
    assert stream.finish() == ""


def test_bytes_of_one_character_come_together():
    stream = TextStream(_decode)
    assert [stream.push(t) for t in "aé".encode()] == ["a", "", "é"]
    stream = TextStream(_decode)
    assert stream.push("é".encode()[0]) == "" and stream.finish() == "\ufffd"
