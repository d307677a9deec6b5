"""SCALE-Sim's cycles of products on systolic arrays, to which the tests hold the timed simulator.

    python -m venv VENV && VENV/bin/pip install "numpy<2.3" scalesim==3.0.0
    python benchmarks/scale_sim.py VENV/bin/python > tests/unit/mapping/system/scale_sim.jsonl

One line a size and data flow (output- or weight-stationary): the array's cycles without fetching ahead.
"""

import csv
import json
import subprocess
import tempfile
from pathlib import Path

from arguments import parser_of

SIZES = ((128, 128, 128, 32, 32), (100, 70, 50, 16, 16), (64, 512, 300, 8, 32))
"""M, N, K of the product; rows and columns of the array."""
CONFIGURATION = """[general]
run_name = product
[architecture_presets]
ArrayHeight: {rows}
ArrayWidth: {columns}
IfmapSramSzkB: 8192
FilterSramSzkB: 8192
OfmapSramSzkB: 8192
IfmapOffset: 0
FilterOffset: 10000000
OfmapOffset: 20000000
Dataflow: {flow}
ReadRequestBuffer: 64
WriteRequestBuffer: 64
[layout]
IfmapCustomLayout: False
FilterCustomLayout: False
IfmapSRAMBankBandwidth: 10
IfmapSRAMBankNum: 10
IfmapSRAMBankPort: 2
FilterSRAMBankBandwidth: 10
FilterSRAMBankNum: 10
FilterSRAMBankPort: 2
[sparsity]
SparsitySupport: false
SparseRep: ellpack_block
OptimizedMapping: false
BlockSize: 8
RandomNumberGeneratorSeed: 40
[run_presets]
InterfaceBandwidth: CALC
UseRamulatorTrace: False
"""


def cycles(python: str, size: tuple[int, ...], flow: str) -> int:
    """What SCALE-Sim says. Raises CalledProcessError where it fails."""
    m, n, k, rows, columns = size
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        configuration = CONFIGURATION.format(rows=rows, columns=columns, flow=flow)
        (folder / "array.cfg").write_text(configuration)
        (folder / "product.csv").write_text(f"Layer, M, N, K,\nproduct, {m}, {n}, {k},\n")
        # a layout has to be given, and is not looked at where no memory has one of its own
        (folder / "layout.csv").write_text(f"Layer,{'x,' * 10}\nproduct,{'1,' * 22}\n")
        files = [
            "-c",
            "array.cfg",
            "-t",
            "product.csv",
            "-l",
            "layout.csv",
            "-p",
            ".",
            "-i",
            "gemm",
            "-s",
            "N",
        ]
        command = [python, "-m", "scalesim.scale", *files]
        subprocess.run(command, check=True, cwd=folder, capture_output=True)
        with (folder / "product" / "COMPUTE_REPORT.csv").open() as report:
            (row,) = csv.DictReader(report, skipinitialspace=True)
    return int(row["Total Cycles"])


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("python", type=lambda p: str(Path(p).absolute()), help="an interpreter with scalesim")
    python = parser.parse_args().python
    for size in SIZES:
        for flow in ("os", "ws"):
            named = dict(zip(("m", "n", "k", "rows", "columns"), size, strict=True))
            print(json.dumps({**named, "flow": flow, "cycles": cycles(python, size, flow)}), flush=True)


if __name__ == "__main__":
    main()
