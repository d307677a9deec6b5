"""Saved models: they run as the compiled ones do, without the compiler, and refuse what cannot work."""

import gc
import subprocess
import sys
import threading

import numpy as np
import pytest
from onnx import helper

import onnx_models as tiny
import tilewright
from saved_models import rewrite
from tilewright.frontend import zoo
from tilewright.runtime.load import check_machine
from tilewright.runtime.manifest import ABI, SCHEMA, Requirements
from tilewright.support import ArtefactError, InputError, InstallationError, ResourceError, WaitPolicy
from tilewright.target import AARCH64_NEON, X86_AVX2


@pytest.fixture(scope="module")
def mlp():
    return tilewright.compile(tiny.mlp(), threads=2)


@pytest.fixture
def path(mlp, tmp_path):
    mlp.save(tmp_path / "mlp.tw")
    return tmp_path / "mlp.tw"


def _x(seed=0):
    return np.random.default_rng(seed).standard_normal((4, 8), dtype=np.float32)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "bert", "gpt2"])
def test_architectures_run_bit_for_bit_as_compiled(name, tmp_path):
    found = next(key for key in zoo.SMALL if key.startswith(name))
    compiled = tilewright.compile(zoo.SMALL[found](), threads=2)
    compiled.save(tmp_path / "m.tw")
    loaded = tilewright.load(tmp_path / "m.tw")
    assert (loaded.inputs, loaded.outputs) == (compiled.inputs, compiled.outputs)
    for seed in (0, 1):
        feeds = loaded.sample_feeds(seed)
        for name_, array in compiled.sample_feeds(seed).items():
            np.testing.assert_array_equal(feeds[name_], array)
        for a, b in zip(compiled.run(None, feeds), loaded.run(None, feeds), strict=True):
            np.testing.assert_array_equal(a, b)


def test_it_describes_itself(mlp, path):
    loaded = tilewright.load(path)
    assert (loaded.name, loaded.threads) == ("tiny", 2)
    assert loaded.producer == f"tilewright {tilewright.__version__}"
    assert loaded.requires.arch == mlp.target.arch
    assert loaded.constant_bytes >= mlp.constant_bytes > 0
    assert loaded.run_bytes == mlp.run_bytes
    assert loaded.step_names == tuple(group.label for group in mlp.groups())
    assert loaded.measure({"x": _x()}, 3).shape == (3, len(loaded.step_names))
    assert "x" in repr(loaded)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_thread_counts_and_wait_policies(mlp, path, threads):
    for policy in ("passive", WaitPolicy.ACTIVE):
        loaded = tilewright.load(path, threads=threads, wait_policy=policy)
        assert loaded.threads == threads
        np.testing.assert_array_equal(loaded(_x())[0], mlp(_x())[0])


def test_a_bound_model_runs_as_the_compiled_one(mlp, path):
    x = _x(1)
    bound = tilewright.load(path).bind({"x": x})
    np.testing.assert_array_equal(bound.run()[0], mlp(_x(1))[0])
    x[...] = _x(2)
    np.testing.assert_array_equal(bound.run()[0], mlp(_x(2))[0])
    with pytest.raises(InputError, match="cannot be bound"):
        tilewright.load(path).bind({"x": np.asfortranarray(x)})


def test_wrong_options_are_refused(path):
    with pytest.raises(InputError, match="0"):
        tilewright.load(path, threads=0)
    for make in (lambda: tilewright.load(path, wait_policy="lazy"), lambda: _compile("lazy")):
        with pytest.raises(InputError, match="active, passive"):
            make()


def _compile(policy):
    return tilewright.compile(tiny.relu(), wait_policy=policy)


def test_inputs_and_names_are_checked(path):
    loaded = tilewright.load(path)
    with pytest.raises(InputError, match=r"\[4, 9\]"):
        loaded(np.zeros((4, 9), np.float32))
    with pytest.raises(InputError, match="takes 1 inputs, got 2"):
        loaded(_x(), _x())
    with pytest.raises(InputError, match="no output"):
        loaded.run(["z"], {"x": _x()})


def test_outputs_that_no_kernel_makes(tmp_path):
    weights = {"w": np.arange(6, dtype=np.float32), "shape": np.array([3, 2], np.int64)}
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Identity", ["w"], ["constant"]),
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Reshape", ["y", "shape"], ["view"]),
    ]
    outputs = [("same", (2, 3)), ("constant", (6,)), ("y", (2, 3)), ("view", (3, 2))]
    compiled = tilewright.compile(
        tiny.model(nodes, [tiny.tensor("x", (2, 3))], [tiny.tensor(*each) for each in outputs], weights)
    )
    compiled.save(tmp_path / "m.tw")
    loaded = tilewright.load(tmp_path / "m.tw")
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    made = loaded(x)
    for a, b in zip(compiled(x), made, strict=True):
        np.testing.assert_array_equal(a, b)
    for array in made:
        array[...] = 7
    view, again = loaded.run(["view", "view"], {"x": x})
    assert not np.shares_memory(view, again)
    np.testing.assert_array_equal(view, np.maximum(x, 0).reshape(3, 2))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_scalars_and_empty_tensors(shape, tmp_path):
    tilewright.compile(tiny.relu(shape)).save(tmp_path / "m.tw")
    (y,) = tilewright.load(tmp_path / "m.tw")(np.full(shape, -1.5, np.float32))
    np.testing.assert_array_equal(y, np.zeros(shape, np.float32))


def test_names_may_be_anything(tmp_path):
    odd = 'a"b\n\\*/\u2603\0'
    nodes = [helper.make_node("Relu", [odd], ["y"], name=odd)]
    model = tiny.model(nodes, [tiny.tensor(odd, (3,))], [tiny.tensor("y", (3,))], name=odd)
    compiled = tilewright.compile(model)
    compiled.save(tmp_path / "m.tw")
    loaded = tilewright.load(tmp_path / "m.tw")
    assert (loaded.name, loaded.inputs) == (compiled.name, compiled.inputs)
    loaded.run(None, {odd: np.zeros(3, np.float32)})


BLOCKED = """
import sys
for name in ("onnx", "llvmlite", "islpy", "torch", "click", "rich"):
    sys.modules[name] = None
import numpy as np
import tilewright
model = tilewright.load(sys.argv[1])
np.save(sys.argv[3], model(np.load(sys.argv[2]))[0])
used = {name.split(".")[1] for name in sys.modules if name.startswith("tilewright.")}
assert not used & {"driver", "graph", "frontend", "lower", "schedule", "poly", "lang"}, used
# what devices have of it: NVRTC's and the C compiler's callers, no back end
kinds = ("tilewright.codegen.llvm", "tilewright.codegen.clike")
back_ends = [name for name in sys.modules if name.startswith(kinds)]
assert not back_ends, back_ends
"""


def test_it_loads_without_the_compiler(mlp, path, tmp_path):
    np.save(tmp_path / "x.npy", _x())
    files = [str(tmp_path / name) for name in ("mlp.tw", "x.npy", "y.npy")]
    done = subprocess.run([sys.executable, "-c", BLOCKED, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), mlp(_x())[0])


def test_four_threads_save_load_and_run_at_once(mlp, tmp_path):
    file = tmp_path / "m.tw"
    mlp.save(file)
    expected = [mlp(_x(seed))[0] for seed in range(8)]
    failures = []

    def work(number):
        for turn in range(6):
            if number == 0:
                mlp.save(file)
            loaded = tilewright.load(file, threads=2)
            for seed in range(8):
                if not np.array_equal(loaded(_x(seed))[0], expected[seed]):
                    failures.append((number, turn, seed))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []


def test_one_loaded_model_runs_from_four_threads(mlp, path):
    loaded = tilewright.load(path, threads=2)
    expected = {seed: mlp(_x(seed))[0] for seed in range(4)}
    failures = []

    def work(seed):
        failures.extend(
            turn for turn in range(200) if not np.array_equal(loaded(_x(seed))[0], expected[seed])
        )

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []


def test_models_that_come_and_go_do_not_meet(tmp_path):
    """File numbers are used again; a library must not be mistaken for an earlier one of the same number."""
    for op, expected in [("Relu", 2.0), ("Neg", -2.0)]:
        model = tiny.model(
            [helper.make_node(op, ["x"], ["y"])], [tiny.tensor("x", (5,))], [tiny.tensor("y", (5,))]
        )
        tilewright.compile(model).save(tmp_path / f"{expected}.tw")
    x = np.full(5, 2, np.float32)
    for _ in range(5):
        for expected in (2.0, -2.0):
            loaded = tilewright.load(tmp_path / f"{expected}.tw")
            assert (loaded(x)[0] == expected).all()
            del loaded
            gc.collect()


def test_weights_are_mapped_from_the_file(path):
    loaded = tilewright.load(path)
    assert all(not array.flags.writeable and not array.flags.owndata for array in loaded._weights)
    path.unlink()
    assert loaded(_x())[0].shape == (4, 8)


# ---- refusals ----


def _refused(path, word):
    with pytest.raises(ArtefactError) as caught:
        tilewright.load(path)
    message = str(caught.value)
    assert path.name in message and word in message, message


def test_foreign_machines_are_refused(path):
    rewrite(path, lambda m: m | {"requires": {"arch": "x86_64", "features": ["avx2", "telepathy"]}})
    _refused(path, "CPU features this machine lacks: telepathy")
    rewrite(path, lambda m: m | {"requires": {"arch": "pdp11", "features": []}})
    _refused(path, "is for pdp11, this machine is")


def test_requirements_against_other_hosts():
    needs = Requirements("x86_64", ("avx2", "avx512f"))
    with pytest.raises(ArtefactError, match="avx512f"):
        check_machine(needs, "m", X86_AVX2)
    with pytest.raises(ArtefactError, match="aarch64"):
        check_machine(needs, "m", AARCH64_NEON)
    check_machine(Requirements("x86_64", ("avx2",)), "m", X86_AVX2)


def test_newer_versions_are_refused(path):
    rewrite(path, lambda m: m | {"schema": SCHEMA + 1, "plan": "what a later version makes of it"})
    _refused(path, f"schema {SCHEMA + 1}")
    rewrite(path, lambda m: m | {"schema": "1"})
    _refused(path, "malformed: schema")


def test_another_kernel_interface_is_refused(path):
    rewrite(path, lambda m: m | {"abi": ABI + 1})
    _refused(path, f"kernel interface {ABI + 1}")


def _plan(manifest, **changes):
    return manifest | {"plan": manifest["plan"] | changes}


def _step(manifest, **changes):
    return _plan(manifest, steps=[manifest["plan"]["steps"][0] | changes])


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m | {"name": 3},
        lambda m: m | {"threads": 0},
        lambda m: m | {"inputs": []},
        lambda m: m | {"inputs": [m["inputs"][0] | {"shape": [4, 9]}]},
        lambda m: m | {"inputs": [m["inputs"][0] | {"dtype": "object"}]},
        lambda m: m | {"inputs": [m["inputs"][0] | {"shape": [1 << 40, 1 << 40]}]},
        lambda m: m | {"outputs": []},
        lambda m: m | {"results": [[1, 7, 0, 128]]},
        lambda m: m | {"results": [[3, 0, 0, 128]]},
        lambda m: m | {"index_bounds": {"x": -1}},
        lambda m: {key: value for key, value in m.items() if key != "plan"},
        lambda m: _plan(m, arena_bytes=-1),
        lambda m: _plan(m, arena_bytes=1 << 60),
        lambda m: _plan(m, arena_bytes=0.5),
        lambda m: _plan(m, constants=[[0, 1 << 40]] * 9),
        lambda m: _plan(m, constants=[[4, 64]] * 9),
        lambda m: _step(m, buffers=[[3, 0, 0, 1 << 40]]),
        lambda m: _step(m, buffers=[[9, 0, 0, 0]]),
        lambda m: _step(m, buffers=[[0, 0, 0]]),
        lambda m: _step(m, params=["n"]),
        lambda m: _step(m, section=1, lane=2),
        lambda m: _step(m, section=1 << 40),
        lambda m: _step(m, lane=-1),
        lambda m: _step(m, kernel=77),
    ],
)
def test_manifests_that_do_not_fit_are_refused(path, change):
    rewrite(path, change)
    _refused(path, "")


def test_code_that_is_no_library_is_refused(path):
    rewrite(path, lambda m: m | {"sections": m["sections"] | {"code": m["sections"]["weights"]}})
    _refused(path, "cannot be loaded")


def test_memory_beyond_the_machine_is_refused(path):
    rewrite(path, lambda m: _plan(m, arena_bytes=1 << 45))
    with pytest.raises(ResourceError, match=r"32\.0 TiB|TiB"):
        tilewright.load(path)


def test_saving_needs_no_compiler(mlp, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    mlp.save(tmp_path / "m.tw")
    feeds = mlp.sample_feeds()
    for made, wanted in zip(
        tilewright.load(tmp_path / "m.tw").run(None, feeds), mlp.run(None, feeds), strict=True
    ):
        assert np.array_equal(made, wanted)


def test_objects_of_other_machines_need_a_compiler_and_leave_nothing(mlp, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tilewright.driver.save.can_link", lambda _: False)
    with pytest.raises(InstallationError, match="C compiler"):
        mlp.save(tmp_path / "m.tw")
    assert list(tmp_path.iterdir()) == []


def test_saving_where_nothing_can_be_written(mlp, tmp_path):
    with pytest.raises(ArtefactError, match="cannot write"):
        mlp.save(tmp_path / "no" / "m.tw")
