"""The operator library: functions from tensors to tensors, each a few stages."""

from tilewright.lang.ops.attention import attention as attention
from tilewright.lang.ops.contraction import dense as dense, gemm as gemm, matmul as matmul
from tilewright.lang.ops.convolution import (
    conv as conv,
    conv_transpose as conv_transpose,
    depthwise_conv as depthwise_conv,
)
from tilewright.lang.ops.elementwise import (
    add as add,
    bias_add as bias_add,
    cast as cast,
    divide as divide,
    elementwise as elementwise,
    maximum as maximum,
    minimum as minimum,
    multiply as multiply,
    subtract as subtract,
    where as where,
)
from tilewright.lang.ops.normalization import (
    batch_norm as batch_norm,
    group_norm as group_norm,
    instance_norm as instance_norm,
    layer_norm as layer_norm,
    log_softmax as log_softmax,
    softmax as softmax,
)
from tilewright.lang.ops.pooling import (
    average_pool as average_pool,
    global_average_pool as global_average_pool,
    global_max_pool as global_max_pool,
    max_pool as max_pool,
)
from tilewright.lang.ops.reduction import arg_reduce as arg_reduce, reduce as reduce
from tilewright.lang.ops.shape import (
    concat as concat,
    expand as expand,
    gather as gather,
    gather_elements as gather_elements,
    gather_nd as gather_nd,
    pad as pad,
    reshape as reshape,
    scatter_nd as scatter_nd,
    strided_slice as strided_slice,
    tile as tile,
    transpose as transpose,
)
from tilewright.lang.ops.stencil import box_blur as box_blur, stencil as stencil
