"""Text of tilings: it parses to what it shows, and says where it does not."""

import pytest

from tilewright.support import ParseError
from tilewright.tiling import parse, show
from unit.tiling import trees


@pytest.mark.parametrize("text", [trees.TILES, trees.COPIED, trees.STRIPS])
def test_text_is_read_back_as_it_is_shown(text):
    assert "".join(map(show, parse(text))) == text


def test_equal_parts_are_one_value():
    (nest,) = parse(trees.TILES)
    first, second = nest.body.parts
    assert first == second
    assert show(nest).count("keep C") == 1


def test_comments_and_empty_lines_are_passed_over():
    assert parse(f"# tiles\n\n{trees.STRIPS}\n") == parse(trees.STRIPS)


def test_layouts_scopes_and_instructions_are_read():
    text = (
        "nest C\n  layout B = d1//16 , d0 , d1%16\n  scope P = global\n  for i/8 guard\n    for i/1 unroll\n"
    )
    text += "      do C by vdpbusd\n"
    (nest,) = parse(text)
    assert nest.layouts == (("B", ("d1//16", "d0", "d1%16")),)
    assert nest.scopes == (("P", "global"),)
    assert nest.body.tail == "guard"
    assert show(nest) == text


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, None),
        ("for i/4\n", 1, "begins with 'nest STAGE'"),
        ("nest C\n   do C\n", 2, "multiple of 2 spaces"),
        ("nest C\n  for i\n    do C\n", 2, "'for i/4'"),
        ("nest C\n  for i/0\n    do C\n", 2, "'for i/4'"),
        ("nest C\n  for i/4 1x\n    do C\n", 2, "no hint"),
        ("nest C\n  fro i/4\n    do C\n", 2, "nothing called 'fro'"),
        ("nest C\n  for i/4\n", 2, "the text ends"),
        ("nest C\n  cut i at 4\n  part 0\n    do C\n", 4, "has 2 parts"),
        ("nest C\n  cut i at\n  part 0\n    do C\n", 2, "'cut AXIS at ELEMENTS"),
        ("nest C\n  cut i at 4\n  part 1\n    do C\n", 3, "'part 0'"),
        ("nest C\n  cut i at 4\n  part 0\n    do C\n  part 1 as part 1\n", 5, "'part 1'"),
        ("nest C\n  make A at local\n    do A\n  do C\n", 2, "'make VALUE in SCOPE'"),
        ("nest C\n  do\n", 2, "'do STAGE'"),
        ("nest C\n  do C-1\n", 2, "no name"),
        ("nest C\n  layout B d0\n  do C\n", 2, "'layout NAME"),
        ("nest C\n  make A in local\n    do A\n", 3, "a level has a body"),
    ],
)
def test_other_text_is_refused_with_its_line(text, line, what):
    if what is None:
        assert parse(text) == ()
        return
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert what in str(caught.value)
    assert f":{line}" in str(caught.value)


def test_text_without_end_is_refused():
    with pytest.raises(ParseError, match="at most"):
        parse(" " * ((1 << 24) + 1))


def test_text_that_nests_without_end_is_refused():
    lines = ["nest C", *("  " * n + "for i/1" for n in range(1, 300)), "  " * 300 + "do C"]
    with pytest.raises(ParseError, match="at most 200 times"):
        parse("\n".join(lines))
