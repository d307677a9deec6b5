"""Set-up of the whole suite: the hypothesis profiles, and the switch that rewrites expected texts."""

import json
import os
import random
import shutil
import tempfile
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Verbosity, settings

import few
import fuzzer_counts
from machines import MACHINES, pretend
from refusals import Recorder
from remembered import Forgetting

# A failing example prints how to run it again, every run its seed. No profile depends on the machine's speed.
_COMMON = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=50, **_COMMON)
settings.register_profile("ci", max_examples=50, database=None, **_COMMON)
settings.register_profile("deep", max_examples=200, database=None, **_COMMON)
settings.register_profile("debug", max_examples=20, verbosity=Verbosity.verbose, **_COMMON)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
settings.load_profile(PROFILE)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Choose the seed here, so that every run states the one it had; xdist hands it to its workers."""
    # No run depends on what an earlier one left in the user's cache, nor adds to it.
    if "TILEWRIGHT_CACHE_DIR" not in os.environ:
        folder = tempfile.mkdtemp(prefix="tilewright-tests-")
        os.environ["TILEWRIGHT_CACHE_DIR"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    if config.getoption("--machine"):
        folder = tempfile.mkdtemp(prefix="tilewright-machine-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        pretend(config.getoption("--machine"), Path(folder))
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(random.SystemRandom().getrandbits(32))
    config.pluginmanager.register(fuzzer_counts, "fuzzer counts")
    config.pluginmanager.register(few, "few")
    if config.getoption("--refusals"):
        recorder = Recorder()
        recorder.watch()
        config.pluginmanager.register(recorder, "refusals")


def pytest_report_header(config):
    """Name the profile and the seed that reproduce this run."""
    return f"hypothesis profile {PROFILE}; --hypothesis-seed={config.option.hypothesis_seed}"


def pytest_addoption(parser):
    """Add `--update-golden`, `--all`, `--machine` and `--refusals`."""
    parser.addoption(
        "--all", action="store_true", help="the whole replay corpus (tests/replay), not a sample of it"
    )
    parser.addoption(
        "--machine",
        choices=sorted(MACHINES),
        help="another machine than this one, as far as this one can run its code: tests do not depend on it",
    )
    parser.addoption(
        "--refusals",
        action="store_true",
        help="after the tests, list every refusal in the sources that no test met, and fail if there is one",
    )
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the texts that golden tests expect, instead of comparing",
    )


@pytest.fixture
def monkeypatch():
    """What it changes is seen, whatever was compiled before."""
    patch = Forgetting()
    yield patch
    patch.undo()


@pytest.fixture
def update_golden(request):
    """Whether a golden test should write what it expects."""
    return request.config.getoption("--update-golden")


@pytest.fixture
def same_text(request, update_golden):
    """Compare a refusal's words, hint and marked lines with ``golden/MODULE.json`` beside the test.

    So no hint and no mark is lost, and a change of what users read is seen when it is reviewed.
    """
    path = request.path.parent / "golden" / f"{request.path.stem}.json"
    number = count(1)

    def compare(error):
        key = f"{request.node.name} {next(number)}"
        rows = error.program.splitlines()
        found = [error.what, error.hint, *(rows[n].strip() for n in error.marked)]
        known = json.loads(path.read_text()) if path.exists() else {}
        if update_golden:
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps({**known, key: found}, indent=1, sort_keys=True) + "\n")
        else:
            assert found == known.get(key), "pytest --update-golden where this is meant"

    return compare
