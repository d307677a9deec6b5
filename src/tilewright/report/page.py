"""One self-contained page of a report: its data, its style and its script in one file."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from typing import Final

from tilewright.report.content import Content

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<main id="report"><noscript>This page shows its tables and charts by a script of its own.</noscript></main>
<script type="application/json" id="data">{data}</script>
<script>
{script}
</script>
</body>
</html>
"""


def render(content: Content) -> str:
    """The page's text. Names of a model stay text, whatever they hold."""
    assets = files("tilewright.report").joinpath("assets")
    # "<" would end the element, whatever comes after it
    data = json.dumps(content.to_data(), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return _PAGE.format(
        title=html.escape(content.title),
        style=assets.joinpath("report.css").read_text(encoding="utf-8"),
        data=data,
        script=assets.joinpath("report.js").read_text(encoding="utf-8"),
    )
