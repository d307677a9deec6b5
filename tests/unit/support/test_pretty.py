from tilewright.support import counted, format_bytes, mark_lines, quoted, suggestion


def test_quoted_names_stay_on_one_line():
    assert quoted("it's\n\x1b[31m") == '"it\'s\\n\\x1b[31m"'
    assert len(quoted("a" * 1000)) == 82


def test_counted():
    assert [counted(n, "loop") for n in (0, 1, 2)] == ["0 loops", "1 loop", "2 loops"]


def test_format_bytes():
    sizes = (0, 1023, 1024, 17 * 2**30, 2**60)
    assert [format_bytes(n) for n in sizes] == ["0 B", "1023 B", "1.0 KiB", "17.0 GiB", "1048576.0 TiB"]


def test_suggestion_only_for_close_words():
    assert suggestion("reodrer", ["reorder", "split"]) == "did you mean 'reorder'?"
    assert suggestion("xyz", ["reorder", "split"]) == ""


def test_mark_lines():
    assert mark_lines("a\n\nb", {2}) == "   a\n\n>> b"
