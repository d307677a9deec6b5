"""What import_tree refuses: texts that are no trees, trees of something else, trees that change results."""

import re

import islpy as isl
import pytest

from tilewright import lang
from tilewright.ir import F32, Const, For, Program, Stage, buffer, store, thread, to_function, var
from tilewright.poly import extract_model, import_tree, tile_and_fuse
from tilewright.poly.tree_text import MAX_CHARACTERS, MAX_DEPTH, MAX_NODES, follow_tree
from tilewright.schedule import Schedule, replay
from tilewright.support import ProgramError, ResourceError, ScheduleError
from unit.poly.builders import chain, it, ld, nest, with_body
from unit.poly.cases import overlapped

DOMAIN = '{ domain: "{ B[x] : 0 <= x < 8; C[C_x] : 0 <= C_x < 6 }", child: %s }'
TWO = '{ sequence: [ { filter: "{ B[x] }"%s }, { filter: "{ C[C_x] }"%s } ] }'


def refused(text, match):
    with pytest.raises(ScheduleError, match=match) as caught:
        follow_tree(to_function(chain()), text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "the text is no schedule tree"),
        ("{", "no schedule tree"),
        ("[1, 2]", "no schedule tree"),
        ('{ domain: "{ B[x] : " }', "no schedule tree"),
        (
            '{ domain: "{ B[x] : 0 <= x < 8 }", child: { schedule: "[{ B[x] -> [1/0] }]" } }',
            "no schedule tree",
        ),
        ("{ " * (MAX_DEPTH + 1), "nested deeper than"),
        (" " * (MAX_CHARACTERS + 1), "at most 1048576 are read"),
        ("{\0}", "not printable ASCII"),
        ('{ domain: "{ B[ä] }" }', "not printable ASCII"),
        (DOMAIN % '{ context: "{ [] }", child: { leaf } }', "a node of type context"),
        (DOMAIN % '{ mark: "gpu", child: { leaf } }', "the mark 'gpu' has no meaning"),
        ('{ domain: "{ Z[x] : 0 <= x < 8 }" }', "there is no statement 'Z' of 1 loops"),
        ('{ domain: "{ B[x, y] : 0 <= x, y < 8 }" }', "there is no statement 'B' of 2 loops"),
        ('{ domain: "[M] -> { B[x] : 0 <= x < M and M <= 8 }" }', "there is no parameter 'M'"),
        ('{ domain: "{ B[x] : 0 <= x < 9 }" }', "runs instances of 'B' that there are not"),
        ('{ domain: "{ B[x] : x >= 0 }" }', "runs instances of 'B' that there are not"),
    ],
)
def test_texts_that_are_no_trees_of_the_function(text, match):
    refused(text, match)


def test_trees_of_many_nodes_are_not_walked(monkeypatch):
    monkeypatch.setattr("tilewright.poly.tree_text.MAX_NODES", 5)
    assert MAX_NODES > 5
    refused(DOMAIN % (TWO % ("", "")), "more than 5 nodes")


@pytest.mark.parametrize(
    ("tree", "match"),
    [
        (DOMAIN % '{ sequence: [ { filter: "{ C[C_x] }" }, { filter: "{ B[x] }" } ] }', "reads B.* from"),
        ('{ domain: "{ B[x] : 0 <= x < 8 }" }', "ends with another value"),
        (
            '{ domain: "{ B[x] : 0 <= x < 7; C[C_x] : 0 <= C_x < 6 }", child: ' + TWO % ("", "") + "}",
            "reads B",
        ),
        (
            DOMAIN % '{ mark: "parallel", child: { schedule: "[{ B[x] -> [x]; C[C_x] -> [C_x + 2] }]" } }',
            "conflict on B|reads B",
        ),
        (
            DOMAIN % '{ schedule: "[{ B[x] -> [x]; C[C_x] -> [C_x + 2] }]", child: { mark: "scratch(B)",'
            ' child: { sequence: [ { filter: "{ B[x] }" }, { filter: "{ C[C_x] }" } ] } } }',
            "reads B",
        ),
    ],
)
def test_trees_that_change_results(tree, match):
    error = refused(tree, "the tree changes what is computed")
    assert re.search(match, error.what)


def test_trees_that_cost_too_much_are_given_up():
    func = to_function(chain())
    with pytest.raises(ResourceError, match="isl gave up after 2000 operations") as caught:
        follow_tree(func, DOMAIN % (TWO % ("", "")), operations=2000)
    assert "smaller parts" in caught.value.hint


def test_loops_without_an_end_are_refused():
    text = DOMAIN % '{ schedule: "[{ B[x] -> [x]; C[C_x] -> [C_x] }]", options: "{ unroll[0] }" }'
    refused(text, "the tree changes what is computed")


def test_storage_of_tiles_is_not_imported_again():
    func = overlapped()
    with pytest.raises(ProgramError, match="buffer 'B' is a tile already"):
        model = extract_model(func)
        import_tree(model, tile_and_fuse(model, "C", [2], ["B"]).schedule)


def _three():
    X = lang.placeholder((8,), name="X")
    A = lang.compute((8,), lambda i: X[i] * 2, name="A")
    B = lang.compute((8,), lambda i: A[i] + 1, name="B")
    return Schedule(lang.program([X], [lang.compute((8,), lambda i: A[i] + B[i], name="C")]))


@pytest.mark.parametrize(
    ("stages", "match"),
    [
        (("Z",), "there is no stage 'Z'"),
        ((), "no stages are given"),
        (("A", "C"), "the stage 'B' stands among those of the tree"),
        (("A",), "the text is no schedule tree"),
    ],
)
def test_the_primitive_refuses_with_the_program_shown(stages, match):
    with pytest.raises(ScheduleError, match=match) as caught:
        _three().import_tree(stages, "no tree")
    assert "with block" in caught.value.program
    if stages == ("Z",):
        assert all(name in str(caught.value.hint) for name in ("A", "B", "C"))


def test_hardware_threads_stay_where_they_are():
    x = var("x")
    p = Program(
        "f",
        (),
        (),
        (buffer("C", (8,), F32),),
        (),
        (Stage("C", (it("x", 8),), store("C", (x,), Const(0.0, F32))),),
    )
    func = with_body(p, nest([("x", 0, 8, thread("block.x"))], to_function(p).body.body))
    assert isinstance(func.body, For) and ld("C", x) is not None
    with pytest.raises(ScheduleError, match="'x' runs on hardware threads"):
        Schedule(func).import_tree(["C"], '{ domain: "{ C[x] : 0 <= x < 8 }" }')


def test_a_trace_from_a_file_is_judged_again():
    s = _three()
    model = extract_model(s.func)
    done = s.import_tree(["A", "B", "C"], str(tile_and_fuse(model, "C", [4], ["A", "B"]).schedule))
    text = done.trace.to_json()
    assert replay(s.source, text).func == done.func
    # the same tree with a tile that lacks what its neighbour makes
    broken = text.replace("i >= i0", "i > i0")
    assert broken != text
    with pytest.raises(ScheduleError, match="the tree changes what is computed") as caught:
        replay(s.source, broken)
    assert caught.value.where.startswith("step 0: import_tree")


def test_what_isl_and_the_judge_cannot_follow(monkeypatch):
    """Texts that isl reads and then cannot walk, and functions that the judge has no model of."""

    def raising(error):
        def followed(*_):
            raise error

        return followed

    monkeypatch.setattr("tilewright.poly.tree_text._followed", raising(isl.Error("no such thing")))
    refused("{ }", "isl cannot follow the tree")
    unmodelled = ProgramError("bounds depend on data", hint="write them otherwise")
    monkeypatch.setattr("tilewright.poly.tree_text._followed", raising(unmodelled))
    assert refused("{ }", "bounds depend on data").hint == "write them otherwise"
