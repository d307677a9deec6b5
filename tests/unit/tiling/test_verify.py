"""What is no tiling of a program: one error, with the line and the invariant that it breaks."""

import pytest

from tilewright.support import ScheduleError
from tilewright.target import X86_AVX512
from tilewright.tiling import parse, verify
from unit.tiling import trees

PLAIN = "nest C\n  for i/1\n    for j/1\n      for k/1\n        do C\n"


def refused(text, program=None):
    with pytest.raises(ScheduleError) as caught:
        verify(parse(text), trees.product() if program is None else program, X86_AVX512.operations)
    return str(caught.value)


@pytest.mark.parametrize("text", [PLAIN, trees.TILES, trees.COPIED])
def test_trees_of_products_are_accepted(text):
    verify(parse(text), trees.product(), {})


def test_a_tree_of_another_program_is_refused():
    assert "no stage of the program" in refused(PLAIN.replace("nest C", "nest D"))
    assert "no buffer" in refused(PLAIN.replace("nest C\n", "nest C\n  layout Q = d0\n"))


@pytest.mark.parametrize(
    ("old", "new", "law", "line"),
    [
        ("for i/1", "for x/1", "axes", "for x/1"),
        ("for i/1", "for i*x/1", "axes", "for i*x/1"),
        ("for i/1\n", "for i/2\n", "digits", "do C"),
        ("  for k/1\n        do C", "  do C", "axes", "do C"),
        ("do C", "do A", "axes", "do A"),
        ("for k/1", "for k/1 parallel", "kinds", "for k/1 parallel"),
        ("for k/1", "for k/1 colour=red", "hints", "for k/1 colour=red"),
        ("for k/1", "for k/1 unroll=0", "hints", "for k/1 unroll=0"),
        ("for i/1\n    for j/1", "for i/1 parallel\n    for j/1 parallel", "threads", "for j/1 parallel"),
        ("for i/1", "for i/1 thread.x", "threads", "for i/1 thread.x"),
        ("for i/1", "for i/1 vector", "lanes", "for j/1"),
        ("do C", "do C by nothing", "instructions", "do C by nothing"),
    ],
)
def test_levels_and_leaves(old, new, law, line):
    assert old in PLAIN
    message = refused(PLAIN.replace(old, new))
    assert f"({law})" in message
    assert f"`{line}`" in message


@pytest.mark.parametrize(
    ("old", "new", "law"),
    [
        ("cut j at 16", "cut j at 12", "parts"),
        ("cut j at 16", "cut j at 24", "parts"),
        ("cut j at 16", "cut i at 8", "parts"),
        ("keep C in register", "keep C in attic", "storage"),
        ("keep C in register", "keep C in register tower=2", "hints"),
    ],
)
def test_parts_and_places(old, new, law):
    assert f"({law})" in refused(trees.TILES.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "law"),
    [
        ("make A", "make Z", "producers"),
        ("make A", "make C", "producers"),
        (
            "    make A in local\n      for y/1\n        for x/1 vector\n          do A\n",
            "    make A in local\n",
            "producers",
        ),
        ("do A", "do C", "axes"),
        ("copy", "copy", "storage"),
    ],
)
def test_producers(old, new, law):
    text = trees.STRIPS.replace(old, new)
    if old == "copy":
        text = trees.STRIPS.replace("make A", "copy Q")
    assert f"({law})" in refused(text, trees.blur())


def test_what_starts_has_sums():
    text = trees.STRIPS.replace("make A", "init A")
    assert "no sums" in refused(text, trees.blur())


def test_what_is_kept_is_drained():
    head, _, _ = trees.COPIED.partition("      drain")
    assert "(storage)" in refused(head)


def test_layouts_are_of_the_dimensions_of_buffers():
    assert "there is no dimension 'j' (layouts): `copy B" in refused(trees.COPIED.replace("d1//8", "j//8"))
    assert "(layouts)" in refused(PLAIN.replace("nest C\n", "nest C\n  layout B = d0//2\n"))
