"""What C nests refuse, with line and column."""

import sys

import pytest

from tilewright.frontend.c import read_c, read_c_file
from tilewright.support import InstallationError, ProgramError

FRAME = "void f(int n, double A[n][n], double x[n], double a)\n{\n#pragma scop\n%s\n#pragma endscop\n}\n"


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("x[(int)a * 0.5] = a;", "index 0 of 'x' is no integer"),
        ("for (int i = 0; i < x[0]; i++) x[i] = a;", "the bounds of loop 'i' are no integers"),
        ("int e = n; for (int i = 0; i < e; i += 2) x[i] = a;", "loop 'i' must go up in steps of 1"),
        ("while (a > 0.0) x[0] = a;", "while loops are: while"),
        ("int e = n; while (e < 9) e += 2;", "the last statement of a while loop adds 1 to 'e'"),
        ("int e = n; while (e < 9) { e = 0; e++; }", "'e' must be an integer that only the end"),
        ("int e = n; int l = 9; while (e < l) { l--; e++; }", "the bound of the loop over 'e' changes"),
        ("int i = 3; for (i = 0; i < n; i++) x[i] = a;", "loop 'i' needs a variable to itself"),
        (
            "int i; for (i = 0; i < n; i++) for (i = 0; i < n; i++) x[i] = a;",
            "'i' is the variable of a loop around",
        ),
        ("for (int i = 0; i < n; i++) { x[i] = a; i++; }", "'i' is the variable of a loop: only the loop"),
        ("int i; for (i = 0; i < n; i++) x[i] = a; x[0] = i;", "'i' has no value here"),
        ("int m = n; for (int i = 0; i < m; i++) m = 2;", "the bound of the loop over 'i' changes in it"),
        ("n = 3;", "'n' is a size, which a nest does not change"),
        ("x[0] = g(a);", "there is no function 'g'"),
        ("x[0] = *x;", "UnaryOp expressions are not part of nests"),
        ("switch (n) { default: x[0] = 0; }", "Switch statements are not part of nests"),
        ("for (int i = 0; i != n; i++) x[i] = a;", "the condition of loop 'i' must compare"),
        ("for (int i = 0; n > i; i++) x[i] = a;", "must begin with 'i'"),
        ("for (int i = 0; i < n; i--) x[i] = a;", "loop 'i' steps away from its bound"),
        ("for (int i = 0; i < n; i *= 2) x[i] = a;", "the step of loop 'i' must be a constant"),
        ("for (;;) x[0] = a;", "a loop begins with one assignment"),
        ("x[0] = n / 2;", "C rounds quotients towards zero"),
        ("x[0] <<= 1;", "the assignment <<= is not part of nests"),
        ("if (a > 0.0) x[0] = a; else x[0] = 0.0;", "an else to a condition on data"),
        ("if (n > 1 && n > 2) x[0] = a; else x[0] = 0.0;", "an else needs a single comparison"),
        ("x[0] = a ? a : 0.0;", "conditions are comparisons"),
        ("x[0] = 'c';", "constants of type char"),
        ("(&x)[0] = a;", "only elements of arrays and variables"),
        ("x[0] = (void)a;", "nothing is converted to void"),
        ("double *p;", "'p' is a pointer"),
        ("unsigned u;", "the type unsigned is not part of nests"),
        ("long double u;", "the type long double is not part of nests"),
    ],
)
def test_statements(body, match):
    with pytest.raises(ProgramError, match=match) as caught:
        read_c(FRAME % body, "k.c")
    assert str(caught.value.where).startswith("k.c:4:")


def test_words_of_a_type_stand_in_any_order():
    arrays = "int long a[4], signed char b[4], long long int c[4], signed d[4], long signed e[4]"
    func = read_c(f"void f({arrays}) {{\n#pragma scop\na[0] = 1;\n#pragma endscop\n}}", "k.c")
    assert [str(b.dtype) for b in func.buffers] == ["i64", "i8", "i64", "i32", "i64"]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("int main() { return 0; }", "0 nests marked by #pragma scop, not one"),
        ("#pragma scop\n", "#pragma scop stands in no function"),
        ("void f(double *x) {\n#pragma scop\n#pragma endscop\n}", "'x' is a pointer"),
        ("void f(double x[]) {\n#pragma scop\n#pragma endscop\n}", "needs all of its extents"),
        ("void f(double x[2.5]) {\n#pragma scop\n#pragma endscop\n}", "must be affine in sizes"),
        ("void f(struct s x) {\n#pragma scop\n#pragma endscop\n}", "this type is not part of nests"),
        ("void f(void x[2]) {\n#pragma scop\n#pragma endscop\n}", "'x' is void"),
        ("void f(double) {\n#pragma scop\n#pragma endscop\n}", "a parameter without a name"),
        ("void f() { {\n#pragma scop\n#pragma endscop\n} }", "stand around whole statements of a function"),
        ("void f() {\n#pragma scop\n}", "stand around whole statements of a function"),
        (
            "void f(double x[2]) { double a = 2;\n#pragma scop\nx[0] = a;\n#pragma endscop\n}",
            "'a' gets its value before",
        ),
        (
            "void f(double x[2]) { double a; a = 2;\n#pragma scop\nx[0] = a;\n#pragma endscop\n}",
            "'a' gets its value before",
        ),
        (
            f"void f(double a) {{\n#pragma scop\na = {'a + ' * 2000}a;\n#pragma endscop\n}}",
            "are nested too deeply",
        ),
        ("void f( {\n#pragma scop\n#pragma endscop\n}", "the C does not parse"),
        ("int x = {\n#pragma scop\n}", "the C does not parse|is no function"),
        ("#if 1\n", "#if without #endif"),
        ("#endif\n", "#endif without #if"),
        ("#if A + 1\n#endif\n", "condition of #if is not supported"),
        ("#if 1 1\n#endif\n", "condition of #if is not supported"),
        ("#define\n", "a macro without a name"),
        ("#define F(a) a\nF(1, 2)\n", "the macro F takes 1 arguments"),
        ("#error stop\n", "#error stop"),
        ('#include "none.h"\n', "there is no header"),
        (
            "#define A B B B B B B B B\n"
            + "".join(f"#define {a} {' '.join([b] * 9)}\n" for a, b in zip("BCDEFG", "CDEFGH", strict=True))
            + "A\n",
            "macros are expanded",
        ),
    ],
)
def test_files(text, match):
    with pytest.raises(ProgramError, match=match):
        read_c(text)


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    with pytest.raises(ProgramError, match="the file cannot be read"):
        read_c_file(tmp_path / "none.c")
    loop = tmp_path / "loop.h"
    loop.write_text('#include "loop.h"\n')
    with pytest.raises(ProgramError, match="includes are nested deeper than 20"):
        read_c_file(loop)
    monkeypatch.setattr("tilewright.frontend.c.preprocess.MAX_BYTES", 5)
    with pytest.raises(ProgramError, match="longer than 5 bytes"):
        read_c_file(loop)
    with pytest.raises(ProgramError, match="macros expand to more than 5 bytes"):
        read_c("#define A 1234567\nA")


def test_what_is_around_the_pragma_must_be_a_function():
    with pytest.raises(ProgramError, match="the C does not parse"):
        read_c("struct s\n{\n#pragma scop\nint x;\n#pragma endscop\n};\n")


def test_quotients_of_elements_that_are_integers():
    text = "void f(int a[4], int b[4])\n{\n#pragma scop\nfor (int i = 0; i < 4; i++) a[i] = a[i] / b[i];\n"
    with pytest.raises(ProgramError, match="divisions of integers are supported by constants"):
        read_c(text + "#pragma endscop\n}\n")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycparser", None)
    with pytest.raises(InstallationError, match="reading C needs the package pycparser"):
        read_c(FRAME % "x[0] = a;")
