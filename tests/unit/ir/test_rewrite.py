"""Finding and rewriting: what changes, what stays the same object, and which names are fresh."""

import pytest
from hypothesis import given, settings

from random_ir import functions
from tilewright.ir import (
    NOTHING,
    ZERO,
    Alloc,
    Barrier,
    Block,
    For,
    If,
    Load,
    Seq,
    blocks,
    buffers_of,
    find,
    fresh_name,
    index,
    locate,
    map_blocks,
    map_buffers,
    map_exprs,
    map_loads,
    map_stmt,
    parse_function,
    print_stmt,
    rename_loops,
    replace_at,
    seq,
    simplify_seqs,
    stmt_children,
    stmt_loads,
    structurally_equal,
    substitute,
    verify,
)

TEXT = """
function("f", outputs=[y])
n = param(1, 64)
x = f32[n]
y = f32[n]
t = alloc(f32[n])
for i in range(n):
    with block("copy", stage="t"):
        v = par(0, n, i)
        t[v] = x[v]
for io in parallel((n + 3)//4):
    s = alloc(f32[4], scope="local", layout=index_map([d], [d - 4*io], [4]))
    for ii in range(4):
        if n - 4*io - ii - 1 >= 0:
            with block("square", stage="s"):
                v = par(0, n, 4*io + ii)
                s[v] = t[v] * t[v]
    for iv in vector(4):
        with block("out", stage="y"):
            v = par(0, n, 4*io + iv)
            where(n - 4*io - iv - 1 >= 0)
            y[v] = s[v]
"""


@pytest.fixture
def f():
    return parse_function(TEXT)


def test_find_gives_the_way_to_a_node(f):
    place = find(f.body, "square")
    assert place.node.name == "square"
    assert [loop.var for loop in place.loops] == ["io", "ii"]
    assert [str(c) for c in place.conditions] == ["-ii - 4*io + n - 1 >= 0"]
    assert find(f.body, "iv").node.var == "iv"
    assert find(f.body, "nobody") is None
    node = f.body
    for step in place.path:
        node = stmt_children(node)[step]
    assert node is place.node


def test_blocks_and_names_in_program_order(f):
    assert [place.node.name for place in blocks(f.body)] == ["copy", "square", "out"]
    assert f.body.names == {"i", "copy", "io", "ii", "square", "iv", "out"}
    assert set(buffers_of(f)) == {"x", "y", "t", "s"}


def test_replacing_shares_everything_off_the_path(f):
    place = find(f.body, "out")
    new = replace_at(f.body, place.path, NOTHING)
    old_copy, new_copy = find(f.body, "copy").node, find(new, "copy").node
    assert old_copy is new_copy
    assert "out" not in new.names
    assert replace_at(f.body, place.path, place.node) is f.body


def test_identity_rewrites_return_the_same_object(f):
    assert map_stmt(f.body, lambda s: s) is f.body
    assert map_exprs(f.body, lambda x: x, lambda e: e) is f.body
    assert map_blocks(f.body, lambda b: b) is f.body
    assert map_buffers(f.body, lambda b: b) is f.body
    assert map_loads(f.body, lambda ld: ld) is f.body
    assert substitute(f.body, {"unused": ZERO}) is f.body
    assert f.with_body(f.body) is f


@settings(max_examples=25)
@given(functions())
def test_identity_rewrites_of_random_functions(f):
    assert map_stmt(f.body, lambda s: s) is f.body
    assert substitute(f.body, {"unused": ZERO}) is f.body
    assert map_buffers(f.body, lambda b: b) is f.body


def test_substitution_reaches_bounds_guards_bindings_and_layouts_but_not_blocks(f):
    loop = find(f.body, "io").node
    body = substitute(loop.body, {"io": index(3), "v": index(99)})
    text = print_stmt(body)
    assert "io" not in text
    assert "[d - 12]" in text
    assert 'par(0, param("n", 1, 64), ii + 12)' in text
    assert "99" not in text
    # a loop of that name inside binds its own
    assert substitute(loop, {"io": index(3)}) is loop


def test_substitution_in_lowered_code_reaches_stores():
    f = parse_function('function("f", outputs=[y])\ny = f32[9]\nfor i in range(2):\n    y[i + j] = f32[j]')
    assert print_stmt(substitute(f.body, {"j": index(4)})) == "for i in range(2):\n    y[i + 4] = f32[4]\n"


def test_loads_are_replaced_inside_opaque_indices_too():
    f = parse_function(
        'function("f", outputs=[y])\ny = f32[4]\np = i32[4]\nx = f32[4]\n'
        'with block("b"):\n    y[0] = x[int(p[1])]'
    )
    moved = map_loads(f.body, lambda ld: Load("q", ld.indices, ld.dtype) if ld.buffer == "p" else ld)
    assert [ld.buffer for ld in stmt_loads(moved)] == ["x", "q"]


def test_buffers_are_renamed_where_they_are_declared(f):
    new = map_buffers(f.body, lambda b: b.with_(scope="register") if b.name == "s" else b)
    scopes = {p.node.buffer.name: p.node.buffer.scope for p in locate(new, Alloc)}
    assert scopes == {"t": "global", "s": "register"}


def test_sequences_are_flattened_and_emptied():
    loop = For("i", ZERO, index(4), seq())
    assert simplify_seqs(Seq((Seq((Barrier("a"), loop)), Seq(()), Barrier("b")))) == Seq(
        (Barrier("a"), Barrier("b"))
    )
    assert simplify_seqs(Seq((loop, Barrier("a")))) == Barrier("a")
    assert simplify_seqs(If((), NOTHING)) == NOTHING
    kept = If((), NOTHING, Barrier("a"))
    assert simplify_seqs(kept) is kept
    whole = Seq((Barrier("a"), Barrier("b")))
    assert simplify_seqs(whole) is whole


def test_fresh_names():
    assert fresh_name("i", {"j"}) == "i"
    assert fresh_name("i", {"i"}) == "i_1"
    assert fresh_name("i", {"i": 0, "i_1": 0}) == "i_2"


def test_renamed_copies_differ_in_names_alone(f):
    taken = set(f.body.names)
    copy = rename_loops(f.body, taken)
    assert not copy.names & f.body.names
    assert taken == copy.names | f.body.names
    assert structurally_equal(f, f.with_body(copy))
    verify(f.with_body(copy))


@settings(max_examples=25)
@given(functions())
def test_renaming_makes_names_unique_and_keeps_the_structure(f):
    new = rename_loops(f.body, set())
    named = [s.node for s in locate(new, (For, Block))]
    names = [s.var if isinstance(s, For) else s.name for s in named]
    assert len(names) == len(set(names))
    assert structurally_equal(f.with_body(new), f)
