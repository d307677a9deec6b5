"""All that tests here emit is checked first: the check refuses what emission refuses, in the same words."""

import pytest

from tilewright.codegen import emit_kernel
from tilewright.codegen.refusals import check_kernel
from tilewright.support import UserError
from tilewright.target import BUILT_IN


def emitted(func, *, triple, vector_bits, operations=BUILT_IN):
    """What emission makes of a function, or raises; either way as its check says."""
    refused = None
    try:
        check_kernel(func, triple=triple, vector_bits=vector_bits, operations=operations)
    except UserError as error:
        refused = str(error)
    try:
        made = emit_kernel(func, triple=triple, vector_bits=vector_bits, operations=operations)
    except UserError as error:
        assert refused == str(error)
        raise
    assert refused is None
    return made


@pytest.fixture(autouse=True)
def _checked(request, monkeypatch):
    """Modules that import ``emit_kernel`` get it with its check."""
    if getattr(request.module, "emit_kernel", None) is emit_kernel:
        monkeypatch.setattr(request.module, "emit_kernel", emitted)
