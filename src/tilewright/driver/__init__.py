"""The drivers: from models and schedules to things that run."""

from tilewright.driver.kernel import Kernel, build

__all__ = ["Kernel", "build"]
