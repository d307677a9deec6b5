"""Timelines as text."""

from tilewright.mapping.system import Span, Timing, timeline


def test_nodes_and_parts():
    spans = (Span("a", "x", 0, 50), Span("b", "y", 45, 100), Span("a", "x", 90, 92))
    timing = Timing(100, {}, {}, {}, 3, spans)
    assert timeline(timing, width=10).splitlines() == ["cycle 0      100", "a #####    :", "b     ######"]
    assert timeline(timing, ("b",), width=10).splitlines()[1:] == ["b     ######"]
