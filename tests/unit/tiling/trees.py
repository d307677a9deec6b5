"""Programs with trees that people write: a product in tiles, with its panels copied, a blur in strips."""

from tilewright import lang
from tilewright.tiling import parse

TILES = """\
nest C
  cut j at 16
  part 0
    for j/8 parallel
      for i/4 outline
        keep C in register
          for k/1 unroll=2
            for i/1 unroll
              for j/1 vector
                do C
        drain
          for i/1 unroll
            for j/1 vector
              do C
  part 1 as part 0
"""
COPIED = """\
nest C
  for j/8
    copy B in local as d1//8 , d0 , d1%8
      for d0/1
        for d1/1 vector
          do B
    for i/1
      keep C in register
        for k/1
          for j/1 vector
            do C
      drain
        for j/1 vector
          do C
"""
STRIPS = """\
nest C
  for y/8 parallel
    make A in local
      for y/1
        for x/1 vector
          do A
    for y/1
      for x/1 vector
        do C
"""


def product(m=10, n=20, k=6):
    a, b = lang.placeholder((m, k), name="A"), lang.placeholder((k, n), name="B")
    r = lang.reduce_axis(k, "k")
    c = lang.compute((m, n), lambda i, j: lang.sum(a[i, r] * b[r, j], axis=r), name="C")
    return lang.program([a, b], [c])


def blur(h=30, w=16):
    x = lang.placeholder((h + 2, w), name="X")
    a = lang.compute((h + 2, w), lambda y, x_: x[y, x_] * 2.0, name="A")
    c = lang.compute((h, w), lambda y, x_: a[y, x_] + a[y + 1, x_] + a[y + 2, x_], name="C")
    return lang.program([x], [c])


def nest(text):
    (found,) = parse(text)
    return found
