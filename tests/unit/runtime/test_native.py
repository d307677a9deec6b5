import ctypes
import re
import subprocess

import pytest

from tilewright.runtime import ALIGNMENT, HEADER_PATH, native, now_ns
from tilewright.support import InstallationError


def test_missing_library_is_explained(tmp_path):
    with pytest.raises(InstallationError, match=r"(?s)has not been built.*build_ext --inplace"):
        native.load_library(tmp_path / "_native.so")


def test_unreadable_library_is_explained(tmp_path):
    broken = tmp_path / "_native.so"
    broken.write_bytes(b"not a library")
    with pytest.raises(InstallationError, match="cannot be loaded"):
        native.load_library(broken)


def test_library_of_another_version_is_refused(tmp_path, compiler):
    library, source = tmp_path / "_native.so", tmp_path / "a.c"
    stubs = [f"int {name}(void) {{ return 99; }}" for name in native._SIGNATURES]
    source.write_text("\n".join(stubs))
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    with pytest.raises(InstallationError, match="version 99, not 6"):
        native.load_library(library)


def test_constants_and_functions_agree_with_the_header():
    header = HEADER_PATH.read_text()
    constants = dict(re.findall(r"\b(TW_\w+) = (-?\d+)", header))
    expected = {
        "TW_ALIGNMENT": ALIGNMENT,
        "TW_VERSION": native.VERSION,
        "TW_NO_MEMORY": native.NO_MEMORY,
        "TW_OUT_OF_RANGE": native.OUT_OF_RANGE,
        "TW_STOPPED": native.STOPPED,
        "TW_FIRST": native.FIRST,
        "TW_INPUT": native.INPUT,
        "TW_OUTPUT": native.OUTPUT,
        "TW_CONSTANT": native.CONSTANT,
        "TW_ARENA": native.ARENA,
    }
    assert constants == {name: str(value) for name, value in expected.items()}
    assert set(re.findall(r"TW_EXPORT [^;(]*?\b(tw_\w+)\(", header)) == set(native._SIGNATURES)


def test_structures_have_the_compilers_layout(tmp_path, compiler):
    names = {"tw_place": native.Place, "tw_value": native.Value, "tw_step": native.Step}
    names |= {"tw_check": native.Check, "tw_copy": native.Copy, "tw_failure": native.Failure}
    names["tw_plan_description"] = native.PlanDescription
    prints = "".join(
        f'printf("%zu ", sizeof({name}));'
        + "".join(f'printf("%zu ", offsetof({name}, {field}));' for field, _ in kind._fields_)
        for name, kind in names.items()
    )
    source = tmp_path / "layout.c"
    source.write_text(
        '#include "tw_runtime.h"\n#include <stddef.h>\n#include <stdio.h>\nint main(void){' + prints + "}"
    )
    subprocess.run(
        [compiler, f"-I{HEADER_PATH.parent}", str(source), "-o", str(tmp_path / "layout")], check=True
    )
    out = subprocess.run([str(tmp_path / "layout")], capture_output=True, text=True, check=True).stdout
    expected = [
        number
        for kind in names.values()
        for number in [ctypes.sizeof(kind), *(getattr(kind, field).offset for field, _ in kind._fields_)]
    ]
    assert [int(word) for word in out.split()] == expected


def test_clock_does_not_go_back():
    stamps = [now_ns() for _ in range(100)]
    assert stamps == sorted(stamps)
    assert stamps[-1] > stamps[0]
