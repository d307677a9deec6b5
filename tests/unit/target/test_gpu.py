"""Tables of GPUs: consistent with one another and with what the devices are known to reach."""

from dataclasses import replace

import pytest

import devices
from tilewright.cli import main
from tilewright.support import InstallationError, TargetError
from tilewright.target import (
    A100,
    H200,
    NVIDIA,
    POCL,
    RTX_4090,
    SIMULATED,
    V100,
    GpuTarget,
    choose_opencl_device,
    find_target,
)


@pytest.mark.parametrize("table", [*NVIDIA, POCL, SIMULATED], ids=lambda t: t.name)
def test_tables_are_found_and_consistent(table):
    assert find_target(table.name) is table
    assert isinstance(table, GpuTarget)
    assert table.threads_per_block % table.warp == 0
    assert table.memory_bytes == table.memory[-1].size
    assert [level.scope for level in table.memory if level.scope] == ["register", "shared", "global"]
    assert {level.kind for level in table.parallel} == {"thread", "vector"}
    assert table.fingerprint != replace(table, units=table.units + 1).fingerprint


@pytest.mark.parametrize(
    ("table", "tflops", "gbytes"),
    [(V100, 15.7, 900), (A100, 19.5, 2039), (RTX_4090, 82.6, 1008), (H200, 67, 4800)],
)
def test_peaks_are_those_of_the_data_sheets(table, tflops, gbytes):
    # f32 without matrix units
    assert 2 * table.fma_per_cycle * table.units * table.clock_hz / 1e12 == pytest.approx(tflops, rel=0.02)
    memory = table.level("memory")
    assert memory.bandwidth * table.units * table.clock_hz / 1e9 == pytest.approx(gbytes)


def test_architectures_need_no_device():
    assert find_target("cuda:sm_90") == replace(H200, name="cuda:sm_90")
    with pytest.raises(TargetError, match="no table of the architecture 'sm_91'"):
        find_target("cuda:sm_91")
    with pytest.raises(TargetError, match="no target 'cuda0'"):
        find_target("cuda0")


def test_opencl_devices_are_found_or_missed_with_a_hint():
    if devices.HAVE_OPENCL:
        first = find_target("opencl")
        assert (first.name, first.language) == ("opencl", "opencl")
        named = choose_opencl_device().name[:8]
        assert find_target(f"opencl:{named}") == replace(first, name=f"opencl:{named}")
        with pytest.raises(TargetError, match="no OpenCL device 'nonesuch'"):
            find_target("opencl:nonesuch")
    else:
        with pytest.raises(InstallationError, match=r"OpenCL|pyopencl"):
            find_target("opencl")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"warp": 0}, "whole warps"),
        ({"threads_per_unit": 512}, "whole warps"),
        ({"shared_per_block": 1 << 30}, "more shared memory"),
        ({"memory": H200.memory[:1]}, "register, shared and global"),
    ],
)
def test_tables_that_cannot_be(change, message):
    with pytest.raises(TargetError, match=message):
        replace(H200, **change)


def test_the_command_lists_them(capsys):
    assert main(["targets"]) == 0
    listed = capsys.readouterr().out
    assert all(table.name in listed for table in NVIDIA)
    assert "opencl" in listed
