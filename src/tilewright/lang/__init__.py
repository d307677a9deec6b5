"""The user's language: tensors defined element by element, and programs made of them.

from tilewright import lang

A, B = lang.placeholder((n, k)), lang.placeholder((k, m))
kk = lang.reduce_axis(k, "k")
C = lang.compute((n, m), lambda i, j: lang.sum(A[i, kk] * B[kk, j], axis=kk), name="C")
prog = lang.program([A, B], [C])
"""

from tilewright.lang import ops as ops
from tilewright.lang.algorithms import (
    ProductMatch as ProductMatch,
    SumMatch as SumMatch,
    WinogradMatch as WinogradMatch,
    bf16x3 as bf16x3,
    bf16x3_error as bf16x3_error,
    large_outputs as large_outputs,
    largest as largest,
    match_product as match_product,
    match_sum as match_sum,
    match_winograd as match_winograd,
    pieces_of as pieces_of,
    quarter_weights as quarter_weights,
    store_as as store_as,
    strassen as strassen,
    strassen_error as strassen_error,
    transform_weights as transform_weights,
    winograd as winograd,
    winograd_error as winograd_error,
)
from tilewright.lang.axes import axis as axis, ordered_axis as ordered_axis, reduce_axis as reduce_axis
from tilewright.lang.boundary import Padded as Padded, boundary as boundary
from tilewright.lang.composed import (
    elu as elu,
    gelu as gelu,
    gelu_tanh as gelu_tanh,
    hard_sigmoid as hard_sigmoid,
    hard_swish as hard_swish,
    leaky_relu as leaky_relu,
    relu as relu,
    sigmoid as sigmoid,
    silu as silu,
    softplus as softplus,
    softsign as softsign,
    square as square,
)
from tilewright.lang.compute import compute as compute
from tilewright.lang.conversions import to_index as to_index, to_scalar as to_scalar
from tilewright.lang.evaluation import (
    evaluate as evaluate,
    infer_params as infer_params,
    roundings as roundings,
)
from tilewright.lang.functions import (
    absolute as absolute,
    acos as acos,
    acosh as acosh,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atan2 as atan2,
    atanh as atanh,
    cast as cast,
    ceil as ceil,
    clamp as clamp,
    const as const,
    copysign as copysign,
    cos as cos,
    cosh as cosh,
    erf as erf,
    exp as exp,
    exp2 as exp2,
    exp_nonpositive as exp_nonpositive,
    expm1 as expm1,
    floor as floor,
    fma as fma,
    isinf as isinf,
    isnan as isnan,
    ldexp as ldexp,
    log as log,
    log1p as log1p,
    log2 as log2,
    logical_and as logical_and,
    logical_not as logical_not,
    logical_or as logical_or,
    maximum as maximum,
    minimum as minimum,
    pow as pow,
    rem as rem,
    round as round,
    rsqrt as rsqrt,
    select as select,
    sin as sin,
    sinh as sinh,
    sqrt as sqrt,
    tan as tan,
    tanh as tanh,
    tf32 as tf32,
    trunc as trunc,
    truncdiv as truncdiv,
)
from tilewright.lang.imaging import (
    absd as absd,
    avg_floor as avg_floor,
    avg_round as avg_round,
    lerp as lerp,
    mux as mux,
    random as random,
    saturating_add as saturating_add,
    saturating_cast as saturating_cast,
    saturating_sub as saturating_sub,
)
from tilewright.lang.ordered import (
    Write as Write,
    scan as scan,
    scatter as scatter,
    update as update,
    write as write,
)
from tilewright.lang.patterns import (
    Extremum as Extremum,
    Fold as Fold,
    Pattern as Pattern,
    patterns_of as patterns_of,
)
from tilewright.lang.program import program as program
from tilewright.lang.reductions import (
    all as all,
    any as any,
    argmax as argmax,
    argmin as argmin,
    max as max,
    max_with_index as max_with_index,
    min as min,
    min_with_index as min_with_index,
    prod as prod,
    sum as sum,
)
from tilewright.lang.stage import stage as stage
from tilewright.lang.tensors import (
    Tensor as Tensor,
    param as param,
    placeholder as placeholder,
    scalar as scalar,
    undef as undef,
)
from tilewright.lang.values import (
    Axis as Axis,
    IndexExpr as IndexExpr,
    IndexLike as IndexLike,
    Scalar as Scalar,
    ScalarParam as ScalarParam,
    ValueLike as ValueLike,
)
