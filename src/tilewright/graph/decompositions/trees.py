"""Ensembles of decision trees taken apart: tables of all nodes, walks down them, and the sum of leaves.

    before                                   after
    Y = TreeEnsembleRegressor(X)             P = TreeStep(X, roots, tables)       [rows, trees], by level
                                             Y = ReduceSum(Gather(weights, P))    by target

Every comparison is made one of `x <= limit`: the others swap the children, or have the limit that comes just
before; an equality is two of them, membership a list of equalities.

Source: the ONNX standard (ai.onnx.ml: TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tilewright.graph.decompositions.scores import TRANSFORMS, classified, transformed
from tilewright.graph.model import Array
from tilewright.graph.parts import Parts, decomposition
from tilewright.graph.registry import ML, OWN

#: Comparisons, by the number that TreeEnsemble writes for them.
_MODES: Final = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, _MEMBER = range(len(_MODES))
_AGGREGATES: Final = ("AVERAGE", "SUM", "MIN", "MAX")
#: No tree is as deep as this: what is deeper goes round in circles.
_DEEPEST: Final = 4096
#: A leaf's mode.
_LEAF: Final = -1


@dataclass(slots=True)
class _Trees:
    """The nodes of all trees, and what their leaves add: for each entry a node, a target and a weight."""

    modes: Array
    features: Array
    limits: Array
    first: Array
    second: Array
    missing: Array
    roots: Array
    entry_nodes: Array
    entry_targets: Array
    entry_weights: Array


def _grown(trees: _Trees, count: int) -> slice:
    """Room for more nodes, which are leaves at first."""
    old = len(trees.modes)
    fills = {"modes": _LEAF, "features": 0, "limits": 0, "first": 0, "second": 0, "missing": False}
    for name, value in fills.items():
        held = getattr(trees, name)
        setattr(trees, name, np.concatenate((held, np.full(count, value, held.dtype))))
    return slice(old, old + count)


def _only_limits(trees: _Trees) -> None:
    """Let every comparison be one of `x <= limit`."""
    # what is no number compares with nothing
    trees.missing = trees.missing | (trees.modes == _NEQ)
    swapped = np.isin(trees.modes, (_GTE, _GT, _NEQ))
    trees.first, trees.second = (
        np.where(swapped, trees.second, trees.first),
        np.where(swapped, trees.first, trees.second),
    )
    trees.missing = trees.missing ^ swapped
    below = np.nextafter(trees.limits, np.array(-np.inf, trees.limits.dtype))
    # nothing is less than that: no number, with which nothing compares
    below = np.where(np.isneginf(trees.limits), np.array(np.nan, below.dtype), below)
    equal = np.flatnonzero(np.isin(trees.modes, (_EQ, _NEQ)))
    trees.limits = np.where(np.isin(trees.modes, (_LT, _GTE)), below, trees.limits)
    inner = _grown(trees, len(equal))
    # x <= limit, and not x < limit
    trees.modes[inner], trees.features[inner], trees.limits[inner] = _LEQ, trees.features[equal], below[equal]
    trees.first[inner], trees.second[inner] = trees.second[equal], trees.first[equal]
    trees.first[equal] = np.arange(inner.start, inner.stop)


def _without_members(trees: _Trees, members: Array) -> None:
    """Let membership of a set be a list of equalities: sets stand one after another, each ends with a NaN."""
    sets = np.split(members, np.flatnonzero(np.isnan(members)))
    for at, node in enumerate(np.flatnonzero(trees.modes == _MEMBER)):
        values = sets[at] if at < len(sets) else members[:0]
        values = values[~np.isnan(values)]
        rest = _grown(trees, max(len(values) - 1, 0))
        chain = [node, *range(rest.start, rest.stop)]
        yes, no, feature = trees.first[node], trees.second[node], trees.features[node]
        for place, value in zip(chain, values if len(values) else [np.nan], strict=True):
            trees.modes[place], trees.features[place], trees.limits[place] = _EQ, feature, value
            trees.missing[place] = trees.missing[node]
            trees.first[place], trees.second[place] = yes, no
        trees.second[chain[:-1]] = chain[1:]


def _depth(p: Parts, trees: _Trees) -> int:
    """The steps of the longest walk."""
    reached = np.unique(trees.roots)
    for depth in range(_DEEPEST):
        inner = reached[trees.modes[reached] != _LEAF]
        if not len(inner):
            return depth
        reached = np.unique(np.concatenate((trees.first[inner], trees.second[inner])))
    p.ctx.require(False, f"its trees have more than {_DEEPEST} levels, or go round in circles")
    return 0


def _leaves_first(trees: _Trees) -> int:
    """Number leaves before all other nodes; how many there are."""
    order = np.argsort(trees.modes != _LEAF, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    leaves = int(np.count_nonzero(trees.modes == _LEAF))
    for name in ("modes", "features", "limits", "first", "second", "missing"):
        setattr(trees, name, getattr(trees, name)[order])
    trees.first, trees.second = number[trees.first], number[trees.second]
    trees.first[:leaves] = trees.second[:leaves] = np.arange(leaves)
    trees.roots, trees.entry_nodes = number[trees.roots], number[trees.entry_nodes]
    return leaves


def _places(p: Parts, x: str, trees: _Trees, depth: int, roots: Array) -> str:
    """The leaf of each row in each tree, [rows, trees]."""
    at = p.constant(roots.astype(np.int32))
    children = np.stack((trees.first, trees.second), 1).reshape(-1).astype(np.int32)
    reads = [
        p.constant(trees.features.astype(np.int32)),
        p.constant(trees.limits),
        p.constant(children),
    ]
    if trees.missing[trees.modes != _LEAF].any():
        reads.append(p.constant(trees.missing.astype(np.uint8)))
    for _ in range(max(depth, 1)):
        at = p.add("TreeStep", (x, at, *reads), domain=OWN)
    return at


def _scores(p: Parts, trees: _Trees, targets: int, aggregate: str, base: Array) -> str:
    """What the leaves of a row add up to, [rows, targets]."""
    x = p.ctx.node.inputs[0]
    dtype = "f64" if trees.limits.dtype == np.float64 else "f32"
    if p.type(0).dtype != dtype:
        x = p.add("Cast", (x,), to=dtype)
    members_of_trees = len(trees.roots)
    _only_limits(trees)
    depth, leaves = _depth(p, trees), _leaves_first(trees)
    made = trees.limits.dtype
    fill = {"MIN": np.finfo(made).max, "MAX": np.finfo(made).min}.get(aggregate, 0)
    weights = np.full((leaves, targets), fill, made)
    if aggregate in ("MIN", "MAX"):
        (np.minimum if aggregate == "MIN" else np.maximum).at(
            weights, (trees.entry_nodes, trees.entry_targets), trees.entry_weights
        )
    else:
        np.add.at(weights, (trees.entry_nodes, trees.entry_targets), trees.entry_weights)
    reduce = {"MIN": "ReduceMin", "MAX": "ReduceMax"}.get(aggregate, "ReduceSum")
    rows = p.type(0).sizes[0]
    own = _own_targets(trees, targets) if targets > 1 and reduce == "ReduceSum" else None
    if targets == 1:
        places = _places(p, x, trees, depth, trees.roots)
        each = p.add("Gather", (p.constant(weights[:, 0]), places), axis=0)
        total = p.add(reduce, (each, p.ints((1,))), keepdims=1)
    elif own is not None:
        # the trees of each target side by side, as many for each: none of the others are looked at
        most = max(map(len, own))
        empty = _null_leaf(trees)
        roots = np.array([[*each, *[empty] * (most - len(each))] for each in own])
        places = _places(p, x, trees, depth, roots.reshape(-1))
        flat = np.concatenate((weights.sum(axis=1), np.zeros(len(trees.modes) - leaves, made)))
        places = p.reshape(places, (rows, targets, most))
        each = p.add("Gather", (p.constant(flat), places), axis=0)
        total = p.add(reduce, (each, p.ints((2,))), keepdims=0)
    else:
        places = _places(p, x, trees, depth, trees.roots)
        each = p.add("Gather", (p.constant(weights), places), axis=0)
        total = p.add(reduce, (each, p.ints((1,))), keepdims=0)
    if fill and np.any(weights == fill):
        nothing = p.add("Equal", (total, p.number(fill, dtype)))
        total = p.add("Where", (nothing, p.number(0.0, dtype), total))
    if aggregate == "AVERAGE":
        total = p.add("Div", (total, p.number(members_of_trees, dtype)))
    return p.add("Add", (total, p.constant(base.astype(made)))) if base.any() else total


def _null_leaf(trees: _Trees) -> int:
    at = int(_grown(trees, 1).start)
    trees.first[at] = trees.second[at] = at
    return at


def _own_targets(trees: _Trees, targets: int) -> list[list[int]] | None:
    """The roots of each target, where every tree has leaves of one target only."""
    owner = np.full(len(trees.modes), -1)
    owner[trees.entry_nodes] = trees.entry_targets
    if np.any(owner[trees.entry_nodes] != trees.entry_targets):
        return None
    found: list[list[int]] = [[] for _ in range(targets)]
    label = owner
    # a node has the target of its leaves: from the leaves up, a level at a time
    inner = np.flatnonzero(trees.modes != _LEAF)
    for _ in range(_DEEPEST):
        one, other = label[trees.first[inner]], label[trees.second[inner]]
        new = np.where(one == -1, other, one)
        if np.any((one != -1) & (other != -1) & (one != other)):
            return None
        if np.array_equal(label[inner], new):
            break
        label[inner] = new
    for root in trees.roots:
        found[max(int(label[root]), 0)].append(int(root))
    return found


def _column(p: Parts, name: str, dtype: type, size: int | None = None, fill: float | None = None) -> Array:
    """An attribute with one value a node, or a leaf; all `fill` where it is absent and may be."""
    ctx = p.ctx
    given = ctx.node.attributes.get(f"{name}_as_tensor", ctx.node.attributes.get(name))
    if given is None and fill is not None and size is not None:
        return np.full(size, fill, dtype)
    ctx.require(isinstance(given, tuple | np.ndarray), f"the attribute {name} is missing, or no list")
    array = np.asarray(given)
    ctx.require(
        array.ndim == 1 and array.dtype.kind in "iuf", f"the attribute {name} must be a list of numbers"
    )
    fits = size is None or len(array) == size
    ctx.require(fits, f"the attribute {name} has {len(array)} values; it must have {size}")
    return array.astype(array.dtype if dtype is float else dtype)


def _wide(p: Parts, *names: str) -> type:
    """The type that limits and weights are compared and added in."""
    given = [
        p.ctx.node.attributes.get(f"{name}_as_tensor", p.ctx.node.attributes.get(name)) for name in names
    ]
    tensors = [array.dtype for array in given if isinstance(array, np.ndarray)]
    return np.float64 if np.dtype(np.float64) in tensors or p.type(0).dtype == "f64" else np.float32


def _of_old_form(p: Parts, leaves: str, targets: int) -> _Trees:
    """The trees of TreeEnsembleClassifier and TreeEnsembleRegressor: nodes by their trees and numbers."""
    ctx = p.ctx
    wide = _wide(p, "nodes_values", f"{leaves}_weights")
    trees_of = _column(p, "nodes_treeids", np.int64)
    count = len(trees_of)
    numbers = _column(p, "nodes_nodeids", np.int64, count)
    names = ctx.node.attributes.get("nodes_modes")
    names = names if isinstance(names, tuple) else ()
    ctx.require(len(names) == count, "nodes_modes must be one text a node")
    known = {f"BRANCH_{mode}": at for at, mode in enumerate(_MODES[:-1])} | {"LEAF": _LEAF}
    kinds = sorted(set(map(str, names)))
    for kind in kinds:
        ctx.require(kind in known, f"its nodes have the mode {kind!r}; modes are {', '.join(known)}")
    modes = np.array([known[kind] for kind in kinds])[np.searchsorted(kinds, np.array(names, str))]
    keys = {pair: at for at, pair in enumerate(zip(trees_of.tolist(), numbers.tolist(), strict=True))}
    ctx.require(len(keys) == count, "two of its nodes have the same tree and number")

    def found(trees: Array, nodes: Array, what: str) -> Array:
        places = [keys.get(pair, -1) for pair in zip(trees.tolist(), nodes.tolist(), strict=True)]
        missing = next((at for at, place in enumerate(places) if place < 0), None)
        if missing is not None:
            ctx.require(
                False, f"{what} name node {nodes[missing]} of tree {trees[missing]}, which is not there"
            )
        return np.array(places, np.int64)

    inner = modes != _LEAF
    children: list[Array] = []
    for which in ("true", "false"):
        of = np.arange(count)
        at = _column(p, f"nodes_{which}nodeids", np.int64, count)
        of[inner] = found(trees_of[inner], at[inner], f"nodes_{which}nodeids")
        children.append(of)
    _, roots = np.unique(trees_of, return_index=True)
    entries = _column(p, f"{leaves}_treeids", np.int64)
    nodes = found(entries, _column(p, f"{leaves}_nodeids", np.int64, len(entries)), f"{leaves}_nodeids")
    return _checked(
        p,
        _Trees(
            modes,
            _column(p, "nodes_featureids", np.int64, count),
            _column(p, "nodes_values", float, count).astype(wide),
            children[0],
            children[1],
            _column(p, "nodes_missing_value_tracks_true", np.int64, count, 0).astype(bool)
            if ctx.node.attributes.get("nodes_missing_value_tracks_true")
            else np.zeros(count, bool),
            np.sort(roots),
            nodes,
            _column(p, f"{leaves}_ids", np.int64, len(entries)),
            _column(p, f"{leaves}_weights", float, len(entries)).astype(wide),
        ),
        targets,
    )


def _checked(p: Parts, trees: _Trees, targets: int) -> _Trees:
    """The trees, whose numbers are in range. Raises ModelError where they are not."""
    ctx, width = p.ctx, p.type(0).sizes[-1]
    inner = trees.modes != _LEAF
    asked = trees.features[inner]
    ctx.require(len(trees.modes) > 0, "it has no nodes")
    if len(asked):
        ctx.require(
            asked.min() >= 0 and asked.max() < width,
            f"its nodes ask for features {asked.min()} to {asked.max()} of rows of {width}",
        )
    for name, places, limit in (
        ("children", np.concatenate((trees.first, trees.second)), len(trees.modes)),
        ("roots", trees.roots, len(trees.modes)),
        ("leaves", trees.entry_nodes, len(trees.modes)),
        ("targets", trees.entry_targets, targets),
    ):
        if len(places):
            fits = places.min() >= 0 and places.max() < limit
            ctx.require(fits, f"its {name} are {places.min()} to {places.max()}; there are {limit}")
    kept = ~inner[trees.entry_nodes]
    trees.entry_nodes, trees.entry_targets = trees.entry_nodes[kept], trees.entry_targets[kept]
    trees.entry_weights = trees.entry_weights[kept]
    return trees


def _base(p: Parts, targets: int) -> Array:
    """What is added to each target's sum."""
    given = p.ctx.node.attributes.get("base_values_as_tensor", p.ctx.node.attributes.get("base_values", ()))
    base = np.asarray(given, np.float64).reshape(-1)
    fits = len(base) in (0, 1, targets)
    p.ctx.require(fits, f"base_values has {len(base)} values for {targets} targets")
    return np.broadcast_to(base if len(base) else np.zeros(1), (targets,))


def _regression(p: Parts, trees: _Trees, targets: int, aggregate: str, how: str, result: str) -> None:
    dtype = "f64" if trees.limits.dtype == np.float64 else "f32"
    scores = _scores(p, trees, targets, aggregate, _base(p, targets))
    if targets > 1 or not how.startswith("SOFTMAX"):
        # runtimes leave a single score as it is, which would be 1
        scores = transformed(p, scores, how, dtype)
    p.give(scores if dtype == result else p.add("Cast", (scores,), to=result))


@decomposition("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(p: Parts, x: str) -> None:
    """The sum, the mean, or an extremum of what the leaves say that a row of features comes to."""
    targets = _targets(p)
    trees = _of_old_form(p, "target", targets)
    aggregate = p.ctx.choice("aggregate_function", _AGGREGATES, "SUM")
    _regression(p, trees, targets, aggregate, p.ctx.choice("post_transform", TRANSFORMS, "NONE"), "f32")


def _targets(p: Parts) -> int:
    p.ctx.require(p.type(0).rank == 2, f"its input is {p.type(0)}; it must be rows of features")
    targets = p.ctx.integer("n_targets", 1)
    p.ctx.require(0 < targets <= 1 << 20, f"n_targets is {targets}")
    return targets


@decomposition("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(p: Parts, x: str) -> None:
    """Labels, and the scores of all classes."""
    ctx = p.ctx
    ctx.require(p.type(0).rank == 2, f"its input is {p.type(0)}; it must be rows of features")
    labels = ctx.integers("classlabels_int64s", ())
    ctx.require(bool(labels), "it has no class labels")
    trees = _of_old_form(p, "class", len(labels))
    dtype = "f64" if trees.limits.dtype == np.float64 else "f32"
    used = np.unique(trees.entry_targets)
    alone = len(labels) == 2 and len(used) == 1
    one = alone and used[0] == 0
    base = _base(p, len(labels))
    if one:
        base = base[:1]
    scores = _scores(p, trees, 1 if one else len(labels), "SUM", base)
    positive = not len(trees.entry_weights) or bool(trees.entry_weights.min() >= 0)
    how = ctx.choice("post_transform", TRANSFORMS, "NONE")
    least = (0.5 if positive else 0.0) if alone else None
    # a class that no leaf and no base speaks of is not the label, whatever the others' scores are
    scored = used.tolist() if not alone and len(used) < len(labels) and not base.any() else ()
    classified(p, scores, labels, how, dtype, one=one, least=least, scored=scored)


@decomposition("TreeEnsemble", domain=ML)
def tree_ensemble(p: Parts, x: str) -> None:
    """The form of the fifth operator set: branches and leaves are numbered apart."""
    ctx, targets = p.ctx, _targets(p)
    wide = _wide(p, "nodes_splits")
    features = _column(p, "nodes_featureids", np.int64)
    count = len(features)
    modes = ctx.tensor("nodes_modes").reshape(-1).astype(np.int64)
    fits = len(modes) == count and (not count or (modes.min() >= 0 and modes.max() < len(_MODES)))
    ctx.require(fits, f"nodes_modes must be {count} numbers below {len(_MODES)}")
    weights: Array = ctx.tensor("leaf_weights").reshape(-1).astype(wide)
    leaves = _column(p, "leaf_targetids", np.int64, len(weights))
    children: list[Array] = []
    for which in ("true", "false"):
        at = _column(p, f"nodes_{which}nodeids", np.int64, count)
        leaf = _column(p, f"nodes_{which}leafs", np.int64, count) != 0
        for number, most in ((at[leaf], len(weights)), (at[~leaf], count)):
            fits = not len(number) or (number.min() >= 0 and number.max() < most)
            ctx.require(fits, f"nodes_{which}nodeids names what is not there")
        own = count + np.arange(len(weights))
        children.append(np.concatenate((np.where(leaf, count + at, at), own)))
    roots = _column(p, "tree_roots", np.int64)
    ctx.require(not len(roots) or (roots.min() >= 0 and roots.max() < count), "tree_roots names no node")
    wide_missing = np.zeros(count, np.int64)
    if ctx.node.attributes.get("nodes_missing_value_tracks_true"):
        wide_missing = _column(p, "nodes_missing_value_tracks_true", np.int64, count)
    more = np.zeros(len(weights))
    trees = _Trees(
        np.concatenate((modes, np.full(len(weights), _LEAF))),
        np.concatenate((features, more.astype(np.int64))),
        np.concatenate((ctx.tensor("nodes_splits").reshape(-1), more)).astype(wide),
        children[0],
        children[1],
        np.concatenate((wide_missing, more)).astype(bool),
        roots,
        count + np.arange(len(weights)),
        leaves,
        weights,
    )
    members = ctx.node.attributes.get("membership_values")
    _without_members(trees, np.asarray([] if members is None else members, wide).reshape(-1))
    how = TRANSFORMS[_numbered(p, "post_transform", len(TRANSFORMS), 0)]
    aggregate = _AGGREGATES[_numbered(p, "aggregate_function", len(_AGGREGATES), 1)]
    _regression(p, _checked(p, trees, targets), targets, aggregate, how, p.type(0).dtype)


def _numbered(p: Parts, name: str, count: int, default: int) -> int:
    found = p.ctx.integer(name, default)
    p.ctx.require(0 <= found < count, f"the attribute {name} is {found}; it must be less than {count}")
    return found
