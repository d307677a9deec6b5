"""Damaged models: none may crash the compiler, hang it, or run to another result than everywhere else.

    python benchmarks/malformed.py --count 2000 --json > malformed.jsonl
    python benchmarks/malformed.py --first 137 --count 1

Each model is refused by an error of ours, or computes what onnxruntime computes (where that runs it). The
cases are those of `tests/model_damage.py`, of which CI tries the first few. A process of its own works on
them, so that a crash is a finding too; one that takes longer than `--seconds` is ended.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

from arguments import parser_of

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from model_judge import judge


def _work(connection: Connection) -> None:
    while True:
        connection.send(judge(connection.recv(), native=True))


def main() -> int:
    """Judge the models; 1 where there is a finding."""
    parser = parser_of(__doc__)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--count", type=int, default=2000, help="how many")
    parser.add_argument("--seconds", type=float, default=20.0, help="for one model")
    parser.add_argument("--json", action="store_true", help="one JSON line a model")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    process: multiprocessing.Process | None = None
    ours: Connection | None = None
    for seed in range(arguments.first, arguments.first + arguments.count):
        if process is None or ours is None:
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.get_context("fork").Process(target=_work, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
        ours.send(seed)
        try:
            if not ours.poll(arguments.seconds):
                raise TimeoutError
            status, message = ours.recv()
        except (TimeoutError, EOFError, ConnectionError) as error:
            status = "hang" if isinstance(error, TimeoutError) else "crash"
            process.kill()
            process.join()
            message, process = f"exit status {process.exitcode}", None
        counts[status] += 1
        if arguments.json:
            print(json.dumps({"seed": seed, "status": status, "message": message}), flush=True)
        elif status not in ("ok", "refused"):
            print(f"{status:8} {seed}: {message}", flush=True)
    print(f"{sum(counts.values())} models: {dict(counts)}", file=sys.stderr)
    return int(set(counts) - {"ok", "refused"} != set())


if __name__ == "__main__":
    sys.exit(main())
