"""A generated image with what photographs have: smooth light, edges at all angles, texture, and noise."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

from application import Array


def photo(height: int, width: int, seed: int = 0) -> Array:
    """A colour image of f32 values in [0, 1], of shape ``(3, height, width)``."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    y, x = y / height, x / width
    sky = np.stack([0.35 + 0.3 * y, 0.5 + 0.2 * y, 0.85 - 0.25 * y])
    image = sky + 0.06 * np.sin(9 * x + 5 * y)
    for _ in range(24):
        cy, cx = rng.uniform(0.05, 1.05, 2)
        ry, rx = rng.uniform(0.04, 0.22, 2)
        angle = rng.uniform(0, np.pi)
        u = (x - cx) * np.cos(angle) + (y - cy) * np.sin(angle)
        v = (y - cy) * np.cos(angle) - (x - cx) * np.sin(angle)
        inside = (u / rx) ** 2 + (v / ry) ** 2 < 1
        shade = 0.75 + 0.35 * (u / rx) * inside
        stripes = 1 + 0.2 * np.sign(np.sin(rng.uniform(20, 120) * u)) * (rng.random() < 0.5)
        colour = rng.uniform(0.1, 0.95, 3)[:, None, None]
        image = np.where(inside, colour * shade * stripes, image)
    image = image * (1 - 0.35 * ((x - 0.5) ** 2 + (y - 0.5) ** 2)) + rng.normal(0, 0.01, image.shape)
    return np.clip(image, 0, 1).astype(np.float32)


def write_png(path: Path, image: Array) -> None:
    """Write bytes of shape ``(height, width)`` or ``(3, height, width)`` as a PNG file (RFC 2083)."""
    colour = image.ndim == 3
    pixels = np.moveaxis(image, 0, -1) if colour else image
    h, w = pixels.shape[:2]
    rows = b"".join(b"\0" + np.ascontiguousarray(row).tobytes() for row in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", w, h, 8, 2 if colour else 0, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows, 9))
        + chunk(b"IEND", b"")
    )
