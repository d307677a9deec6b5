"""NVIDIA's GPUs, one table each.

Multiprocessors, clocks, caches and memory: NVIDIA's architecture papers (Tesla V100, WP-08608-001; A100
Tensor Core GPU; Ada GPU, V2.02; H100 Tensor Core GPU, and the H200 data sheet; Jetson Orin Nano data sheet,
DS-11105-001). Limits of multiprocessors: CUDA C++ Programming Guide, "Technical Specifications per Compute
Capability". Latencies: Jia et al., Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking
(arXiv:1804.06826), and Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via
Microbenchmarking (arXiv:2402.13499), whose figures of A100, RTX 4090 and H100 stand for their
architectures.
The second level of Orin Nano, 2 MiB, is in none of them: it is assumed to be half of AGX Orin's.
"""

from __future__ import annotations

from typing import Final

from tilewright.target.gpu import nvidia_gpu

_MMA: Final = frozenset({"mma_f16"})
_AMPERE: Final = _MMA | {"mma_bf16", "mma_tf32", "mma_i8", "cp_async"}
OWN_FEATURES: Final = frozenset({"wgmma", "tma"})
"""What ``sm_90a`` has for itself alone: later architectures have other units."""
_HOPPER: Final = _AMPERE | OWN_FEATURES

V100: Final = nvidia_gpu(
    "v100", "sm_70", units=80, clock_hz=1.53e9, fma_per_cycle=64, tensor_per_cycle=512,
    threads_per_unit=2048, blocks_per_unit=32, shared_kib=(96, 96), l1_kib=128, l2_mib=6,
    memory_gib=16, bandwidth=900e9, latencies=(19, 28, 193, 375), features=_MMA,
)  # fmt: skip

A100: Final = nvidia_gpu(
    "a100", "sm_80", units=108, clock_hz=1.41e9, fma_per_cycle=64, tensor_per_cycle=1024,
    threads_per_unit=2048, blocks_per_unit=32, shared_kib=(163, 164), l1_kib=192, l2_mib=40,
    memory_gib=80, bandwidth=2039e9, latencies=(29.0, 37.9, 261.5, 466.3), features=_AMPERE,
)  # fmt: skip

ORIN_NANO: Final = nvidia_gpu(
    "orin_nano", "sm_87", units=8, clock_hz=0.625e9, fma_per_cycle=128, tensor_per_cycle=512,
    threads_per_unit=1536, blocks_per_unit=16, shared_kib=(163, 164), l1_kib=192, l2_mib=2,
    memory_gib=8, bandwidth=68e9, latencies=(29.0, 37.9, 261.5, 466.3), features=_AMPERE,
)  # fmt: skip

RTX_4090: Final = nvidia_gpu(
    "rtx4090", "sm_89", units=128, clock_hz=2.52e9, fma_per_cycle=128, tensor_per_cycle=512,
    threads_per_unit=1536, blocks_per_unit=24, shared_kib=(99, 100), l1_kib=128, l2_mib=72,
    memory_gib=24, bandwidth=1008e9, latencies=(30.1, 43.4, 273.0, 541.5), features=_AMPERE,
)  # fmt: skip

H200: Final = nvidia_gpu(
    "h200", "sm_90a", units=132, clock_hz=1.98e9, fma_per_cycle=128, tensor_per_cycle=2048,
    threads_per_unit=2048, blocks_per_unit=32, shared_kib=(227, 228), l1_kib=256, l2_mib=50,
    memory_gib=141, bandwidth=4.8e12, latencies=(29.0, 40.7, 263.0, 478.8), features=_HOPPER,
)  # fmt: skip

NVIDIA: Final = (V100, A100, ORIN_NANO, RTX_4090, H200)
