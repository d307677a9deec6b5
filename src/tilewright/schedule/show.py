"""A short printed form of a loop function for messages."""

from __future__ import annotations

from tilewright.ir import (
    Alloc,
    Barrier,
    Block,
    Exec,
    For,
    If,
    LoopFunction,
    Pred,
    Seq,
    Stmt,
    Store,
    Sync,
    Team,
    Teams,
    Window,
)


def show(func: LoopFunction) -> str:
    """The loops and blocks of a function, one a line."""
    return "\n".join([f"func {func.name}:", *_lines(func.body, 1)])


def _pred(p: Pred) -> str:
    return " and ".join(map(str, p)) or "True"


def _lines(s: Stmt, depth: int) -> list[str]:
    pad = "    " * depth
    match s:
        case Seq():
            return [line for k in s.stmts for line in _lines(k, depth)]
        case For():
            tags = ("" if s.kind.name == "serial" else f" {s.kind}") + "".join(
                f" {k}={v}" if v else f" {k}" for k, v in s.hints
            )
            step = f", {s.step}" if s.step != 1 else ""
            return [f"{pad}for {s.var} in {s.lo}:{s.hi}{step}{tags}:", *_lines(s.body, depth + 1)]
        case If():
            out = [f"{pad}if {_pred(s.cond)}:", *_lines(s.then, depth + 1)]
            if s.orelse is not None:
                out += [f"{pad}else:", *_lines(s.orelse, depth + 1)]
            return out
        case Alloc():
            b = s.buffer
            shape = ", ".join(map(str, b.physical_shape))
            return [f"{pad}alloc {b.name}: {b.dtype}[{shape}] {b.scope}", *_lines(s.body, depth)]
        case Barrier():
            return [f"{pad}barrier({s.scope})"]
        case Block():
            iters = ", ".join(f"{i.kind} {i.name}={e}" for i, e in zip(s.iters, s.bind, strict=True))
            where = f" where {_pred(s.where)}" if s.where else ""
            out = [f"{pad}block {s.name}({iters}){where}:"]
            if s.init is not None:
                out += [f"{pad}    init:", *_lines(s.init, depth + 2)]
            return out + _lines(s.body, depth + 1)
        case Store():
            return [
                pad + ", ".join(f"{w.buffer}[{', '.join(map(str, w.indices))}] = {w.value}" for w in s.writes)
            ]
        case Exec():
            return [f"{pad}{s.instr}({', '.join(map(_window, s.windows))})"]
        case Teams():
            rings = ", ".join(f"{c.name}[{c.slots}]" for c in s.channels)
            return [f"{pad}teams {rings}:", *(line for t in s.teams for line in _lines(t, depth + 1))]
        case Team():
            return [f"{pad}team {s.name} of {s.threads}:", *_lines(s.body, depth + 1)]
        case Sync():
            return [f"{pad}{s.op} {s.channel}[{s.item}]"]


def _window(w: Window) -> str:
    """``A[i, k:+2]``: the elements ``k`` and ``k + 1``."""
    steps = {a.dim: f":{a.step}" for a in w.axes if a.step > 1}
    parts = zip(w.offsets, w.extents, strict=True)
    at = [f"{i}:+{n}{steps.get(d, '')}" if n > 1 else str(i) for d, (i, n) in enumerate(parts)]
    return f"{w.buffer}[{', '.join(at)}]"
