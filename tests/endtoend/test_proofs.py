"""Proofs that the representation carries the systems it was designed for: one test class for each letter."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright import lang
from tilewright.ir import (
    F32,
    Barrier,
    Binary,
    Block,
    For,
    Iter,
    Load,
    LoopFunction,
    Param,
    PoisonError,
    RaceError,
    Seq,
    buffer,
    index,
    map_stmt,
    run_function,
    run_program,
    seq,
    store,
    to_function,
    var,
)
from tilewright.mapping import three_operand_form
from tilewright.poly import (
    all_dependences,
    check_legal,
    extract_model,
    import_tree,
    tile_and_fuse,
    tree_of,
)
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError


def integers(shape, seed=0):
    """Small whole numbers, so that sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


class TestC:
    """A matrix product on block and thread loops with shared-memory stages and barriers."""

    TILE = 4

    def scheduled(self, m, n, k):
        a, b = lang.placeholder((m, k), name="A"), lang.placeholder((k, n), name="B")
        kk = lang.reduce_axis(k, "k")
        c = lang.compute((m, n), lambda i, j: lang.sum(a[i, kk] * b[kk, j], axis=kk), name="C")
        t = self.TILE
        s = Schedule(lang.program([a, b], [c]))
        s = s.split("i", t).split("j", t).split("k", t)
        s = s.reorder("i_o", "j_o", "k_o", "i_i", "j_i", "k_i").decompose_init("C", "k_o")
        s = s.cache("A", "k_o", scope="shared", name="As").cache("B", "k_o", scope="shared", name="Bs")
        # one tile of each in shared memory, used again for every step of k
        s = s.hoist_alloc("As", "j_o").hoist_alloc("Bs", "j_o")
        s = s.roll("As", 1, t).roll("Bs", 0, t)
        s = s.bind("i_o", "block.y").bind("j_o", "block.x")
        for y, x in [("i_i_init", "j_i_init"), ("As_i", "As_k"), ("Bs_k", "Bs_j"), ("i_i", "j_i")]:
            s = s.bind(y, "thread.y").bind(x, "thread.x")
        return s

    @staticmethod
    def with_barriers(func, *, after_copies=True, after_use=True):
        """Barriers in the loop over tiles of k: when the stages are filled, and when they have been read."""

        def visit(node):
            if not (isinstance(node, For) and node.var == "k_o"):
                return node
            assert isinstance(node.body, Seq)
            *copies, use = node.body.stmts
            parts = [*copies, *[Barrier("shared")] * after_copies, use, *[Barrier("shared")] * after_use]
            return replace(node, body=seq(*parts))

        return func.with_body(map_stmt(func.body, visit))

    @pytest.mark.parametrize("shape", [(8, 8, 8), (7, 6, 5), (5, 9, 3)])
    def test_right_under_every_order_of_threads(self, shape):
        m, n, k = shape
        s = self.scheduled(m, n, k)
        func = self.with_barriers(s.func)
        scopes = {b.name: b.scope for b in s.buffers().values()}
        assert (scopes["As"], scopes["Bs"]) == ("shared", "shared")
        a, b = integers((m, k), 1), integers((k, n), 2)
        for seed in range(3):
            out = run_function(func, {"A": a, "B": b}, seed=seed)
            assert np.array_equal(out["C"], a @ b)
        assert check_legal(to_function(s.source), func) == []

    @pytest.mark.parametrize("missing", ["after_copies", "after_use"])
    def test_a_missing_barrier_is_found(self, missing):
        s = self.scheduled(8, 8, 8)
        func = self.with_barriers(s.func, **{missing: False})
        assert "race" in {v.kind for v in check_legal(to_function(s.source), func)}
        with pytest.raises((RaceError, PoisonError), match=r"buffer [AB]s"):
            for seed in range(4):
                run_function(func, {"A": integers((8, 8)), "B": integers((8, 8))}, seed=seed)


class TestD:
    """isl: a triangular nest's model, and overlapped tiles whose loops come back as a loop function."""

    @staticmethod
    def triangular():
        """Forward substitution: x[i] = (b[i] - sum over j < i of L[i, j] x[j]) * d[i], for symbolic n."""
        n = Param("n", 1, 1 << 16)
        i, j = var("i"), var("j")
        it_i, it_j = Iter("i", index(0), index(n), "ord"), Iter("j", index(0), i, "ord")

        def x(at):
            return Load("x", (at,), F32)

        first = Block("first", "first", (it_i,), (i,), store("x", (i,), Load("b", (i,), F32)))
        product = Binary("mul", Load("L", (i, j), F32), x(j))
        update = Block(
            "update", "update", (it_i, it_j), (i, j), store("x", (i,), Binary("sub", x(i), product))
        )
        scale = Binary("mul", x(i), Load("d", (i,), F32))
        last = Block("last", "last", (it_i,), (i,), store("x", (i,), scale))
        body = For("i", index(0), index(n), seq(first, For("j", index(0), i, update), last))
        size = index(n)
        buffers = (buffer("L", (size, size), F32), buffer("b", (size,), F32), buffer("d", (size,), F32),
                   buffer("x", (size,), F32))  # fmt: skip
        return LoopFunction("solve", (n,), buffers, ("x",), body)

    def test_domains_accesses_and_dependences_of_a_triangular_nest(self):
        model = extract_model(self.triangular())
        update = model.statement("update")
        text = "[n] -> { update[i, j] : n <= 65536 and 0 <= j < i < n }"
        assert update.domain.is_equal(type(update.domain).read_from_str(update.domain.get_ctx(), text))
        found = {(d.kind, d.source, d.sink) for d in all_dependences(model) if d.kind == "flow"}
        assert found == {
            ("flow", "first", "update"),
            ("flow", "update", "update"),
            ("flow", "last", "update"),
            ("flow", "first", "last"),
            ("flow", "update", "last"),
        }
        (rows,) = [d for d in all_dependences(model, ["flow"]) if (d.source, d.sink) == ("last", "update")]
        expected = "[n] -> { last[i] -> update[i2, i] : n <= 65536 and 0 <= i < i2 < n }"
        relation = rows.relation
        assert relation.is_equal(type(relation).read_from_str(relation.get_ctx(), expected))

    @pytest.mark.parametrize("n", [1, 2, 5])
    def test_the_triangular_nest_comes_back(self, n):
        func = self.triangular()
        model = extract_model(func)
        back = import_tree(model, tree_of(model))
        assert check_legal(func, back, {"n": n}) == []
        lower = np.tril(integers((n, n), 1), -1)
        given = {"L": lower, "b": integers(n, 2), "d": np.ones(n, np.float32)}
        expected = np.linalg.solve(lower.astype(np.float64) + np.eye(n), given["b"])
        for f in (func, back):
            assert np.allclose(run_function(f, given, {"n": n})["x"], expected, rtol=1e-5)

    @pytest.mark.parametrize("size", [(1, 1), (3, 4), (4, 5), (9, 11)])
    def test_an_overlapped_extension_schedule(self, size):
        """Two 3x3 stencils, the first recomputed by every 4x5 tile of the second, for symbolic sizes."""
        height, width = size
        H, W = lang.param("H"), lang.param("W")
        a = lang.placeholder((H + 4, W + 4), name="A")
        window = [(p, q) for p in range(3) for q in range(3)]

        def stencil(src):
            def element(h, w):
                total = src[h, w]
                for p, q in window[1:]:
                    total = total + src[h + p, w + q]
                return total

            return element

        b = lang.compute((H + 2, W + 2), stencil(a), name="B")
        program = lang.program([a], [lang.compute((H, W), stencil(b), name="C")])
        func = to_function(program)
        model = extract_model(func)
        tree = tile_and_fuse(model, "C", [4, 5], ["B"], parallel=True)
        assert tree.recomputes == {"B": True}
        fused = import_tree(model, tree.schedule)
        assert {b.layout.shape for b in fused.body.allocated} == {(index(6), index(7))}
        params = {"H": height, "W": width}
        assert check_legal(func, fused, params) == []
        given = {"A": integers((height + 4, width + 4))}
        expected = run_program(program, given, params)["C"]
        for seed in range(2):
            assert np.array_equal(run_function(fused, given, params, seed=seed)["C"], expected)


class TestE:
    """The access matrices of the ISA Mapper paper's conv1d: C[i, x, ko] += A[i, x + d, ki] * B[d, ki, ko]."""

    def test_conv1d(self):
        a = lang.placeholder((2, 10, 3), name="A")
        b = lang.placeholder((3, 3, 4), name="B")
        d, ki = lang.reduce_axis(3, "d"), lang.reduce_axis(3, "ki")
        c = lang.compute((2, 8, 4), lambda i, x, ko: lang.sum(a[i, x + d, ki] * b[d, ki, ko], axis=[d, ki]),
                         name="C")  # fmt: skip
        form = three_operand_form(lang.program([a, b], [c]).stage("C"))
        assert form.axes == ("i", "x", "ko", "d", "ki")
        assert str(form).splitlines() == [
            "C[i, x, ko] := 0.0",
            "t0[i, x, ko, d, ki] := A[i, d + x, ki]",
            "t0[i, x, ko, d, ki] *= B[d, ki, ko]",
            "C[i, x, ko] += t0[i, x, ko, d, ki]",
        ]
        #                               i  x  ko d  ki
        assert form.operand("A").rows == ((1, 0, 0, 0, 0), (0, 1, 0, 1, 0), (0, 0, 0, 0, 1))
        assert form.operand("B").rows == ((0, 0, 0, 1, 0), (0, 0, 0, 0, 1), (0, 0, 1, 0, 0))
        assert form.operand("C").rows == ((1, 0, 0, 0, 0), (0, 1, 0, 0, 0), (0, 0, 1, 0, 0))
        assert form.kinds == ("par", "par", "par", "red", "red")


class TestF:
    """Ordered and tuple-valued computations: an IIR filter as a scan, and an argmax."""

    def test_iir_scan(self):
        """y[t] = x[t] + y[t - 1] / 2 - y[t - 2] / 4, channels in parallel, time in order."""
        x = lang.placeholder((3, 9), name="x")

        def step(y, c, t):
            one = lang.select(t >= 1, y[c, t - 1] * 0.5, 0.0)
            two = lang.select(t >= 2, y[c, t - 2] * 0.25, 0.0)
            return x[c, t] + one - two

        program = lang.program([x], [lang.scan((3, 9), step, axis=1, name="y")])
        data = integers((3, 9))
        expected = np.zeros((3, 9))
        for t in range(9):
            expected[:, t] = data[:, t]
            if t >= 1:
                expected[:, t] += expected[:, t - 1] / 2
            if t >= 2:
                expected[:, t] -= expected[:, t - 2] / 4
        s = Schedule(program)
        kinds = {iterator.name: iterator.kind for iterator in s.block("y").iters}
        assert kinds == {"c": "par", "t": "ord"}
        s = s.parallel("c").split("t", 4)
        assert check_legal(to_function(program), s.func) == []
        for seed in range(2):
            out = run_function(s.func, {"x": data}, seed=seed)["y"]
            assert np.allclose(out, expected, rtol=1e-6, atol=1e-6)

    def test_the_order_of_a_scan_is_kept(self):
        x = lang.placeholder((9,), name="x")
        y = lang.scan((9,), lambda y, t: lang.select(t >= 1, y[t - 1], 0.0) + x[t], name="y")
        func = to_function(lang.program([x], [y]))
        assert isinstance(func.body, For)
        backwards = replace(func.body, body=replace(func.body.body, bind=(8 - var(func.body.var),)))
        assert "flow" in {v.kind for v in check_legal(func, func.with_body(backwards))}

    @pytest.mark.parametrize("tail", ["guard", "peel"])
    def test_argmax(self, tail):
        """The largest value and the first of its positions, reduced together in tiles."""
        x, k = lang.placeholder((4, 11), name="x"), lang.reduce_axis(11, "k")
        value, position = lang.compute((4,), lambda i: lang.max_with_index(x[i, k], axis=k), name="best")
        program = lang.program([x], [value, position])
        (stage,) = program.stages
        assert len(stage.writes) == 2  # one simultaneous store of the pair
        data = integers((4, 11))
        data[2] = 1.0  # all equal: the first one counts
        s = Schedule(program).parallel("i").split("k", 4, tail=tail)
        assert check_legal(to_function(program), s.func) == []
        for seed in range(2):
            out = run_function(s.func, {"x": data}, seed=seed)
            assert np.array_equal(out[program.outputs[0].name], data.max(axis=1))
            assert np.array_equal(out[program.outputs[1].name], data.argmax(axis=1))
        with pytest.raises(ScheduleError):
            s.parallel(s.loops()[1])
