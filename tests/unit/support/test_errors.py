import pickle

import pytest

from tilewright.support import (
    InternalError,
    ModelError,
    NodeLocation,
    ScheduleError,
    SourceLocation,
    TilewrightError,
    UnsupportedOperatorError,
    UserError,
    VerificationError,
    errors,
)


def test_user_and_internal_errors_are_apart():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 10
    for kind in kinds:
        assert issubclass(kind, TilewrightError)
        if kind is not TilewrightError:
            assert issubclass(kind, UserError) != issubclass(kind, InternalError)


def test_message_says_what_where_and_what_to_do():
    error = ModelError("weight is missing", where=NodeLocation("conv\n1", "Conv"), hint="export it again")
    assert str(error) == "node 'conv\\n1' (Conv): weight is missing\n  hint: export it again"


def test_source_location_shows_the_line():
    assert str(SourceLocation("model.py", 7, "  C = f(A)\n")) == "model.py:7: `C = f(A)`"
    assert str(SourceLocation("model.py", 7)) == "model.py:7"


def test_unsupported_operators_are_listed_together():
    nodes = [(NodeLocation("a", "Loop"), "no such operator"), (NodeLocation("b", "If"), "data-dependent")]
    error = UnsupportedOperatorError.of(nodes)
    assert str(error) == (
        "2 nodes cannot be compiled:\n  node 'a' (Loop): no such operator\n  node 'b' (If): data-dependent"
    )
    assert error.nodes == tuple(nodes)


def test_schedule_error_marks_the_lines():
    error = ScheduleError("cannot split `i`", program="for i:\n    S(i)", marked=[0])
    assert str(error) == "cannot split `i`\n>> for i:\n       S(i)"


def test_schedule_errors_are_printed_when_they_are_read():
    printed = []

    def shown():
        printed.append(1)
        return "for i:\n    S(i)", [1]

    error = ScheduleError("cannot split `i`", shown=shown)
    assert not printed
    assert (error.program, error.marked) == ("for i:\n    S(i)", (1,))
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "cannot split `i`\n   for i:\n>>     S(i)"
    assert len(printed) == 1


def test_internal_error_says_so():
    assert str(VerificationError("a loop is empty")) == "internal error: a loop is empty"


@pytest.mark.parametrize(
    "error",
    [
        UnsupportedOperatorError.of([(NodeLocation("a", "Loop"), "no such operator")]),
        ScheduleError("no", where="split", hint="do", program="for i:", marked=[0]),
        ScheduleError("no", shown=lambda: ("for i:", [0])),
        InternalError("broken", where=SourceLocation("a.py", 1)),
    ],
    ids=["nodes", "schedule", "schedule that nobody read", "internal"],
)
def test_errors_cross_processes(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
