"""The drivers: from models and schedules to things that run."""

from tilewright.driver.bench import ENGINES, OURS, Bench, BenchPlan, BenchResult, EngineResult, run_benchmark
from tilewright.driver.calibrate import line_seconds, measure_quantities
from tilewright.driver.cluster import ClusterMeasurer
from tilewright.driver.compile import compile_model
from tilewright.driver.dynamic import DynamicModel
from tilewright.driver.emit import FORMS, EmittedUnit, Form, emit_model
from tilewright.driver.engines import optional_module
from tilewright.driver.explained import GroupInfo
from tilewright.driver.graph_plan import graph_units
from tilewright.driver.layout_tuning import (
    LayoutTuning,
    independent_layouts,
    maker_of,
    tune_layouts,
    with_tuned_layouts,
)
from tilewright.driver.limits import Limits, copying, measure_limits, read_rate, reading
from tilewright.driver.load import OtherLoad
from tilewright.driver.measuring import LocalMeasurer
from tilewright.driver.model import CompiledModel
from tilewright.driver.nest_times import nest_times
from tilewright.driver.nest_tuning import TunedNest, tune_nest
from tilewright.driver.nests import NEST_STRATEGIES, Nest, compile_nest, names_c, scop
from tilewright.driver.network import network_of, tasks_of
from tilewright.driver.peak import dot_gops, peak_gflops, peak_meter
from tilewright.driver.plan_diff import Difference, plan_differences
from tilewright.driver.plans import ModelPlan, model_plan_from_json
from tilewright.driver.profile import KernelProfile, Profile
from tilewright.driver.programs import CompiledProgram
from tilewright.driver.progress import Progress, no_progress
from tilewright.driver.ray_pool import cluster_measurer
from tilewright.driver.retiming import Comparison, compared, timed_in_turns
from tilewright.driver.samples import model_samples
from tilewright.driver.tiles import tiled_source
from tilewright.driver.tuning import Tuned, find_tuner, seconds_of, tune_model
from tilewright.driver.units import PRECISIONS, Precision
from tilewright.driver.verify import (
    REFERENCES,
    Reference,
    TensorCheck,
    Verification,
    verify_model,
    verify_program,
)
from tilewright.runtime import TensorInfo

__all__ = [
    "Difference",
    "plan_differences",
    "tiled_source",
    "OtherLoad",
    "Bench",
    "ClusterMeasurer",
    "Comparison",
    "compared",
    "BenchPlan",
    "BenchResult",
    "CompiledModel",
    "CompiledProgram",
    "cluster_measurer",
    "DynamicModel",
    "ENGINES",
    "EmittedUnit",
    "FORMS",
    "Form",
    "EngineResult",
    "GroupInfo",
    "KernelProfile",
    "Limits",
    "LayoutTuning",
    "LocalMeasurer",
    "ModelPlan",
    "model_plan_from_json",
    "seconds_of",
    "find_tuner",
    "network_of",
    "tasks_of",
    "graph_units",
    "independent_layouts",
    "maker_of",
    "timed_in_turns",
    "tune_layouts",
    "with_tuned_layouts",
    "Tuned",
    "tune_model",
    "TunedNest",
    "tune_nest",
    "NEST_STRATEGIES",
    "Nest",
    "compile_nest",
    "names_c",
    "scop",
    "OURS",
    "PRECISIONS",
    "Precision",
    "Profile",
    "Progress",
    "REFERENCES",
    "Reference",
    "TensorCheck",
    "TensorInfo",
    "Verification",
    "compile_model",
    "dot_gops",
    "emit_model",
    "nest_times",
    "optional_module",
    "copying",
    "measure_limits",
    "line_seconds",
    "measure_quantities",
    "model_samples",
    "no_progress",
    "peak_gflops",
    "peak_meter",
    "read_rate",
    "reading",
    "run_benchmark",
    "verify_model",
    "verify_program",
]
