"""Plans that tests ask rules for, and others that are drawn around one."""

from tilewright.plan import Cluster, UnitPlan, Variants
from tilewright.schedule import Trace


def asked(rule, root, stages=(), choice=None, rewrites=Trace(())):  # noqa: B008  (a value)
    """The plan of one nest; by the rule's default without a choice."""
    return UnitPlan(rewrites, (), asked=(Cluster(rule, root, tuple(stages), None, choice),))


def chosen(program, plan, machine, choice, at=0):
    """A plan with another choice for one nest."""
    return Variants(program, plan, machine).chosen({at: choice})


def drawn(program, plan, machine, rng):
    """A plan with choices that are drawn for all nests. Raises ScheduleError where one has no trees."""
    variants = Variants(program, plan, machine)
    return variants.chosen({n: v.space.sample(rng) for n, v in enumerate(variants.nests)})
