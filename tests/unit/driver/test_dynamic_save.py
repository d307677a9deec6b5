"""Models with open sizes, saved and loaded: equal to what was saved, nothing compiled, nothing trusted."""

import random
import sys

import numpy as np
import pytest
from onnx import helper
from tests import onnx_models
from tests.saved_models import rewrite
from tests.unit.driver.test_dynamic import decode, decoder_step, encoder, ids
from tests.unit.driver.test_open_control import branches, decoding, growing, halving
from tests.unit.driver.test_open_counts import masked
from tests.unit.driver.test_open_operators import model_of

import tilewright
from tilewright.devices import load_fixed
from tilewright.runtime import SavedDynamicModel, SizeRange
from tilewright.support import ArtefactError, InputError


@pytest.fixture(scope="module")
def encoding():
    return tilewright.compile(encoder(), threads=2, dynamic={"seq": (1, 40), "batch": (1, 3)})


@pytest.fixture(scope="module")
def saved(encoding, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "encoder.tw"
    encoding.save(path, sizes=[{"batch": 2, "seq": 33}])
    return path


@pytest.fixture
def path(saved, tmp_path):
    """A copy that a test may change."""
    copied = tmp_path / "encoder.tw"
    copied.write_bytes(saved.read_bytes())
    return copied


def test_every_size_gives_what_the_saved_model_gave(encoding, saved):
    model = tilewright.load(saved)
    assert isinstance(model, SavedDynamicModel)
    assert model.sizes == encoding.sizes == {"seq": SizeRange(1, 40), "batch": SizeRange(1, 3)}
    for batch, length in [(1, 1), (1, 40), (3, 1), (3, 40), (2, 17), (2, 33), (3, 16), (1, 2)]:
        (got,) = model(ids(batch, length))
        assert got.shape == (batch, length, 8)
        np.testing.assert_allclose(got, encoding(ids(batch, length))[0], rtol=1e-5, atol=1e-5)
    # by the plan of all sizes they are the same bits
    np.testing.assert_array_equal(model(ids(3, 9))[0], encoding(ids(3, 9))[0])


def test_it_describes_itself(saved):
    model = tilewright.load(saved, threads=1)
    assert model.threads == 1
    assert [str(each) for each in model.inputs] == ["'ids': int64[batch, seq]"]
    assert [str(each) for each in model.outputs] == ["'out': float32[batch, seq, 8]"]
    assert {"batch": (2, 2), "seq": (33, 33)} in model.ranges
    assert {"batch": (1, 3), "seq": (1, 40)} in model.ranges
    assert "seq 1 to 40" in repr(model)
    feeds = model.sample_feeds(3, batch=2, seq=5)
    assert feeds["ids"].shape == (2, 5)
    assert model.run(["out"], feeds)[0].shape == (2, 5, 8)
    model.trim()
    assert model.run([], feeds) == []


def test_weights_are_in_the_file_once(encoding, saved, tmp_path):
    one = tmp_path / "one.tw"
    encoding.at(batch=3, seq=40).save(one)
    plans = len(tilewright.load(saved).ranges)
    assert plans == 2
    # code of each plan, weights once
    assert saved.stat().st_size < plans * one.stat().st_size


def test_a_growing_cache(tmp_path):
    compiled = tilewright.compile(decoder_step(), threads=2, dynamic={"past": (0, 40)})
    compiled.save(tmp_path / "decoder.tw")
    model = tilewright.load(tmp_path / "decoder.tw")
    assert len(list(decode(model, 41))) == 41


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: (np.zeros((2, 41), np.int64),), "the size 'seq' is 41; the model is compiled for 1 to 40"),
        (lambda: (np.zeros(4, np.int64),), r"'ids': int64\[batch, seq\] has 2 dimensions; got \[4\]"),
        (lambda: (np.zeros((2, 3), np.float32),), "got elements of float32"),
        (lambda: (np.full((2, 3), 50),), r"'ids' holds 50 at \[0, 0\]"),
        (lambda: (), "the model takes 1 inputs, got 0"),
    ],
)
def test_runs_that_cannot_be_are_refused_by_name(saved, given, message):
    with pytest.raises(InputError, match=message):
        tilewright.load(saved)(*given())


def test_samples_need_every_size(saved):
    model = tilewright.load(saved)
    for sizes, message in (
        ({"batch": 2}, "the size 'seq' is missing"),
        ({"batch": 2, "seq": 3, "sequ": 1}, "no open size 'sequ'"),
        ({"batch": 4, "seq": 3}, "the size 'batch' is 4"),
    ):
        with pytest.raises(InputError, match=message):
            model.sample_feeds(0, **sizes)


def spectrum():
    """An operator whose table of cosines is as large as a size: only single ones have a plan."""
    node = helper.make_node("DFT", ["x", "", "axis"], ["y"])
    inputs, outputs = [onnx_models.tensor("x", (1, "n", 1))], [onnx_models.tensor("y", (1, "n", 2))]
    return onnx_models.model([node], inputs, outputs, {"axis": np.array(1, np.int64)})


def test_models_without_a_plan_are_there_at_stated_sizes(tmp_path):
    compiled = tilewright.compile(spectrum(), dynamic={"n": (9, 16)})
    with pytest.raises(InputError, match=r"has no plan for all sizes"):
        compiled.save(tmp_path / "it.tw")
    assert not (tmp_path / "it.tw").exists()
    with pytest.raises(InputError, match="the size 'n' is 17"):
        compiled.save(tmp_path / "it.tw", sizes=[{"n": 17}])
    compiled.save(tmp_path / "it.tw", sizes=[{"n": 13}, {"n": 16}, {"n": 13}])
    model = tilewright.load(tmp_path / "it.tw")
    for n in (13, 16):
        x = np.random.default_rng(n).standard_normal((1, n, 1)).astype(np.float32)
        np.testing.assert_array_equal(model(x)[0], compiled(x)[0])
    with pytest.raises(InputError, match="has no plan for n 14") as caught:
        model(np.zeros((1, 14, 1), np.float32))
    assert "n 13; n 16" in caught.value.hint


def test_what_needs_fixed_sizes_says_so(saved):
    with pytest.raises(InputError, match="has open sizes: seq from 1 to 40, batch from 1 to 3"):
        load_fixed(saved)


def changed_range(**entries):
    """The range of all sizes, seq 1 to 40 and batch 1 to 3, changed."""
    return lambda manifest: manifest | {"ranges": [manifest["ranges"][-1] | entries]}


def changed_plan(**entries):
    """Its plan, changed."""
    return lambda m: changed_range(parts=[m["ranges"][-1]["parts"][0] | entries])(m)


def changed_course(**entries):
    """When it runs, changed."""
    return lambda m: changed_range(course=m["ranges"][-1]["course"] | entries)(m)


def stage(**entries):
    return [{"counts": [], "plan": 0, "controls": []} | entries]


def changed_dims(last):
    """Another last dimension of the input."""
    return lambda m: m | {"inputs": [{"name": "ids", "dtype": "int64", "dims": ["batch", last]}]}


SIZES = [["seq", 1, 40, 1], ["batch", 1, 3, 1]]


def list_step(**changes):
    own = {"op": "SequenceLength", "attributes": {}, "where": "", "inputs": ["ids"], "outputs": ["n"]}
    return {**own, "constants": {}, **changes}


CHANGES = {
    "a newer schema": (lambda m: m | {"schema": 9}, "newer"),
    "an older schema": (lambda m: m | {"schema": 4}, "has schema 4"),
    "a schema that is none": (lambda m: m | {"schema": "8"}, "malformed: schema"),
    "another kernel interface": (lambda m: m | {"abi": 2}, "newer"),
    "no plans": (lambda m: m | {"ranges": []}, "malformed: ranges"),
    "a size twice": (lambda m: m | {"sizes": [SIZES[0], SIZES[0]]}, "malformed: sizes"),
    "a size of no input": (lambda m: m | {"sizes": [SIZES[0], ["rows", 1, 3, 1]]}, "malformed: sizes"),
    "a hundred sizes": (
        lambda m: m | {"sizes": [[f"n{i}", 1, 2, 1] for i in range(100)]},
        "malformed: sizes",
    ),
    "bounds the wrong way": (lambda m: m | {"sizes": [["seq", 40, 1, 1], SIZES[1]]}, "malformed: sizes"),
    "no steps": (lambda m: m | {"sizes": [["seq", 1, 40, 0], SIZES[1]]}, "malformed: sizes"),
    "a range beyond the sizes": (changed_range(ranges=[[33, 41], [2, 3]]), "malformed: ranges"),
    "a range of one size": (changed_range(ranges=[[1, 1]]), "malformed: ranges"),
    "no numbers": (changed_plan(program=[]), "malformed: params"),
    "a number of a later one": (changed_plan(program=[["add", 0, 2]]), "malformed: program"),
    "an unknown instruction": (changed_plan(program=[["pow", 0, 0]]), "malformed: program"),
    "a relation of three": (changed_plan(relations=[["a", "b", 3]]), "malformed: relations"),
    "a shape that is none": (changed_plan(inputs=[7]), "malformed: inputs"),
    "a shape of another rank": (changed_plan(inputs=[[[0]]]), "malformed: inputs"),
    "an extent that there is not": (changed_plan(outputs=[[[0], [99999], 8]]), "malformed: program"),
    "an input of another kind": (
        lambda m: m | {"inputs": [{"name": "ids", "dtype": "complex64", "dims": ["batch", "seq"]}]},
        "malformed: inputs",
    ),
    "an input of another name": (
        lambda m: m | {"inputs": [{"name": "words", "dtype": "int64", "dims": ["batch", "seq"]}]},
        "malformed: stages",
    ),
    "a size times nothing": (changed_dims([[["seq", 0]], 1]), "malformed: inputs"),
    "half of an affine size": (changed_dims([[["seq"]], 1]), "malformed: inputs"),
    "an affine size too large": (changed_dims([[["seq", 1]], 1 << 60]), "malformed: inputs"),
    "an affine size without a name": (changed_dims([[[1, 1]], 1]), "malformed: inputs"),
    "half of a list": (
        lambda m: m | {"inputs": [{"name": "ids", "dtype": "int64", "dims": ["batch", "seq"], "list": [1]}]},
        "malformed: inputs",
    ),
    "an unknown step": (changed_course(stages=stage(controls=[list_step(op="Sort")])), "malformed: controls"),
    "a step of nothing": (
        changed_course(stages=stage(controls=[list_step(inputs=[])])),
        "malformed: controls",
    ),
    "a step's text": (
        changed_course(stages=stage(controls=[list_step(attributes={"axis": "0"})])),
        "malformed: attributes",
    ),
    "a step on what is not there": (
        changed_course(stages=stage(controls=[list_step(inputs=["none"])])),
        "malformed: controls",
    ),
    "no course": (changed_range(course=7), "malformed: stages"),
    "no stages": (changed_course(stages=[]), "malformed: stages"),
    "a plan that there is not": (changed_course(stages=stage(plan=1)), "malformed: stages"),
    "fewer sizes": (changed_course(sizes=1), "malformed: sizes"),
    "more sizes than its plan": (changed_course(sizes=3), "malformed: sizes"),
    "another output": (changed_course(results=[["in", "out"]]), "malformed: outputs"),
    "an output that nothing makes": (changed_course(results=[["out", "in"]]), "malformed: results"),
    "an output of two": (changed_course(results=[["out"]]), "malformed: results"),
    "a constant that the file has not": (
        changed_course(constants={"c": ["float32", [4], 1 << 40, 16]}),
        "malformed: constants",
    ),
    "a constant of another size": (
        changed_course(constants={"c": ["float32", [4], 0, 12]}),
        "malformed: constants",
    ),
    "a constant of three": (changed_course(constants={"c": [0, 0, 4]}), "malformed: constants"),
    "a size that nothing says": (
        changed_course(stages=stage(counts=[["x", 0, False, 0, 0, 9]])),
        "malformed: counts",
    ),
    "a size of five": (changed_course(stages=stage(counts=[["ids", 0, 0, 0, 9]])), "malformed: counts"),
    "a size beyond the others": (
        changed_course(stages=stage(counts=[["ids", 0, False, 9, 0, 9]])),
        "malformed: stages",
    ),
    "a branch of nothing": (
        changed_course(
            stages=stage(
                controls=[{"courses": [], "reads": [], "outputs": [], "condition": "c", "refusal": ""}]
            )
        ),
        "malformed: controls",
    ),
    "a loop of nothing": (
        changed_course(
            stages=stage(
                controls=[
                    {
                        "courses": [],
                        "reads": [],
                        "outputs": [],
                        "kinds": [],
                        "inputs": [],
                        "takes": [],
                        "carried": 0,
                        "constants": {},
                    }
                ]
            )
        ),
        "malformed: controls",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_manifests_that_do_not_fit_are_refused(path, name):
    change, message = CHANGES[name]
    rewrite(path, change)
    with pytest.raises(ArtefactError, match=message):
        tilewright.load(path)


@pytest.mark.parametrize(
    ("axis", "message"), [(True, "'ids' has no axis 9"), (False, "'ids' has no element 9")]
)
def test_sizes_of_what_is_not_there_are_refused_when_they_run(path, axis, message):
    rewrite(path, changed_course(stages=stage(counts=[["ids", 9, axis, 0, 1, 40]])))
    with pytest.raises(InputError, match=message):
        tilewright.load(path)(ids(1, 3))


def test_shapes_that_are_not_those_of_the_plan_are_refused_when_they_run(path):
    rewrite(path, changed_plan(outputs=[[[1], [0], 16]]))
    model = tilewright.load(path)
    with pytest.raises(ArtefactError, match="malformed: the shape of 'out'"):
        model(ids(1, 3))


@pytest.fixture(scope="module")
def in_stages(tmp_path_factory):
    """Models whose sizes and course data decides: compiled, saved and loaded again."""
    folder = tmp_path_factory.mktemp("stages")
    sources = {"masked": masked(), "branches": branches(), "growing": growing(), "halving": halving(),
               "decoding": decoding()[0]}  # fmt: skip
    made = {name: tilewright.compile(source, threads=1, dynamic={}) for name, source in sources.items()}
    for name, model in made.items():
        model.save(folder / f"{name}.tw")
    return {name: (model, folder / f"{name}.tw") for name, model in made.items()}


FEEDS = {
    "masked": lambda rng, n: {"x": rng.standard_normal(n), "w": rng.standard_normal((n, 4))},
    "branches": lambda rng, n: {"x": rng.standard_normal((n, 3))},
    "growing": lambda rng, n: {"steps": np.array(n % 9), "start": rng.standard_normal((1, 3))},
    "halving": lambda rng, n: {"x": rng.random((n, 2)) * 9},
    "decoding": lambda rng, n: {"most": np.array(n % 9), "first": np.array(n % 12)},
}


def drawn_feeds(name, rng, n):
    feeds = FEEDS[name](rng, n)
    return {key: a.astype(np.float32) if a.dtype == np.float64 else a for key, a in feeds.items()}


@pytest.mark.parametrize("name", FEEDS)
def test_what_data_decides_is_in_the_file(in_stages, name):
    made, path = in_stages[name]
    model, rng = tilewright.load(path), np.random.default_rng(5)
    assert (model.inputs, model.outputs, model.sizes) == (made.inputs, made.outputs, made.sizes)
    for n in (1, 2, 7, 40, 129):
        feeds = drawn_feeds(name, rng, n)
        for got, want in zip(model.run(None, feeds), made.run(None, feeds), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", FEEDS)
def test_changed_courses_are_refused_or_run(in_stages, tmp_path, name):
    """A size from another place, values of other names, a loop of other steps: refused by name, or run."""
    rng = random.Random(seed := random.Random(7).getrandbits(32))
    whole = in_stages[name][1].read_bytes()
    path, refused = tmp_path / "changed.tw", 0
    feeds = drawn_feeds(name, np.random.default_rng(5), 5)
    for _ in range(60):
        path.write_bytes(whole)
        rewrite(path, lambda m: mutated_courses(m, rng))
        try:
            tilewright.load(path).run(None, feeds)
        except (ArtefactError, InputError):
            refused += 1
    print(f"seed {seed}: {refused} refused", file=sys.stderr)
    assert refused > 20


def mutated_courses(manifest, rng):
    for each in manifest["ranges"]:
        mutated(each["course"], rng)
    return manifest


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory):
    path = tmp_path_factory.mktemp("recurrent") / "it.tw"
    model = tilewright.compile(model_of("recurrence"), threads=1, dynamic={"n": (1, 40)})
    model.save(path)
    return model, path


def test_loops_over_time_are_in_the_file(recurrent):
    made, path = recurrent
    model = tilewright.load(path)
    for n in (1, 2, 19, 40):
        feeds = made.sample_feeds(n, **dict.fromkeys(made.sizes, n))
        for got, want in zip(model.run(None, feeds), made.run(None, feeds), strict=True):
            np.testing.assert_array_equal(got, want)


def moving(**entries):
    """A repeated step of the recurrence, changed, and where its first moving place is."""

    def change(m):
        steps = [
            step for each in m["ranges"] for part in each["parts"] for step in part["plan"]["plan"]["steps"]
        ]
        step = next(step for step in steps if "repeat" in step)
        place = next(ref for ref in step["buffers"] if len(ref) == 6)
        step.update({name: value for name, value in entries.items() if name == "repeat"})
        place[4] = entries.get("advance", place[4])
        place[5] = entries.get("first", place[5])
        return m

    return change


@pytest.mark.parametrize(
    "entries",
    [{"repeat": 999}, {"advance": 1 << 20}, {"advance": -4096}, {"first": 99}, {"repeat": [1 << 20]}],
)
def test_loops_over_time_that_leave_their_arrays_are_refused(recurrent, tmp_path, entries):
    path = tmp_path / "changed.tw"
    path.write_bytes(recurrent[1].read_bytes())
    rewrite(path, moving(**entries))
    with pytest.raises(ArtefactError, match=r"malformed: (a place of .*which moves on|params)"):
        tilewright.load(path).run(None, recurrent[0].sample_feeds(0, **dict.fromkeys(recurrent[0].sizes, 7)))


def test_changed_files_are_refused_or_run(path):
    """Any entry of the manifest changed: a refusal, or a model that still runs within its memory."""
    rng = random.Random(seed := random.Random(4).getrandbits(32))
    whole = path.read_bytes()
    refused = ran = 0
    for _ in range(150):
        path.write_bytes(whole)
        rewrite(path, lambda manifest: mutated(manifest, rng))
        try:
            model = tilewright.load(path)
            for sizes in model.ranges[:4]:
                for at in (0, 1):
                    model.run(None, model.sample_feeds(0, **{name: each[at] for name, each in sizes.items()}))
            ran += 1
        except (ArtefactError, InputError):
            refused += 1
    print(f"seed {seed}: {refused} refused, {ran} ran", file=sys.stderr)
    assert refused > 50


#: Damage to code and what it is given is found by digests; they are trusted as programs are.
TRUSTED = ("sections", "steps", "constants", "arena_bytes", "workspace_bytes", "scratch_bytes", "program",
           "slots", "relations")  # fmt: skip


def mutated(data, rng):
    """The data with one of its numbers, texts or lists changed; what kernels are given is left alone."""
    places = []

    def visit(holder, key, value):
        if isinstance(value, dict):
            for k, v in value.items():
                if k not in TRUSTED:
                    visit(value, k, v)
        else:
            places.append((holder, key))
            for at, v in enumerate(value if isinstance(value, list) else ()):
                visit(value, at, v)

    for key in data:
        visit(data, key, data[key])
    holder, key = rng.choice(places)
    old = holder[key]
    if isinstance(old, list):
        holder[key] = rng.choice([old[:-1], [*old, *old[-1:]], old[::-1], 3])
    elif isinstance(old, int):
        holder[key] = rng.choice([old + 1, old - 1, 2 * old, -old, 1 << 40, None])
    else:
        holder[key] = rng.choice(["", f"{old}x", 7])
    return data
