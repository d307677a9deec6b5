"""Operators of onnxruntime's own domain: our results beside its, for every case of `tests/contrib_cases.py`.

    python benchmarks/contrib.py --json
    python benchmarks/contrib.py --only attention

One line a case: the largest difference, compiled against onnxruntime, relative to the largest result (for
integers: in steps). Cases that onnxruntime does not run say why; so do those where it is known to differ.
"""

import json
import sys
from pathlib import Path

import numpy as np
from arguments import parser_of

import tilewright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from contrib_cases import CASES, Contrib

#: Cases where onnxruntime's results are no reference, and why.
NO_REFERENCE = {
    "dynamic LSTM, 1": "onnxruntime rounds inputs and states to bytes, which is how it computes, not what",
    "dynamic LSTM, 2": "onnxruntime rounds inputs and states to bytes, which is how it computes, not what",
    "groups, different lengths": "without present outputs onnxruntime 1.32 reads a cache it never wrote",
}


def difference(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, relative for numbers with a point."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return float("inf")
    largest = max(1.0, float(np.abs(wanted).max())) if wanted.dtype.kind == "f" else 1.0
    return float(np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max()) / largest


def compared(case: Contrib) -> dict[str, object]:
    """What a line says of a case."""
    import onnxruntime  # noqa: PLC0415  # optional: the cases can be listed without it

    model = case.model()
    onnxruntime.set_default_logger_severity(4)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        theirs = session.run(None, case.feeds)
    except Exception as error:  # noqa: BLE001  # onnxruntime's errors have no common base but this
        return {"skipped": str(error).splitlines()[0][:200]}
    ours = tilewright.compile(model, threads=1).run(None, case.feeds)
    return {"difference": max(difference(a, b) for a, b in zip(ours, theirs, strict=True))}


def main() -> None:
    """Run the cases that the options name."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for name, case in CASES.items():
        if options.only not in name:
            continue
        line = {"case": name, "op": case.op, **compared(case)}
        if name in NO_REFERENCE:
            line["no reference"] = NO_REFERENCE[name]
        print(json.dumps(line) if options.json else line)


if __name__ == "__main__":
    main()
