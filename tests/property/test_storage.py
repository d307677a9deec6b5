"""Random chains of stencils and reductions under random moves of computation and storage.

The steps lead to one another (a window slides only where a producer was moved into a loop), so they are drawn
from what the schedule offers at the time. After each accepted step the exact checker compares the loops with
the program, at the end the interpreter does on data.
"""

from collections import Counter

import numpy as np
from hypothesis import given, settings, strategies as st

from tilewright import lang
from tilewright.ir import Alloc, For, blocks, locate, run_function, run_program, verify
from tilewright.poly import check_legal, list_function
from tilewright.schedule import Schedule, replay
from tilewright.support import ScheduleError

MOVES = ("compute_at", "reverse_compute_at", "cache", "inline", "hoist_alloc", "slide", "roll")
EXAMPLES = {"deep": 800, "dev": 15}
HITS = 30
#: Of moves that take a group along, which few programs have: 18 in one run, 30 and more in others.
GROUPS = 8


@st.composite
def chains(draw):
    """A program of two to four stages on shrinking two-dimensional tensors, and values of its parameters."""
    count = draw(st.integers(2, 4), label="stages")
    taps = st.one_of(st.just((0, 0)), st.tuples(st.integers(0, 2), st.integers(0, 2)))
    steps = [draw(taps, label="taps") for _ in range(count)]
    h, w = draw(st.integers(1, 6), label="height"), draw(st.integers(1, 5), label="width")
    params = {"H": h} if draw(st.integers(0, 3), label="symbolic") == 0 else {}
    rows = lang.param("H") if params else h
    da, db = sum(a for a, _ in steps), sum(b for _, b in steps)
    t = X = lang.placeholder((rows + da, w + db), name="X")
    made, outputs = [t], []
    for n, (a, b) in enumerate(steps):
        da, db = da - a, db - b
        shape = (rows + da, w + db)
        other = draw(st.sampled_from(made), label="other")
        # in order at known sizes: maxima in symbolic boxes make lists of instances as long as sizes may be
        ordered = [] if params else ["update", "scan"]
        kind = draw(st.sampled_from(["taps", "taps", "sum", "max", *ordered]), label="kind")
        if kind in ("taps", "update", "scan"):

            def value(y, x, t=t, a=a, b=b, o=other):
                return t[y, x] + t[y + a, x + b] - o[y, x]

        else:
            r, s = lang.reduce_axis(a + 1, "r"), lang.reduce_axis(b + 1, "s")
            op = lang.sum if kind == "sum" else lang.max

            def value(y, x, t=t, r=r, s=s, op=op):
                return op(t[y + r, x + s], axis=(r, s))

        if kind in ("update", "scan"):
            t = _in_order(kind, draw(st.integers(0, 2), label="order"), shape, t, (a, b), f"S{n}")
        else:
            t = lang.compute(shape, value, name=f"S{n}")
        made.append(t)
        if n == count - 1 or draw(st.integers(0, 5), label="output") == 0:
            outputs.append(t)
    return lang.program([X], outputs), params


def _in_order(kind, order, shape, t, taps, name):
    """A tensor that changes along rows (0), columns (1) or both (2): a scan, or an update of a copy."""
    a, b = taps

    def before(u, y, x):
        return u[y, lang.maximum(x - 1, 0)] if order == 0 else u[lang.maximum(y - 1, 0), x]

    if kind == "scan":
        along = 1 if order == 0 else 0

        def value(u, y, x):
            i = x if along else y
            return lang.select(i >= 1, u[y, x - 1] if along else u[y - 1, x], 0) + t[y + a, x + b]

        return lang.scan(shape, value, axis=along, name=name)
    base = lang.compute(shape, lambda y, x: t[y, x] * 2)
    kinds = [lang.axis if order == d else lang.ordered_axis for d in (0, 1)]
    axes = [make(n, v) for make, n, v in zip(kinds, shape, "yx", strict=True)]
    return lang.update(base, axes, lambda u, y, x: u[y, x] - before(u, y, x) + t[y + a, x + b], name=name)


def _serial(s):
    return [p for p in locate(s.func.body, For) if p.node.kind.name == "serial"]


def _touched(node):
    inside = [p.node for p in blocks(node)]
    return sorted({b for n in inside for b, _ in n.writes} | {ld.buffer for n in inside for ld in n.reads})


def _allocs(s):
    return list(locate(s.func.body, Alloc))


def proposals(s):
    """Steps that might be accepted, by primitive."""
    loops = _serial(s)
    known = [p.node for p in blocks(s.func.body)]
    args = {b.name for b in s.func.buffers}
    out = {name: [] for name in (*MOVES, "split", "reorder", "parallel")}
    for p in loops:
        inside, names = p.node, p.node.body.names
        out["split"] += [(inside.var, f, tail) for f in (2, 3) for tail in ("guard", "mask", "peel")]
        if not p.loops:
            out["parallel"].append((inside.var,))
        if isinstance(inside.body, For):
            out["reorder"].append((inside.body.var, inside.var))
        for b in known:
            made = {n for n, _ in b.writes}
            readers = {o.name for o in known if o is not b and made & {ld.buffer for ld in o.reads}}
            if not made & args and readers and readers <= names and b.name not in names:
                out["compute_at"].append((b.name, inside.var))
            done = {n for o in known if o.name in names for n, _ in o.writes}
            # what it changes may be started there, too
            read = {ld.buffer for o in known if made & {n for n, _ in o.writes} for ld in o.reads}
            if b.name not in names and done & read:
                out["reverse_compute_at"].append((b.name, inside.var))
        for buffer in _touched(inside):
            out["cache"] += [(buffer, inside.var, mode) for mode in ("read", "write", "accumulate")]
    for p in _allocs(s):
        b = p.node.buffer
        outer = [f.var for f in p.loops]
        out["hoist_alloc"] += [(b.name, v) for v in [None, *outer[:-1]]] if outer else []
        exprs = b.layout.exprs if b.layout is not None else ()
        for e, n in zip(exprs, b.physical_shape, strict=bool(exprs)):
            if outer and n.is_const and 0 < -e.coefficient(outer[-1]) < n.as_int():
                out["slide"] += [(x.name, outer[-1]) for x in known if b.name in {n for n, _ in x.writes}]
        if len(p.loops) < len(p.ancestors) or not p.loops:
            out["roll"] += [(b.name, d, n) for d in range(len(b.shape)) for n in (2, 3, 4)]
    out["inline"] = [(b.name,) for b in known if not b.is_reduction and not {n for n, _ in b.writes} & args]
    return out


def _grouped(s, name):
    """Whether several stages write the buffer of a block."""
    known = [p.node for p in blocks(s.func.body)]
    made = {n for b in known if b.name == name for n, _ in b.writes}
    return len({b.stage for b in known if made & {n for n, _ in b.writes}}) > 1


def _apply(s, name, args):
    if name == "split":
        return s.split(args[0], args[1], tail=args[2])
    if name == "cache":
        return s.cache(args[0], args[1], mode=args[2])
    if name == "reorder":
        return s.reorder(*args)
    return s.apply(name, *args)


def test_random_moves():
    counts = Counter()
    profile = settings.get_current_profile_name()

    @settings(max_examples=EXAMPLES.get(profile, 20))
    @given(st.data())
    def run(data):
        program, params = data.draw(chains(), label="program")
        s = Schedule(program)
        reference = list_function(s.func, params)
        for _ in range(data.draw(st.integers(4, 10), label="steps")):
            offered = {n: a for n, a in proposals(s).items() if a}
            moves = [n for n in MOVES if n in offered]
            rare = [
                n for n in ("slide", "slide", "roll", "compute_at", "inline", "hoist_alloc") if n in offered
            ]
            names = [n for n in ("parallel", "reorder", "split") if n in offered]
            name = data.draw(st.sampled_from(rare * 3 + moves * 2 + names), label="primitive")
            args = data.draw(st.sampled_from(offered[name]), label="arguments")
            counts["proposed " + name] += 1
            try:
                s = _apply(s, name, args)
            except ScheduleError:
                continue
            counts[name] += 1
            counts["groups follow"] += name == "reverse_compute_at" and _grouped(s, args[0])
            verify(s.func)
            if name == "inline":
                reference = list_function(s.func, params)
                continue
            found = check_legal(reference, s.func, params)
            assert not found, f"{s.trace}{s}\n" + "\n".join(map(str, found))
        shape = tuple(n.const + sum(c * params[a.name] for a, c in n.terms) for n in program.inputs[0].shape)
        arrays = {"X": np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)}
        expected = run_program(program, arrays, params)
        actual = run_function(s.func, arrays, params, seed=data.draw(st.integers(0, 9), label="order"))
        for name, want in expected.items():
            np.testing.assert_array_equal(actual[name], want)
        assert replay(program, s.trace.to_json()).func == s.func

    run()
    print(dict(sorted(counts.items())))
    if profile == "deep":
        assert all(counts[name] >= HITS for name in MOVES), counts
        assert counts["groups follow"] >= GROUPS, counts


@st.composite
def line_buffers(draw):
    """A program of stencils with inferred regions: every stage reads one or two before it."""
    X = lang.placeholder((128, 9), "i32", name="X")
    made = []
    tap = st.tuples(st.integers(-2, 2), st.integers(-1, 1))
    for n in range(draw(st.integers(2, 4), label="stages")):
        sources = [
            draw(st.sampled_from([*made[-2:], X])) for _ in range(draw(st.integers(1, 2), label="sources"))
        ]
        reads = [(f, draw(st.lists(tap, min_size=1, max_size=3))) for f in [*made[-1:], *sources]]
        step = draw(st.sampled_from([1, 1, 1, 2]), label="step")

        def value(y, x, reads=reads, step=step, n=n):
            terms = [
                f[(step * y + a + 32, x + b + 4) if f is X else (step * y + a, x + b)]
                for f, taps in reads
                for a, b in taps
            ]
            return sum(t * (k + n + 2) for k, t in enumerate(terms))

        made.append(lang.stage(value, name=f"S{n}"))
    return lang.program([X], [made[-1]], region=[draw(st.integers(1, 5), label="rows"), 1])


def test_sliding_chains():
    """Producers that slide in the loop in which their consumers slide, in strips or not, then rolled."""
    counts = Counter()
    profile = settings.get_current_profile_name()

    @settings(max_examples=EXAMPLES.get(profile, 20))
    @given(st.data())
    def run(data):
        program = data.draw(line_buffers(), label="program")
        *names, last = [x.name for x in program.stages]
        s = Schedule(program)
        reference = list_function(s.func, {})
        loop = s.loops(last)[0]
        strip = data.draw(st.sampled_from([0, 0, 2, 3]), label="strip")
        if strip:
            s = s.split(loop, strip, tail=data.draw(st.sampled_from(["guard", "peel"]), label="tail"))
            loop = next(v for v in s.loops(last) if v.endswith("_i"))
        steps = [("compute_at", (n, loop)) for n in reversed(names)]
        order = data.draw(st.one_of(st.just(names), st.permutations(names)), label="order")
        steps += [("slide", (n, loop)) for n in order]
        steps += [("roll", (n, 0, data.draw(st.integers(1, 8), label="rows"))) for n in names]
        slid = 0
        for name, args in steps:
            counts["proposed " + name] += 1
            try:
                s = s.apply(name, *args)
            except ScheduleError:
                continue
            counts[name] += 1
            slid += name == "slide"
            verify(s.func)
            found = check_legal(reference, s.func, {})
            assert not found, f"{s.trace}{s}\n" + "\n".join(map(str, found))
        counts["several slide"] += slid > 1
        x = np.random.default_rng(0).integers(-9, 9, (128, 9)).astype(np.int32)
        expected = run_program(program, {"X": x})
        got = run_function(s.func, {"X": x})
        for name, want in expected.items():
            np.testing.assert_array_equal(got[name], want, err_msg=name)

    run()
    if profile == "deep":
        for name in ("slide", "roll", "several slide"):
            assert counts[name] >= HITS, f"{name}: {counts}"
