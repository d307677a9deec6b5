"""blockize: iterators, kinds and use of an opaque block."""

from unit.schedule.loop_programs import chain, check, elementwise, matmul, scheduled


def test_iterators_are_the_loops_around():
    s = check(scheduled(elementwise(6, 5)).tile(("i", "j"), (2, 3)).blockize("i_i"))
    block = s.block("i_i_block")
    assert [(it.name, it.kind) for it in block.iters] == [("i_o", "par"), ("j_o", "par")]
    assert s.loops() == ("i_o", "j_o")


def test_the_block_moves_as_a_whole():
    s = scheduled(elementwise(6, 5)).tile(("i", "j"), (2, 3)).blockize("i_i", name="kernel")
    s = check(s.reorder("j_o", "i_o").parallel("j_o").split("i_o", 2))
    assert s.blocks() == ("kernel",)


def test_a_reduction_outside_is_a_reduction_of_the_block():
    s = scheduled(matmul(4, 4, 6)).split("k", 2).reorder("k_o", "i", "j", "k_i").decompose_init("C", "k_o")
    s = check(s.blockize("i"))
    assert [(it.name, it.kind) for it in s.block("i_block").iters] == [("k_o", "red")]


def test_copies_of_a_block_have_loops_of_their_own():
    s = scheduled(elementwise(6, 5)).blockize("j").partition("i", 2)
    check(s)
    assert s.blocks() == ("j_block", "j_block_1")


def test_storage_inside_of_a_block_is_its_own():
    s = scheduled(chain(9)).split("Y_i", 3).compute_at("T", "Y_i_o").split("Y_i_o", 2, names=("a", "b"))
    s = s.blockize("b")
    assert {name for name, _ in s.block("b_block").writes} == {"Y"}
    s = check(s.partition("a", 1))
    assert s.blocks() == ("b_block", "b_block_1")
