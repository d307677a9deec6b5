"""Scalar expressions as native code over arrays, without the emitter: a second opinion, and fast enough for
millions of arguments. Inputs are loads of the buffers x0, x1 ..."""

import ctypes
import itertools

import numpy as np

from tilewright.codegen.llvm.compile import compile_ir
from tilewright.codegen.llvm.loader import load_object
from tilewright.ir import Binary, Call, Cast, Compare, Const, Load, Select, Unary, children
from tilewright.target import detect

LANES = 8
HOST = detect()
TYPES = {"f64": "double", "f32": "float", "i64": "i64", "i32": "i32", "bool": "i1"}
SUFFIX = {"f64": "f64", "f32": "f32"}
INTRINSICS = {"fma": "fma", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "roundeven"} | {
    "trunc": "trunc",
    "copysign": "copysign",
}


def inputs(*dtypes):
    return [Load(f"x{n}", (), dtype) for n, dtype in enumerate(dtypes)]


class _Text:
    """LLVM IR of one expression, each shared object once."""

    def __init__(self, contract):
        self.lines, self.names, self.declared = [], itertools.count(), {}
        self.flag = "contract " if contract else ""
        self.known = {}

    def type(self, dtype):
        return f"<{LANES} x {TYPES[dtype.name]}>"

    def emit(self, text):
        name = f"%v{next(self.names)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def intrinsic(self, name, dtype, args):
        kind = self.type(dtype)
        full = f"llvm.{name}.v{LANES}{SUFFIX[dtype.name]}"
        self.declared[full] = f"declare {kind} @{full}({', '.join([kind] * len(args))})"
        return self.emit(f"call {kind} @{full}({', '.join(f'{kind} {a}' for a in args)})")

    def value(self, e):
        if id(e) not in self.known:
            self.known[id(e)] = (e, self._value(e))
        return self.known[id(e)][1]

    def _value(self, e):
        args = [self.value(k) for k in children(e)]
        kind = self.type(e.dtype)
        match e:
            case Const():
                if e.dtype.is_float:
                    bits = np.float64(e.value).view(np.uint64)
                    return f"splat ({TYPES[e.dtype.name]} 0x{bits:016X})"
                return f"splat ({TYPES[e.dtype.name]} {int(e.value)})"
            case Load():
                p = self.emit(f"getelementptr {TYPES[e.dtype.name]}, ptr %{e.buffer}, i64 %i")
                return self.emit(f"load {kind}, ptr {p}, align 4")
            case Unary(op="neg"):
                return self.emit(f"fneg {kind} {args[0]}")
            case Unary(op="abs"):
                return self.intrinsic("fabs", e.dtype, args)
            case Binary(op="min" | "max") if e.dtype.is_float:
                return self.intrinsic("minimum" if e.op == "min" else "maximum", e.dtype, args)
            case Binary():
                op = {"shr": "ashr"}.get(e.op, e.op)
                if e.dtype.is_float:
                    op = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}[op] + f" {self.flag}"
                return self.emit(f"{op} {kind} {args[0]}, {args[1]}")
            case Compare():
                names = {"lt": "olt", "le": "ole", "eq": "oeq", "ne": "une", "gt": "ogt", "ge": "oge"}
                ints = {"lt": "slt", "le": "sle", "eq": "eq", "ne": "ne", "gt": "sgt", "ge": "sge"}
                of = self.type(e.a.dtype)
                op = f"fcmp {names[e.op]}" if e.a.dtype.is_float else f"icmp {ints[e.op]}"
                return self.emit(f"{op} {of} {args[0]}, {args[1]}")
            case Select():
                return self.emit(
                    f"select {self.type(e.cond.dtype)} {args[0]}, {kind} {args[1]}, {kind} {args[2]}"
                )
            case Cast():
                if e.mode == "bits":
                    op = "bitcast"
                elif e.a.dtype.is_float:
                    op = "fpext" if e.dtype.bits > e.a.dtype.bits else "fptrunc"
                else:
                    op = "sitofp"
                return self.emit(f"{op} {self.type(e.a.dtype)} {args[0]} to {kind}")
            case Call():
                return self.intrinsic(INTRINSICS[e.fn], e.dtype, args)
        raise AssertionError(e)


def native(e, *, contract=False):
    """A function of arrays that evaluates the expression; with `contract`, products and sums may fuse."""
    text = _Text(contract)
    result = text.value(e)
    body = "\n".join(text.lines)
    ir = f"""
define void @f(ptr %out, ptr %x0, ptr %x1, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{body}
  %to = getelementptr {TYPES[e.dtype.name]}, ptr %out, i64 %i
  store {text.type(e.dtype)} {result}, ptr %to, align 4
  %next = add i64 %i, {LANES}
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
""" + "\n".join(text.declared.values())
    loaded = load_object(compile_ir(ir, HOST))
    entry = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(loaded.address("f"))

    def run(*arrays):
        arrays = np.broadcast_arrays(*arrays)
        count = arrays[0].size
        room = -(-count // LANES) * LANES
        padded = [np.resize(a.ravel(), room) for a in arrays] * 2
        out = np.empty(room, e.dtype.numpy)
        entry(out.ctypes.data, padded[0].ctypes.data, padded[1].ctypes.data, room)
        assert loaded
        return out[:count].reshape(arrays[0].shape)

    run.ir = ir
    return run
