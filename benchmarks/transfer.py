"""What records of other operators are worth: half the trials with them, beside all of the trials without.

    python benchmarks/transfer.py --kinds GMM,C2D --trials 48 --json > results.jsonl

Configurations are those of `alt_operators.py`. Each is tuned alone, then for half the trials with the records
of all others of its kind in the database; what both found is compared in one process, in turns. One line a
configuration: gains over the default plan, and what part of the gain in speed the warm search reaches.
"""

import json
import time
from dataclasses import replace

from alt_common import gains, single_task
from alt_operators import configurations
from arguments import names, parser_of
from sidebyside import geomean

from tilewright.driver import LocalMeasurer
from tilewright.tune import AUTO, MEMORY, Budget, Database, exported, imported, tune_task


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--kinds", default="GMM", help="by commas, of alt_operators.py")
    parser.add_argument("--count", type=int, default=9, help="configurations of each")
    parser.add_argument("--trials", type=int, default=48, help="of a cold search")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    parts: list[float] = []
    with LocalMeasurer() as measurer:
        for kind in names(arguments.kinds):
            operators = [(n, o) for n, o in configurations() if n.startswith(f"{kind}:")][: arguments.count]
            tasks = {n: single_task(o.make(o.name).model, arguments.threads) for n, o in operators}
            lines: dict[str, list[str]] = {}
            cold = {}
            for name, task in tasks.items():
                with Database(MEMORY) as records:
                    limit = Budget(arguments.trials, time.monotonic() + 60)
                    cold[name] = tune_task(task, name, AUTO, measurer, records, limit)
                    lines[name] = list(exported(records))
            for name, task in tasks.items():
                with Database(MEMORY) as records:
                    for other in lines:
                        if other != name:
                            imported(records, lines[other])
                    limit = Budget(arguments.trials // 2, time.monotonic() + 60)
                    warm = tune_task(task, name, AUTO, measurer, records, limit)
                found = gains(task, {"cold": cold[name], "warm": replace(warm, label="warm")}, measurer)
                row = {"configuration": name, "cold": found.get("cold"), "warm": found.get("warm")}
                if len(found) == 2:
                    parts.append(found["warm"] / found["cold"])
                    row["warm over cold"] = parts[-1]
                print(json.dumps(row) if arguments.json else row, flush=True)
    summary = {"geomean warm over cold": geomean(parts), "at least 0.95": sum(p >= 0.95 for p in parts)}
    print(json.dumps(summary | {"configurations": len(parts)}) if arguments.json else summary)


if __name__ == "__main__":
    main()
