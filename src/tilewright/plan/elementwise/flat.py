"""Short rows as one: element-wise stages whose arrays lie as their axes do, none long enough for lanes.

    for i in range(n):                            for k in range(3 * n):  (in vectors)
        for j in range(3):                 ->         y[k//3, k%3] = x[k//3, k%3] * 2
            y[i, j] = x[i, j] * 2

Code generation finds that ``k//3`` and ``k%3`` are element ``k``.
"""

from __future__ import annotations

from tilewright.ir import Index, Program, Stage, Store, loads, var
from tilewright.plan.elementwise.plan import ElementwisePlan


def lies_flat(program: Program, stage: Stage, plan: ElementwisePlan) -> bool:
    """Whether a stage without vectors has several axes that move over all its arrays in their order.

    Arrays that no axis moves along, such as single factors, may be there as well.
    """
    if plan.vector is not None or len(stage.iters) < 2 or not isinstance(stage.body, Store):
        return False
    if not all(it.kind == "par" and it.extent.is_const for it in stage.iters):
        return False
    whole = tuple(var(it.name) for it in stage.iters)
    shape = tuple(it.extent for it in stage.iters)
    values = [w.value for w in stage.body.writes]
    accesses: list[tuple[str, tuple[Index, ...]]] = [(w.buffer, w.indices) for w in stage.body.writes]
    accesses += [(ld.buffer, ld.indices) for value in values for ld in loads(value)]
    for name, indices in accesses:
        buffer = program.buffer(name)
        if all(i.is_const for i in indices):
            continue
        if indices != whole or buffer.shape != shape or buffer.layout is not None or buffer.halo is not None:
            return False
    return True
