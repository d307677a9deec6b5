"""Small decoders with random weights, as onnxruntime-genai writes them."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, HIDDEN, HEADS, KEY_HEADS, LONGEST = 96, 64, 4, 2, 64
DEPTH = HIDDEN // HEADS
MS = "com.microsoft"


def decoder(layers=2, *, positions=False, cache=True, seed=0):
    """Products by ``MatMulNBits``, attention by ``GroupQueryAttention``; all sizes but heads are open."""
    rng = np.random.default_rng(seed)
    constants, nodes = [], []

    def constant(name, array):
        constants.append(numpy_helper.from_array(array, name))
        return name

    def node(op, inputs, *outputs, domain="", **attributes):
        nodes.append(helper.make_node(op, inputs.split(" "), outputs, domain=domain, **attributes))

    def product(x, y, columns, depth):
        packed = rng.integers(0, 256, (columns, depth // 16, 8)).astype(np.uint8)
        scale = (rng.random((columns, depth // 16)) + 0.5) / (6 * np.sqrt(depth))
        constant(f"{y}.q", packed)
        constant(f"{y}.s", scale.astype(np.float32))
        sizes = {"N": columns, "K": depth, "bits": 4, "block_size": 16}
        node("MatMulNBits", f"{x} {y}.q {y}.s", y, domain=MS, **sizes)

    constant("embeddings", rng.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32))
    constant("one", np.array([1]))
    constant("at", np.array(1))
    node("Gather", "embeddings input_ids", "h")
    node("ReduceSum", "attention_mask one", "lengths", keepdims=0)
    node("Sub", "lengths one", "last")
    node("Cast", "last", "last_keys", to=TensorProto.INT32)
    node("Shape", "attention_mask", "shape")
    node("Gather", "shape at", "total64")
    node("Cast", "total64", "total", to=TensorProto.INT32)
    angles = np.arange(LONGEST)[:, None] / 10000 ** (np.arange(0, DEPTH, 2) / DEPTH)
    constant("cos", np.cos(angles).astype(np.float32))
    constant("sin", np.sin(angles).astype(np.float32))
    constant("ones", np.ones(HIDDEN, np.float32))
    tensor = helper.make_tensor_value_info
    inputs = [
        tensor("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"]),
        tensor("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"]),
    ]
    if positions:
        inputs.append(tensor("position_ids", TensorProto.INT64, ["batch_size", "sequence_length"]))
    outputs = [tensor("logits", TensorProto.FLOAT, ["batch_size", "sequence_length", VOCABULARY])]
    hidden = "h"
    for n in range(layers):
        node("SimplifiedLayerNormalization", f"{hidden} ones", f"x{n}", axis=-1, epsilon=1e-5)
        for name, columns in (("q", HIDDEN), ("k", KEY_HEADS * DEPTH), ("v", KEY_HEADS * DEPTH)):
            product(f"x{n}", f"{name}{n}", columns, HIDDEN)
        past = [f"past_key_values.{n}.{name}" for name in ("key", "value")]
        present = [f"present.{n}.{name}" for name in ("key", "value")]
        for names, group, length in (
            (past, inputs, "past_sequence_length"),
            (present, outputs, "total_sequence_length"),
        ):
            shape = ["batch_size", KEY_HEADS, length, DEPTH]
            group.extend(tensor(name, TensorProto.FLOAT, shape) for name in names if cache)
        given = " ".join(past) if cache else " "
        last = " position_ids" if positions else ""
        node(
            "GroupQueryAttention",
            f"q{n} k{n} v{n} {given} last_keys total cos sin{last}",
            f"a{n}",
            *(present if cache else ()),
            domain=MS,
            num_heads=HEADS,
            kv_num_heads=KEY_HEADS,
            do_rotary=1,
        )
        product(f"a{n}", f"o{n}", HIDDEN, HIDDEN)
        node("Add", f"{hidden} o{n}", f"s{n}")
        node("SimplifiedLayerNormalization", f"s{n} ones", f"y{n}", axis=-1, epsilon=1e-5)
        product(f"y{n}", f"g{n}", 48, HIDDEN)
        node("Sigmoid", f"g{n}", f"sg{n}")
        node("Mul", f"g{n} sg{n}", f"f{n}")
        product(f"f{n}", f"d{n}", HIDDEN, 48)
        node("Add", f"s{n} d{n}", f"h{n}")
        hidden = f"h{n}"
    node("SimplifiedLayerNormalization", f"{hidden} ones", "last_hidden", axis=-1, epsilon=1e-5)
    product("last_hidden", "logits", VOCABULARY, HIDDEN)
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, constants)
    versions = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)
