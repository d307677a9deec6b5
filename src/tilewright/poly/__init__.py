"""Iteration spaces, dependences, legality and schedule trees: a thin typed wrapper over isl.

Every function that asks isl has limits of isl's time, and raises ResourceError behind them; several questions
together have one where they are asked within :func:`bounded`.

The names below are loaded on first use, so that importing the package loads neither numpy nor islpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tilewright.poly.ast_import import import_tree as import_tree
    from tilewright.poly.black_box import data_decides as data_decides, is_black_box as is_black_box
    from tilewright.poly.budget import bounded as bounded
    from tilewright.poly.dependences import (
        Dependence as Dependence,
        Dependences as Dependences,
        all_dependences as all_dependences,
    )
    from tilewright.poly.entry import contents_that_count as contents_that_count
    from tilewright.poly.extents import outermost_extents as outermost_extents
    from tilewright.poly.extract import (
        Model as Model,
        PolyAccess as PolyAccess,
        PolyBarrier as PolyBarrier,
        PolyStatement as PolyStatement,
        extract_model as extract_model,
    )
    from tilewright.poly.footprints import tile_instances as tile_instances
    from tilewright.poly.fusion import (
        Group as Group,
        compose as compose,
        construct as construct,
        fuse as fuse,
    )
    from tilewright.poly.groups import (
        Fusion as Fusion,
        Space as Space,
        conservative_fusion as conservative_fusion,
        isl_fusion as isl_fusion,
        isl_schedule as isl_schedule,
        spaces_as_written as spaces_as_written,
    )
    from tilewright.poly.in_results import scalars_in_results as scalars_in_results
    from tilewright.poly.independent import (
        LoopFacts as LoopFacts,
        loop_facts as loop_facts,
        meet_apart as meet_apart,
    )
    from tilewright.poly.kinds import infer_kinds as infer_kinds
    from tilewright.poly.kinds_judge import check_kinds as check_kinds
    from tilewright.poly.legality import (
        Listing as Listing,
        check_legal as check_legal,
        list_function as list_function,
    )
    from tilewright.poly.lifting import Lifted as Lifted, lift as lift
    from tilewright.poly.one_tile import (
        OneTile as OneTile,
        TileByTile as TileByTile,
        tile_by_tile as tile_by_tile,
    )
    from tilewright.poly.privatise import allocations_inside as allocations_inside
    from tilewright.poly.symbolic import check_bounds as check_bounds
    from tilewright.poly.symbolic_races import (
        Partings as Partings,
        SymbolicRace as SymbolicRace,
        outside_of_threads as outside_of_threads,
        settles_at_barriers as settles_at_barriers,
        thread_conflicts as thread_conflicts,
    )
    from tilewright.poly.tiling import Tiled as Tiled, tiled as tiled
    from tilewright.poly.tree import (
        TiledTree as TiledTree,
        band_facts as band_facts,
        tile_and_fuse as tile_and_fuse,
        tree_of as tree_of,
    )
    from tilewright.poly.tree_text import follow_tree as follow_tree, tree_lines as tree_lines
    from tilewright.poly.violations import Violation as Violation

# Public name -> the module that defines it.
_EXPORTS: Final = {
    "bounded": "budget",
    "Dependence": "dependences",
    "Dependences": "dependences",
    "Model": "extract",
    "Tiled": "tiling",
    "tile_instances": "footprints",
    "tiled": "tiling",
    "TiledTree": "tree",
    "band_facts": "tree",
    "contents_that_count": "entry",
    "outermost_extents": "extents",
    "Group": "fusion",
    "compose": "fusion",
    "construct": "fusion",
    "fuse": "fusion",
    "Fusion": "groups",
    "Space": "groups",
    "conservative_fusion": "groups",
    "isl_fusion": "groups",
    "isl_schedule": "groups",
    "spaces_as_written": "groups",
    "follow_tree": "tree_text",
    "tree_lines": "tree_text",
    "import_tree": "ast_import",
    "tile_and_fuse": "tree",
    "tree_of": "tree",
    "PolyAccess": "extract",
    "PolyBarrier": "extract",
    "PolyStatement": "extract",
    "all_dependences": "dependences",
    "allocations_inside": "privatise",
    "scalars_in_results": "in_results",
    "extract_model": "extract",
    "Lifted": "lifting",
    "lift": "lifting",
    "OneTile": "one_tile",
    "TileByTile": "one_tile",
    "tile_by_tile": "one_tile",
    "Listing": "legality",
    "SymbolicRace": "symbolic_races",
    "outside_of_threads": "symbolic_races",
    "Partings": "symbolic_races",
    "settles_at_barriers": "symbolic_races",
    "thread_conflicts": "symbolic_races",
    "Violation": "violations",
    "check_bounds": "symbolic",
    "check_kinds": "kinds_judge",
    "check_legal": "legality",
    "LoopFacts": "independent",
    "loop_facts": "independent",
    "meet_apart": "independent",
    "infer_kinds": "kinds",
    "data_decides": "black_box",
    "is_black_box": "black_box",
    "list_function": "legality",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it (PEP 562)."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"tilewright.poly.{_EXPORTS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *_EXPORTS})
