"""Plans of whole models: the plan of each kernel, found again by its program, as text that can be kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tilewright.ir import LoopFunction, Program, structural_hash
from tilewright.plan import Accuracy, GraphPlan, UnitPlan, graph_plan_from_data, plan_from_json
from tilewright.support import ArtefactError, InputError, counted, digest_text, get_logger
from tilewright.target import TargetBase

_log = get_logger(__name__)
FORMAT: Final = "tilewright-model-plan"
VERSION: Final = 3
FIELDS: Final = frozenset({"format", "version", "target", "quantities", "graph", "units"})
#: Longest text that is read: far above the plan of a model of a thousand kernels.
MAX_BYTES: Final = 1 << 28


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """What is decided about a model: ``graph``, and the plans of its kernels.

    Each of these is found by a digest of the kernel's program and its threads. ``target`` is the fingerprint
    of the target that they were made for, ``quantities`` the digest of what was measured of it: with others,
    what a plan leaves open is decided otherwise. Without ``graph`` the model's kernels are those of the
    default.
    """

    target: str
    units: Mapping[str, UnitPlan]
    graph: GraphPlan | None = None
    quantities: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", MappingProxyType(dict(self.units)))

    def find(self, program: Program | LoopFunction, threads: int) -> UnitPlan | None:
        """The plan of a kernel, if there is one."""
        return self.units.get(unit_key(program, threads))

    def require(self, kernels: Iterable[tuple[Program | LoopFunction, int]]) -> None:
        """Check that this is the plan of a model of these kernels, each with its threads.

        Where it has some of them, the log says how many. Raises InputError where it has none.
        """
        wanted = dict.fromkeys(unit_key(program, threads) for program, threads in kernels)
        has = sum(key in self.units for key in wanted)
        if not self.units or not wanted:
            return
        if has == 0:
            names = {key.rpartition("/")[0] for key in wanted}
            others = {key.rpartition("/")[2] for key in self.units if key.rpartition("/")[0] in names}
            if others:
                threads = max(others, key=int)
                raise InputError(
                    f"the plan was made for {counted(int(threads), 'thread')}", hint=f"threads={threads}"
                )
            raise InputError(
                "the plan is of another model: it has none of this one's kernels",
                hint="`explain MODEL --show plan` prints one; with another 'graph', 'units' may be empty",
            )
        if has < len(wanted):
            _log.warning(
                "the plan has %d of %s: the others are planned as usual", has, counted(len(wanted), "kernel")
            )

    def is_measured_otherwise(self, target: TargetBase) -> bool:
        """Whether this was made for the target as it is, but with other measured quantities."""
        return self.target == target.fingerprint and self.quantities not in ("", target.measured)

    def to_json(self) -> str:
        """The text that :func:`model_plan_from_json` reads."""
        units = {key: json.loads(plan.to_json()) for key, plan in self.units.items()}
        graph = None if self.graph is None else self.graph.to_data()
        data = {
            "format": FORMAT,
            "version": VERSION,
            "target": self.target,
            "quantities": self.quantities,
            "graph": graph,
            "units": units,
        }
        return json.dumps(data, indent=1) + "\n"


def unit_key(program: Program | LoopFunction, threads: int) -> str:
    """What the plan of a kernel is found by: its program but for names, and its threads."""
    return f"{structural_hash(program)}/{threads}"


def graph_key(plan: GraphPlan, units: Iterable[str], target: str, accuracy: Accuracy, *searched: str) -> str:
    """What other decisions about a graph are found by: the default's, its kernels, and the machine.

    ``searched`` are decisions that were searched besides.
    """
    how = ", ".join((accuracy.mode, *sorted(accuracy.without), *searched))
    return digest_text(json.dumps([plan.to_data(), list(units), target, how], sort_keys=True))


def plan_of_kernels(
    target: TargetBase,
    kernels: Iterable[tuple[Program | LoopFunction, int, UnitPlan]],
    graph: GraphPlan | None,
) -> ModelPlan:
    """The plan of a model from those of its kernels and the threads of each."""
    units = {unit_key(program, threads): plan for program, threads, plan in kernels}
    return ModelPlan(target.fingerprint, units, graph, target.measured)


def given_plan(plan: object) -> ModelPlan | None:
    """The plan that a caller gives, itself or as text. Raises InputError for what is neither."""
    if plan is None or isinstance(plan, ModelPlan):
        return plan
    if isinstance(plan, str):
        return model_plan_from_json(plan)
    raise InputError(
        f"plan= is the plan of a model or its text, not {type(plan).__name__}",
        hint="`tilewright explain MODEL --show plan` prints one, as CompiledModel.plan gives it",
    )


def model_plan_from_json(text: str | bytes) -> ModelPlan:
    """Read the plan of a model. Raises ArtefactError, naming what is wrong, for text that is none."""
    if len(text) > MAX_BYTES:
        raise ArtefactError(f"the model's plan has {len(text)} bytes; at most {MAX_BYTES} are read")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"the model's plan is not JSON: {error}", hint="is the file complete?") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
        raise ArtefactError(
            f"not the plan of a model: 'format' and 'version' are not {FORMAT!r} and {VERSION}",
            hint="`tilewright explain MODEL --show plan` prints one",
        )
    units, target = data.get("units"), data.get("target")
    if set(data) != FIELDS or not isinstance(units, dict):
        raise ArtefactError(f"the plan of a model has exactly {', '.join(map(repr, sorted(FIELDS)))}")
    if not isinstance(target, str):
        raise ArtefactError("'target' of a model's plan is a fingerprint")
    if not isinstance(data["quantities"], str):
        raise ArtefactError("'quantities' of a model's plan is a digest")
    graph = None if data["graph"] is None else graph_plan_from_data(data["graph"])
    made: dict[str, UnitPlan] = {}
    for key, unit in units.items():
        try:
            made[key] = plan_from_json(json.dumps(unit))
        except ArtefactError as error:
            raise ArtefactError(f"kernel {key[:200]}: {error.what}", hint=error.hint) from None
    return ModelPlan(target, made, graph, data["quantities"])
