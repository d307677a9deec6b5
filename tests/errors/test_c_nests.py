"""What C nests refuse, with line and column."""

import sys

import pytest

from tilewright.frontend.c import read_c, read_c_file
from tilewright.support import InstallationError, ProgramError

HEAD = "void f(int n, double A[n][n], double x[n], int k[n], double a)"
FRAME = HEAD + "\n{\n#pragma scop\n%s\n#pragma endscop\n}\n"


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("x[(int)a * 0.5] = a;", "index 0 of 'x' is no integer"),
        ("for (int i = 0; i < x[0]; i++) x[i] = a;", "the bounds of loop 'i' are no integers"),
        ("for (int i = 0; i < k[0]; i += 2) x[i] = a;", "loop 'i' must go up in steps of 1"),
        ("while (a > 0.0) x[0] = a;", "the last statement of a while loop must change its variable"),
        ("int e = 0; while (e < 9) { x[e] = a; e *= 2; }", "the step of loop 'e' must be a constant"),
        ("int e = n; while (e < 9) { e = 0; e++; }", "'e' must be changed by the end of the loop alone"),
        ("int e = 0; while (e < n) { if (x[e] > 0) continue; x[e] = a; e++; }", "continue in a while loop"),
        ("int l = k[1]; for (int i = k[0]; i < l; i++) l--;", "the bound of the loop over 'i' changes"),
        (
            "int i; for (i = 0; i < n; i++) for (i = 0; i < n; i++) x[i] = a;",
            "'i' is the variable of a loop around",
        ),
        ("for (int i = 0; i < n; i++) { x[i] = a; i++; }", "'i' is the variable of a loop: only the loop"),
        ("int i; x[0] = i;", "'i' has no value here"),
        ("int i; for (i = k[0]; i < n; i++) k[i] = i; x[0] = i;", "'i' has no value here"),
        ("int m = n; for (int i = 0; i < m; i++) m = k[i];", "the bound of the loop over 'i' changes in it"),
        ("x[0] = g(a);", "there is no function 'g'"),
        ("x[0] = sqrt(a, a);", "sqrt takes 1 arguments"),
        ("x[0] = isnan(n);", "isnan takes one real number"),
        ("g(x);", "a call of a function that the file does not define"),
        ("x[0] = *a;", "'a' is no array: it has no elements"),
        ("x[0] = x;", "'x' is an array: give its indices"),
        ("x[0] = A[1];", "'A' has 2 dimensions, got 1 indices"),
        ("x[0] = x[0][1];", "'x' has 1 dimensions, got more indices"),
        ("switch (n) { default: x[0] = 0; }", "switch is not part of nests"),
        ("for (int i = 0; i < n; i++) if (x[i] > a) break;", "break ends a loop early"),
        ("for (int i = 0; i < n; i++) return;", "return ends a function"),
        ("goto e; e: x[0] = a;", "goto is not part of nests"),
        ("e: x[0] = a;", "labels are not part of nests"),
        ("continue;", "continue stands in no loop"),
        ("n + 1;", "this statement has no effect"),
        ("do { x[0] = a; } while (x[0] < 9);", "loops with their condition at the end are"),
        ("do { if (a > 0) break; x[0] = a; } while (0);", "loops with their condition at the end are"),
        ("for (int i = 0; x[i] > 0; i++) x[i] = a;", "the condition of loop 'i' must be linear in it"),
        ("for (int i = 0; i; i++) x[i] = a;", "the condition of loop 'i' must compare"),
        ("for (int i = 0; i < n; i--) x[i] = a;", "loop 'i' steps away from its bound"),
        ("for (int i = 0; i != n; i += 2) x[i] = a;", "loop 'i' may step over its bound"),
        ("for (int i = 0; i < n && i < k[0]; i++) x[i] = a;", "data decide about several ends of loop 'i'"),
        (
            "for (int i = -1; i < sizeof(int); i++) x[0] = a;",
            "'i' may begin below 0, and is compared with an",
        ),
        ("for (unsigned i = 5; i >= 0; i--) x[i] = a;", "loop 'i' may pass by 0, below which its unsigned"),
        ("for (int i = 5; i > 1u; i -= 3) x[i] = a;", "loop 'i' may pass by 0, below which its unsigned"),
        (
            "for (unsigned long i = 0; i < 0ul - 1; i++) x[i] = a;",
            "the bound of loop 'i' is 18446744073709551615",
        ),
        ("for (int i = 0; i < n; i *= 2) x[i] = a;", "the step of loop 'i' must be a constant"),
        ("for (int i = 0; i < n; i += 0) x[i] = a;", "must be a constant, other than 0"),
        ("for (double i = 0; i < n; i++) x[0] = a;", "loop 'i' counts in integers"),
        ("for (a = 0; a < n; a++) x[0] = a;", "loop 'a' counts in integers"),
        ("for (;;) x[0] = a;", "a loop has a condition and a step"),
        ("for (; n > 0; a++) x[0] = a;", "a loop begins with one assignment"),
        ("for (int i = k[0]; i-- > 0;) x[0] = a;", "data decide where loop 'i' begins"),
        ("for (unsigned i = 9; i - 1 > 3; i--) x[0] = a;", "the condition of loop 'i' must be linear in it"),
        ("for (int i = 0; ; i++) x[0] = a;", "a loop has a condition and a step"),
        ("x[0] = 1 / 0;", "this is divided by zero"),
        ("k[0] = 1 << 32;", "a shift by 32 has no meaning for integers of 32 bits"),
        ("x[0] = a % 2;", "% is for integers"),
        ("x[0] = a << 2;", "<< is for integers"),
        ("x[0] = ~a;", "~ is for integers"),
        ("k[0] = 99999999999999999999;", "the integer 99999999999999999999 is too large"),
        ("x[0] = 1.0L;", "constants of type"),
        ("x[0] = x[0] = a, a;", "this statement has no effect"),
        ("x[0] = (a = 2) + 1;", "an assignment is a statement of its own"),
        ("x[0] = (a, 2);", "a list of expressions is no value"),
        ("x[0] = k[0]++;", "the operator p[+][+] is not part of expressions"),
        ("x[0] = s.a;", "structures are not part of nests"),
        ("x[0] = sizeof(double[2]);", "sizeof is for elements"),
        ('x[0] = "c"[0];', "only elements of arrays and variables"),
        ("(&n)[0] = a;", "'n' is no array"),
        ("(a + 1) = a;", "only elements of arrays and variables"),
        ("x[0] = (void)a;", "nothing is converted to void"),
        ("x[0] = m;", "the name 'm' is not declared"),
        ("double x; double x;", "the name 'x' is declared twice"),
        ("double **p;", "'p' is a pointer to something other than numbers"),
        ("double *p = k;", "'p' points at f64, 'k' has i32"),
        ("double *p = (double *)k;", "pointers are not converted"),
        ("double *p; x[0] = p[0];", "where 'p' points at is not known here"),
        ("double *p = x; for (int i = 0; i < n; i++) { p[0] = a; p += k[i]; }", "where 'p' points at is not"),
        ("double *p = x + a;", "index 0 of 'x' is no integer"),
        ("double t[];", "the array 't' needs all of its extents"),
        ("double t[2] = {1.0, 2.0, 3.0};", "'t' is given other elements than it has"),
        ("double t[n] = {1.0};", "'t' is given its elements: its extents must be numbers"),
        ("double t[1] = {a};", "the elements of 't' must be numbers"),
        ("void v;", "'v' is void"),
        ("long double u;", "the type long double is not part of nests"),
        ("struct s u;", "this type is not part of nests"),
    ],
)
def test_statements(body, match):
    with pytest.raises(ProgramError, match=match) as caught:
        read_c(FRAME % body, "k.c")
    assert str(caught.value.where).startswith("k.c:4:")


@pytest.mark.parametrize(
    ("functions", "match"),
    [
        ("double g(double a) { while (a > 0) a--; return a; }", "the function 'g' does more than to return"),
        ("double g(double a) { x[0] = a; return a; }", "the function 'g' does more than to return"),
        (
            "double g(double a) { if (a > 0) { double b = 1; if (a > 1) return b; } return a; }",
            "the function 'g' does more than to return",
        ),
        ("double g(double a) { void b; return a; }", "the function 'g' does more than to return"),
        ("double g(double a) { if (a > 0) return a; }", "the function 'g' does more than to return"),
        ("static double t; double g(double a) { t = a; return a; }", "the function 'g' does more than to"),
        ("double g(double a) { return g(a); }", "functions call each other more than 16 deep"),
        ("double g(double a, double b) { return a; }", "'g' takes 2 arguments, got 1"),
        ("void g(double a) { return a; }", "the function 'g' returns nothing"),
        ("double g(void *a) { return 1.0; }", "'x' is no array|'a' is no array"),
        ("double g(void a) { return 1.0; }", "'a' is void"),
        ("enum { m = 99999999999999999999 };", "is too large"),
        ("double g;", "there is no function 'g'"),
    ],
)
def test_what_else_a_file_holds(functions, match):
    with pytest.raises(ProgramError, match=match):
        read_c(functions + "\n" + FRAME % "x[0] = g(a);", "k.c")


def test_words_of_a_type_stand_in_any_order():
    arrays = "int long a[4], signed char b[4], long long int c[4], signed d[4], long signed e[4]"
    func = read_c(f"void f({arrays}) {{\n#pragma scop\na[0] = 1;\n#pragma endscop\n}}", "k.c")
    assert [str(b.dtype) for b in func.buffers] == ["i64", "i8", "i64", "i32", "i64"]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("int main() { return 0; }", "the file has no function with loops"),
        ("void f(int x) { x = 1; }", "the file has no function with loops"),
        (
            "void f(int x) { while (x < 2) x++; } void g(int x) { while (x < 2) x++; }",
            "2 functions that may be meant",
        ),
        ("int f(int x) { for (;;) ; }", "'f' returns a value, which its end does not say"),
        ("void f(foo x) { for (;;) ; }", "the C does not parse at 'x'"),
        ("void f(void x) { for (;;) ; }", "'x' is void"),
        ("void v; void f(double x[2]) { for (int i = 0; i < 2; i++) x[i] = v; }", "'v' is void"),
        ("#pragma scop\n", "#pragma scop stands in no function"),
        (
            "void f(double **x) {\n#pragma scop\n#pragma endscop\n}",
            "'x' needs all|'x' is a pointer to pointers",
        ),
        ("void f(double x[2][]) {\n#pragma scop\n#pragma endscop\n}", "needs all of its extents"),
        ("void f(double x[2.5]) {\n#pragma scop\n#pragma endscop\n}", "must be affine in sizes"),
        (
            "void f(int n, double x[n]) {\n#pragma scop\ndouble t[n*n]; x[0] = t[0];\n#pragma endscop\n}",
            "the extents of 't' must be affine in sizes",
        ),
        ("void f(struct s x) {\n#pragma scop\n#pragma endscop\n}", "this type is not part of nests"),
        ("void f(void x[2]) {\n#pragma scop\n#pragma endscop\n}", "'x' is void"),
        ("void f(double) {\n#pragma scop\n#pragma endscop\n}", "a parameter without a name"),
        ("void f() { {\n#pragma scop\n#pragma endscop\n} }", "stand around whole statements of a function"),
        ("void f() {\n#pragma scop\n}", "stand around whole statements of a function"),
        (
            f"void f(double a) {{\n#pragma scop\na = {'a + ' * 2000}a;\n#pragma endscop\n}}",
            "are nested too deeply",
        ),
        ("void f( {\n#pragma scop\n#pragma endscop\n}", "stands in no function"),
        ("int x = {\n#pragma scop\n}", "stands in no function"),
        ("#if 1\n", "#if without #endif"),
        ("#endif\n", "#endif without #if"),
        ("#if A +\n#endif\n", "condition of #if is not supported"),
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
    with pytest.raises(ProgramError, match="#pragma scop stands in no function"):
        read_c("struct s\n{\n#pragma scop\nint x;\n#pragma endscop\n};\n")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycparser", None)
    with pytest.raises(InstallationError, match="reading C needs the package pycparser"):
        read_c(FRAME % "x[0] = a;")


def test_a_constant_of_the_file_is_not_changed():
    text = (
        "static const double w = 2.0;\nvoid f(int n, double x[n]) { for (int i = 0; i < n; i++) w = x[i]; }"
    )
    with pytest.raises(ProgramError, match="'w' is what the file says, and is never changed") as caught:
        read_c(text, "k.c")
    assert str(caught.value.where).startswith("k.c:2:58")


def test_a_function_by_its_name(tmp_path):
    text = "void f(int n, double x[n]) { for (int i = 0; i < n; i++) x[i] = 1; }\n"
    assert read_c(text + text.replace("void f", "void g"), name="g").name == "g"
    with pytest.raises(ProgramError, match="the file has no function 'h'") as caught:
        read_c(text, name="h")
    assert caught.value.hint == "it has: 'f'"
