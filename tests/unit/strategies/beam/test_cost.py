"""Features against counts by hand; terms that are not negative; the network, and what it learns."""

import numpy as np
import pytest
from tests.native_kernel import STATED

from tilewright import lang
from tilewright.cost import Machine
from tilewright.plan import OPERATIONS, graph_of
from tilewright.strategies.beam.cost import TERMS, CostModel
from tilewright.strategies.beam.features import FEATURES, algorithm_features, features
from tilewright.strategies.beam.network import NAMES, Network, Sample, error, new_network, predicted, train
from tilewright.strategies.beam.state import Tiling

MACHINE = Machine(STATED, 2)
LANES = 16


def two_stages():
    """b[y, x] = a[y, x] + a[y + 2, x], a[y, x] = X[y, x] * 3, of 62x128 and 64x128."""
    x = lang.placeholder((64, 128), name="X")
    a = lang.compute((64, 128), lambda y, i: x[y, i] * 3, name="a")
    b = lang.compute((62, 128), lambda y, i: a[y, i] + a[y + 2, i], name="b")
    return graph_of(lang.program([x], [b]))


def of(g, place, tile, expand=1, parallel=1):
    tiling = Tiling(tile, (0, 1), 1, (expand, 1), parallel)
    found = features(g, (1, tiling, ((0, place),) if place else ()), MACHINE)
    return {f.node.name: f.values for f in found}


def test_strips_by_hand():
    found = of(two_stages(), "tile", (8, 0))
    a, b = found["a"], found["b"]
    # 8 strips of 8 rows, the producer 10 rows each
    assert a["points_computed_total"] == 8 * 10 * 128
    assert a["points_computed_minimum"] == 64 * 128
    assert a["num_realizations"] == a["num_productions"] == 8
    assert a["bytes_at_production"] == a["bytes_at_realization"] == 10 * 128 * 4
    assert a["outer_parallelism"] == b["inner_parallelism"] == 8
    assert a["tasks_per_core"] == 4
    assert b["points_computed_total"] == 62 * 128
    assert b["num_productions"] == 1
    assert b["working_set_at_tile"] == 10 * 128 * 4
    assert b["innermost_loop_extent"] == 128


def test_rows_and_windows_by_hand():
    row = of(two_stages(), "row", (8, 0))["a"]
    # three rows for each row of a tile, anew
    assert row["points_computed_total"] == 8 * 8 * 3 * 128
    assert row["num_realizations"] == row["num_productions"] == 64
    assert row["bytes_at_realization"] == 3 * 128 * 4
    slide = of(two_stages(), "slide", (8, 0))["a"]
    assert slide["points_computed_total"] == 8 * 10 * 128
    assert (slide["num_realizations"], slide["num_productions"]) == (8, 64)
    assert slide["bytes_at_realization"] == 6 * 128 * 4


def test_inlined_by_hand():
    found = of(two_stages(), "inline", (8, 0), expand=2)
    assert list(found) == ["b"]
    b = found["b"]
    # two products for an element, of which one is added as it is made
    assert b["inlined_calls"] == 2 * 62 * 128
    assert b["inlined_work"] == 62 * 128
    assert b["unrolled_loop_extent"] == 2
    assert b["vector_loads"] == 2 * 62 * 128 / LANES
    assert of(two_stages(), "tile", (8, 0))["b"]["inlined_calls"] == 0


def test_what_several_inlined_stages_read_is_counted_once():
    # the square of an element is read by two sums, three elements each, of which two are the same
    x = lang.placeholder((64, 128), name="X")
    square = lang.compute((64, 128), lambda y, i: x[y, i] * x[y, i], name="square")
    p = lang.compute((60, 128), lambda y, i: square[y, i] + square[y + 1, i] + square[y + 2, i], name="p")
    q = lang.compute((60, 128), lambda y, i: square[y + 1, i] + square[y + 2, i] + square[y + 3, i], name="q")
    g = graph_of(lang.program([x], [lang.compute((60, 128), lambda y, i: p[y, i] / q[y, i], name="out")]))
    out = g.merged(3, frozenset({0, 1, 2}))
    assert [(r.access.buffer, r.count) for r in out.reads] == [("X", 4)]
    # four squares and two sums
    assert out.inlined == 6
    assert (out.operations["mul"], out.operations["add"], out.operations["div"]) == (4, 4, 1)
    # with its sums stored it is what it was; what is inlined elsewhere changes nothing
    assert g.merged(3, frozenset({0})) is g.nodes[3]
    first = g.merged(1, frozenset({0, 2}))
    assert (first.inlined, [r.count for r in first.reads]) == (3, [3])
    assert g.merged(1, frozenset({0})) is first


def test_copies_side_by_side_share_what_they_have_in_common():
    # a[y, x] + a[y + 1, x] of a = X * 3: two rows read three, and make three products, of which one is shared
    x = lang.placeholder((65, 128), name="X")
    a = lang.compute((65, 128), lambda y, i: x[y, i] * 3, name="a")
    g = graph_of(lang.program([x], [lang.compute((64, 128), lambda y, i: a[y, i] + a[y + 1, i], name="b")]))
    alone, two = (of(g, "inline", (8, 0), expand=n)["b"] for n in (1, 2))
    points = 64 * 128
    assert (alone["vector_loads"], two["vector_loads"]) == (2 * points / LANES, 1.5 * points / LANES)
    # a sum and a product alone; of two rows two sums that take a product along each, and the shared one
    assert (alone["instructions"], two["instructions"]) == (2 * points, 1.5 * points)
    assert (alone["inlined_work"], two["inlined_work"]) == (points, 0.5 * points)
    assert g.amortised(g.nodes[1], (4, 1)).loads == {"a": 1.25}
    assert g.amortised(g.nodes[1], (4, 1)) is g.amortised(g.nodes[1], (4, 1))


def test_halves_of_rows_side_by_side_are_one():
    x = lang.placeholder((9, 128), name="X")
    g = graph_of(lang.program([x], [lang.compute((16, 128), lambda y, i: x[y // 2, i] * 2, name="b")]))
    assert g.amortised(g.nodes[0], (2, 1)).loads == {"X": 0.5}
    assert g.amortised(g.nodes[0], (2, 1)).work == 0.5


def test_what_is_read_apart_and_looked_up():
    x, table = lang.placeholder((64, 256), "u8", name="X"), lang.placeholder((256,), name="T")
    b = lang.compute((64, 128), lambda y, i: table[x[y, 2 * i] + 1] + 1, name="b")
    g = graph_of(lang.program([x, table], [b]))
    (found,) = features(g, (0, Tiling((8, 0), (0, 1), 1, (1, 1), 1), ()), MACHINE)
    points = 64 * 128
    assert (found.values["apart_loads"], found.values["scattered_loads"]) == (points, points)
    assert found.values["vector_loads"] == 0
    # what finds the element counts: a sum of its own
    assert found.values["instructions"] >= 2 * points


def test_boxes_are_found_once():
    g = two_stages()
    inside = frozenset({0})
    found = g.boxes(1, ((0, 7), (0, 127)), inside)
    assert found == {1: ((0, 7), (0, 127)), 0: ((0, 9), (0, 127))}
    assert g.boxes(1, ((0, 7), (0, 127)), inside) is found


def test_columns_by_hand():
    found = of(two_stages(), "tile", (8, 40))["a"]
    # four tiles across, the last one of 8 columns: each is counted whole
    assert found["num_realizations"] == 8 * 4
    assert found["innermost_loop_extent"] == 40
    lanes = STATED.lanes(graph_of(two_stages().program).program.buffer("a").dtype)
    assert found["lane_utilization"] == 40 / (-(-40 // lanes) * lanes)


def test_what_is_read_from_far_away():
    x = lang.placeholder((4096, 4096), name="X")
    b = lang.compute((4094, 4096), lambda y, i: x[y, i] + x[y + 2, i], name="b")
    g = graph_of(lang.program([x], [b]))
    whole = of_root(g, (0, 0))
    assert whole["memory_bytes_read"] == 4096 * 4096 * 4
    assert whole["memory_runs_read"] == 1
    strips = of_root(g, (64, 0))
    # what neighbours read, too, comes from the last cache
    assert strips["memory_bytes_read"] == 4096 * 4096 * 4
    assert strips["l3_bytes_read"] == 64 * 66 * 4096 * 4 - 4096 * 4096 * 4
    assert of_root(g, (64, 512))["memory_runs_read"] == 64 * 8 * 66


def of_root(g, tile):
    (found,) = features(g, (0, Tiling(tile, (0, 1), 1, (1, 1), 1 if any(tile) else 0), ()), MACHINE)
    return found.values


def test_operations_and_how_reads_move():
    x = lang.placeholder((64, 128), name="X")
    w = lang.placeholder((4,), name="W")
    b = lang.compute(
        (31, 63), lambda y, i: lang.exp(x[y, i] * w[0]) + lang.select(x[y, 2 * i] > 0, x[i, y], 1), name="b"
    )
    node = graph_of(lang.program([x, w], [b])).nodes[0]
    found = dict(zip(OPERATIONS, algorithm_features(node), strict=False))
    assert (found["add"], found["mul"], found["call"], found["select"], found["compare"]) == (1, 1, 1, 1, 1)
    reads = {r.access.buffer: r.access for r in node.reads}
    assert reads["W"].steps("i") == 0
    assert reads["X"].steps("i") is None


@pytest.mark.parametrize(("terms", "wanted"), [(1, 1), (2, 2), (3, 2), (4, 2), (8, 2)])
def test_sums_one_after_another_need_two_registers(terms, wanted):
    x = lang.placeholder((64,), name="X")
    b = lang.compute((32,), lambda i: sum((x[i + n] for n in range(1, terms)), x[i]), name="b")
    assert graph_of(lang.program([x], [b])).nodes[0].branching == wanted


def test_balanced_sums_need_one_more_for_each_level():
    x = lang.placeholder((64,), name="X")
    b = lang.compute((32,), lambda i: (x[i] + x[i + 1]) + (x[i + 2] + x[i + 3]), name="b")
    assert graph_of(lang.program([x], [b])).nodes[0].branching == 3


def test_terms_are_not_negative_and_of_their_names():
    g = two_stages()
    model = CostModel(g, MACHINE)
    for place in ("tile", "row", "slide", "inline"):
        tiling = Tiling((8, 0), (0, 1), 1, (1, 1), 1)
        found = model.seen(features(g, (1, tiling, ((0, place),)), MACHINE))
        stages = 1 if place == "inline" else 2
        assert found.terms.shape == (stages, len(TERMS))
        assert (found.terms >= 0).all() and found.terms.sum() > 0
        assert found.schedule.shape == (stages, len(FEATURES))


def test_more_work_costs_more():
    g = two_stages()
    model = CostModel(g, MACHINE)

    def seconds(place, tile):
        tiling = Tiling(tile, (0, 1), 1, (1, 1), 1)
        return model.seconds(features(g, (1, tiling, ((0, place),)), MACHINE))

    assert seconds("row", (8, 0)) > seconds("slide", (8, 0))
    assert seconds("tile", (2, 0)) > seconds("tile", (16, 0))


def samples(count, seed=0):
    """Programs whose second term costs three times what the machine says, the others what it says."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        stages = rng.integers(1, 4)
        terms = rng.random((stages, 4))
        seconds = float((terms * [1, 3, 1, 1]).sum())
        out.append(Sample(rng.random((stages, 5)), rng.random((stages, 6)), terms, seconds))
    return out


def test_an_untrained_network_changes_nothing():
    network = new_network(5, 6, 4)
    for s in samples(3):
        assert predicted(network, s) == pytest.approx(s.terms.sum())


def test_gradients_are_those_of_differences():
    network = new_network(5, 6, 4, seed=1)
    rng = np.random.default_rng(0)
    weights = {name: w + 0.3 * rng.standard_normal(w.shape) for name, w in network.weights.items()}
    network = Network(weights)
    a, s = rng.standard_normal((3, 5)), rng.standard_normal((3, 6))
    out = rng.standard_normal((3, 4))

    def value(weights):
        return float((np.log(Network(weights).factors(a, s)) * out).sum())

    gradient = network.gradient(a, s, out)
    for name in NAMES:
        at = tuple(int(rng.integers(n)) for n in weights[name].shape)
        step = np.zeros_like(weights[name])
        step[at] = 1e-5
        up, down = ({**weights, name: weights[name] + d} for d in (step, -step))
        assert gradient[name][at] == pytest.approx((value(up) - value(down)) / 2e-5, rel=1e-3, abs=1e-6)


def test_training_lowers_the_error_on_what_it_has_not_seen():
    known, unknown = samples(40), samples(20, seed=1)
    before = new_network(5, 6, 4)
    after = train(before, known, steps=300, rate=1e-2)
    assert error(after, unknown) < 0.5 * error(before, unknown)
    again = train(before, known, steps=300, rate=1e-2)
    assert all(np.array_equal(after.weights[n], again.weights[n]) for n in NAMES)
