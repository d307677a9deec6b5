"""Random programs under random schedules do what the programs do: the judge of every primitive.

One test for each primitive and tail policy: every example draws a program and a few steps, that primitive
among them, and after each accepted step the exact checker compares the loops with the program; at the end the
shuffling, poisoning, bounds-checking interpreter does so on data. Under the ``deep`` profile each test must
see its primitive accepted at least 50 times, and at least 60% of all proposed steps.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from property import tile_proposals
from property.ir_programs import cases
from property.proposals import PROPOSERS, TAILS, TILE_TAILS
from property.unfiltered import prepared
from tilewright.ir import run_function, run_program
from tilewright.poly import check_legal, list_function
from tilewright.schedule import PRIMITIVES, Schedule, replay
from tilewright.support import ScheduleError, assert_close
from tilewright.target import INTERPRETED

#: Steps after which other statements compute a value, which the checker cannot tell.
REWRITES = frozenset({"inline", "blockize", "tensorize"})
HITS = 50
#: Of what is proposed: each subject's part varies by 0.05 with the draws of a seed, the least is 0.59.
ACCEPTED = 0.5
CASES = 2000
EXAMPLES = {"deep": 110, "ci": 8, "dev": 8}
#: Subjects that need a lucky program get more.
MORE = {
    "tile-shift": 3,
    "split-shift": 2,
    "tile-roundup": 2,
    "split-roundup": 2,
    "slide": 2,
    "roll": 2,
    "layout_unfold": 2,
    "layout_fold": 2,
    "layout_adopt": 2,
    "split_phases": 2,
    "flatten_rows": 2,
    "tensorize-tiles": 2,
    "swizzle": 4,
    "shift_factor": 2,
}

#: Added to a case's roundings by a sum of products of pieces, which leaves out up to 2**-15 of each product.
OF_PIECES = 1000

#: Steps after which loops run threads.
THREADED = ("bind", "cooperative_copy", "virtual_threads")

REDUCTIONS = ("rowsum", "matmul", "conv", "triangle", "argmax")
ELEMENTWISE = ("pointwise", "clamped", "padded", "transpose")

#: The subject of each test: the step it proposes and what it fixes of its arguments.
SUBJECTS = {
    **{f"split-{tail}": ("split", {"tail": tail}) for tail in TAILS},
    **{f"tile-{tail}": ("tile", {"tail": tail}) for tail in TILE_TAILS},
    **{f"peel-{which}": ("peel", {"which": which}) for which in ("first", "last")},
    "annotate-nontemporal": ("annotate", {"key": "nontemporal"}),  # verified beyond its syntax
    "tensorize-tiles": ("tensorize", {"by": tile_proposals.product}),
    **{name: (name, {}) for name in PROPOSERS if name not in ("split", "tile", "peel")},
}
#: What gives a subject a chance: kinds of the first stages, numbers of stages, steps to try first.
START = {
    "split-roundup": (("clamped",),),
    "split-shift": (ELEMENTWISE,),
    "tile-roundup": (("clamped",),),
    "tile-shift": (ELEMENTWISE,),
    "decompose_init": (REDUCTIONS,),
    "inline": (ELEMENTWISE,),
    "blockize": (ELEMENTWISE,),
    "inline_stage": (ELEMENTWISE,),
    "clone_stage": (ELEMENTWISE, ("diamond",)),
    "rfactor": (REDUCTIONS[:-2],),
    "split_scan": (("prefix",),),
    "last_writes": (("replaced",),),
    "skip_padding": (("padconv",),),
    "pad_operand": (("padconv", "conv", "matmul"),),
    "split_phases": (("conv", "strided"),),
    "flatten_rows": (("padconv", "conv"),),
    "as_matrices": (("images", "quarters", "dots"),),
    "reverse_compute_at": (ELEMENTWISE, ("pointwise", "padded")),
    **dict.fromkeys(("slide", "roll"), (ELEMENTWISE, ("window", "rows"))),
    **dict.fromkeys(("tensorize", "tensorize-tiles"), (("dots",),)),
    "winograd": (("images",),),
    "strassen": (("quarters",),),
    "bf16x3": (("quarters", "images"),),
    "factor_out": (("factors",),),
    "split_terms": (("sums",),),
    "split_window": (("box",),),
    **dict.fromkeys(("store_at", "decouple_at"), (("biased",),)),
    "shift_factor": (("bytes",),),
}
TEMPORARIES = (
    "split-roundup",
    "tile-roundup",
    "set_scope",
    "set_layout",
    "inline",
    "inline_stage",
    "clone_stage",
    "hoist_alloc",
    "slide",
    "roll",
    "pad_stride",
    "swizzle",
)
STAGES = {
    name: (2, 4)
    for name in SUBJECTS
    if name in TEMPORARIES or "compute_at" in name or name.startswith("layout")
}
_SLIDING = ("compute_at", {"sliding": True})
BEFORE = {
    "tile-shift": (),
    "pad_operand": (("skip_padding", {}),),
    "flatten_rows": (("skip_padding", {}), ("pad_operand", {"lines": True})),
    "split_phases": (("pad_operand", {"lines": True, "steps": True}),),
    "hoist_alloc": (("compute_at", {}),),
    "layout_fold": (("layout_unfold", {}),),
    "decouple_at": (("store_at", {}),),
    "layout_unpad": (("layout_pad", {}),),
    "layout_adopt": (("layout_place", {}),),
    "pipeline": (("split", {}), ("cache", {})),
    "slide": (_SLIDING,),
    "roll": (_SLIDING, ("slide", {})),
    "tensorize": (("split", {"groups": True}), ("decompose_init", {"products": True})),
    "tensorize-tiles": tile_proposals.BEFORE,
}


def test_every_primitive_has_a_proposer():
    assert set(PROPOSERS) == set(PRIMITIVES)


def test_every_primitive_and_tail_policy_is_a_subject():
    wanted = {
        *(f"split-{tail}" for tail in TAILS),
        *[
            "reorder",
            "fuse",
            "partition",
            "peel-first",
            "peel-last",
            "parallel",
            "vectorize",
            "unroll",
            "compute_at",
        ],
        *[
            "reverse_compute_at",
            "inline",
            "cache",
            "hoist_alloc",
            "roll",
            "decompose_init",
            "set_scope",
            "bind",
            "blockize",
            "tensorize-tiles",
        ],
        *["annotate", "annotate-nontemporal", "layout_split", "layout_reorder", "layout_fuse", "layout_pad"],
        *(f"tile-{tail}" for tail in TILE_TAILS),
    }
    assert wanted <= set(SUBJECTS)


def test_the_deep_profile_has_enough_cases():
    assert sum(EXAMPLES["deep"] * MORE.get(subject, 1) for subject in SUBJECTS) >= CASES


class Run:
    """One example: a case, the schedule as it stands, and what it is compared with."""

    def __init__(self, data, case, counts):
        self.data, self.case, self.counts = data, case, counts
        self.opaque, self.terms = False, case.terms
        self.schedule = Schedule(case.program, verify=True)
        self.reference = list_function(self.schedule.func, case.params)

    def attempt(self, name, by=None, **fixed):
        """Propose one step (``by`` another proposer), and check it where it is accepted; whether it was."""
        if self.opaque and name in THREADED:
            # barriers are placed by accesses, which opaque blocks over tiles do not tell yet
            return False
        proposal = (by or PROPOSERS[name])(self.data.draw, self.schedule, **fixed)
        if proposal is None:
            return False
        args, kwargs = proposal
        self.counts["proposed"] += 1
        try:
            self.schedule = self.schedule.apply(name, *args, **kwargs)
        except ScheduleError:
            self.counts["refused " + name] += 1
            return False
        # the instances of an opaque block are not those of the blocks in it: the interpreter judges alone
        self.opaque = self.opaque or name in ("blockize", "tensorize")
        self.counts["accepted"] += 1
        self.counts["accepted " + name] += 1
        if name == "bf16x3":
            self.terms += OF_PIECES
        if PRIMITIVES[name].phase == "program" or name in REWRITES:
            self.compare()  # the same values by other statements: the checker starts anew
            self.reference = list_function(self.schedule.func, self.case.params)
        elif not self.opaque:
            found = check_legal(self.reference, prepared(self.schedule.func), self.case.params)
            assert not found, f"{self.schedule.trace}{self.schedule}\n" + "\n".join(map(str, found))
        return True

    def compare(self):
        """Run program and loops on the same data."""
        case, func = self.case, prepared(self.schedule.func)
        arrays = case.inputs()
        expected = run_program(case.program, arrays, case.params)
        order = self.data.draw(st.integers(0, 9), label="order")
        given = case.stored(arrays, self.schedule)
        actual = run_function(func, given, case.params, seed=order, instructions=INTERPRETED)
        for name, want in expected.items():
            if case.exact or want.dtype.kind in "iu":
                np.testing.assert_array_equal(actual[name], want)
            else:
                assert_close(actual[name].astype(want.dtype), want, terms=self.terms)


@pytest.mark.timeout(1200)  # 10 to 30 s on a quiet machine
@pytest.mark.parametrize("subject", sorted(SUBJECTS))
def test_random_schedules(subject, record_property):
    name, fixed = SUBJECTS[subject]
    counts = Counter()
    profile = settings.get_current_profile_name()
    loops = sorted(n for n in PROPOSERS if PRIMITIVES[n].phase == "loop")
    programs = sorted(n for n in PROPOSERS if PRIMITIVES[n].phase == "program")

    examples = EXAMPLES.get(profile, 20) * MORE.get(subject, 1)

    @settings(max_examples=examples)
    @given(data=st.data())
    def run(data):
        case = cases(start=START.get(subject, ()), stages=STAGES.get(subject, (1, 4)))
        run = Run(data, data.draw(case, label="case"), counts)
        counts["cases"] += 1

        def others(names, most):
            for _ in range(data.draw(st.integers(0, most), label="steps")):
                run.attempt(data.draw(st.sampled_from(names), label="primitive"))

        others(programs, 1)
        if name in loops:
            others(loops, 0 if subject in BEFORE else 4)
        for other, how in BEFORE.get(subject, ()):
            run.attempt(other, **how)
        for _ in range(3):
            if run.attempt(name, **fixed):
                counts["hits"] += 1
                break
        others(loops, 3)
        run.compare()
        assert replay(run.case.program, run.schedule.trace.to_json()).func == run.schedule.func

    run()
    record_property("fuzz", {"subject": subject, **counts})  # summed up by fuzzer_counts.py
    if profile == "deep":
        assert counts["cases"] >= examples
        assert counts["hits"] >= HITS
        assert counts["accepted"] >= ACCEPTED * counts["proposed"]
