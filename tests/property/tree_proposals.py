"""Trees for import_tree: as written, tiled with producers fused, and with the loops of a nest permuted.

Permuted loops may run the wrong way round: then the primitive must refuse.
"""

import islpy as isl
from hypothesis import strategies as st

from property.program_proposals import pick
from tilewright.ir import blocks
from tilewright.poly import extract_model, tile_and_fuse, tree_of
from tilewright.poly.spaces import union_set
from tilewright.poly.tree import Band, Order, insert, structure_of
from tilewright.support import ProgramError, ScheduleError


def import_tree(draw, s):
    stages = list(dict.fromkeys(p.node.stage for p in blocks(s.func.body)))
    try:
        model = extract_model(s.func)
    except ProgramError:
        return None  # bounds that depend on data
    if len(model.statements) > 8:
        return None
    how = draw(st.sampled_from(("tiled", "tiled", "written", "permuted")), label="tree")
    if how == "tiled":
        tree = _tiled(draw, model, stages)
    elif how == "permuted":
        tree = _permuted(draw, model)
    else:
        tree = tree_of(model)
    return None if tree is None else ((stages, str(tree)), {})


def _tiled(draw, model, stages):
    live = pick(draw, stages, "live-out")
    producers = draw(st.sets(st.sampled_from(stages)), label="producers") - {live}
    sizes = draw(st.lists(st.sampled_from((2, 3, 4)), min_size=1, max_size=2), label="sizes")
    try:
        return tile_and_fuse(
            model, live, sizes, sorted(producers), parallel=draw(st.booleans(), label="parallel")
        ).schedule
    except ScheduleError:
        return None


def _permuted(draw, model):
    shape = structure_of(model.statements)

    def permuted(part):
        if isinstance(part, Order):
            return Order(tuple((names, permuted(inside)) for names, inside in part.parts))
        if isinstance(part, Band):
            order = draw(st.permutations(range(len(part.members))), label="order")
            return Band(tuple(part.members[n] for n in order), permuted(part.child))
        return part

    domain = union_set(s.domain for s in model.statements)
    leaf = isl.Schedule.from_domain(domain).get_root().child(0)
    return insert(leaf, model, permuted(shape)).get_schedule()
