"""Contents of pages, with names that are hostile."""

from tilewright.report import Content, Kernel, Points, Price
from tilewright.tune import Link, Network, Step

BAD = "<script>alert('x')</script>&\"</title>"


def kernels():
    points = Points((3e-3, None, 2e-3, 2.5e-3, 1e-3), (0, 3, 0, 0, 0), (0, 1, 1, 1, 1), ("default", "random"))
    return (
        Kernel(
            BAD, "a", ("a", BAD), "Conv+Relu", 2, 1e9, 1e6, 3e-3, 1e-3, 5e-4, algorithm="direct",
            plan="rows=4\nsame",
            default_plan="rows=2\nsame", schedule="s = s.split('i', 4)", loops="for i", points=points,
            reasons=(("crashed", "signal 11"),),
            prices=(Price(BAD, "", 2e-3, (("issue", 1.5e-3), (BAD, 1e-3))), Price("n", "rows 4 -> 2", 3e-3)),
        ),
        Kernel("pool", "p", ("p",), "MaxPool", 1, 1e6, 1e6, 8e-3, None, 1e-3),
        Kernel("never measured"),
    )  # fmt: skip


def network():
    return Network(
        BAD,
        (
            Step("a", BAD, "Conv+Relu", ("a", BAD), 2, "direct", (BAD, "b"), ("plain",), ("NCHW16c",)),
            Step("p", "pool", "MaxPool", ("p",), reads=("NCHW16c",), writes=("NCHW16c",)),
            Step("", "outside", "Loop", ("l",)),
        ),
        (Link(0, 1, BAD, "NCHW16c"), Link(1, 2, "v", "plain")),
        BAD,
        15e-3,
        11e-3,
    )


def content():
    return Content(
        f"Model {BAD}", "tuning", "today", (("Machine", BAD),), kernels(), (network(),),
        peak=1e12, bandwidth=1e10, untuned=14e-3, best=1e-2,
    )  # fmt: skip
