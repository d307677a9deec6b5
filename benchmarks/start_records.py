"""Records for searches to begin with: what tuning the reference models found on this machine.

    python benchmarks/start_records.py --budget 3m --records found.db -o src/tilewright/tune/start/CLASS.jsonl

Each model is tuned into the database (`--models ""`: what is in it already is written). Of each task the
plans are kept that took less than the default plan's first time, the fastest two: they need not have been
decided, since who begins with them measures them. One line a model, then what was written.
"""

import json
from pathlib import Path

from arguments import add_models, names, parser_of

from tilewright.driver import tune_model
from tilewright.frontend import zoo
from tilewright.plan import UnitPlan
from tilewright.tune import MEMORY, Database, Record, exported, imported

#: Plans that are kept of a task, and the part of the default's time that one must save.
KEPT = 2
LEAST = 0.01


def main() -> None:
    """Tune, and write."""
    parser = parser_of(__doc__)
    add_models(parser, zoo.FULL)
    parser.add_argument("--budget", default="3m", help="of each model")
    parser.add_argument("--records", required=True, help="the database that is tuned into")
    parser.add_argument("-o", "--output", required=True, help="the lines that are written")
    arguments = parser.parse_args()
    for name in names(arguments.models):
        tuned = tune_model(zoo.FULL[name](), budget=arguments.budget, database=arguments.records)
        trials = sum(done.trials for done in tuned.results)
        print(json.dumps({"model": name, "tasks": len(tuned.results), "trials": trials}), flush=True)
    lines = kept(Path(arguments.records))
    Path(arguments.output).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(json.dumps({"lines": len(lines), "bytes": sum(map(len, lines))}))


def kept(path: Path) -> list[str]:
    """The lines that are worth a start: tasks with plans that took less than the default's."""
    with Database(path, read_only=True) as found, Database(MEMORY) as made:
        everything = [line for line in exported(found) if '"table": "trials"' not in line[:20]]
        imported(made, (line for line in everything if '"table": "records"' not in line[:21]))
        for key, _ in found.tasks():
            trials = [
                t for t in found.history(key) if t.status == "ok" and isinstance(t.candidate.plan, UnitPlan)
            ]
            untuned = min((t.best for t in trials if t.candidate.origin == "default"), default=0.0)
            fast = sorted((t for t in trials if t.best < untuned * (1 - LEAST)), key=lambda t: t.best)[:KEPT]
            made.keep(
                key,
                [Record(key, t.candidate.plan, t.func, t.best, untuned) for t in fast],
                finished=False,
            )
        worth = {row[0] for row in made.rows("records")}
        return [
            line
            for line in exported(made)
            if (data := json.loads(line)).get("table") in (None, "records") or data.get("key") in worth
        ]


if __name__ == "__main__":
    main()
