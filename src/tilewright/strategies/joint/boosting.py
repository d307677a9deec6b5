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
    trees: list[_Tree] = []
    for _ in range(TREES):
        tree = _Tree([], [], [], [], [])
        _grow(tree, x, left, np.arange(len(y)), cuts, DEPTH)
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


def _grow(tree: _Tree, x: Array, y: Array, rows: npt.NDArray[np.int64], cuts: list[Array], depth: int) -> int:
    """Add the node of some samples; its number."""
    node = len(tree.value)
    own = y[rows]
    for values, first in ((tree.feature, -1), (tree.left, 0), (tree.right, 0)):
        values.append(first)
    tree.cut.append(0.0)
    tree.value.append(float(own.mean()))
    best = (1e-12, -1, 0.0)
    total, count = own.sum(), len(rows)
    for f, places in enumerate(cuts) if depth and count >= 2 * LEAF else ():
        if not len(places):
            continue
        low = x[rows, f][:, None] <= places
        n = low.sum(0)
        s = (low * own[:, None]).sum(0)
        fine = (n >= LEAF) & (count - n >= LEAF)
        gain = np.where(
            fine, s * s / np.maximum(n, 1) + (total - s) ** 2 / np.maximum(count - n, 1) - total**2 / count, 0
        )
        at = int(gain.argmax())
        if gain[at] > best[0]:
            best = (float(gain[at]), f, float(places[at]))
    _, feature, cut = best
    if feature >= 0:
        low = x[rows, feature] <= cut
        tree.feature[node], tree.cut[node] = feature, cut
        tree.left[node] = _grow(tree, x, y, rows[low], cuts, depth - 1)
        tree.right[node] = _grow(tree, x, y, rows[~low], cuts, depth - 1)
    return node
