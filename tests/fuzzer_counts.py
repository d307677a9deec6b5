"""The schedule fuzzer's counts, summed over its tests and xdist's workers, at the end of the report."""

from collections import Counter


def pytest_terminal_summary(terminalreporter):
    """Print what was proposed and accepted, by primitive, and how often each subject was hit."""
    total, subjects = Counter(), {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, counts in getattr(report, "user_properties", ()):
                if name == "fuzz" and report.when == "call":
                    subjects[counts["subject"]] = counts
                    total.update({k: n for k, n in counts.items() if k != "subject"})
    if not subjects:
        return
    say = terminalreporter.write_line
    terminalreporter.section("schedule fuzzer")
    share = total["accepted"] / max(total["proposed"], 1)
    say(f"{total['cases']} cases, {total['proposed']} steps proposed, {share:.1%} accepted")
    say(f"{'subject':<20} {'hits':>6} {'cases':>6} {'accepted':>9}")
    for subject, counts in sorted(subjects.items()):
        part = counts.get("accepted", 0) / max(counts.get("proposed", 0), 1)
        say(f"{subject:<20} {counts.get('hits', 0):>6} {counts.get('cases', 0):>6} {part:>9.1%}")
    say(f"fewest hits: {min(counts.get('hits', 0) for counts in subjects.values())}")
    for what in ("accepted", "refused"):
        rows = {k.removeprefix(what + " "): n for k, n in total.items() if k.startswith(what + " ")}
        say(f"{what}: " + ", ".join(f"{name} {n}" for name, n in sorted(rows.items())))
