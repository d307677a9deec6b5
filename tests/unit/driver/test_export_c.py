"""Models exported to C: programs in C get bit for bit what Python gets."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import onnx_models as tiny
import tilewright
from tilewright.cli import main
from tilewright.driver import export_c as exporting
from tilewright.frontend import zoo
from tilewright.support import ArtefactError, InputError, ResourceError

EXAMPLE = Path(__file__).parents[3] / "examples" / "c"
STRICT = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"]

THREADS = r"""
#include "net.h"
#include <pthread.h>
#include <string.h>

static tw_model *model;
static char *expected;
static const void *given[net_input_count + 1];

static void *work(void *argument) {
    const tw_model_tensor *output = net_outputs();
    void *made[1] = {argument};
    for (int i = 0; i < 50; i++) {
        memset(argument, 1, (size_t)output->bytes);
        if (net_run(model, given, made) != TW_MODEL_OK) return argument;
        if (memcmp(argument, expected, (size_t)output->bytes) != 0) return argument;
    }
    return NULL;
}

/* Runs one model from four threads; the number of threads that saw anything else than `result`. */
int run_from_four(const void *input, void *result, int threads, int wait) {
    static char memory[4][4096];
    pthread_t running[4];
    tw_model_options options = {threads, wait};
    int failures = 0;
    model = net_open(&options, NULL);
    if (!model) return -1;
    given[0] = input;
    expected = result;
    for (int i = 0; i < 4; i++) pthread_create(&running[i], NULL, work, memory[i]);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(running[i], &failed);
        failures += failed != NULL;
    }
    net_close(model);
    return failures;
}
"""


@pytest.fixture(scope="module")
def cc():
    found = next(filter(None, map(shutil.which, ["cc", "gcc", "clang"])), None)
    assert found, "the tests need a C compiler"
    return found


def _program(cc, folder):
    """The example, built against model.h and model.so in the folder."""
    command = [cc, *STRICT, f"-I{folder}", str(EXAMPLE / "main.c"), str(folder / "model.so")]
    subprocess.run([*command, "-Wl,-rpath,$ORIGIN", "-o", str(folder / "main")], check=True)
    return folder / "main"


def _run(program, feeds):
    for at, array in enumerate(feeds.values()):
        np.ascontiguousarray(array).tofile(program.parent / f"input{at}.bin")
    files = [f"input{at}.bin" for at in range(len(feeds))]
    return subprocess.run([str(program), *files], cwd=program.parent, capture_output=True, text=True)


def _outputs(compiled, folder):
    return [
        np.fromfile(folder / f"output{at}.bin", info.dtype).reshape(info.shape)
        for at, info in enumerate(compiled.outputs)
    ]


@pytest.mark.few(2)
@pytest.mark.parametrize(("name", "threads"), [("resnet18", 1), ("bert_base", 2), ("tinybert4", 3)])
def test_the_example_computes_what_python_does(cc, name, threads, tmp_path):
    compiled = tilewright.compile(zoo.SMALL[name](), threads=threads)
    header, library = compiled.export_c(tmp_path / "model.h")
    assert {header, library} == set(tmp_path.iterdir())
    program = _program(cc, tmp_path)
    for seed in (0, 1):
        feeds = compiled.sample_feeds(seed)
        done = _run(program, feeds)
        assert done.returncode == 0, done.stderr
        for a, b in zip(compiled.run(None, feeds), _outputs(compiled, tmp_path), strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_example_builds_by_make_and_the_command_line(cc, tmp_path, capsys):
    file = str(tmp_path / "model.h")
    assert (
        main(["compile", "zoo:mobilenet_v2:small", "--emit", "c-header", "-o", file, "--threads", "2"]) == 0
    )
    assert "model.so" in capsys.readouterr().err
    for name in ("main.c", "Makefile"):
        shutil.copy(EXAMPLE / name, tmp_path)
    make = shutil.which("make")
    if make is None:
        program = _program(cc, tmp_path)
    else:
        subprocess.run([make, f"CC={cc}"], cwd=tmp_path, check=True, capture_output=True)
        program = tmp_path / "main"
    compiled = tilewright.compile(zoo.SMALL["mobilenet_v2"](), threads=2)
    feeds = compiled.sample_feeds()
    assert "output0.bin" in _run(program, feeds).stdout
    np.testing.assert_array_equal(_outputs(compiled, tmp_path)[0], compiled.run(None, feeds)[0])


@pytest.mark.few(2)
@pytest.mark.parametrize("options", [(0, 0), (1, 0), (2, 1), (3, 0)])
def test_one_model_runs_from_four_threads(cc, options, tmp_path):
    compiled = tilewright.compile(tiny.mlp(), threads=2)
    _, library = compiled.export_c(tmp_path / "net.h")
    (tmp_path / "four.c").write_text(THREADS)
    command = [cc, *STRICT, "-shared", "-fPIC", str(tmp_path / "four.c"), str(library)]
    subprocess.run([*command, "-Wl,-rpath,$ORIGIN", "-o", str(tmp_path / "four.so")], check=True)
    x = np.random.default_rng(0).standard_normal((4, 8), dtype=np.float32)
    y = compiled(x)[0]
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, y)]
    assert ctypes.CDLL(str(tmp_path / "four.so")).run_from_four(*pointers, *options) == 0


ODD = """
#include "odd_name.h"
#include "odd_name.h"
#include <stdio.h>
#include <string.h>
int main(void) {
    float x[6] = {1, -2, 3, -4, 5, -6}, same[6], view[6], y[6];
    float constant[6];
    const void *inputs[] = {x};
    void *outputs[] = {same, constant, y, view};
    int32_t status = 1;
    tw_model_options wrong = {-1, 0};
    if (odd_name_open(&wrong, &status) || status != TW_MODEL_BAD_ARGUMENT) return 1;
    tw_model *m = odd_name_open(0, 0);
    void *missing[] = {same, constant, y, 0};
    if (odd_name_run(m, inputs, missing) != TW_MODEL_BAD_ARGUMENT) return 2;
    if (odd_name_run(m, inputs, outputs) != TW_MODEL_OK) return 3;
    odd_name_close(m);
    if (memcmp(same, x, sizeof x) || memcmp(y, view, sizeof y) || y[0] != 1 || y[1] != 0) return 4;
    for (int i = 0; i < 6; i++) if (constant[i] != i) return 5;
    if (odd_name_outputs()[3].rank != 2 || odd_name_outputs()[3].shape[0] != 3) return 6;
    fwrite(odd_name_inputs()->name, 1, strlen(odd_name_inputs()->name), stdout);
    return strcmp(odd_name_explain(0), "done");
}
"""


def test_odd_names_and_outputs_that_no_kernel_makes(cc, tmp_path):
    odd = 'a"b\n\\*/ ??/ \u2603 /* %s'
    weights = {"w": np.arange(6, dtype=np.float32), "shape": np.array([3, 2], np.int64)}
    nodes = [
        helper.make_node("Identity", [odd], ["same"]),
        helper.make_node("Identity", ["w"], ["constant"]),
        helper.make_node("Relu", [odd], ["y"], name=odd),
        helper.make_node("Reshape", ["y", "shape"], ["view"]),
    ]
    outputs = [("same", (2, 3)), ("constant", (6,)), ("y", (2, 3)), ("view", (3, 2))]
    compiled = tilewright.compile(
        tiny.model(nodes, [tiny.tensor(odd, (2, 3))], [tiny.tensor(*each) for each in outputs], weights, odd)
    )
    _, library = compiled.export_c(tmp_path / "odd,name.h")
    (tmp_path / "odd_name.h").write_text((tmp_path / "odd,name.h").read_text())
    (tmp_path / "main.c").write_text(ODD)
    command = [cc, *STRICT, str(tmp_path / "main.c"), str(library), "-Wl,-rpath,$ORIGIN"]
    subprocess.run([*command, "-o", str(tmp_path / "main")], check=True)
    done = subprocess.run([str(tmp_path / "main")], capture_output=True)
    assert (done.returncode, done.stdout.decode()) == (0, odd)


def test_two_models_in_one_program(cc, tmp_path):
    """Each has its own kernels, weights and runtime, whatever they are called inside."""
    relu, mlp = tilewright.compile(tiny.relu((4, 8))), tilewright.compile(tiny.mlp())
    for name, compiled in (("one", relu), ("two", mlp)):
        compiled.export_c(tmp_path / f"{name}.h")
    (tmp_path / "both.c").write_text(
        '#include "one.h"\n#include "two.h"\n'
        "int both(const void *const *x, void *const *a, void *const *b) {\n"
        "    tw_model *one = one_open(0, 0), *two = two_open(0, 0);\n"
        "    int failed = one_run(one, x, a) | two_run(two, x, b);\n"
        "    one_close(one), two_close(two);\n"
        "    return failed;\n}\n"
    )
    libraries = [str(tmp_path / f"{name}.so") for name in ("one", "two")]
    command = [cc, *STRICT, "-shared", "-fPIC", str(tmp_path / "both.c"), *libraries, "-Wl,-rpath,$ORIGIN"]
    subprocess.run([*command, "-o", str(tmp_path / "both.so")], check=True)
    x, a, b = (np.full((4, 8), fill, np.float32) for fill in (-1, 9, 9))
    pointers = [(ctypes.c_void_p * 1)(array.ctypes.data) for array in (x, a, b)]
    assert ctypes.CDLL(str(tmp_path / "both.so")).both(*pointers) == 0
    np.testing.assert_array_equal(a, relu(x)[0])
    np.testing.assert_array_equal(b, mlp(x)[0])


def test_another_cpu_is_refused(cc, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "cpuinfo_flags", lambda *_: ("flags", ("avx2", "telepathy")))
    tilewright.compile(tiny.mlp()).export_c(tmp_path / "model.h")
    done = subprocess.run([str(_program(cc, tmp_path))], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "lacks features" in done.stderr


def test_names_that_cannot_be_headers(tmp_path):
    compiled = tilewright.compile(tiny.relu())
    for name in ("model", "model.so", "3.h", ".h"):
        with pytest.raises(InputError, match="C header"):
            compiled.export_c(tmp_path / name)
    with pytest.raises(ArtefactError, match="cannot write"):
        compiled.export_c(tmp_path / "no" / "model.h")
    assert list(tmp_path.iterdir()) == []


def test_weights_beyond_the_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "WEIGHTS_BOUND", 100)
    with pytest.raises(ResourceError, match="weights"):
        tilewright.compile(tiny.mlp()).export_c(tmp_path / "model.h")


def test_emit_needs_an_output(capsys):
    assert main(["compile", "zoo:resnet18:small", "--emit", "c-header"]) == 2
    assert "--output" in capsys.readouterr().err
