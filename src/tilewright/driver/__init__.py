"""The drivers: from models and schedules to things that run."""

from tilewright.driver.bench import (
    ENGINES as ENGINES,
    OURS as OURS,
    Bench as Bench,
    BenchPlan as BenchPlan,
    BenchResult as BenchResult,
    run_benchmark as run_benchmark,
)
from tilewright.driver.calibrate import line_seconds as line_seconds, measure_quantities as measure_quantities
from tilewright.driver.cluster import ClusterMeasurer as ClusterMeasurer
from tilewright.driver.compile import compile_model as compile_model
from tilewright.driver.dynamic import DynamicModel as DynamicModel
from tilewright.driver.emit import (
    FORMS as FORMS,
    EmittedUnit as EmittedUnit,
    Form as Form,
    emit_model as emit_model,
)
from tilewright.driver.engines import optional_module as optional_module
from tilewright.driver.explained import GroupInfo as GroupInfo
from tilewright.driver.graph_plan import graph_units as graph_units
from tilewright.driver.layout_tuning import (
    independent_layouts as independent_layouts,
    maker_of as maker_of,
    tune_layouts as tune_layouts,
    with_tuned_layouts as with_tuned_layouts,
)
from tilewright.driver.limits import (
    Limits as Limits,
    copying as copying,
    measure_limits as measure_limits,
    reading as reading,
)
from tilewright.driver.load import OtherLoad as OtherLoad
from tilewright.driver.measuring import LocalMeasurer as LocalMeasurer
from tilewright.driver.model import CompiledModel as CompiledModel
from tilewright.driver.nest_times import nest_times as nest_times
from tilewright.driver.nests import (
    AS_WRITTEN as AS_WRITTEN,
    Nest as Nest,
    compile_nest as compile_nest,
    names_c as names_c,
    scop as scop,
)
from tilewright.driver.network import network_of as network_of, tasks_of as tasks_of
from tilewright.driver.peak import dot_gops as dot_gops, peak_gflops as peak_gflops, peak_meter as peak_meter
from tilewright.driver.plan_diff import plan_differences as plan_differences
from tilewright.driver.plans import ModelPlan as ModelPlan, model_plan_from_json as model_plan_from_json
from tilewright.driver.profile import KernelProfile as KernelProfile, Profile as Profile
from tilewright.driver.programs import CompiledProgram as CompiledProgram
from tilewright.driver.progress import Progress as Progress
from tilewright.driver.ray_pool import cluster_measurer as cluster_measurer
from tilewright.driver.retiming import (
    Comparison as Comparison,
    compared as compared,
    timed_in_turns as timed_in_turns,
)
from tilewright.driver.samples import model_samples as model_samples
from tilewright.driver.tiles import tiled_source as tiled_source
from tilewright.driver.tuning import (
    Tuned as Tuned,
    find_tuner as find_tuner,
    seconds_of as seconds_of,
    tune_model as tune_model,
)
from tilewright.driver.units import PRECISIONS as PRECISIONS, Precision as Precision
from tilewright.driver.verify import (
    REFERENCES as REFERENCES,
    Reference as Reference,
    TensorCheck as TensorCheck,
    Verification as Verification,
    verify_model as verify_model,
    verify_program as verify_program,
)
from tilewright.runtime import TensorInfo as TensorInfo
