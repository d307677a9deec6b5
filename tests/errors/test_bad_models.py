"""Bad models and inputs: one clear error that names the culprit, in bounded time and memory."""

import json
import resource
import subprocess
import sys

import numpy as np
import onnx
import pytest
from numpy.lib import format as npy
from onnx import TensorProto, helper

import onnx_models as tiny
import tilewright
from tilewright.cli import main
from tilewright.support import InputError, ModelError, ResourceError, UserError


def _truncated():
    return tiny.mlp().SerializeToString()[:-200]


def _asks_for_17_gb():
    """About 100 bytes that describe 17 GB."""
    value = helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0])
    shape = helper.make_tensor("s", TensorProto.INT64, [2], [65536, 65536])
    nodes = [
        helper.make_node("Constant", [], ["s"], value=shape),
        helper.make_node("ConstantOfShape", ["s"], ["y"], value=value, name="huge"),
    ]
    return tiny.model(nodes, [], [tiny.tensor("y", (65536, 65536))]).SerializeToString()


def _claims_a_large_weight():
    """An initializer that says it is 17 GB and holds nothing."""
    model = tiny.mlp()
    weight = model.graph.initializer[0]
    del weight.dims[:]
    weight.dims.extend([65536, 65536])
    weight.raw_data = b""
    return model.SerializeToString()


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field of a protocol buffer."""

    def varint(value: int) -> bytes:
        out = bytearray()
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        return bytes([*out, value])

    return varint(number << 3 | 2) + varint(len(content)) + content


def _nested(depth: int) -> bytes:
    """`If` in `If` in `If` ...; the onnx package itself would not write it."""
    graph = _field(2, b"g")
    for _ in range(depth):
        attribute = _field(1, b"then_branch") + _field(6, graph) + b"\xa0\x01\x05"
        node = _field(1, b"c") + _field(2, b"r") + _field(4, b"If") + _field(5, attribute)
        graph = _field(1, node) + _field(2, b"g")
    return b"\x08\x0a" + _field(8, b"\x10\x15") + _field(7, graph)


def _cyclic():
    nodes = [helper.make_node("Relu", ["b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    return tiny.model(nodes, [tiny.tensor("x", (2,))], [tiny.tensor("b", (2,))]).SerializeToString()


def _reads_nothing():
    node = helper.make_node("Add", ["x", "ghost"], ["y"], name="sum")
    return tiny.model([node], [tiny.tensor("x", (2,))], [tiny.tensor("y", (2,))]).SerializeToString()


def _odd_names():
    """Names with quotes, newlines and format characters, around an operator that does not exist."""
    name = "a\"b'c\n%s{0}\x1b[31m"
    node = helper.make_node("NoSuch", [name], ["y"], name=name, domain="odd")
    model = tiny.model([node], [tiny.tensor(name, (2,))], [tiny.tensor("y", (2,))])
    model.opset_import.append(helper.make_opsetid("odd", 1))
    return model.SerializeToString()


BAD = {
    "truncated": (_truncated, "cannot be parsed|cut short"),
    "empty": (lambda: b"", "empty"),
    "text": (
        lambda: b"This is not a model, but a text about one.\n" * 40,
        "not an ONNX model|cannot be parsed",
    ),
    "zeros": (lambda: bytes(4096), "not an ONNX model|cannot be parsed"),
    "pickle": (
        lambda: b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00.",
        "not an ONNX model|cannot be parsed",
    ),
    "asks for 17 GB": (_asks_for_17_gb, "huge.*16.0 GiB|16.0 GiB"),
    "large weight": (_claims_a_large_weight, "tensor name: a|'a'"),
    "nested 1000 deep": (lambda: _nested(1000), "cannot be parsed"),
    "nested 40 deep": (lambda: _nested(40), "cannot be parsed|deep|valid"),
    "nested 5 deep": (lambda: _nested(5), "valid"),
    "cyclic": (_cyclic, "'a'|'b'"),
    "reads nothing": (_reads_nothing, "ghost"),
    "odd names": (_odd_names, r"a\\?\"b\\?'c\\n%s\{0\}\\x1b"),
}


@pytest.mark.parametrize("kind", sorted(BAD))
def test_bad_models_are_one_clear_error(kind):
    make, message = BAD[kind]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=message) as caught:
        tilewright.compile(make())
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < 500_000  # KiB
    assert all(character.isprintable() or character == "\n" for character in str(caught.value))


@pytest.mark.parametrize("kind", sorted(BAD))
def test_bad_model_files_are_status_2_on_the_command_line(kind, tmp_path, capsys):
    make, _ = BAD[kind]
    file = tmp_path / "bad.onnx"
    file.write_bytes(make())
    for command in ("compile", "run", "verify", "explain"):
        assert main([command, str(file), "--json"]) == 2
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        assert captured.err.startswith("error: ")
        assert json.loads(captured.out)["error"]["message"]
    assert [file.name for file in tmp_path.iterdir()] == ["bad.onnx"]


@pytest.mark.parametrize(
    "where", ["/etc/passwd", "../outside.bin", "sub/../../outside.bin", "link.bin", "nowhere.bin"]
)
def test_external_data_outside_the_models_folder_is_refused(where, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(4096))
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    model = tiny.mlp()
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.append(onnx.StringStringEntryProto(key="location", value=where))
    file = folder / "m.onnx"
    file.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="'a'"):
        tilewright.compile(file)


def test_external_data_beside_the_model_is_read(tmp_path):
    model = tiny.mlp()
    file = tmp_path / "m.onnx"
    onnx.save(model, file, save_as_external_data=True, location="weights.bin", size_threshold=0)
    x = np.random.default_rng(0).standard_normal((4, 8), dtype=np.float32)
    np.testing.assert_allclose(tilewright.compile(file)(x)[0], tiny.mlp_expected(x), rtol=1e-4, atol=1e-4)
    with pytest.raises(ModelError, match="give the model as a path"):
        tilewright.compile(file.read_bytes())


def test_external_data_that_is_a_pipe_does_not_hang(tmp_path):
    model = tiny.mlp()
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.append(onnx.StringStringEntryProto(key="location", value="pipe"))
    subprocess.run(["mkfifo", str(tmp_path / "pipe")], check=True)
    file = tmp_path / "m.onnx"
    file.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="not a regular file"):
        tilewright.compile(file)


def test_odd_names_compile_and_stay_out_of_generated_code():
    name = "x\"'\n%s{0}; ret void }"
    node = helper.make_node("Relu", [name], ["y\n"], name='n"')
    compiled = tilewright.compile(
        tiny.model([node], [tiny.tensor(name, (3,))], [tiny.tensor("y\n", (3,))], name='g"\n')
    )
    assert compiled.run(["y\n"], {name: np.array([-1, 0, 2], np.float32)})[0].tolist() == [0, 0, 2]
    kernel = compiled.groups()[0].kernel
    assert "ret void }" not in kernel.code.llvm() and "%s{0}" not in kernel.code.llvm()
    with pytest.raises(InputError) as caught:
        compiled.run(None, {})
    assert "\n%s" not in str(caught.value)


def test_more_memory_than_the_machine_has_is_refused(monkeypatch):
    """Every tensor is allowed by itself; a run of them is not."""
    monkeypatch.setattr("tilewright.driver.compile.physical_memory", lambda: 20 << 30)
    size = 1 << 30
    nodes = [helper.make_node("Relu", [f"v{at}"], [f"v{at + 1}"], name=f"n{at}") for at in range(3)]
    outputs = [tiny.tensor(f"v{at}", (size,)) for at in range(1, 4)]
    many = [*nodes, *(helper.make_node("Neg", [f"v{at}"], [f"w{at}"]) for at in range(4))]
    model = tiny.model(
        many,
        [tiny.tensor("v0", (size,))],
        [*outputs, *(tiny.tensor(f"w{at}", (size,)) for at in range(4))],
    )
    with pytest.raises(ResourceError, match="one run would take"):
        tilewright.compile(model)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "x=nowhere.npy"], "nowhere.npy"),
        (["--input", "x=text.npy"], "text.npy"),
        (["--input", "x=short.npy"], "cut short"),
        (["--input", "x=shape.npy"], r"float32[2, 2]"),
        (["--input", "x=dtype.npy"], r"float64[4, 8]"),
        (["--input", "x=huge.npy"], r"'huge.npy'"),
        (["--input", "x=garbled.npy"], "'garbled.npy' is not an .npy array"),
        (["--input", "x=object.npy"], "object"),
        (["--input", "z=good.npy"], "no input 'z'"),
        (["--inputs", "text.npy"], "text.npy"),
        (["--inputs", "other.npz"], "no input 'q'"),
        (["--output", "no/such/folder.npz"], "cannot write"),
        (["--shape", "x=3,3"], "does not fit the input 'x'"),
        (["--shape", "q=3,3"], "'q'"),
        (["--target", "gpu9000"], "gpu9000"),
    ],
)
def test_bad_inputs_are_status_2_on_the_command_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(tiny.mlp(), "m.onnx")
    np.save("good.npy", np.zeros((4, 8), np.float32))
    np.save("shape.npy", np.zeros((2, 2), np.float32))
    np.save("dtype.npy", np.zeros((4, 8)))
    np.save("object.npy", np.array([[1], {}], object), allow_pickle=True)
    (tmp_path / "short.npy").write_bytes((tmp_path / "good.npy").read_bytes()[:-7])
    (tmp_path / "text.npy").write_text("no array at all")
    with (tmp_path / "huge.npy").open("wb") as file:
        npy.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 20, 1 << 20)}
        )
    (tmp_path / "garbled.npy").write_bytes((tmp_path / "good.npy").read_bytes().replace(b")", b"("))
    np.savez("other.npz", q=np.zeros(3))
    before = sorted(file.name for file in tmp_path.iterdir())
    assert main(["run", "m.onnx", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and "Traceback" not in captured.err
    assert sorted(file.name for file in tmp_path.iterdir()) == before


def test_a_missing_input_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    node = helper.make_node("Add", ["x", "second"], ["y"])
    onnx.save(
        tiny.model([node], [tiny.tensor("x", (2,)), tiny.tensor("second", (2,))], [tiny.tensor("y", (2,))]),
        "m.onnx",
    )
    np.save("x.npy", np.zeros(2, np.float32))
    assert main(["run", "m.onnx", "--input", "x=x.npy"]) == 2
    assert "'second': float32[2] is missing" in capsys.readouterr().err


def test_memory_of_a_process_that_refuses_stays_small(tmp_path):
    """The 17 GB model again, under a limit of the address space that it could not be built in."""
    file = tmp_path / "m.onnx"
    file.write_bytes(_asks_for_17_gb())
    assert len(file.read_bytes()) < 200
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30)); "
        "from tilewright.cli import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "compile", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2 and "huge" in done.stderr and "Traceback" not in done.stderr
