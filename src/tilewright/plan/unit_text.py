"""Plans of units from their text, of this version and of those before."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any, Final

import msgspec

from tilewright.plan.catalog import RULES
from tilewright.plan.rule import Cluster, Nest
from tilewright.plan.unit import EDITED, FORMAT, OF_CHOICES, VERSION, UnitPlan
from tilewright.schedule import load_trace
from tilewright.support import ArtefactError, ParseError, known_names
from tilewright.tiling import Nest as Tree, parse

#: The first version: without the digest of measured quantities.
WITHOUT_QUANTITIES: Final = 1
#: Longest JSON text of a plan that is read: far above one of a thousand nests.
MAX_BYTES: Final = 1 << 24


def plan_from_json(text: str | bytes) -> UnitPlan:
    """Read a plan. Raises ArtefactError, naming the field, for text that is none."""
    if len(text) > MAX_BYTES:
        raise ArtefactError(f"the plan has {len(text)} bytes; at most {MAX_BYTES} are read")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"the plan is not JSON: {error}", hint="is the file complete?") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ArtefactError(f"not a plan: 'format' is not {FORMAT!r}")
    version = data.get("version")
    if version == WITHOUT_QUANTITIES:
        data, version = {"quantities": ""} | data, OF_CHOICES
    if version not in (OF_CHOICES, VERSION):
        raise ArtefactError(
            f"the plan has version {data.get('version')!r}; this Tilewright reads version {VERSION}",
            hint="make the plan again with this version",
        )
    wanted = {"format", "version", "rewrites", "nests", "streamed", "quantities"}
    wanted |= {"notes"} if version == VERSION else set()
    if set(data) != wanted or not isinstance(data["nests"], list):
        raise ArtefactError(f"a plan has exactly {', '.join(sorted(wanted))}, and 'nests' is a list")
    streamed = _names("streamed", data["streamed"])
    if not isinstance(data["quantities"], str):
        raise ArtefactError("'quantities' of a plan is a digest")
    rewrites, quantities = load_trace(json.dumps(data["rewrites"])), data["quantities"]
    found = [_read_nest(n, entry, version) for n, entry in enumerate(data["nests"])]
    asked = tuple(each for each in found if isinstance(each, Cluster))
    nests = tuple(each for each in found if isinstance(each, Nest))
    notes = tuple(map(str, _names("notes", data.get("notes", []))))
    return UnitPlan(rewrites, nests, streamed, quantities, asked, notes)


def _names(field: str, data: object) -> tuple[str, ...]:
    if not isinstance(data, list) or not all(isinstance(name, str) for name in data):
        raise ArtefactError(f"{field!r} of a plan is a list of names")
    return tuple(data)


def _read_nest(number: int, data: object, version: int) -> Nest | Cluster:
    where = f"nest {number} of the plan"
    words = ("form", "plan") if version == OF_CHOICES else ("steps", "trees", "choice")
    if not isinstance(data, dict) or set(data) != {"rule", "root", "stages", *words}:
        shown = ", ".join(map(repr, ("rule", "root", "stages", *words[:-1])))
        raise ArtefactError(f"{where} has exactly {shown} and {words[-1]!r}")
    name, root, stages = (data[key] for key in ("rule", "root", "stages"))
    if not isinstance(root, str) or not isinstance(stages, list) or not all(type(n) is str for n in stages):
        raise ArtefactError(f"{where}: 'root' is a stage's name, 'stages' a list of them")
    if version == OF_CHOICES and name == EDITED and data["form"] == "text":
        # trees that were written by somebody were the only ones
        text = data["plan"].get("text") if isinstance(data["plan"], dict) else None
        return Nest(name, root, tuple(stages), _read_trees(where, text))
    if version == OF_CHOICES:
        return Cluster(name, root, tuple(stages), None, _read_choice(where, name, data["form"], data["plan"]))
    choice, lines = data["choice"], data["trees"]
    if not isinstance(name, str) or not (
        choice is None or (isinstance(choice, dict) and set(choice) == {"form", "fields"})
    ):
        raise ArtefactError(
            f"{where}: 'rule' is a name, 'choice' has exactly 'form' and 'fields', or is null"
        )
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise ArtefactError(f"{where}: 'trees' is a list of lines")
    if choice is not None:
        choice = _read_choice(where, name, choice["form"], choice["fields"])
    steps = load_trace(json.dumps(data["steps"])).steps
    return Nest(name, root, tuple(stages), _read_trees(where, "\n".join(lines)), steps, choice)


def _read_trees(where: str, text: object) -> tuple[Tree, ...]:
    if not isinstance(text, str):
        raise ArtefactError(f"{where}: its trees are text")
    try:
        return parse(text)
    except ParseError as error:
        line = "" if error.where is None else f"{error.where}: "
        raise ArtefactError(f"{where}: {line}{error.what}", hint=error.hint) from None


def _read_choice(where: str, name: object, form: object, data: object) -> Any:
    rule = RULES.get(name) if isinstance(name, str) else None
    if rule is None:
        raise ArtefactError(
            f"{where}: there is no rule {name!r}", hint=known_names(str(name), RULES, "rules")
        )
    kind = rule.forms.get(form) if isinstance(form, str) else None
    if kind is None:
        raise ArtefactError(
            f"{where}: the rule {name!r} has no form {form!r}",
            hint=known_names(str(form), rule.forms, "its forms"),
        )
    return _read_plan(where, data, kind)


def _read_plan(where: str, data: object, kind: type) -> Any:
    try:
        plan: Any = msgspec.convert(data, kind, strict=True)
    except msgspec.ValidationError as error:
        raise ArtefactError(f"{where}: {error}") from None
    extra = _unknown(data, plan)
    if extra:
        raise ArtefactError(f"{where}: there is no field {extra!r}")
    return plan


def _unknown(data: object, plan: object) -> str:
    """A field of the text that a plan does not have; empty where there is none."""
    if isinstance(data, list) and isinstance(plan, tuple):
        parts = (_unknown(each, part) for each, part in zip(data, plan, strict=True))
        return next((name for name in parts if name), "")
    if not isinstance(data, dict) or not is_dataclass(plan):
        return ""
    known = {each.name for each in fields(plan)}
    return next(
        (
            name
            for name, value in data.items()
            for name in [name if name not in known else _unknown(value, getattr(plan, name))]
            if name
        ),
        "",
    )
