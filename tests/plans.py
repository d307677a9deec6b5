"""Plans that tests ask rules for, and others that are drawn around one."""

from dataclasses import replace

from tilewright.plan import Cluster, UnitPlan, Variants
from tilewright.schedule import Trace


def asked(rule, root, stages=(), choice=None, rewrites=Trace(())):  # noqa: B008  (a value)
    """The plan of one nest; by the rule's default without a choice."""
    return UnitPlan(rewrites, (), asked=(Cluster(rule, root, tuple(stages), None, choice),))


def chosen(program, plan, machine, choice, at=0):
    """A plan with another choice for one nest."""
    return Variants(program, plan, machine).chosen({at: choice})


def asked_of(plan, choice, rule=None):
    """A plan as choices alone, with this one for the nests of a rule, by default for all: it is checked."""
    nests = [(n, choice if rule in (None, n.rule) else n.choice) for n in plan.nests]
    made = tuple(Cluster(n.rule, n.root, n.stages, None, each) for n, each in nests)
    return replace(plan, nests=(), asked=made)


def drawn(program, plan, machine, rng):
    """A plan with choices that are drawn for all nests. Raises ScheduleError where one has no trees."""
    variants = Variants(program, plan, machine)
    return variants.chosen({n: v.space.sample(rng) for n, v in enumerate(variants.nests)})
