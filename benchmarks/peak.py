"""What one core can do: multiply-adds of full vectors, as many as start, all operands in registers.

    python benchmarks/peak.py [--seconds 0.5]

Prints one JSON line of the highest rates seen: ``gflops`` of f32 (other benchmarks divide by it), and by the
name of each dot-product instruction of the machine two operations for each of its products, in GOP/s.
"""

import argparse
import json

from tilewright.driver import dot_gops, peak_gflops
from tilewright.target import detect


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.5)
    arguments = parser.parse_args()
    target = detect()
    rates = {"gflops": peak_gflops(target, arguments.seconds)}
    for instruction in target.instructions:
        rates[instruction.name] = dot_gops(instruction.name, target, arguments.seconds)
    found = {name: round(rate, 1) for name, rate in rates.items()}
    print(json.dumps({"benchmark": "peak", "cpu": target.llvm_cpu, **found}))


if __name__ == "__main__":
    main()
