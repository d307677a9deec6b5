"""The page of supported operators: written from the registry, so that it says what is so.

`pytest tests/house/test_operators_page.py --update-golden` rewrites `docs/operators.md`.
"""

from pathlib import Path

import onnx

from tilewright.graph import REGISTRY, decomposed_operators, is_supported

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
#: Domains of operators that only the compiler makes.
OWN = "tilewright"

HEAD = """\
# Supported operators

Written by `tests/house/test_operators_page.py` from the registry of operators. Operator sets 7 to
{newest} of the standard are read, older ones as far as their operators did not change. What an operator
computes is compared with the onnx package's node tests (`tests/conformance`) and with onnxruntime
(`benchmarks/sweep.py`); decision 0080 lists where those differ.

*Must be known* names the inputs (numbered from 0) whose elements have to be known when the model is
compiled: constants, what is computed from shapes, or inputs fixed by `constants={{name: array}}`. *Taken
apart* are operators that become several simpler ones.

Element types: f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, bool; int4, uint4, int2,
uint2, the float8 types, float8e8m0 and float4e2m1, which are moved, converted, quantised and
dequantised. Every size is known when compiling (`shapes={{name: (1, 3, 224, 224)}}` settles those that
a model leaves open) or open within ranges; `Loop`, `Scan` and `If` are written out or decided then,
sequences and optional values are what they hold. With `dynamic=` data may say sizes (`NonZero`,
`Compress`, `NonMaxSuppression`, what an input gives to `Expand`) and the course of `If` and `Loop`.
What is missing is said by name, all nodes at once; not there today are `Unique` of what a run computes,
sequences that a model is given or gives, strings, and images in files. """


def _standard(name):
    return is_supported("", name)


def _is_written_out(schema):
    """Whether an operator is resolved while types are inferred: loops, branches, sequences."""
    return not schema.domain and _standard(schema.name) and ("", schema.name) not in REGISTRY


def page():
    """The page's text."""
    known = {(entry.domain, entry.name): entry.static for entry in REGISTRY.values()}
    apart = decomposed_operators()
    newest = onnx.defs.onnx_opset_version()
    lines = [HEAD.format(newest=newest)]
    domains = sorted({domain for domain, _ in (*known, *apart)} - {OWN})
    for domain in domains:
        names = sorted({name for d, name in (*known, *apart) if d == domain})
        if not domain:
            names = sorted({*names, *(s.name for s in onnx.defs.get_all_schemas() if _is_written_out(s))})
        lines += [f"## {domain or 'The standard (ai.onnx)'}: {len(names)} operators", ""]
        lines += ["| operator | must be known | |", "|---|---|---|"]
        for name in names:
            static = ", ".join(map(str, known.get((domain, name), ())))
            how = "taken apart" if (domain, name) in apart and (domain, name) not in known else ""
            lines.append(f"| {name} | {static} | {how} |")
        lines.append("")
    expanded = sorted(
        {
            schema.name
            for schema in onnx.defs.get_all_schemas()
            if not schema.domain
            and (schema.has_function or schema.has_context_dependent_function)
            and not _standard(schema.name)
            and ("", schema.name) not in apart
            and not schema.deprecated
        }
    )
    lines += [
        "## Composed operators",
        "",
        "The standard defines these by others, and so they are compiled, where all of those are supported:",
        "",
        ", ".join(expanded) + ".",
        "",
    ]
    return "\n".join(lines)


def test_the_page_lists_what_is_registered(update_golden):
    if update_golden:
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()
