"""Budgets of isl: counted operations, and a process of its own behind them, which is ended."""

import inspect
import time
from contextlib import suppress

import islpy as isl
import pytest

from tilewright import lang, poly
from tilewright.frontend.nests import scop
from tilewright.ir import function_at, parse_function, to_function
from tilewright.poly import (
    Dependences,
    bounded,
    budget,
    child,
    compose,
    conservative_fusion,
    construct,
    extract_model,
    fuse,
    import_tree,
    infer_kinds,
    isl_schedule,
    loop_facts,
    tile_and_fuse,
    tiled,
    tree_of,
)
from tilewright.poly.budget import counted
from tilewright.poly.child import SpentError
from tilewright.poly.spaces import CONTEXT
from tilewright.support import ProgramError, ResourceError
from unit.frontend.nests.polybench import KERNELS
from unit.poly.builders import chain
from unit.poly.test_threads import LATER


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Little is tried at once: what is slow between its operations takes little time then."""
    monkeypatch.setattr(budget, "AT_ONCE", 5_000)
    monkeypatch.setattr(child, "WAITING", 2)


def boxes(count):
    """A question of hundreds of operations a box, whose answer is ``count``."""
    out = isl.Set("{ [i, j] : false }")
    for n in range(count):
        out = out.union(isl.Set(f"{{ [i, j] : {3 * n} <= i < {3 * n + 2} and 0 <= j < {n + 1} }}")).coalesce()
    return len(out.get_basic_sets())


def digits(depth):
    """What is read at an index of so many quotients of quotients and remainders."""

    def at(i, j):
        a = i
        for k in range(depth):
            a = (a * (k + 2) + j * 3 + k) // (k + 3) + (a + j) % (k + 5)
        return a % 300

    x = lang.placeholder((300, 300), name="x")
    a = lang.compute((300, 300), lambda i, j: x[at(i, j), at(j, i)], name="a")
    return lang.program([x], [lang.compute((200, 200), lambda i, j: a[at(i, j), at(j, i)] + 1, name="b")])


def test_what_stays_below_the_count_is_ended():
    """Skewed tiles of seidel-2d: isl pivots tables for minutes between few operations."""
    func = infer_kinds(function_at(scop(KERNELS["seidel_2d"]).func, {"N": 400, "T": 10}))
    dependences = Dependences(extract_model(func))
    found = tiled(dependences, isl_schedule(dependences, "min"), (32,), parallel=True)
    made = import_tree(dependences.model, found.schedule, func.body.names)
    with pytest.raises(
        ResourceError, match="dependences of seidel_2d are too many: isl was ended after 1 sec"
    ):
        loop_facts(made, seconds=1)
    # asked for directly, without any question around
    with pytest.raises(
        ResourceError, match="dependences of S0_1 on A are too many: isl was ended after 1 sec"
    ):
        Dependences(extract_model(made), seconds=1).among()


def test_answers_that_take_many_operations_are_the_same(monkeypatch):
    asked = []
    apart = child.asked_apart
    monkeypatch.setattr(budget, "asked_apart", lambda *a: asked.append(apart(*a)))
    assert bounded(lambda: boxes(2), "boxes") == 2
    assert not asked
    assert bounded(lambda: boxes(60), "boxes") == 60
    assert asked == [""]


def test_operations_that_are_slow_are_not_many_at_once(monkeypatch):
    """Digits of digits: the first 20,000 operations take 0.1 seconds, two million would take minutes."""
    model = extract_model(to_function(digits(3)))
    counts = []
    monkeypatch.setattr(budget, "FIRST", 20_000)
    monkeypatch.setattr(budget, "AT_ONCE", 2_000_000)
    monkeypatch.setattr(budget, "AT_ONCE_SECONDS", 0.001)
    monkeypatch.setattr(budget, "counted", lambda q, n, ask=budget.counted: counts.append(n) or ask(q, n))
    with pytest.raises(ResourceError, match="of b on a are too many: isl was ended after 1 seconds"):
        Dependences(model, seconds=1).among()
    assert counts == [20_000]
    counts.clear()
    monkeypatch.setattr(budget, "AT_ONCE_SECONDS", 1e9)
    assert bounded(lambda: boxes(100), "boxes") == 100
    assert counts[:2] == [20_000, 80_000]


def test_operations_that_are_spent_in_the_process_of_its_own():
    with pytest.raises(ResourceError, match="boxes: isl gave up after 6000 operations"):
        bounded(lambda: boxes(60), "boxes", operations=6_000)


@pytest.mark.parametrize("then", [lambda: int(None), lambda: None, lambda: {}["nothing"]])
def test_nothing_counts_that_is_done_after_operations_are_spent(then):
    """Wrappers return nothing then: what Python makes of that is no answer, and no error of the question."""

    def question():
        with suppress(isl.Error):
            boxes(60)
        return then()

    with pytest.raises(ResourceError, match="boxes: isl gave up after 4000 operations"):
        bounded(question, "boxes", operations=4_000)


def test_other_errors_of_a_long_question_are_its_own():
    def wrong():
        boxes(60)
        raise ProgramError("of the question")

    with pytest.raises(ProgramError, match="of the question"):
        bounded(wrong, "boxes")


def test_memory_that_a_question_takes():
    def greedy():
        boxes(60)
        bytearray(3 << 30)

    with pytest.raises(ResourceError, match="boxes: isl was ended after 20 seconds, or for want of memory"):
        bounded(greedy, "boxes")


def test_a_process_that_waits_for_nothing_is_ended():
    with pytest.raises(child.EndedError):
        child.asked_apart(lambda: str(time.sleep(60)), 1)


def test_a_small_question_inside_of_another_has_a_limit_of_its_own():
    def outer():
        with pytest.raises(ResourceError, match="inner: isl gave up after 100 operations"):
            bounded(lambda: boxes(2), "inner", operations=100)
        return bounded(lambda: boxes(2), "inner")

    assert bounded(outer, "outer") == 2


# What reads or writes no set: trees and functions as text, and instances listed one by one.
ASKS_NOTHING = {
    "bounded",
    "check_kinds",
    "data_decides",
    "is_black_box",
    "list_function",
    "tree_lines",
}


def questions():
    """Per public function a call that asks isl something; all that it is asked about is known before."""
    func = to_function(chain())
    model = extract_model(func)
    dependences = Dependences(model)
    dependences.among()
    spaces = conservative_fusion(dependences)
    groups = compose(dependences, spaces, (4,))
    schedule = tree_of(model)
    (member,) = [{s.name: s.coords[0] for s in model.statements if s.name == "C"}]
    threads = extract_model(parse_function(LATER.format(lo=4, hi=8, barrier="")))
    race = poly.thread_conflicts(threads)[0]
    nest = function_at(scop(KERNELS["gemver"]).func, {"N": 8})
    loops = [({s.block.name}, s.dims[0]) for s in model.statements]
    return {
        "all_dependences": lambda: poly.all_dependences(model),
        "allocations_inside": lambda: poly.allocations_inside(func),
        "band_facts": lambda: poly.band_facts(dependences, [member]),
        "check_bounds": lambda: poly.check_bounds(func),
        "check_legal": lambda: poly.check_legal(func, func, mode="isl"),
        "compose": lambda: compose(dependences, spaces, (4,)),
        "conservative_fusion": lambda: conservative_fusion(dependences),
        "construct": lambda: construct(dependences, spaces[-1], spaces[:-1], (4,)),
        "contents_that_count": lambda: poly.contents_that_count(func),
        "extract_model": lambda: extract_model(func),
        "follow_tree": lambda: poly.follow_tree(func, str(schedule)),
        "fuse": lambda: fuse(model, groups),
        "import_tree": lambda: import_tree(model, schedule),
        "infer_kinds": lambda: infer_kinds(nest),
        "isl_fusion": lambda: poly.isl_fusion(dependences, "min"),
        "isl_schedule": lambda: isl_schedule(dependences, "min"),
        "lift": lambda: poly.lift(nest),
        "loop_facts": lambda: loop_facts(func),
        "meet_apart": lambda: poly.meet_apart(model, *loops),
        "outermost_extents": lambda: poly.outermost_extents(func, ["C"]),
        "outside_of_threads": lambda: poly.outside_of_threads(threads, race),
        "scalars_in_results": lambda: poly.scalars_in_results(func),
        "settles_at_barriers": lambda: poly.settles_at_barriers(threads, threads.statements[0]),
        "spaces_as_written": lambda: poly.spaces_as_written(dependences),
        "thread_conflicts": lambda: poly.thread_conflicts(threads),
        "tile_and_fuse": lambda: tile_and_fuse(model, "C", [4], ["B"], dependences=dependences),
        "tile_by_tile": lambda: poly.tile_by_tile(func),
        "tile_instances": lambda: poly.tile_instances(model, groups[0]),
        "tiled": lambda: tiled(dependences, schedule, (4,), parallel=True),
        "tree_of": lambda: tree_of(model),
    }


def test_every_function_of_the_package_has_limits(monkeypatch):
    asked = questions()
    functions = {name for name in poly._EXPORTS if inspect.isfunction(getattr(poly, name))}
    assert functions == {*asked, *ASKS_NOTHING}
    for call in asked.values():
        call()
    monkeypatch.setattr(budget, "AT_ONCE", 1)

    def nothing_left(question, seconds):
        raise child.EndedError

    monkeypatch.setattr(budget, "asked_apart", nothing_left)
    answered = {}
    for name, call in asked.items():
        try:
            answered[name] = call()
        except ResourceError as error:
            assert "isl was ended after" in error.what
        assert not CONTEXT.get_max_operations()
    # which then takes all outputs to count
    assert answered == {"contents_that_count": {"C"}}


def test_a_tree_of_digits_is_ended(monkeypatch):
    """Loops over sums of quotients and remainders: isl looks long for their bounds."""
    apart = child.asked_apart
    monkeypatch.setattr(budget, "asked_apart", lambda question, _: apart(question, 1))
    model = extract_model(to_function(chain(1000)))
    digits = "floor((2x + 3*floor(x/3))/7) + ((5x + floor(x/11)) mod 13)"
    band = f"{{ B[x] -> [{digits}]; C[x] -> [{digits} + floor((x + {digits})/5)] }}"
    text = f'{{ domain: "{model.domain()}", child: {{ schedule: "[{band}]" }} }}'
    with pytest.raises(ResourceError, match="the tree for chain is too large: isl was ended after"):
        import_tree(model, isl.Schedule.read_from_str(CONTEXT, text))


def test_a_count_that_ends_anywhere_ends_no_process():
    """isl wrote through a null pointer where its count ended while it took in that full tiles come apart."""
    func = to_function(chain())
    model = extract_model(func)
    spent = 0
    for operations in range(1, 1 << 16):
        try:
            counted(lambda: tile_and_fuse(model, "C", [2], ["B"], parallel=True), operations)
            break
        except (SpentError, MemoryError):
            spent += 1
    assert 1000 < spent < (1 << 16) - 1
