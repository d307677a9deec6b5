"""set_scope and hoist_alloc refuse private memory and tile registers where code generation would have to."""

import pytest

from tilewright import lang
from tilewright.ir import TILE, Alloc, locate, parse_function
from tilewright.schedule import Schedule, ownerless, scopes
from tilewright.support import ScheduleError
from unit.schedule.loop.test_tensorize_tiles import arrays, check, grouped, nest, product, tiled
from unit.schedule.loop_programs import chain, scheduled

KIND = "tdpbf16ps"


def results(m=6, n=8, high=3, wide=4):
    """A product by instructions, each result in a tile inside of the loops over them."""
    return tiled(product(m, n, 16, KIND), KIND, high, wide, 8)


def elements(m=6, n=8, high=3, wide=4, scope="global"):
    """The same by elements."""
    return nest(grouped(product(m, n, 16, KIND), KIND), high, wide, 8, scope=scope)


def test_tiles_of_unrolled_loops_are_hoisted():
    s = results().unroll("j_o").hoist_alloc("T", "i_o")
    assert s.buffers()["T"].scope == TILE
    check(s, arrays(s.source))
    check(results().unroll("j_o").unroll("i_o").hoist_alloc("T"), arrays(s.source))


def test_results_of_contractions_may_come_into_tiles():
    """Also before anything is tensorized: by elements, what reads them too."""
    assert elements().set_scope("T", TILE).buffers()["T"].scope == TILE
    s = results()
    assert s.set_scope("T", TILE).func is s.func


def maxima():
    A = lang.placeholder((4, 8), "bf16", name="A")
    k = lang.reduce_axis(8, "k")
    T = lang.compute((4,), lambda i: lang.max(lang.cast(A[i, k], "f32"), axis=k), name="T")
    return Schedule(lang.program([A], [lang.compute((4,), lambda i: T[i] * 2, name="Y")]))


def sums(dtype):
    """A product of what tiles do not multiply."""
    A, B = (lang.placeholder((4, 4), dtype, name=name) for name in "AB")
    k = lang.reduce_axis(4, "k")
    T = lang.compute((4, 4), lambda i, j: lang.sum(A[i, k] * B[k, j], axis=k), name="T")
    return Schedule(lang.program([A, B], [lang.compute((4, 4), lambda i, j: T[i, j] + T[i, j], name="Y")]))


def any_rows():
    n = lang.param("n")
    A, B = lang.placeholder((n, 8), "bf16", name="A"), lang.placeholder((8, 4), "bf16", name="B")
    k = lang.reduce_axis(8, "k")

    def term(i, j):
        return lang.sum(lang.cast(A[i, k], "f32") * lang.cast(B[k, j], "f32"), axis=k)

    T = lang.compute((n, 4), term, name="T")
    return Schedule(lang.program([A, B], [lang.compute((n, 4), lambda i, j: T[i, j] * 2, name="Y")]))


def by_lanes():
    """A sum of products by an instruction on lanes, in memory."""
    A, B = lang.placeholder((8,), "bf16", name="A"), lang.placeholder((8, 16), "bf16", name="B")
    k = lang.reduce_axis(8, "k")
    T = lang.compute(
        (16,), lambda j: lang.sum(lang.cast(A[k], "f32") * lang.cast(B[k, j], "f32"), axis=k), name="T"
    )
    s = Schedule(lang.program([A, B], [lang.compute((16,), lambda j: T[j] * 2, name="Y")]))
    s = s.split("k", 2).reorder("k_o", "j", "k_i").decompose_init("T", "k_o").vectorize("j")
    return s.set_layout("B", ("d0//2", "d1", "d0%2")).tensorize("k_i", "vdpbf16ps")


def two_products():
    """Two results of one nest, both of which could be in tiles."""
    A, B = lang.placeholder((4, 8), "bf16", name="A"), lang.placeholder((8, 4), "bf16", name="B")

    def product_of(name):
        k = lang.reduce_axis(8, "k")
        return lang.compute(
            (4, 4),
            lambda i, j: lang.sum(lang.cast(A[i, k], "f32") * lang.cast(B[k, j], "f32"), axis=k),
            name=name,
        )

    S, T = product_of("S"), product_of("T")
    return Schedule(lang.program([A, B], [lang.compute((4, 4), lambda i, j: S[i, j] + T[i, j], name="Y")]))


def in_parallel(scope):
    """A stage computed in a parallel loop, into memory of the thread."""
    s = scheduled(chain())
    s = s.compute_at("T", "Y_i").set_scope("T", scope)
    return s.parallel("Y_i")


#: What is refused, part of the message, and of the hint.
REFUSALS = {
    "tiles of a loop": (
        lambda: results().hoist_alloc("T", "i_o"),
        "the tiles of 'T' would be chosen by 'j_o', and code names registers by constants",
        "unroll first",
    ),
    "tiles of two loops": (
        lambda: results().hoist_alloc("T"),
        "the tiles of 'T' would be chosen by 'i_o' and 'j_o'",
        "unroll first",
    ),
    "more tiles than there are": (
        lambda: results(32, 64, 16, 16).unroll("i_o").unroll("j_o").hoist_alloc("T"),
        "'T' takes 8 tile registers, and products 2 more: there are 8",
        "make the tiles of results smaller",
    ),
    "more tiles than there are, by elements": (
        lambda: elements(32, 64, 16, 16).hoist_alloc("T").set_scope("T", TILE),
        "'T' takes 8 tile registers, and products 2 more: there are 8",
        "inside of the loops",
    ),
    "tiles of several threads": (
        lambda: results().unroll("j_o").parallel("i_o").hoist_alloc("T"),
        "'T' cannot be tile: the parallel loop 'i_o' inside of its allocation writes it",
        "inside of the loop",
    ),
    **{
        f"{scope} memory of several threads": (
            lambda scope=scope: in_parallel(scope).hoist_alloc("T"),
            f"'T' cannot be {scope}: the parallel loop 'Y_i' inside of its allocation writes it",
            "inside of the loop",
        )
        for scope in ("local", "register")
    },
    "tiles beside tiles": (
        lambda: two_products().set_scope("S", TILE).set_scope("T", TILE),
        "'T' cannot be in tiles: 'S' is, where both are allocated",
        "in separate loops",
    ),
    "tiles of elements": (
        lambda: scheduled(chain()).set_scope("T", TILE),
        "what block 'T' stores there is neither 0 nor a sum of products of bf16 or i8 or u8",
        "results of contractions",
    ),
    "tiles of maxima": (
        lambda: maxima().set_scope("T", TILE),
        "what block 'T' stores there is neither 0 nor a sum of products",
        "results of contractions",
    ),
    "tiles of other factors": (
        lambda: sums("f32").set_scope("T", TILE),
        "what block 'T' stores there is neither 0 nor a sum of products of bf16 or i8 or u8",
        "results of contractions",
    ),
    "tiles of other results": (
        lambda: sums("f64").set_scope("T", TILE),
        "'T' cannot be in tiles: its elements are f64, results in tiles are f32 or i32",
        "another scope",
    ),
    "tiles of an unknown size": (
        lambda: any_rows().set_scope("T", TILE),
        "'T' cannot be in tiles: its size is known only when running",
        "inside of loops",
    ),
    "an instruction on memory": (
        lambda: by_lanes().set_scope("T", TILE),
        "'T' cannot be tile: vdpbf16ps has it in scope global",
        "cache a copy",
    ),
    **{
        f"an instruction on tiles, in {scope}": (
            lambda scope=scope: results().set_scope("T", scope),
            f"'T' cannot be {scope}: tilezero_f32 has it in scope tile",
            "leave it in scope tile, or choose the scope before tensorize",
        )
        for scope in ("global", "local", "register", "shared")
    },
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case, same_text):
    steps, message, hint = REFUSALS[case]
    with pytest.raises(ScheduleError) as caught:
        steps()
    assert message in caught.value.what
    assert hint in caught.value.hint
    # the buffer's line is marked in the program that is shown
    assert any(line.startswith(">>") and ("T = alloc" in line) for line in str(caught.value).splitlines())
    same_text(caught.value)


def test_reads_alone_show_no_element_of_several_threads():
    func = parse_function("""
function("f", outputs=[C])
C = f32[4]
T = alloc(f32[2], scope="local")
for t in thread("thread.x", 4):
    with block("C"):
        i = par(0, 4, t)
        C[i] = T[i//2]
""")
    (place,) = locate(func.body, Alloc)
    assert ownerless(place.node, {}) is None


def test_only_parts_that_a_step_changed_are_asked_about_threads(monkeypatch):
    x = lang.placeholder((64, 64), name="X")
    a = lang.compute((64, 64), lambda i, j: x[i, j] + 1, name="a")
    b = lang.compute((64, 64), lambda i, j: a[j, i] * 2, name="b")
    asked = []
    known = scopes._check_updates
    monkeypatch.setattr(
        scopes, "_check_updates", lambda place, shown: asked.append(place.node.var) or known(place, shown)
    )
    s = Schedule(lang.program([x], [b]))
    s = s.bind("j", "thread.x")
    assert asked == ["j"]
    s = s.bind("b_j", "thread.x")
    assert asked == ["j", "b_j"]
    # what no step has made is asked about whole
    asked.clear()
    Schedule(s.func).split("i", 8)
    assert asked == ["j", "b_j"]
