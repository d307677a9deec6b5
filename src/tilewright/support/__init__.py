"""What every package needs: errors, settings, the one error bound, hashing, logging, text helpers."""

from tilewright.support.catalog import Catalog as Catalog
from tilewright.support.errors import (
    ArtefactError as ArtefactError,
    InputError as InputError,
    InstallationError as InstallationError,
    InternalError as InternalError,
    Location as Location,
    ModelError as ModelError,
    NodeLocation as NodeLocation,
    ParseError as ParseError,
    ProgramError as ProgramError,
    ResourceError as ResourceError,
    ScheduleError as ScheduleError,
    SettingsError as SettingsError,
    SourceLocation as SourceLocation,
    StoppedError as StoppedError,
    TargetError as TargetError,
    TilewrightError as TilewrightError,
    UnsupportedOperatorError as UnsupportedOperatorError,
    UserError as UserError,
    VerificationError as VerificationError,
)
from tilewright.support.files import replaceable as replaceable, replacing as replacing
from tilewright.support.hashing import (
    canonical_bytes as canonical_bytes,
    digest as digest,
    digest_text as digest_text,
)
from tilewright.support.log import configure_logging as configure_logging, get_logger as get_logger
from tilewright.support.numbers import whole_number as whole_number
from tilewright.support.numerics import (
    Comparison as Comparison,
    assert_close as assert_close,
    compare as compare,
    compare_norms as compare_norms,
    error_bound as error_bound,
    growth as growth,
    max_error_ratio as max_error_ratio,
    unit_roundoff as unit_roundoff,
)
from tilewright.support.permissions import allow_tiles as allow_tiles
from tilewright.support.pretty import (
    counted as counted,
    format_bytes as format_bytes,
    known_names as known_names,
    mark_lines as mark_lines,
    quoted as quoted,
    quoted_path as quoted_path,
    shortened as shortened,
    suggestion as suggestion,
)
from tilewright.support.settings import (
    Settings as Settings,
    WaitPolicy as WaitPolicy,
    available_cpus as available_cpus,
    cpu_quota as cpu_quota,
    read_settings as read_settings,
)
