"""Set-up of the whole suite: the hypothesis profiles."""

import os

from hypothesis import HealthCheck, Verbosity, settings

# A failing example prints how to run it again (print_blob); no profile depends on the machine's speed.
_COMMON = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=50, **_COMMON)
settings.register_profile("ci", max_examples=200, database=None, **_COMMON)
settings.register_profile("debug", max_examples=20, verbosity=Verbosity.verbose, **_COMMON)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
settings.load_profile(PROFILE)


def pytest_report_header(config):
    """Name the profile and the seed that reproduce this run."""
    seed = config.getoption("hypothesis_seed", None)
    return f"hypothesis profile {PROFILE}; seed {'random, printed with a failure' if seed is None else seed}"
