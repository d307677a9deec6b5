import platform
import sys
from pathlib import Path

import pytest

from tilewright.support import TargetError, allow_tiles, available_cpus
from tilewright.target import AARCH64_NEON, X86_AVX2, X86_AVX512, detect

V4 = "avx2 fma f16c bmi2 avx512f avx512bw avx512cd avx512dq avx512vl"


def cpuinfo(folder, *, vendor="AuthenticAMD", family=25, model=17, flags=V4):
    file = folder / "cpuinfo"
    file.write_text(
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"flags\t\t: {flags}\n\n"
        "processor\t: 1\nvendor_id\t: other\n"
    )
    return file


def caches(folder, rows):
    for number, (kind, level, size, shared) in enumerate(rows):
        at = folder / "cpus" / "cpu0" / "cache" / f"index{number}"
        at.mkdir(parents=True)
        for name, value in {
            "type": kind,
            "level": level,
            "size": size,
            "coherency_line_size": 64,
            "shared_cpu_list": shared,
        }.items():
            (at / name).write_text(f"{value}\n")
    return folder / "cpus"


def found(folder, machine="x86_64", units=4, **facts):
    return detect(cpuinfo=cpuinfo(folder, **facts), system_cpus=folder / "cpus", machine=machine, units=units)


def test_this_machine():
    target = detect()
    assert target.name == "cpu"
    assert target.units == available_cpus()
    assert target.features or target.llvm_cpu


@pytest.mark.parametrize(
    ("facts", "cpu", "bits", "fma"),
    [
        ({}, "znver4", 512, 1),
        ({"family": 26, "model": 2}, "znver5", 512, 2),
        ({"vendor": "GenuineIntel", "family": 6, "model": 0x8F}, "sapphirerapids", 512, 2),
        ({"vendor": "GenuineIntel", "family": 6, "model": 0xFF}, "x86-64-v4", 512, 2),
        ({"vendor": "GenuineIntel", "family": 6, "model": 0x9E, "flags": "avx2 fma"}, "skylake", 256, 2),
        ({"vendor": "unheard of", "flags": "avx2 fma", "model": "what"}, "x86-64-v3", 256, 2),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_models(tmp_path, facts, cpu, bits, fma):
    target = found(tmp_path, **facts)
    assert (target.llvm_cpu, target.vector_bits, target.fma_per_cycle) == (cpu, bits, fma)


@pytest.mark.parametrize(
    ("model", "code", "cpu"),
    [
        (0xA7, "64K", "graniterapids"),
        (0xA7, "32K", "sapphirerapids"),
        (0xA7, None, "sapphirerapids"),
        (0xCF, "32K", "emeraldrapids"),
        (0xAE, "64K", "graniterapids-d"),
        (0xFF, "64K", "graniterapids"),
    ],
)
def test_a_model_that_cannot_have_the_tiles_it_shows_is_another(tmp_path, model, code, cpu):
    if code is not None:
        caches(tmp_path, [("Data", 1, "48K", "0"), ("Instruction", 1, code, "0")])
    target = found(tmp_path, vendor="GenuineIntel", family=6, model=model, flags=AMX)
    assert target.llvm_cpu == cpu
    assert target.instruction("vdpbf16ps").per_cycle == 0.5
    assert (target.page_walk > X86_AVX512.page_walk) == (cpu != "sapphirerapids")
    shown = found(tmp_path, vendor="GenuineIntel", family=6, model=0xA7)
    assert (shown.llvm_cpu, shown.fma_per_cycle) == ("rocketlake", 1)


def test_how_often_to_ask_for_far_lines(tmp_path):
    assert found(tmp_path).far_requests == (2, 4)  # Zen 4
    assert found(tmp_path, family=26, model=2).far_requests == (0, 0)
    other = found(tmp_path, vendor="GenuineIntel", family=6, model=0x8F)
    assert other.far_requests == X86_AVX512.far_requests


def test_a_guest_counts_on_its_cores_share_of_the_last_level(tmp_path):
    rows = [("Data", 1, "48K", "0"), ("Unified", 2, "2M", "0"), ("Unified", 3, "300M", "0-1")]
    caches(tmp_path, rows)
    guest = {"vendor": "GenuineIntel", "family": 6, "model": 0xCF}
    assert found(tmp_path, units=2, **guest).level("l3").size == 10 << 20
    assert found(tmp_path, units=2, **guest).level("l3").whole is None
    assert found(tmp_path, units=64, **guest).level("l3").size == 300 << 20
    assert found(tmp_path, units=2, family=26, model=2).level("l3").size == 300 << 20  # a level of its own


def test_a_level_that_others_leave_at_times(tmp_path):
    rows = [("Data", 1, "32K", "0"), ("Unified", 2, "1M", "0"), ("Unified", 3, "32M", "0-1")]
    caches(tmp_path, rows)
    level = found(tmp_path, units=2).level("l3")  # Zen 4
    assert (level.size, level.whole) == (8 << 20, 32 << 20)


def test_results_that_go_past_the_caches(tmp_path):
    assert found(tmp_path).past_share == 1.0  # Zen 4
    assert found(tmp_path, family=26, model=2).past_share == 0.5


def test_one_stream_that_comes_faster_than_several(tmp_path):
    assert found(tmp_path).stream_gain == 1.0  # Zen 4
    assert found(tmp_path, family=26, model=2).stream_gain == 2.0


def test_cycles_of_finding_a_page(tmp_path):
    assert found(tmp_path).page_walk == X86_AVX512.page_walk
    assert found(tmp_path, vendor="GenuineIntel", family=6, model=0xCF).page_walk > X86_AVX512.page_walk


def test_what_starts_a_cycle_on_a_shared_core(tmp_path):
    assert found(tmp_path).shared_issue is None  # Zen 4
    instructions, loads = found(tmp_path, vendor="GenuineIntel", family=6, model=0xCF).shared_issue
    assert loads < instructions


def test_a_feature_that_the_model_has_but_the_machine_hides_is_off(tmp_path):
    target = found(tmp_path)  # Zen 4 has VNNI, a hypervisor may hide it
    assert "-avx512vnni" in target.llvm_features.split(",")
    assert target.instructions == ()
    target = found(tmp_path, flags=V4 + " avx512_vnni")
    assert "+avx512vnni" in target.llvm_features.split(",")
    assert [i.name for i in target.instructions] == ["vpdpbusd", "vpdpwssd"]


def test_without_avx2_the_error_says_what_is_missing(tmp_path):
    with pytest.raises(TargetError, match="lacks fma"):
        found(tmp_path, flags="sse4_2 avx2")
    with pytest.raises(TargetError, match="'riscv64' are not supported"):
        found(tmp_path, machine="riscv64")


def test_caches_come_from_the_kernel(tmp_path):
    rows = [
        ("Data", 1, "48K", "0,64"),
        ("Instruction", 1, "32K", "0,64"),
        ("Unified", 2, "2M", "0,64"),
        ("Unified", 3, "105M", "0-55"),
    ]
    caches(tmp_path, rows)
    target = found(tmp_path, vendor="GenuineIntel", family=6, model=0x8F)
    assert [(level.name, level.size, level.shared_by) for level in target.memory] == [
        ("l1", 48 * 1024, 2),
        ("l2", 2 << 20, 2),
        ("l3", 105 << 20, 4),
        ("memory", None, 4),
    ]
    assert target.clock_hz is None


def test_a_machine_without_third_level(tmp_path):
    caches(tmp_path, [("Data", 1, "32K", "0"), ("Unified", 2, "512K", "0-3")])
    assert [level.name for level in found(tmp_path).memory] == ["l1", "l2", "memory"]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [("Data", 1, "big", "0")],
        [("Data", 1, "0K", "0")],
        [("Data", 1, "64M", "0"), ("Unified", 2, "1M", "0")],
    ],
    ids=["missing", "unreadable", "zero", "shrinking"],
)
def test_nonsense_about_caches_leaves_the_table(tmp_path, rows):
    caches(tmp_path, rows)
    target = found(tmp_path, family=25, model=1, flags="avx2 fma")
    assert [level.size for level in target.memory] == [level.size for level in X86_AVX2.memory]


def test_clock_is_read_in_kilohertz(tmp_path):
    folder = tmp_path / "cpus" / "cpu0" / "cpufreq"
    folder.mkdir(parents=True)
    (folder / "cpuinfo_max_freq").write_text("3700000\n")
    assert found(tmp_path).clock_hz == 3.7e9


def test_without_any_files_the_least_machine_is_assumed(tmp_path):
    for machine, table in (("x86_64", X86_AVX2), ("aarch64", AARCH64_NEON)):
        target = detect(cpuinfo=tmp_path / "none", system_cpus=tmp_path / "none", machine=machine, units=1)
        assert target.vector_bits == table.vector_bits
        assert target.units == 1
        assert all(level.shared_by == 1 for level in target.memory)


def test_arm(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text(
        "processor\t: 0\nFeatures\t: fp asimd asimddp\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\n"
    )
    target = detect(cpuinfo=file, system_cpus=tmp_path, machine="aarch64", units=2)
    assert target.llvm_cpu == "neoverse-n1"
    assert target.features == {"fp-armv8", "neon", "dotprod"}
    assert [i.name for i in target.instructions] == ["sdot"]


def test_table_is_not_changed_by_detection(tmp_path):
    found(tmp_path)
    assert X86_AVX512.fma_per_cycle == 2


AMX = V4 + " avx512_vnni avx512_bf16 amx_tile amx_int8 amx_bf16"
SAPPHIRE_RAPIDS = {"vendor": "GenuineIntel", "family": 6, "model": 0x8F}


def test_tiles_of_another_machine_are_what_it_says(tmp_path):
    target = found(tmp_path, flags=AMX, **SAPPHIRE_RAPIDS)
    assert target.tiles == 8
    # tiles before lanes
    tiles = ["tdpbf16ps", "tdpbusd", "tdpbssd", "tdpbsud", "tdpbuud"]
    assert [i.name for i in target.instructions] == [*tiles, "vpdpbusd", "vpdpwssd", "vdpbf16ps"]
    assert [m.name for m in target.moves] == [
        "tilezero_f32",
        "tilezero_i32",
        "tilestored_f32",
        "tilestored_i32",
    ]
    assert target.instruction("vdpbf16ps").per_cycle == 0.5
    bytes_only = found(tmp_path, flags=AMX.removesuffix(" amx_bf16"), **SAPPHIRE_RAPIDS)
    assert "tdpbf16ps" not in [i.name for i in bytes_only.instructions]
    none = found(tmp_path, flags=V4, **SAPPHIRE_RAPIDS)
    assert (none.tiles, none.moves) == (0, ())


def test_tiles_of_this_machine_need_the_kernels_permission(tmp_path, monkeypatch):
    file = cpuinfo(tmp_path, flags=AMX, **SAPPHIRE_RAPIDS)
    module = sys.modules["tilewright.target.detect"]
    monkeypatch.setattr(module, "CPUINFO", file)
    for allowed in (True, False):
        monkeypatch.setattr(module, "allow_tiles", lambda allowed=allowed: allowed)
        target = detect(cpuinfo=file, system_cpus=tmp_path, machine="x86_64", units=1)
        assert (target.tiles, len(target.moves)) == ((8, 4) if allowed else (0, 0))
        assert ("amx-tile" in target.features) == ("amx-bf16" in target.features) == allowed
        assert ("-amx-tile" in target.llvm_features.split(",")) == (not allowed)
        assert "vpdpbusd" in [i.name for i in target.instructions]


def test_permission_is_asked_for_where_there_is_any(monkeypatch):
    assert allow_tiles() == (detect().tiles > 0) or "amx" not in Path("/proc/cpuinfo").read_text()
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert not allow_tiles.__wrapped__()


def test_what_its_class_has_without_what_was_measured(tmp_path):
    caches(tmp_path, [("Data", 1, "32K", "0"), ("Unified", 2, "1024K", "0"), ("Unified", 3, "32768K", "0-7")])
    own = found(tmp_path, units=2)
    plain = detect(
        cpuinfo=tmp_path / "cpuinfo", system_cpus=tmp_path / "cpus", machine="x86_64", units=2, measured=False
    )
    assert (own.fma_per_cycle, plain.fma_per_cycle) == (1.0, X86_AVX512.fma_per_cycle)
    assert [level.bandwidth for level in plain.memory] == [level.bandwidth for level in X86_AVX512.memory]
    assert own.memory[2].size < plain.memory[2].size == 32 << 20
    assert (own.llvm_cpu, own.features) == (plain.llvm_cpu, plain.features)
