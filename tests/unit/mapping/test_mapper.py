"""The mapper: known counts, equal to enumeration; what it refuses and why."""

import itertools

import pytest

from tilewright.mapping import Needle, find_mappings, three_operand_form
from unit.mapping.kernels import FREE_ROWS, conv, gemm, matmul, separable

CASES = {
    "gemm": (gemm(), 1, {}),
    "conv1d": (conv(1), 3, {}),
    "conv1d strided": (conv(1, stride=2), 2, {}),
    "conv2d": (conv(2), 7, {}),
    "conv2d dilated": (conv(2, dilation=2), 3, {}),
    "conv2d strided": (conv(2, stride=2), 3, {}),
    "conv2d strided, free rows": (conv(2, stride=2), 7, FREE_ROWS),
    "conv3d": (conv(3, size=2, taps=2), 13, {}),
    "separable": (separable(), 0, {}),
}


def reduction(program):
    return next(s for s in program.stages if s.is_reduction)


@pytest.mark.parametrize("case", CASES)
def test_counts(case):
    """The paper's and those of its reconstruction: as many again with the factors exchanged."""
    program, count, places = CASES[case]
    found = find_mappings(program, matmul(**places))
    straight = [m for m in found.mappings if not m.exchanged]
    assert len(straight) == count
    if not places:
        assert len(found.mappings) == 2 * count
    assert len(set(found.mappings)) == len(found.mappings)
    assert found.nodes < 200
    assert find_mappings(program, matmul(**places)) == found


def enumerated(needle, form, order, strided):
    """Every injective choice of axes for which each operand's rows can be found, tried one by one."""
    (own,) = needle.forms
    first, second = (o.src for o in own.operations[:2])
    theirs = [form.operations[form.initialised + n].src for n in order]
    result = (own.operations[-1].dst, form.operations[-1].dst)
    pairs = [result, (first, theirs[0]), (second, theirs[1])]
    found = set()
    for chosen in itertools.permutations(range(len(form.axes)), len(own.axes)):
        if all(_fits(mine, other, chosen, strided if mine.buffer == "a" else ()) for mine, other in pairs):
            found.add(tuple(form.axes[x] for x in chosen))
    return found


def _fits(mine, other, chosen, strided):
    """Whether some rows, restricted to the chosen columns, are the instruction's, and the others are zero."""
    part = [tuple(row[x] for x in chosen) for row in other.rows]
    for rows in itertools.permutations(range(len(part)), len(mine.rows)):
        left = [part[r] for r in range(len(part)) if r not in rows]
        if any(any(row) for row in left):
            continue
        wanted = [
            tuple(part[r][n] if n in strided and c and part[r][n] > 0 else c for n, c in enumerate(row))
            for r, row in zip(rows, mine.rows, strict=True)
        ]
        if wanted == [part[r] for r in rows]:
            return True
    return False


@pytest.mark.parametrize("case", [c for c in CASES if c != "separable"])
def test_equal_to_enumeration(case):
    program, _, places = CASES[case]
    needle = Needle.of(matmul(**places))
    form = three_operand_form(reduction(program))
    strided = (0,) if places else ()
    for order, exchanged in (((0, 1), False), ((1, 0), True)):
        found = {
            tuple(b.program[0] for b in m.axes)
            for m in find_mappings(program, matmul(**places)).mappings
            if m.exchanged == exchanged
        }
        assert found == enumerated(needle, form, order, strided)


def test_the_third_operation_of_the_separable_convolution():
    """Listing 3 has one product too many, and the mapper says so."""
    program = separable()
    failures = find_mappings(program, matmul()).failures
    assert ("+=", "*=") in {(f.expected, f.found) for f in failures if f.place == "operation"}
    assert any("operation 2: operation: expected +=, found *=" in str(f) for f in failures)
