"""Programs scheduled for blocks of threads, as tests of lowering and of primitives use them."""

from tilewright import lang
from tilewright.schedule import Schedule


def matmul(n, m, k):
    """``C = A @ B``."""
    A, B = lang.placeholder((n, k), name="A"), lang.placeholder((k, m), name="B")
    r = lang.reduce_axis(k, "k")
    C = lang.compute((n, m), lambda i, j: lang.sum(A[i, r] * B[r, j], axis=r), name="C")
    return Schedule(lang.program([A, B], [C]))


def shared_matmul(n, m, k, *, block, depth):
    """Blocks of results, tiles of the operands in shared memory, sums in registers; no threads yet."""
    s = matmul(n, m, k).split("i", block).split("j", block).split("k", depth)
    s = s.reorder("i_o", "j_o", "k_o", "k_i", "i_i", "j_i").bind("i_o", "block.y").bind("j_o", "block.x")
    s = s.cache("C", "j_o", mode="accumulate", scope="register", name="acc")
    return s.cache("A", "k_o", scope="shared", name="As").cache("B", "k_o", scope="shared", name="Bs")


def threaded(s, tile):
    """The sums' loops of :func:`shared_matmul` on threads, ``tile`` by ``tile`` a thread."""
    for name in ("acc_init_", "", "acc_out_"):
        i, j = (f"{name}i", f"{name}j") if name else ("i_i", "j_i")
        s = s.split(i, tile).split(j, tile)
        inner = [f"{i}_i", f"{j}_i"] if name else ["k_i", f"{i}_i", f"{j}_i"]
        s = s.reorder(f"{i}_o", f"{j}_o", *inner)
    s = s.bind(("acc_init_i_o", "i_i_o", "acc_out_i_o"), "thread.y")
    return s.bind(("acc_init_j_o", "j_i_o", "acc_out_j_o"), "thread.x")


def tiled_matmul(n, m, k, *, block, depth, tile):
    """A matmul as on a GPU: every thread sums a tile, and copies a part of the operands."""
    s = threaded(shared_matmul(n, m, k, block=block, depth=depth), tile)
    width = block // tile
    s = s.split("As_i", width).bind("As_i_i", "thread.y")
    return s.split("Bs_j", width).bind("Bs_j_i", "thread.x")
