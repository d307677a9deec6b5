"""Hypothesis strategies for IR of every kind: well typed, though the functions need not make sense."""

from hypothesis import strategies as st

from tilewright.ir import (
    BOOL,
    CALLS,
    CAST_MODES,
    COMPARE_OPS,
    DTYPES,
    F32,
    I32,
    PARALLEL,
    SERIAL,
    UNROLL,
    VECTOR,
    ZERO,
    Access,
    Alloc,
    Barrier,
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Exec,
    For,
    If,
    IndexMap,
    Iter,
    Load,
    LoopFunction,
    OfIndex,
    Opaque,
    Param,
    Program,
    Select,
    Seq,
    Stage,
    Store,
    Unary,
    Window,
    eq0,
    floordiv,
    ge0,
    holds,
    imax,
    imin,
    index,
    linear,
    mod,
    thread,
    var,
)

PARAMS = (Param("n", 1, 100), Param("m m", 4, 64, 4))
NAMES = st.sampled_from(
    ["i", "j", "k", "a b", "for", "f32", "_", "é", 'q"', "it's", "x\ny", "\U0001f600", "n"]
)
SMALL = st.integers(-20, 20)


@st.composite
def indices(draw, names=("i", "j", "k"), depth=2, exprs=None):
    """Quasi-affine indices over the given variables and PARAMS."""
    out = index(draw(SMALL))
    for _ in range(draw(st.integers(0, 3))):
        c = draw(st.integers(-6, 6))
        choice = draw(st.integers(0, 6 if depth else 1))
        if choice <= 1:
            atoms = [*map(var, names), *map(index, PARAMS)] if choice == 1 else [*map(var, names), ZERO]
            term = draw(st.sampled_from(atoms))
        elif choice <= 3:
            inner = draw(indices(names, depth - 1, exprs))
            term = (floordiv if choice == 2 else mod)(inner, draw(st.integers(1, 12)))
        elif choice <= 5:
            args = draw(st.lists(indices(names, depth - 1, exprs), min_size=1, max_size=3))
            term = (imin if choice == 4 else imax)(*args)
        else:
            term = index(Opaque(draw(exprs))) if exprs is not None else ZERO
        out = out + term * c
    return out


def constants(dtype):
    """Literals, special values included."""
    if dtype.is_float:
        values = st.one_of(
            st.floats(width=16), st.sampled_from([0.0, -0.0, float("inf"), float("nan"), 1e-30, 3])
        )
    elif dtype == BOOL:
        values = st.booleans()
    else:
        values = st.integers(int(dtype.min_value), int(dtype.max_value))
    return st.builds(Const, values, st.just(dtype))


@st.composite
def exprs(draw, buffers, dtype=None, depth=3):
    """Scalar expressions of one type over loads of the given buffers."""
    dtype = dtype or draw(st.sampled_from(list(DTYPES.values())))
    sub = exprs(buffers, dtype, depth - 1)
    matching = [b for b in buffers if b.dtype == dtype]
    choice = draw(st.integers(0, 9)) if depth else draw(st.integers(0, 2))
    if dtype.small and choice in (3, 4, 5, 9):
        choice = 0
    if choice == 1:
        return OfIndex(draw(indices()), dtype)
    if choice == 2 and matching:
        b = draw(st.sampled_from(matching))
        return Load(b.name, tuple(draw(indices(depth=1)) for _ in b.shape), dtype)
    if choice == 3:
        return Unary("not" if dtype == BOOL else draw(st.sampled_from(["neg", "abs"])), draw(sub))
    if choice in (4, 5):
        ops = ["min", "max"]
        if dtype.is_float:
            ops += ["add", "sub", "mul", "div"]
        elif dtype == BOOL:
            ops += ["and", "or", "xor"]
        else:
            ops += [
                "add",
                "sub",
                "mul",
                "floordiv",
                "mod",
                "truncdiv",
                "rem",
                "and",
                "or",
                "xor",
                "shl",
                "shr",
            ]
        return Binary(draw(st.sampled_from(ops)), draw(sub), draw(sub))
    if choice == 6 and dtype == BOOL:
        other = draw(st.sampled_from([F32, I32]))
        return Compare(
            draw(st.sampled_from(COMPARE_OPS)), *(draw(exprs(buffers, other, depth - 1)) for _ in "ab")
        )
    if choice == 7:
        return Select(draw(exprs(buffers, BOOL, depth - 1)), draw(sub), draw(sub))
    if choice == 8:
        mode = draw(st.sampled_from(CAST_MODES))
        others = [d for d in DTYPES.values() if mode != "bits" or d.bits == dtype.bits]
        return Cast(draw(exprs(buffers, draw(st.sampled_from(others)), depth - 1)), dtype, mode)
    if choice == 9 and dtype.is_float:
        # of positive numbers the machine's choice
        others = ("isnan", "isinf", "exp_nonpositive")
        fn = draw(st.sampled_from([f for f in CALLS if f not in others]))
        arity = {"fma": 3, "pow": 2, "atan2": 2, "copysign": 2, "ldexp": 2}.get(fn, 1)
        return Call(fn, tuple(draw(sub) for _ in range(arity)))
    return draw(constants(dtype))


@st.composite
def preds(draw, buffers, least=0):
    """Predicates of zero to three conjuncts."""
    out = []
    for _ in range(draw(st.integers(least, 3))):
        choice = draw(st.integers(0, 2))
        x = draw(indices())
        out.append([ge0(x), eq0(x)][choice] if choice < 2 else holds(draw(exprs(buffers, BOOL, 2))))
    return tuple(out)


@st.composite
def buffer_decls(draw, name, dims=None):
    """Declarations with every field."""
    rank = draw(st.integers(0, 3))
    shape = tuple(draw(st.sampled_from([index(4), index(16), index(PARAMS[0])])) for _ in range(rank))
    layout = None
    if draw(st.booleans()):
        dims = tuple(f"d{n}" for n in range(rank - 1)) + (("a dim",) if rank else ())
        results = tuple(draw(indices((*dims, "i"), 1)) for _ in range(draw(st.integers(0, 3))))
        layout = IndexMap(dims, results, tuple(index(8) for _ in results))
    physical = len(shape if layout is None else layout.shape)
    return Buffer(
        name,
        shape,
        draw(st.sampled_from(list(DTYPES.values()))),
        draw(st.sampled_from(["global", "register", "shared", "my scope"])),
        layout,
        draw(st.sampled_from([64, 4])),
        draw(st.sampled_from([None, "g", "a 'b'"])),
        draw(st.sampled_from([None, ((1, 2),) * physical])),
    )


@st.composite
def stores(draw, buffers):
    """One or several simultaneous assignments."""
    writes = []
    for _ in range(draw(st.integers(1, 2))):
        b = draw(st.sampled_from(buffers))
        writes.append(
            Access(b.name, tuple(draw(indices(depth=1)) for _ in b.shape), draw(exprs(buffers, b.dtype)))
        )
    return Store(tuple(writes))


@st.composite
def iter_lists(draw):
    """Up to three iterators with names of their own."""
    names = draw(st.lists(NAMES, max_size=3, unique=True))
    kinds = st.sampled_from(["par", "red", "ord"])
    return tuple(Iter(n, draw(indices(depth=0)), draw(indices(depth=1)), draw(kinds)) for n in names)


@st.composite
def stmts(draw, buffers, depth=3):
    """Statements of every kind; names are made unique by :func:`functions`."""
    choice = draw(st.integers(0, 9)) if depth else draw(st.integers(0, 2))
    sub = stmts(buffers, depth - 1)
    match choice:
        case 0 | 1:
            return draw(stores(buffers))
        case 2:
            windows = draw(
                st.lists(
                    st.sampled_from(buffers).flatmap(
                        lambda b: st.builds(
                            Window,
                            st.just(b.name),
                            st.tuples(*(indices(depth=1) for _ in b.shape)),
                            st.just((2,) * len(b.shape)),
                            st.sampled_from(["r", "w", "rw"]),
                        )
                    ),
                    max_size=2,
                )
            )
            return Exec(
                draw(st.sampled_from(["dot4", "an instr"])),
                tuple(windows),
                tuple(draw(st.lists(exprs(buffers), max_size=2))),
            )
        case 3:
            return Barrier(draw(st.sampled_from(["shared", "global"])))
        case 4:
            return Seq(tuple(draw(st.lists(sub, max_size=3))))
        case 5:
            return If(draw(preds(buffers)), draw(sub), draw(st.one_of(st.none(), sub)))
        case 6:
            b = draw(buffer_decls(f"t{draw(st.integers(0, 10**6))}"))
            return Alloc(b, draw(stmts([*buffers, b], depth - 1)))
        case 7 | 8:
            kinds = [SERIAL, PARALLEL, VECTOR, UNROLL, thread("block.x"), thread("thread y")]
            hints = st.sampled_from([(), (("outline", ""),), (("unroll", "4"), ("prefetch", 'a"b'))])
            return For(
                draw(NAMES), draw(indices(depth=1)), draw(indices(depth=1)), draw(sub),
                draw(st.sampled_from(kinds)), draw(st.integers(1, 3)), draw(hints),
            )  # fmt: skip
        case _:
            iters = draw(iter_lists())
            binds = tuple(draw(indices()) for _ in iters)
            init = draw(st.one_of(st.none(), stores(buffers)))
            return Block(draw(NAMES), draw(NAMES), iters, binds, draw(sub), init, draw(preds(buffers)))


@st.composite
def functions(draw):
    """Loop functions with every kind of node (names of loops and blocks may repeat)."""
    buffers = [draw(buffer_decls(name)) for name in ("A", "B b", "f32")]
    return LoopFunction(
        "f 1", PARAMS, tuple(buffers), ("f32", "A"), draw(stmts(buffers)), draw(preds(buffers))
    )


@st.composite
def programs(draw):
    """Programs with every field but source locations."""
    buffers = [draw(buffer_decls(name)) for name in ("A", "B b", "f32", "T")]
    stages = [
        Stage(
            name,
            draw(iter_lists()),
            draw(stores(buffers)),
            draw(st.one_of(st.none(), stores(buffers))),
        )
        for name in ("s", "t 1")
    ]
    a, b, c, d = buffers
    return Program("p", PARAMS, (a,), (b, c), (d,), tuple(stages), draw(preds(buffers)))


def environments(names=("i", "j", "k")):
    """Values of variables and of PARAMS within their bounds."""
    return st.fixed_dictionaries(
        {
            **{n: st.integers(-50, 50) for n in names},
            "n": st.integers(1, 100),
            "m m": st.integers(1, 16).map(lambda x: 4 * x),
        }
    )


def rebuilt(x):
    """An index put together again from its own parts."""
    return linear(x.const, dict(x.terms))
