"""The command line: results, JSON, exit status, and where everything is printed."""

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import onnx_models as tiny
from tilewright.build import UnitKernel
from tilewright.cli import main
from tilewright.driver import compile_model
from tilewright.plan.contraction import rule as default
from tilewright.support import ScheduleError

COMMANDS = ("compile", "run", "bench", "verify", "explain", "profile", "map", "demo", "targets", "doctor")


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "mlp.onnx"
    onnx.save(tiny.mlp(), file)
    return str(file)


@pytest.fixture
def call(capsys):
    """Run a command; gives its status, stdout and stderr."""

    def run(*arguments):
        status = main([str(each) for each in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_json_and_traceback(call, command):
    status, out, _ = call(command, "--help")
    assert status == 0
    assert "--json" in out and "--traceback" in out


def test_help_and_version(call):
    status, out, _ = call("--help")
    assert status == 0 and all(command in out for command in COMMANDS)
    status, out, _ = call("--version")
    assert status == 0 and out.startswith("tilewright")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["frobnicate"],
        ["compile"],
        ["compile", "a.onnx", "b.onnx"],
        ["run", "zoo:nothing"],
        ["run", "zoo:resnet18:tiny"],
        ["run", "zoo:resnet18:small", "--threads", "0"],
        ["run", "zoo:resnet18:small", "--shape", "input"],
        ["run", "zoo:resnet18:small", "--shape", "input=1,x"],
        ["run", "zoo:resnet18:small", "--input", "input"],
        ["run", "zoo:resnet18:small", "--winograd", "f6"],
        ["run", "zoo:resnet18:small", "--precision", "f16"],
        ["run", "zoo:resnet18:small", "--wait-policy", "lazy"],
        ["explain", "zoo:resnet18:small", "--show", "dreams"],
        ["bench", "zoo:resnet18:small", "--against", "abacus"],
        ["bench", "zoo:resnet18:small", "--seconds", "inf"],
        ["profile", "zoo:resnet18:small", "--calibrate", "nan"],
        ["targets", "--calibrate", "--seconds", "nan"],
        ["tune", "zoo:resnet18:small", "--trials", "0"],
        ["tune", "zoo:resnet18:small", "--seed", "-1"],
        ["run", "zoo:resnet18:small", "--seed", "-1"],
        ["schedule", "p.py", "--trials", "-1"],
        ["compile", f"{'n' * 300}.py"],
        ["compile", "zoo:resnet18:small", "--records", "n" * 300],
        ["db", "list", "--records", "n" * 300],
    ],
)
def test_wrong_use_is_status_2_with_nothing_on_stdout(call, arguments):
    status, out, err = call(*arguments)
    if not arguments:
        assert "Usage" in out + err
        return
    assert status == 2
    assert out == "" and err
    assert "Traceback" not in err


def test_compile_reports_what_came_out(call, path):
    status, out, _ = call("compile", path, "--threads", 2)
    assert status == 0
    assert "'x': float32[4, 8]" in out and "2 threads" in out
    status, out, _ = call("compile", path, "--json")
    data = json.loads(out)
    assert status == 0 and data["schema"] == 1 and data["command"] == "compile"
    assert data["inputs"] == [{"name": "x", "dtype": "float32", "shape": [4, 8]}]
    assert data["flops"] >= 2 * 2 * 4 * 8 * 16


def test_run_reads_inputs_and_writes_outputs(call, path, tmp_path):
    x = np.random.default_rng(5).standard_normal((4, 8), dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x)
    for given in (["--input", f"x={tmp_path / 'x.npy'}"], ["--inputs", tmp_path / "x.npz"]):
        out_file = tmp_path / "out.npz"
        status, out, _ = call("run", path, *given, "--output", out_file, "--json")
        assert status == 0
        assert json.loads(out)["outputs"][0]["shape"] == [4, 8]
        with np.load(out_file) as archive:
            np.testing.assert_allclose(archive["y"], tiny.mlp_expected(x), rtol=1e-4, atol=1e-4)
        out_file.unlink()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mlp.onnx", "x.npy", "x.npz"]


def test_a_saved_model_runs(call, path, tmp_path):
    saved = tmp_path / "mlp.tw"
    status, out, err = call("compile", path, "--output", saved, "--threads", 1)
    assert status == 0 and saved.exists() and str(saved) in err
    _, direct, _ = call("run", path, "--json", "--threads", 1)
    status, out, _ = call("run", saved, "--json", "--threads", 1)
    assert status == 0
    assert json.loads(out)["outputs"] == json.loads(direct)["outputs"]
    assert call("run", saved, "--shape", "x=4,8")[0] == 2
    assert call("run", saved, "--winograd", "off")[0] == 2
    assert call("run", saved, "--precision", "bf16")[0] == 2
    assert call("run", saved, "--profile")[0] == 2
    saved.write_bytes(saved.read_bytes()[:100])
    status, _, err = call("run", saved)
    assert status == 2 and "mlp.tw" in err
    assert call("compile", path, "--output", tmp_path / "no" / "folder.tw")[0] == 2


def test_profile_says_what_each_kernel_reaches(call, path, tmp_path):
    status, out, _ = call("profile", path, "--repeats", 3, "--calibrate", 0.001, "--threads", 2)
    assert status == 0 and "matmul" in out and "limit" in out and "GFLOP/s of a peak of" in out
    status, out, _ = call("profile", path, "--json", "--calibrate", 0.001, "--threads", 1)
    data = json.loads(out)
    assert data["limits"]["threads"] == 1 and data["limits"]["gflops"] > 0
    assert data["of_limit"] > 0
    for row in data["kernels"]:
        assert row["limit_ms"] > 0
        assert row["of_limit"] == pytest.approx(row["limit_ms"] / row["median_ms"])
        assert row["gb_s"] == pytest.approx(row["bytes"] / row["median_ms"] / 1e6)
    assert {row["algorithm"] for row in data["kernels"]} == {"matmul"}
    status, out, _ = call("profile", path, "--calibrate", 0)
    assert status == 0 and "limit" not in out
    saved = tmp_path / "mlp.tw"
    assert call("compile", path, "--output", saved)[0] == 0
    status, _, err = call("profile", saved)
    assert status == 2 and "needs the model itself" in err


def test_explain_tells_of_rules_that_give_way(call, path, monkeypatch):
    def none(*args, **kwargs):
        raise ScheduleError("not today")

    assert "fell back" not in call("explain", path)[1]
    monkeypatch.setattr(default, "tiles_nests", none)
    status, out, _ = call("explain", path)
    told = [line.strip() for line in out.splitlines() if "fell back" in line]
    assert status == 0 and told
    assert all(line.startswith("fell back: stage ") for line in told)
    assert all(line.endswith(" by a simpler rule: not today") for line in told)
    status, out, _ = call("explain", path, "--group", 0, "--json")
    assert [f"fell back: {note}" for note in json.loads(out)["groups"][0]["fallbacks"]] == told[:1]


def test_explain_names_algorithm_layout_tile_and_threads(call):
    status, out, _ = call("explain", "zoo:resnet18:small", "--threads", 2)
    head, *rows = out.splitlines()
    assert status == 0 and [word for word in head.split() if word != "nodes"] == [
        "group",
        "MFLOP",
        "algorithm",
        "layouts",
        "tile",
        "threads",
    ]
    assert any("direct" in row and "plain -> NCHW" in row for row in rows)
    status, out, _ = call("explain", "zoo:resnet18:small", "--winograd", "f2", "--json")
    groups = json.loads(out)["groups"]
    assert {"winograd f2", "direct", "windows"} <= {group["algorithm"] for group in groups}
    first = groups[0]
    assert list(first["input_layouts"].values()) == ["plain"]
    assert "packed" in first["constant_layouts"].values()
    rows, columns = first["register_tile"]
    assert rows >= 1 and columns >= 4 and first["threads"] >= 1
    assert all(group["register_tile"] is None or len(group["register_tile"]) == 2 for group in groups)


def test_run_profiles(call, path):
    status, out, _ = call("run", path, "--profile", "--repeats", 3)
    assert status == 0 and "GFLOP/s" in out and "'y': float32[4, 8]" in out
    status, out, _ = call("run", path, "--profile", "--json", "--seed", 4)
    assert json.loads(out)["profile"]["kernels"]


def test_verify_in_bf16(call):
    model = "zoo:tinybert4:small"
    status, out, _ = call("verify", model, "--reference", "onnx", "--precision", "bf16", "--json")
    data = json.loads(out)
    assert status == 0 and data["ok"]
    exact = json.loads(call("verify", model, "--reference", "onnx", "--json")[1])
    assert data["worst_ratio"] != exact["worst_ratio"]


def test_verify_passes_and_fails(call, path, monkeypatch):
    status, out, _ = call("verify", path, "--reference", "onnx")
    assert status == 0 and out.startswith("ok:")
    status, out, _ = call("verify", path, "--reference", "onnx", "--json")
    assert status == 0 and json.loads(out)["first_difference"] is None
    # The reference gets other weights than those that were compiled.
    wrong = tiny.mlp()
    bias = onnx.numpy_helper.to_array(wrong.graph.initializer[1]) + 1
    wrong.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(bias, "b"))
    monkeypatch.setattr("tilewright.cli.commands.verify.as_proto", lambda _: wrong)
    status, out, _ = call("verify", path, "--reference", "onnx")
    assert status == 1 and "differs from onnx" in out and "the first is" in out
    status, out, _ = call("verify", path, "--reference", "onnx", "--json")
    data = json.loads(out)
    assert status == 1 and not data["ok"] and data["first_difference"]["name"] in {"n", "h"}


@pytest.mark.parametrize(
    ("level", "text"),
    [("groups", "first"), ("schedule", "program"), ("loops", "for"), ("llvm", "define"), ("asm", ".text")],
)
def test_explain_shows_every_level(call, path, level, text):
    status, out, _ = call("explain", path, "--show", level)
    assert status == 0 and text in out
    status, out, _ = call("explain", path, "--show", level, "--group", 0, "--json")
    assert status == 0 and json.loads(out)["show"] == level
    assert call("explain", path, "--show", level, "--group", 99)[0] == 2


def test_explain_tells_why(call, path, monkeypatch):
    graph = onnx.load(path).graph
    node, value = graph.node[0].name or graph.node[0].output[0], graph.node[-1].output[0]
    for name in (node, value):
        status, out, _ = call("explain", path, "--why", name)
        assert status == 0 and "nest " in out and " us  taken" in out
    status, out, _ = call("explain", path, "--why", value, "--json")
    (nest, *_) = json.loads(out)["kernels"][0]["nests"]
    assert nest["taken"]["seconds"] > 0 and nest["others"]
    status, out, err = call("explain", path, "--why", "nowhere")
    assert status == 2 and "no kernel computes a node 'nowhere'" in err and not out
    monkeypatch.setattr(UnitKernel, "decided", lambda self: None)
    assert "has no plan" in call("explain", path, "--why", value)[2]


def test_diff_tells_what_plans_decide_differently(call, path, tmp_path):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    text = call("explain", path, "--show", "plan")[1]
    changed = json.loads(text)
    for unit in changed["units"].values():
        unit["streamed"] = ["out"]
    first.write_text(text)
    second.write_text(json.dumps(changed))
    assert call("diff", first, first) == (0, "0 differences\n", "")
    status, out, _ = call("diff", first, second)
    assert status == 1 and "stored past the caches\n  - none\n  + out\n" in out
    data = json.loads(call("diff", first, second, "--json")[1])
    assert all(each["first"] != each["second"] for each in data["differences"])
    assert call("diff", first, tmp_path / "none")[0] == 2
    second.write_text("{")
    assert "is not JSON" in call("diff", first, second)[2]


def test_bench_measures(call, path):
    status, out, _ = call("bench", path, "--threads", 1, "--rounds", 2, "--seconds", 0.01, "--json")
    assert status == 0
    data = json.loads(out)
    (ours,) = data["engines"]
    assert ours["engine"] == "tilewright" and ours["error"] is None
    assert ours["runs"] >= 6 and 0 < ours["min_ms"] <= ours["median_ms"]
    assert len(ours["round_medians_ms"]) == 2


def test_bench_says_why_an_engine_failed(call, tmp_path):
    file = tmp_path / "bad.onnx"
    file.write_bytes(b"no model")
    status, _, err = call("bench", file, "--rounds", 1)
    assert status == 2 and "bad.onnx" in err


def test_demo_runs_and_checks(call):
    status, out, _ = call("demo", "--small", "--threads", 2, "--repeats", 2)
    assert status == 0
    assert "result:" in out and "time:" in out and "ok:" in out
    status, out, _ = call("demo", "--small", "--json", "--model", "tinybert4")
    data = json.loads(out)
    assert status == 0 and data["check"]["ok"] and data["median_ms"] > 0


def test_targets_and_doctor(call):
    status, out, _ = call("targets")
    assert status == 0 and "aarch64_neon" in out
    assert call("targets", "--json")[0] == 0
    status, out, _ = call("doctor", "--json")
    assert status == 0 and json.loads(out)["ok"]
    assert call("doctor")[0] == 0


def test_an_internal_error_is_status_3_without_a_traceback(call, path, monkeypatch):
    def broken(*_, **__):
        raise KeyError("unexpected")

    monkeypatch.setattr("tilewright.cli.models.compile_model", broken)
    status, out, err = call("compile", path)
    assert status == 3 and out == "" and "internal error: KeyError" in err and "Traceback" not in err
    status, _, err = call("compile", path, "--traceback")
    assert status == 3 and "Traceback" in err
    status, out, _ = call("compile", path, "--json")
    assert status == 3 and json.loads(out)["error"]["kind"] == "KeyError"


def test_interruption_is_status_130(call, path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tilewright.cli.models.compile_model", interrupted)
    assert call("compile", path)[0] == 130


def test_a_wrong_setting_is_the_users_error(call, path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_THREADS", "many")
    status, _, err = call("compile", path)
    assert status == 2 and "TILEWRIGHT_THREADS" in err


def test_logs_go_to_stderr_and_results_to_stdout(path):
    done = subprocess.run(
        [sys.executable, "-m", "tilewright", "compile", path, "--json", "-v"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["command"] == "compile"
    assert "compiled" in done.stderr


def test_the_package_is_a_command_whose_status_is_the_command_lines():
    done = subprocess.run(
        [sys.executable, "-m", "tilewright", "compile", "no.onnx"], capture_output=True, text=True
    )
    assert done.returncode == 2 and "no.onnx" in done.stderr


def test_interrupted_while_packages_are_imported():
    """What a command needs is imported where an interruption is reported, not before."""
    code = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'onnx':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from tilewright.cli import main\n"
        "sys.exit(main(['compile', 'model.onnx']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert "interrupted" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "arguments", [["--help"], ["targets"], ["compile", "--help"], ["explain", "M", "--json"]]
)
def test_output_that_nobody_reads_is_no_failed_check(path, arguments):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "tilewright", *(path if each == "M" else each for each in arguments)]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("arguments", [["targets"], ["run", "none.onnx", "--json"]])
def test_output_that_finds_no_space_is_told(path, arguments):
    command = [sys.executable, "-m", "tilewright", *(path if each == "M" else each for each in arguments)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 2 and done.stderr.startswith("error: ") and "Traceback" not in done.stderr
        assert "No space left on device" in done.stderr or "none.onnx" in done.stderr
        silent = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=full, check=False)
        assert silent.returncode == (2 if "none.onnx" in arguments else 0)
    closed = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True, check=False
    )
    assert closed.returncode == silent.returncode and "Error" not in closed.stderr


# ---- output files and saved models ----


def test_output_goes_to_regular_files_that_are_not_read(call, path, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in ("/dev/full", str(tmp_path / "pipe"), str(tmp_path)):
        status, _, err = call("compile", path, "-o", place)
        assert status == 2 and "cannot write" in err and ("regular file" in err or "directory" in err)
    assert Path("/dev/full").is_char_device() and (tmp_path / "pipe").is_fifo()
    link = tmp_path / "link"
    link.symlink_to(path)
    before = Path(path).read_bytes()
    for place in (str(link), path):
        status, _, err = call("compile", path, "-o", place)
        assert status == 2
        assert "is a file that the command reads" in err or "a model that can be compiled" in err
    assert Path(path).read_bytes() == before
    plan = tmp_path / "plan.json"
    plan.write_text("{}")
    status, _, err = call("compile", path, "--plan", plan, "-o", plan)
    assert status == 2 and "is a file that the command reads" in err
    plan.write_bytes(b"\xff\xfe")
    status, _, err = call("compile", path, "--plan", plan)
    assert status == 2 and "is no text" in err
    # there is no address 0 to read
    status, _, err = call("compile", path, "--plan", "/proc/self/mem")
    assert status == 2 and "the plan '/proc/self/mem' cannot be read: Input/output error" in err
    feed = tmp_path / "x.npy"
    np.save(feed, np.ones((4, 8), np.float32))
    status, _, err = call("run", path, "--input", f"x={feed}", "--output", feed)
    assert status == 2 and "is a file that the command reads" in err


@pytest.mark.parametrize(
    ("name", "meant"),
    [("m.h", "--emit c-header"), ("m.c", "--emit c"), ("m.so", "--emit c-header"), ("m.onnx", "compiled")],
)
def test_names_that_promise_something_else_are_refused(call, path, tmp_path, name, meant):
    status, _, err = call("compile", path, "-o", tmp_path / name)
    assert status == 2 and meant in err and not (tmp_path / name).exists()


def test_saved_models_are_explained_verified_and_timed(call, path, tmp_path):
    saved = tmp_path / "m.tw"
    assert call("compile", path, "-o", saved)[0] == 0
    status, out, _ = call("explain", saved)
    assert (status == 0 and "'first … residual'" in out) or "'second … residual'" in out
    status, out, _ = call("explain", saved, "--json")
    assert json.loads(out)["steps"] and json.loads(out)["requires"]["arch"]
    assert call("explain", saved, "--show", "llvm")[0] == 2
    status, out, _ = call("verify", saved, "--source", path)
    assert status == 0 and out.startswith("ok: 1 output")
    for wrong in (["verify", saved], ["verify", path, "--source", path]):
        assert call(*wrong)[0] == 2
    (tmp_path / "cut.onnx").write_bytes(Path(path).read_bytes()[:100])
    onnx.save(
        tiny.mlp(), tmp_path / "apart.onnx", save_as_external_data=True, location="gone.bin", size_threshold=0
    )
    (tmp_path / "gone.bin").unlink()
    for name, told in (("none.onnx", ""), ("cut.onnx", ""), ("apart.onnx", "gone.bin"), ("m.tw", "")):
        status, _, err = call("verify", saved, "--source", tmp_path / name)
        assert status == 2 and (told or name) in err
    other = tmp_path / "other.onnx"
    model = tiny.mlp()
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.ones((8, 16), np.float32), "a"))
    onnx.save(model, other)
    status, out, _ = call("verify", saved, "--source", other, "--reference", "onnx")
    assert status == 1 and "differs" in out
    status, out, _ = call("bench", saved, "--seconds", "0.01", "--rounds", "1", "--json")
    assert status == 0 and json.loads(out)["engines"][0]["median_ms"] > 0
    assert call("bench", saved, "--against", "onnxruntime")[0] == 2


def test_the_doctor_lists_what_the_package_needs(call, monkeypatch):
    place = "tilewright.cli.commands.doctor.requires"
    monkeypatch.setattr(place, lambda _: ["numpy>=1", "no-such-package", "torch; extra == 'test'"])
    status, out, _ = call("doctor")
    assert status == 1 and "BAD  package     no-such-package missing" in out
    assert f"ok   package     numpy {np.__version__}" in out and "package     torch" not in out

    def unknown(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(place, unknown)
    status, out, _ = call("doctor")
    assert status == 0 and "not installed: what it needs is not known" in out


def test_the_doctor_says_what_needs_a_compiler(call):
    _, out, _ = call("doctor")
    assert "needed to write models for C and to install from source" in out


def test_tables_fit_120_columns(call, tmp_path):
    nodes = [
        helper.make_node("MatMul", [f"v{at}", "w"], [f"v{at + 1}"], name=f"a node of a long name {at} " * 6)
        for at in range(3)
    ]
    weights = {"w": np.ones((8, 8), np.float32)}
    model = tiny.model(nodes, [tiny.tensor("v0", (4, 8))], [tiny.tensor("v3", (4, 8))], weights)
    file = tmp_path / "long.onnx"
    onnx.save(model, file)
    for command in (["explain", file], ["profile", file, "--calibrate", "0.001"]):
        status, out, _ = call(*command)
        assert status == 0 and max(map(len, out.splitlines())) <= 120


def test_progress_ends():
    seen = []

    def note(phase, done, total, what=""):
        seen.append((phase, done, total))

    compile_model(tiny.mlp(), threads=1, progress=note)
    for phase in ("import", "graph", "schedule", "compile", "plan"):
        steps = [(done, total) for name, done, total in seen if name == phase]
        assert steps and steps[-1][0] == steps[-1][1], phase
