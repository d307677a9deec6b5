"""The precision tf32: factors are rounded where matrix units take them, and nowhere else."""

from tilewright import lang
from tilewright.analysis import roles_of
from tilewright.cost import Machine
from tilewright.ir import F32, tf32_argument
from tilewright.lang import ops
from tilewright.plan import plan_unit, round_factors
from tilewright.target import A100, POCL


def product(m, n, k):
    a, b = lang.placeholder((m, k), name="A"), lang.placeholder((k, n), name="B")
    return lang.program([a, b], [ops.matmul(a, b, name="C")])


def test_factors_of_large_products_are_rounded():
    program = round_factors(product(48, 40, 24), A100)
    roles = roles_of(program.stage("C"))
    assert all(tf32_argument(e) is not None and e.dtype == F32 for e in (roles.a, roles.b))
    assert [nest.rule for nest in plan_unit(program, Machine(A100, 1)).plan.nests] == ["gpu_matrix"]
    # once is enough
    assert round_factors(program, A100) == program


def test_what_no_unit_takes_stays_as_it_is():
    for program, target in ((product(48, 40, 24), POCL), (product(3, 40, 24), A100)):
        assert round_factors(program, target) is program
    x = lang.placeholder((48, 40), name="X")
    sums = lang.program([x], [ops.reduce("sum", x, (1,))])
    assert round_factors(sums, A100) is sums
