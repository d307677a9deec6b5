"""What this machine can do at most: multiply-adds in registers, and reading, by the size of what is read.

    python benchmarks/limits.py [--threads 2]

Prints one JSON line. The benchmarks of operators measure these limits in the same run, the reading of as many
bytes as an operator has in turns with the engines, and state its time as a fraction of its limit: the larger
of FLOPs over the peak and the time to read the bytes.
"""

import argparse
import json

from tilewright.driver import measure_limits
from tilewright.support import available_cpus
from tilewright.target import detect


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=available_cpus())
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds for each figure")
    arguments = parser.parse_args()
    target = detect()
    found = measure_limits(target, arguments.threads, arguments.seconds)
    rates = {str(size): round(rate, 1) for size, rate in found.read.items()}
    line = {"benchmark": "limits", "cpu": target.llvm_cpu, "threads": found.threads}
    print(json.dumps({**line, "gflops": round(found.gflops, 1), "read_gb_s": rates}))


if __name__ == "__main__":
    main()
