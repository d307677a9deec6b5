"""Boosted regression trees: small ones, over few samples, learned again whenever there are new ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tilewright.strategies.joint.network import Array

#: Trees, their depth, the part of its correction that each adds, and the least samples in a leaf.
TREES: Final = 60
DEPTH: Final = 3
SHRINKAGE: Final = 0.2
LEAF: Final = 2
#: The least that a split must take of the sum of squared errors.
LEAST_SPLIT: Final = 1e-12
#: Places at which a feature may be split, at most: quantiles of its values.
CUTS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class _Tree:
    """Nodes in arrays: at a leaf ``feature`` is -1."""

    feature: list[int]
    cut: list[float]
    left: list[int]
    right: list[int]
    value: list[float]

    def predict(self, x: Array) -> Array:
        at = np.zeros(len(x), np.int64)
        feature, cut = np.array(self.feature), np.array(self.cut)
        left, right = np.array(self.left), np.array(self.right)
        for _ in range(DEPTH):
            inner = feature[at] >= 0
            low = x[np.arange(len(x)), np.maximum(feature[at], 0)] <= cut[at]
            at = np.where(inner, np.where(low, left[at], right[at]), at)
        return np.array(self.value)[at]


@dataclass(frozen=True, slots=True, eq=False)
class Boosted:
    """A sum of trees around a mean."""

    mean: float
    trees: tuple[_Tree, ...]

    def predict(self, x: Array) -> Array:
        """The value of each row of features."""
        out = np.full(len(x), self.mean)
        for tree in self.trees:
            out += SHRINKAGE * tree.predict(x)
        return out


def boosted(x: Array, y: Array) -> Boosted:
    """Trees for samples of shape (n, features) with values ``y``, by squared errors."""
    mean = float(y.mean())
    left = y - mean
    cuts = [_cuts(x[:, f]) for f in range(x.shape[1])]
    feature = np.repeat(np.arange(len(cuts)), [len(places) for places in cuts])
    cut = np.concatenate(cuts)
    # of each sample whether it is on the low side of each cut: the same for all trees
    low = (x[:, feature] <= cut).astype(np.float64)
    trees: list[_Tree] = []
    for _ in range(TREES):
        tree = _Tree([], [], [], [], [])
        _grow(tree, low, left, np.arange(len(y)), feature, cut, DEPTH)
        if tree.feature[0] < 0:
            break
        trees.append(tree)
        left = left - SHRINKAGE * tree.predict(x)
    return Boosted(mean, tuple(trees))


def _cuts(column: Array) -> Array:
    values = np.unique(column)
    middle = (values[1:] + values[:-1]) / 2
    if len(middle) > CUTS:
        middle = middle[np.linspace(0, len(middle) - 1, CUTS).astype(np.int64)]
    return middle


def _grow(
    tree: _Tree,
    low: Array,
    y: Array,
    rows: npt.NDArray[np.int64],
    feature: npt.NDArray[np.int64],
    cut: Array,
    depth: int,
) -> int:
    """Add the node of some samples; its number. ``low`` says for each cut which samples are below it."""
    node, own, count = len(tree.value), y[rows], len(rows)
    for values, first in ((tree.feature, -1), (tree.left, 0), (tree.right, 0)):
        values.append(first)
    tree.cut.append(0.0)
    tree.value.append(float(own.mean()))
    if not depth or count < 2 * LEAF or not len(cut):
        return node
    side = low[rows]
    below, part, total = side.sum(0), own @ side, float(own.sum())
    fine = (below >= LEAF) & (count - below >= LEAF)
    above = np.maximum(count - below, 1)
    gain = np.where(fine, part**2 / np.maximum(below, 1) + (total - part) ** 2 / above, -np.inf)
    at = int(gain.argmax())
    if gain[at] - total**2 / count > LEAST_SPLIT:
        tree.feature[node], tree.cut[node] = int(feature[at]), float(cut[at])
        split = side[:, at] > 0
        tree.left[node] = _grow(tree, low, y, rows[split], feature, cut, depth - 1)
        tree.right[node] = _grow(tree, low, y, rows[~split], feature, cut, depth - 1)
    return node
