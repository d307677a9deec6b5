"""The operator library: functions from tensors to tensors, each a few stages."""

from tilewright.lang.ops.attention import attention
from tilewright.lang.ops.contraction import dense, gemm, matmul
from tilewright.lang.ops.convolution import conv, conv_transpose, depthwise_conv, output_extent, pad_spatial
from tilewright.lang.ops.elementwise import (
    add,
    bias_add,
    cast,
    divide,
    elementwise,
    maximum,
    minimum,
    multiply,
    subtract,
    where,
)
from tilewright.lang.ops.normalization import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    log_softmax,
    softmax,
)
from tilewright.lang.ops.pooling import average_pool, global_average_pool, global_max_pool, max_pool
from tilewright.lang.ops.reduction import arg_reduce, reduce
from tilewright.lang.ops.shape import (
    concat,
    expand,
    gather,
    gather_elements,
    gather_nd,
    pad,
    reshape,
    scatter_nd,
    strided_slice,
    tile,
    transpose,
)
from tilewright.lang.ops.stencil import box_blur, stencil

__all__ = [
    "add",
    "arg_reduce",
    "attention",
    "average_pool",
    "batch_norm",
    "bias_add",
    "box_blur",
    "cast",
    "concat",
    "conv",
    "conv_transpose",
    "dense",
    "depthwise_conv",
    "divide",
    "elementwise",
    "expand",
    "gather",
    "gather_elements",
    "gather_nd",
    "gemm",
    "global_average_pool",
    "global_max_pool",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "log_softmax",
    "matmul",
    "max_pool",
    "maximum",
    "minimum",
    "multiply",
    "output_extent",
    "pad",
    "pad_spatial",
    "reduce",
    "reshape",
    "scatter_nd",
    "softmax",
    "stencil",
    "strided_slice",
    "subtract",
    "tile",
    "transpose",
    "where",
]
