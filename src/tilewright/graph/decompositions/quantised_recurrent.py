"""Recurrent layers with weights of bytes, whose inputs and states are quantised in each run.

    before                                       after, for each direction
    Y = DynamicQuantizeLSTM(X, W, R, B, …)       Q, s, z = DynamicQuantizeLinear(X)
                                                 P = s sw MatMulInteger(Q, W, z, zw) + B
                                                 H, C = LSTMStep(P[t], R, h, c, …)      for each t

All inputs are quantised by one range, and the state of each step by its own: what the sums are, integers say
exactly, so the result is the same on every machine.

Source: `ContribOperators.md` of onnxruntime (DynamicQuantizeLSTM).
"""

from __future__ import annotations

from tilewright.graph.decompositions.products import SIGN, flipped, moved_zero
from tilewright.graph.decompositions.recurrent import OtherWeights, layer_steps
from tilewright.graph.parts import Parts, decomposition
from tilewright.graph.registry import MICROSOFT
from tilewright.graph.unroll import taken

_W, _R, _W_SCALE, _R_SCALE = 1, 2, 8, 10


@decomposition("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(p: Parts, *given: str) -> None:
    """An LSTM with weights of bytes, `[direction, input, gate]`, and a scale for a direction or each gate."""
    inputs = [*given, *[""] * 12][:12]
    if not inputs[_W_SCALE] or not inputs[_R_SCALE]:
        raise p.ctx.unsupported("weights without scales and zero points")
    for at, of in ((_W, _W_SCALE), (_R, _R_SCALE)):
        weights, shape = p.shape(at), p.shape(of)
        if len(weights) != 3 or shape not in (weights[:1], (weights[0], weights[2])):
            raise p.ctx.unsupported(
                f"weights of the shape {list(weights)} with scales of {list(shape)}: these are one number a "
                "direction, or one a gate"
            )
    held, scale, zero = p.several("DynamicQuantizeLinear", inputs[:1], 3)

    def product(flat: str, d: int) -> str:
        own = _of_direction(p, inputs[_W_SCALE + 1], d)
        total = p.add("MatMulInteger", (flat, _of_direction(p, inputs[_W], d), zero, own))
        factor = p.add("Mul", (scale, _of_direction(p, inputs[_W_SCALE], d)))
        return p.add("Mul", (p.add("Cast", (total,), to="f32"), factor))

    def of_steps(d: int) -> tuple[str, ...]:
        _, depth, columns = p.shape(_R)
        bytes_, wide = _of_direction(p, inputs[_R], d), (columns,)
        zeros, known = inputs[_R_SCALE + 1], [*p.ctx.values, None][_R_SCALE + 1]
        if zeros:
            moved = known is None or known.any()
            zeros = p.add("Cast", (_of_direction(p, zeros, d),), to="i32") if moved else ""
        if p.type(_R).dtype == "u8":
            bytes_, zeros = flipped(p, bytes_, "i8"), moved_zero(p, zeros, -SIGN)
        sums = p.add("ReduceSum", (p.add("Cast", (bytes_,), to="i32"), p.ints((0,))), keepdims=0)
        if zeros:
            sums = p.add("Sub", (sums, p.add("Mul", (zeros, p.number(depth, "i32")))))
            zeros = p.add("Expand", (zeros, p.ints(wide)))
        factor = p.add("Expand", (_of_direction(p, inputs[_R_SCALE], d), p.ints(wide)))
        return p.reshape(bytes_, (1, depth, columns)), factor, sums, zeros

    if layer_steps(p, (held, *inputs[1:]), OtherWeights(product, of_steps)):
        return
    # without steps or elements nothing is multiplied: the layer on numbers says what comes out or is wrong
    matrices = [p.transpose(p.add("Cast", (inputs[at],), to="f32"), 0, 2, 1) for at in (_W, _R)]
    reads = (inputs[0], *matrices, *inputs[3:_W_SCALE])
    results = tuple(f"{p.prefix}{at}" if name else "" for at, name in enumerate(p.ctx.node.outputs))
    p.several("LSTM", reads, results, attributes=p.ctx.node.attributes)
    for at, value in enumerate(results):
        p.give(value, at)


def _of_direction(p: Parts, value: str, d: int) -> str:
    """What belongs to one direction."""
    if not value:
        return ""
    node, constants = taken(value, d, 0, f"{p.prefix}{d}/v{len(p.nodes)}")
    p.nodes.append(node)
    p.constants.update(constants)
    return node.outputs[0]
