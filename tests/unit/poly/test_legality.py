"""The exact judge: it accepts what keeps the meaning and names what breaks it."""

from dataclasses import replace

import pytest

from tilewright.ir import (
    F32,
    I32,
    PARALLEL,
    SERIAL,
    Access,
    Alloc,
    Barrier,
    Binary,
    Block,
    Buffer,
    Compare,
    Const,
    If,
    IndexMap,
    Load,
    OfIndex,
    Opaque,
    Param,
    Program,
    Select,
    Stage,
    Store,
    buffer,
    ge0,
    imax,
    imin,
    index,
    mod,
    seq,
    store,
    thread,
    to_function,
    var,
)
from tilewright.poly import check_legal, list_function
from unit.poly.builders import (
    add,
    block,
    chain,
    i,
    it,
    j,
    judged,
    k,
    kinds,
    ld,
    matmul,
    mul,
    nest,
    with_body,
    x,
    zero,
)

MM = matmul()
CHAIN = chain()
C = block(MM, "C", (i, j, k))
LOOPS = [("i", 0, 4), ("j", 0, 5), ("k", 0, 3)]


def test_any_loop_order_of_a_reduction_is_legal():
    assert judged(MM, nest([LOOPS[2], LOOPS[0], LOOPS[1]], C)) == []


def test_a_tail_needs_its_guard():
    bound = block(MM, "C", (var("io") * 3 + var("ii"), j, k))
    loops = [("io", 0, 2), ("ii", 0, 3), *LOOPS[1:]]
    guard = (ge0(index(3) - var("io") * 3 - var("ii")),)
    assert judged(MM, nest(loops, replace(bound, where=guard))) == []
    assert judged(MM, nest(loops, bound)) == ["bounds", "extra"]


def test_parallel_loops_must_not_carry_the_accumulator():
    for kind in (PARALLEL, thread("thread.x")):  # vector lanes sum apart: see ir.sums_lanes
        assert judged(MM, nest([("k", 0, 3, kind), *LOOPS[:2]], C)) == ["race"]
        assert judged(MM, nest([("i", 0, 4, kind), *LOOPS[1:]], C)) == []


def test_a_race_names_loop_buffer_and_instances():
    f = to_function(MM)
    (found,) = check_legal(f, with_body(MM, nest([("k", 0, 3, PARALLEL), *LOOPS[:2]], C)))
    assert "parallel loop k conflict on C" in found.message
    assert "C.init[i=0, j=0]" in found.message and "C[i=0, j=0, k=1]" in found.message


def test_a_read_must_not_leave_its_buffer():
    """Also one whose value nothing reads."""

    def squares(many, value, where=()):
        early = replace(
            block(CHAIN, "B", (var("at"),)), name="early", where=where, body=store("B", (index(0),), value)
        )
        early_nest = nest([("at", 0, many)], early)
        first = nest([("x", 0, 8)], block(CHAIN, "B", (x,)))
        return Alloc(
            CHAIN.temps[0], seq(early_nest, first, nest([("x2", 0, 6)], block(CHAIN, "C", (var("x2"),))))
        )

    value = mul(ld("A", x), ld("A", x))
    assert judged(CHAIN, squares(8, value)) == []
    assert judged(CHAIN, squares(9, value)) == ["bounds"]
    assert judged(CHAIN, squares(9, value, (ge0(index(7) - var("at")),))) == []
    inside = Compare("lt", OfIndex(x, I32), Const(8, I32))
    assert judged(CHAIN, squares(9, Select(inside, value, zero()))) == []
    # where data decides whether a load happens, it is not judged by the cells that it might read
    positive = Compare("gt", ld("A", imin(x, 7)), zero())
    assert judged(CHAIN, squares(9, Select(positive, value, zero()))) == []


def test_lost_instances_are_missing():
    found = check_legal(to_function(MM), with_body(MM, nest([LOOPS[0], LOOPS[1], ("k", 0, 2)], C)))
    assert found[0].message == "C[i=0, j=0, k=2] never runs (20 instances in all)"


def test_a_reduction_instance_runs_once():
    again = replace(block(MM, "C", (0, 0, 1)), name="C_again")
    assert judged(MM, seq(nest(LOOPS, C), again)) == ["final"]


def test_pieces_of_one_stage_add_up():
    a, b = var("a"), var("b")
    rest = nest([("a", 0, 4), ("b", 0, 5)], replace(block(MM, "C", (a, b, 2)), name="C_last"))
    assert judged(MM, seq(nest([*LOOPS[:2], ("k", 0, 2)], C), rest)) == []


def test_decomposed_init_runs_before_the_updates():
    init = Block("C_init", "C", C.iters[:2], (i, j), C.init)
    update = replace(C, init=None)
    assert judged(MM, nest(LOOPS[:2], seq(init, nest(LOOPS[2:], update)))) == []
    assert judged(MM, nest(LOOPS[:2], nest(LOOPS[2:], seq(init, update)))) == ["final"]


def accumulator(order):
    regs = buffer("R", (4, 5), F32, "register")
    update = Block(
        "C", "C", C.iters, (i, j, k),
        store("R", (i, j), add(ld("R", i, j), mul(ld("A", i, k), ld("B", k, j)))),
        store("R", (i, j), zero()),
    )  # fmt: skip
    back = Block("C_back", "C_back", C.iters[:2], (i, j), store("C", (i, j), ld("R", i, j)))
    return Alloc(regs, nest(LOOPS[:2], order(nest(LOOPS[2:], update), back, update)))


def test_accumulators_in_registers_are_written_back_when_finished():
    assert judged(MM, accumulator(lambda nest_, back, update: seq(nest_, back))) == []
    assert judged(MM, accumulator(lambda nest_, back, update: nest(LOOPS[2:], seq(back, update)))) == [
        "final"
    ]


def test_an_unfinished_sum_in_a_temporary_is_noticed():
    total = Stage("S", (it("i", 4), it("k", 3, "red")), store("S", (i,), add(ld("S", i), ld("A", i, k))),
                  store("S", (i,), zero()))  # fmt: skip
    use = Stage("D", (it("i", 4),), store("D", (i,), mul(ld("S", i), ld("S", i))))
    p = Program("sums", (), (buffer("A", (4, 3), F32),), (buffer("D", (4,), F32),),
                (buffer("S", (4,), F32),), (total, use))  # fmt: skip
    d = nest([("i2", 0, 4)], block(p, "D", (var("i2"),)))
    temp = p.temps[0]

    def summed(n):
        return Alloc(temp, seq(nest([("i", 0, 4), ("k", 0, n)], block(p, "S", (i, k))), d))

    assert judged(p, summed(3)) == []
    assert judged(p, summed(2)) == ["flow"]


def fused(kind, extent=4, hoisted=False, tile=2):
    """The chain in tiles of the consumer, the producer recomputed where tiles overlap."""
    xo, xi, p = var("xo"), var("xi"), var("p")
    local = Buffer(
        "B", (index(8),), F32, "local", IndexMap(("d",), (var("d") - xo * tile,), (index(tile + 2),))
    )
    body = seq(
        nest([("p", 0, extent)], block(CHAIN, "B", (xo * tile + p,))),
        nest([("xi", 0, tile)], block(CHAIN, "C", (xo * tile + xi,))),
    )
    if hoisted:
        return Alloc(CHAIN.temps[0], nest([("xo", 0, 6 // tile, kind)], body))
    return nest([("xo", 0, 6 // tile, kind)], Alloc(local, body))


@pytest.mark.parametrize("kind", [SERIAL, PARALLEL])
def test_overlapping_tiles(kind):
    assert judged(CHAIN, fused(kind)) == []
    assert judged(CHAIN, fused(kind, extent=3)) == ["flow"]


def test_recomputation_into_shared_storage_races():
    assert judged(CHAIN, fused(SERIAL, hoisted=True)) == []
    assert judged(CHAIN, fused(PARALLEL, hoisted=True)) == ["race"]


def test_rolling_storage_must_hold_the_window():
    def rolled(rows):
        b = Buffer("B", (index(8),), F32, "local", IndexMap(("d",), (mod(var("d"), rows),), (index(rows),)))
        later = If((ge0(x - 2),), block(CHAIN, "C", (x - 2,)))
        return Alloc(b, nest([("x", 0, 8)], seq(block(CHAIN, "B", (x,)), later)))

    assert judged(CHAIN, rolled(3)) == []
    assert judged(CHAIN, rolled(2)) == ["flow"]


def inlined(last):
    square = [mul(ld("A", x + d), ld("A", x + d)) for d in (0, 1, last)]
    body = store("C", (x,), add(add(square[0], square[1]), square[2]))
    return nest([("x", 0, 6)], Block("C", "C", CHAIN.stage("C").iters, (x,), body))


def test_inlined_stages_are_looked_through():
    assert judged(CHAIN, inlined(2)) == []
    assert judged(CHAIN, inlined(1)) == ["flow"]


def test_swapped_loads_are_noticed():
    body = store("C", (x,), add(add(ld("B", x + 1), ld("B", x)), ld("B", x + 2)))
    swapped = Block("C", "C", CHAIN.stage("C").iters, (var("x2"),), body)
    first = nest([("x", 0, 8)], block(CHAIN, "B", (x,)))
    assert judged(CHAIN, Alloc(CHAIN.temps[0], seq(first, nest([("x2", 0, 6)], swapped)))) == ["flow"]


def shared_stage(barriers):
    """C = A B, B staged by the threads of a block: each copies a column, and reads its neighbour's."""
    staged = buffer("Bs", (3, 5), F32, "shared")
    copy = Block("Bs", "Bs", (it("k", 3), it("j", 5)), (k, var("tx")), store("Bs", (k, j), ld("B", k, j)))
    use = Block(
        "C", "C", C.iters, (i, mod(var("tx") + 1, 5), var("k2")),
        store("C", (i, j), add(ld("C", i, j), mul(ld("A", i, k), ld("Bs", k, j)))), C.init,
    )  # fmt: skip
    parts = [nest([("k", 0, 3)], copy)]
    if barriers:
        parts.append(Barrier("shared"))
    parts.append(nest([("k2", 0, 3)], use))
    tail = [Barrier("shared")] if barriers > 1 else []
    inner = nest([("tx", 0, 5, thread("thread.x"))], nest([("i", 0, 4)], seq(*parts, *tail)))
    return Alloc(staged, inner)


def test_barriers_separate_the_phases_of_threads():
    assert judged(MM, shared_stage(2)) == []
    assert judged(MM, shared_stage(1)) == ["race"]  # the next round overwrites what others still read
    assert judged(MM, shared_stage(0)) == ["flow", "race"]


def test_data_dependent_reads_depend_on_the_whole_buffer():
    pick = imax(index(0), imin(index(7), index(Opaque(Load("idx", (x,), I32)))))
    c = Stage("C", (it("x", 6),), store("C", (x,), Load("B", (pick,), F32)))
    p = replace(CHAIN, inputs=(*CHAIN.inputs, buffer("idx", (6,), I32)), stages=(CHAIN.stages[0], c))
    late = nest([("x", 0, 8)], seq(block(p, "B", (x,)), If((ge0(x - 2),), block(p, "C", (x - 2,)))))
    assert judged(p, Alloc(p.temps[0], late)) == ["flow"]
    assert kinds(to_function(p), to_function(p)) == []


def test_scatter_keeps_its_order():
    at = imax(index(0), imin(index(7), index(Opaque(Load("idx", (x,), I32)))))
    s = Stage("D", (it("x", 6, "ord"),), store("D", (at,), ld("A", x)))
    p = Program("scatter", (), (buffer("A", (6,), F32), buffer("idx", (6,), I32)), (buffer("D", (8,), F32),),
                (), (s,))  # fmt: skip
    assert judged(p, nest([("x", 0, 6)], block(p, "D", (x,)))) == []
    assert judged(p, nest([("x", 0, 6)], block(p, "D", (index(5) - x,)))) == ["final", "flow"]


def test_padding_by_select_equals_a_padded_copy():
    inside = Compare("lt", OfIndex(x, I32), Const(4, I32))
    padded = Select(inside, ld("A", x), zero())
    use = Stage("C", (it("x", 6),), store("C", (x,), mul(padded, padded)))
    p = Program("pad", (), (buffer("A", (4,), F32),), (buffer("C", (6,), F32),), (), (use,))
    copy = Block("P", "P", (it("x", 6),), (x,), store("P", (x,), padded))
    body = Block("C", "C", use.iters, (var("x2"),), store("C", (x,), mul(ld("P", x), ld("P", x))))
    staged = Alloc(buffer("P", (6,), F32), seq(nest([("x", 0, 6)], copy), nest([("x2", 0, 6)], body)))
    assert judged(p, staged) == []


def test_symbolic_sizes_are_checked_at_the_given_values():
    n = Param("n", 1, 64)
    st = Stage("D", (it("x", n),), store("D", (x,), ld("A", x)))
    p = Program("copy", (n,), (buffer("A", (n,), F32),), (buffer("D", (n,), F32),), (), (st,))
    tiles = nest([("xo", 0, (index(n) + 3) // 4), ("xi", 0, 4)],
                 replace(block(p, "D", (var("xo") * 4 + var("xi"),)),
                         where=(ge0(index(n) - 1 - var("xo") * 4 - var("xi")),)))  # fmt: skip
    for size in (1, 3, 4, 9):
        assert kinds(to_function(p), with_body(p, tiles), {"n": size}) == []
    floor = nest([("xo", 0, index(n) // 4), ("xi", 0, 4)], block(p, "D", (var("xo") * 4 + var("xi"),)))
    assert kinds(to_function(p), with_body(p, floor), {"n": 8}) == []
    assert kinds(to_function(p), with_body(p, floor), {"n": 9}) == ["final", "missing"]


def test_ordered_scans_keep_their_order():
    y = Stage("D", (it("x", 6, "ord"),), store("D", (x,), add(ld("D", imax(x - 1, 0)), ld("A", x))))
    p = Program("scan", (), (buffer("A", (6,), F32),), (buffer("D", (6,), F32),), (), (y,))
    assert judged(p, nest([("x", 0, 6)], block(p, "D", (x,)))) == []
    assert "flow" in judged(p, nest([("x", 0, 6)], block(p, "D", (index(5) - x,))))
    assert judged(p, nest([("x", 0, 6, PARALLEL)], block(p, "D", (x,)))) == ["race"]


def test_a_listing_can_be_kept():
    f = to_function(MM)
    kept = list_function(f)
    assert check_legal(kept, f) == []
    assert [v.kind for v in check_legal(kept, with_body(MM, nest([LOOPS[0], LOOPS[1], ("k", 0, 2)], C)))] == [
        "missing",
        "final",
    ]


def test_integer_division_of_negative_values_lists_like_python():
    body = store("D", (x,), Binary("add", ld("A", (x - 7) // 2 + 4), ld("A", mod(x - 7, 3))))
    st = Stage("D", (it("x", 6),), body)
    p = Program("div", (), (buffer("A", (5,), F32),), (buffer("D", (6,), F32),), (), (st,))
    listing = list_function(to_function(p))
    (s,) = listing.flow.instances.statements
    assert [int(c) for c in s.reads[0].cells] == [(v - 7) // 2 + 4 for v in range(6)]
    assert [int(c) for c in s.reads[1].cells] == [(v - 7) % 3 for v in range(6)]


def two_loops(barrier):
    """Threads fill a shared row in one loop over the axis and read their neighbour's element in another."""
    p = chain(4, 1)
    t1, t2 = var("t1"), var("t2")
    parts = [nest([("t1", 0, 6, thread("thread.x"))], block(p, "B", (t1,)))]
    if barrier:
        parts.append(Barrier("shared"))
    parts.append(nest([("t2", 0, 4, thread("thread.x"))], block(p, "C", (t2,))))
    shared = replace(p.temps[0], scope="shared")
    return p, nest([("g", 0, 1, thread("block.x"))], Alloc(shared, seq(*parts)))


def test_loops_on_one_hardware_axis_need_a_barrier_between_them():
    assert judged(*two_loops(True)) == []
    assert judged(*two_loops(False)) == ["race"]


def test_registers_belong_to_one_thread():
    p, body = two_loops(True)
    private = replace(body.body, buffer=replace(p.temps[0], scope="local"))
    found = kinds(to_function(p), with_body(p, replace(body, body=private)))
    assert found == ["flow"]  # the neighbour's element is undefined


def test_blocks_without_threads_do_not_race():
    loops = [("i", 0, 4, thread("block.x")), *LOOPS[1:]]
    assert judged(MM, nest(loops, C)) == []


def test_a_lost_init_is_noticed():
    assert judged(MM, nest(LOOPS, replace(C, init=None))) == ["flow"]


def sums(temporary):
    """S[i] = sum over k of B[k], B[k] = A[k] * A[k]; S is squared where it is a temporary."""
    square = Stage("B", (it("x", 3),), store("B", (x,), mul(ld("A", x), ld("A", x))))
    total = Stage("S", (it("i", 2), it("k", 3, "red")), store("S", (i,), add(ld("S", i), ld("B", k))),
                  store("S", (i,), zero()))  # fmt: skip
    use = Stage("D", (it("i", 2),), store("D", (i,), mul(ld("S", i), ld("S", i))))
    inputs, middle, s = (buffer("A", (3,), F32),), buffer("B", (3,), F32), buffer("S", (2,), F32)
    if temporary:
        return Program("sums", (), inputs, (buffer("D", (2,), F32),), (middle, s), (square, total, use))
    return Program("sums", (), inputs, (s,), (middle,), (square, total))


@pytest.mark.parametrize("temporary", [False, True])
def test_accumulations_start_as_before_where_a_stage_is_inlined_into_them(temporary):
    """Other values are compared as sets without constants and the undefined, the start of a sum is not."""
    p = sums(temporary)
    body = store("S", (i,), add(ld("S", i), mul(ld("A", k), ld("A", k))))

    def started(init):
        total = nest([("i", 0, 2), ("k", 0, 3)], Block("S", "S", p.stage("S").iters, (i, k), body, init))
        if not temporary:
            return total
        return Alloc(p.temps[1], seq(total, nest([("i2", 0, 2)], block(p, "D", (var("i2"),)))))

    assert judged(p, started(p.stage("S").init)) == []
    assert judged(p, started(None)) == ["flow"]
    assert judged(p, started(store("S", (i,), Const(1.0, F32)))) == ["flow"]


def test_each_result_of_a_reduction_starts_as_before():
    """Two accumulators in one statement, into which a stage is inlined."""
    square = Stage("B", (it("x", 3),), store("B", (x,), mul(ld("A", x), ld("A", x))))
    iters = it("i", 2), it("k", 3, "red")

    def pair(value, first, second):
        body = Store((Access("S", (i,), add(ld("S", i), value)), Access("T", (i,), mul(ld("T", i), value))))
        init = Store((Access("S", (i,), Const(first, F32)), Access("T", (i,), Const(second, F32))))
        return body, init

    outputs = buffer("S", (2,), F32), buffer("T", (2,), F32)
    stage = Stage("S", iters, *pair(ld("B", k), 0.0, 1.0))
    p = Program("two", (), (buffer("A", (3,), F32),), outputs, (buffer("B", (3,), F32),), (square, stage))

    def started(first, second):
        body, init = pair(mul(ld("A", k), ld("A", k)), first, second)
        return nest([("i", 0, 2), ("k", 0, 3)], Block("S", "S", iters, (i, k), body, init))

    assert judged(p, started(0.0, 1.0)) == []
    assert judged(p, started(0.0, 0.0)) == ["flow"]
    assert judged(p, started(1.0, 0.0)) == ["flow"]


@pytest.mark.parametrize("steps", [1, 2])
def test_no_block_may_exchange_the_accumulators_that_it_goes_on_with(steps):
    """Where other blocks of the same statement load the right ones."""
    iters = it("i", 2), it("k", steps, "red")

    def pair(first, second):
        return Store((Access("S", (i,), add(ld(first, i), ld("A", i, k))),
                      Access("T", (i,), mul(ld(second, i), ld("A", i, k)))))  # fmt: skip

    init = Store((Access("S", (i,), zero()), Access("T", (i,), Const(1.0, F32))))
    p = Program("two", (), (buffer("A", (2, steps), F32),), (buffer("S", (2,), F32), buffer("T", (2,), F32)),
                (), (Stage("S", iters, pair("S", "T"), init),))  # fmt: skip

    def rows(lo, *loads):
        at = var(f"i{lo}")
        b = Block(f"S{lo}", "S", iters, (at, k), pair(*loads), init)
        return nest([(f"i{lo}", lo, lo + 1), ("k", 0, steps)], b)

    assert judged(p, seq(rows(0, "S", "T"), rows(1, "S", "T"))) == []
    assert "flow" in judged(p, seq(rows(0, "S", "T"), rows(1, "T", "S")))


def test_sums_that_nothing_reads_may_run_outside_of_their_domain():
    total = Stage("S", (it("i", 3), it("k", 2, "red")), store("S", (i,), add(ld("S", i), ld("A", i, k))),
                  store("S", (i,), zero()))  # fmt: skip
    use = Stage("D", (it("i", 3),), store("D", (i,), ld("S", i)))
    p = Program("sums", (), (buffer("A", (4, 2), F32),), (buffer("D", (3,), F32),),
                (buffer("S", (4,), F32),), (total, use))  # fmt: skip
    rounded = nest([("i", 0, 4), ("k", 0, 2)], block(p, "S", (i, k)))
    assert judged(p, Alloc(p.temps[0], seq(rounded, nest([("x", 0, 3)], block(p, "D", (x,)))))) == []


def test_an_instance_outside_of_the_domain_completes_no_sum():
    """One instance for each place, as there should be, but a wrong one."""
    total = Stage("S", (it("i", 4), it("k", 1, "red")), store("S", (i,), add(ld("S", i), ld("A", i, k))),
                  store("S", (i,), zero()))  # fmt: skip
    use = Stage("D", (it("i", 4),), store("D", (i,), ld("S", i)))
    p = Program("sums", (), (buffer("A", (4, 3), F32),), (buffer("D", (4,), F32),),
                (buffer("S", (4,), F32),), (total, use))  # fmt: skip
    d = nest([("i2", 0, 4)], block(p, "D", (var("i2"),)))

    def summed(at):
        return Alloc(p.temps[0], seq(nest([("i", 0, 4), ("k", 0, 1)], block(p, "S", (i, at))), d))

    assert judged(p, summed(k)) == []
    assert judged(p, summed(k + 1)) == ["flow"]
