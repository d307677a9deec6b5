"""Propagation: the paper's figures as flows of small programs, its three constraints and the rule of X0."""

from dataclasses import replace

from tilewright import lang
from tilewright.ir import CONST
from tilewright.lang import ops
from tilewright.plan import Flow, neighbours, owned_values, propagated, tied_values, with_layouts
from tilewright.schedule import Schedule

BLOCKS = ("d0", "d1//4", "d2", "d3", "d1%4")
LAST = ("d0", "d2", "d3", "d1")
SHAPE = (1, 8, 6, 6)


def flow(program, inputs, output):
    names = [b.name for b in program.inputs if b.scope != CONST]
    return Flow(program, dict(zip(names, inputs, strict=True)), {program.outputs[0].name: output})


def conv(source, output, pad=1, residual=None):
    """A convolution with what follows it: a bias-free ReLU, perhaps an addition before it."""
    X, W = lang.placeholder(SHAPE, name="X"), lang.placeholder((8, 8, 3, 3), name="W")
    y = ops.conv(X, W, padding=pad)
    inputs = [X, W]
    if residual is not None:
        R = lang.placeholder(SHAPE, name="R")
        y, inputs = lang.compute(SHAPE, lambda *i: y[i] + R[i], name="S"), [X, W, R]
    z = lang.compute(tuple(y.shape), lambda *i: lang.maximum(y[i], 0), name="Z")
    program = lang.program(inputs, [z])
    constants = tuple(b.with_(scope=CONST) if b.name == "W" else b for b in program.inputs)
    return flow(replace(program, inputs=constants), [source] + ([residual] if residual else []), output)


def relu(source, output):
    X = lang.placeholder(SHAPE, name="X")
    return flow(
        lang.program([X], [lang.compute(SHAPE, lambda *i: lang.maximum(X[i], 0), name="Y")]), [source], output
    )


def add(a, b, output):
    A, B = lang.placeholder(SHAPE, name="A"), lang.placeholder(SHAPE, name="B")
    made = lang.compute(SHAPE, lambda *i: A[i] + B[i], name="Y")
    return flow(lang.program([A, B], [made]), [a, b], output)


def pad(source, output):
    X = lang.placeholder(SHAPE, name="X")
    return flow(lang.program([X], [ops.pad(X, ((0, 0), (0, 0), (1, 1), (1, 1)))]), [source], output)


def test_neighbours_are_read_element_by_element_and_of_one_shape():
    assert neighbours(relu("x", "y").program) == (("X", "Y"),)
    assert neighbours(add("a", "b", "y").program) == (("A", "Y"), ("B", "Y"))
    assert neighbours(pad("x", "y").program) == ()
    # not through a convolution, but the residual meets its result
    assert neighbours(conv("x", "y").program) == ()
    assert neighbours(conv("x", "y", residual="r").program) == (("R", "Z"),)


def test_a_layout_goes_downstream_to_all_readers():
    """Fig. 6: convolution, then element-wise operators; two of them read it, and one reads that."""
    flows = [conv("in", "a"), relu("a", "b"), relu("a", "c"), add("b", "c", "d")]
    made = propagated(flows, {"in"}, {"a": BLOCKS})
    assert dict(made.values) == dict.fromkeys("abcd", BLOCKS)
    # without propagation the next kernel converts: it reads one layout and writes another
    assert dict(propagated(flows, {"in"}, {"a": BLOCKS}, "none").values) == {"a": BLOCKS}


def test_other_shapes_and_other_operators_results_end_it():
    """Fig. 5b: a padding between two convolutions converts; the second's result has a layout of its own."""
    flows = [conv("in", "a"), pad("a", "p"), conv("p", "b")]
    made = propagated(flows, {"in"}, {"a": BLOCKS, "b": LAST})
    assert dict(made.values) == {"a": BLOCKS, "b": LAST}
    assert owned_values(flows) == ("a", "b")
    flows = [conv("in", "a"), conv("a", "b", residual="a")]
    assert dict(propagated(flows, {"in"}, {"a": BLOCKS}).values) == {"a": BLOCKS}


def test_the_first_of_several_operands_counts():
    flows = [conv("in", "a"), conv("in", "b"), add("b", "a", "c"), add("a", "b", "d")]
    made = propagated(flows, {"in"}, {"a": BLOCKS, "b": LAST})
    assert (made.values["c"], made.values["d"]) == (LAST, BLOCKS)


def test_what_is_laid_out_with_nothing_complex_before_it_goes_upstream():
    flows = [relu("in", "x"), relu("in", "y"), add("x", "y", "z")]
    made = propagated(flows, {"in"}, {"z": BLOCKS})
    assert dict(made.values) == dict.fromkeys("xyz", BLOCKS)


def test_fixed_values_stay_plain():
    flows = [conv("in", "a"), relu("a", "out")]
    assert dict(propagated(flows, {"in", "out"}, {"a": BLOCKS, "out": LAST}).values) == {"a": BLOCKS}


def test_groups_of_values_that_share_a_layout():
    flows = [conv("in", "a"), conv("a", "b"), conv("b", "c", residual="a"), relu("c", "out")]
    groups = {frozenset(group) for group in tied_values(flows, {"in", "out"})}
    assert groups == {frozenset("ac"), frozenset("b")}


def test_kernels_fuse_only_after_propagation():
    """Figs 6 and 7: a reader's loops are those of the convolution's layout once it has that layout too."""
    first, second = conv("in", "a"), relu("a", "b")
    alone = with_layouts(second, propagated([first, second], (), {"a": BLOCKS}, "none"))
    both = with_layouts(second, propagated([first, second], (), {"a": BLOCKS}))
    adopted = Schedule(both).layout_adopt("X").layout_adopt("Y")
    assert [it.name for it in adopted.program.stage("Y").iters] == ["i", "j_o", "k", "l", "j_i"]
    (read,) = (adopted.program.stage("Y").body.writes[0].value.a.indices,)
    assert [str(x) for x in read] == ["i", "j_o", "k", "l", "j_i"]
    half = Schedule(alone).layout_adopt("X").program.stage("Y").body.writes[0].value.a.indices
    assert [str(x) for x in half] == ["i", "j//4", "k", "l", "j%4"]
