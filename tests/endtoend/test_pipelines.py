"""The 17 applications of ``examples/pipelines``: evaluated and compiled, each beside numpy."""

import pytest

import run

#: Applications whose code takes LLVM longer than a test may: compiled at the end of the week.
LONG = ("stencil_chain", "guided_upsampling")


def test_all_are_there():
    assert len(set(run.NAMES)) == 17
    for name in run.NAMES:
        app = run.application(name)
        assert app.name == name
        assert app.program(*app.small).name == name


@pytest.mark.parametrize("name", run.NAMES)
def test_evaluated(name):
    app = run.application(name)
    assert app.check(*run.evaluated(app, app.small)) == ""


@pytest.mark.few(5)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in LONG else ()) for n in run.NAMES]
)
def test_compiled(name):
    app = run.application(name)
    found, want, _ = run.run(app, app.small)
    assert app.check(found, want) == ""


def test_a_wrong_result_is_noticed():
    app = run.application("unsharp")
    found, want = run.evaluated(app, app.small)
    found = found.copy()
    found[1, 2, 3] += 0.01
    assert "the first at (1, 2, 3)" in app.check(found, want)
    assert "not float32" in app.check(found.astype("f8"), want)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in LONG else ()) for n in run.NAMES]
)
def test_schedules_by_hand(name):
    """Several strips, the last of them ragged, and rows that do not fill vectors."""
    app = run.application(name)
    assert app.schedule is not None
    found, want, _ = run.run(app, (38, 42), hand=True)
    assert app.check(found, want) == ""
