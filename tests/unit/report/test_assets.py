"""The page in a real browser: sorted, filtered, clicked, by keys too, read back, in light and in dark."""

import re
import shutil
from dataclasses import replace
from math import log10

import pytest

from tilewright.report import render
from unit.report.pages import BAD, content

pytestmark = pytest.mark.slow
CSS = "css selector"
#: Least contrast of text, by the guidelines for accessible pages (WCAG 2.1, 1.4.3 and 1.4.11).
TEXT, SHAPES = 4.5, 3.0


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium, where there is one."""
    driver, binary = shutil.which("chromedriver"), shutil.which("chromium")
    webdriver = pytest.importorskip("selenium.webdriver")
    if driver is None or binary is None:
        pytest.skip("no chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1200,1400"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield made
    made.quit()


@pytest.fixture
def page(browser, tmp_path):
    """Opens a page, wide and light; nothing may be said on the browser's console in the end."""

    def shown(what):
        path = tmp_path / "page.html"
        path.write_text(render(what))
        browser.set_window_size(1200, 1400)
        colours(browser, "light")
        browser.get(path.as_uri())
        return browser

    yield shown
    assert not browser.get_log("browser")


def colours(browser, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def column(browser, name):
    """The texts of a column of the table, from above."""
    heads = [each.text for each in browser.find_elements(CSS, "thead th")]
    cells = browser.find_elements(CSS, f"tbody tr td:nth-child({heads.index(name) + 1})")
    return [cell.text for cell in cells]


def click_head(browser, name):
    next(each for each in browser.find_elements(CSS, "thead button") if each.text == name).click()


def open_kernel(browser, name):
    next(each for each in browser.find_elements(CSS, "td button") if each.text == name).click()
    return browser.find_element(CSS, "#detail")


def attributes(element, *names):
    return [float(element.get_attribute(name)) for name in names]


def test_it_is_sorted_and_filtered(page):
    browser = page(content())
    assert browser.title == f"Model {BAD}"
    assert column(browser, "Name") == ["pool", BAD, "never measured"]
    click_head(browser, "Best")
    assert column(browser, "Name")[0] == BAD and column(browser, "Best")[0] == "1.000 ms"
    click_head(browser, "Name")
    assert column(browser, "Name") == sorted(column(browser, "Name"), key=str.lower)
    assert [each.text for each in browser.find_elements(CSS, "thead th[aria-sort]")] == ["Name"]
    assert dict(zip(column(browser, "Name"), column(browser, "Speed-up"), strict=True))[BAD] == "3.00×"
    # of 2 x 3 ms and 8 ms
    assert dict(zip(column(browser, "Name"), column(browser, "Share"), strict=True))[BAD] == "42.9 %"
    search = browser.find_element(CSS, "input[type=search]")
    search.send_keys("pool")
    assert column(browser, "Name") == ["pool"]


def test_a_name_opens_its_details(page):
    browser = page(content())
    detail = open_kernel(browser, BAD)
    assert detail.find_element(CSS, "h2").text == BAD and "crashed: 1, such as: signal 11" in detail.text
    assert "Untuned 3.000 ms, best 1.000 ms, limit 500.0 µs." in detail.text
    assert [each.text for each in detail.find_elements(CSS, "mark.added")] == ["rows=4"]
    assert [each.text for each in detail.find_elements(CSS, "mark.removed")] == ["rows=2"]
    assert len(detail.find_elements(CSS, "svg")) == 2
    detail.find_element(CSS, "details button").click()
    assert detail.find_element(CSS, "details button").text == "Copied"


def test_the_roofline_shows_each_trial_where_it_is(page):
    """Places of trials, of the roof and of its ridge are those that times and limits say."""
    what = content()
    browser = page(what)
    detail = open_kernel(browser, BAD)
    svg = next(
        each for each in detail.find_elements(CSS, "svg") if "Roofline" in each.get_attribute("aria-label")
    )
    kernel = what.kernels[0]
    ran = [s for s in kernel.points.seconds if s is not None]
    dots = [attributes(dot, "cx", "cy") for dot in svg.find_elements(CSS, ".dot")]
    roof = svg.find_element(CSS, ".roof").get_attribute("d")
    left, low, ridge, top = map(float, re.fullmatch(r"M (\S+) (\S+) L (\S+) (\S+) H \S+", roof).groups())
    assert len(dots) == len(ran) == 4
    # by the roof: a decade up and a decade to the right are as many pixels everywhere
    intensity = kernel.flops / kernel.nbytes
    up = (attributes(svg.find_element(CSS, ".first"), "cy")[0] - top) / log10(
        what.peak / (kernel.flops / kernel.untuned)
    )
    for (_, y), seconds in zip(dots, ran, strict=True):
        assert y - top == pytest.approx(up * log10(what.peak * seconds / kernel.flops), abs=0.1)
    right = (ridge - left) / ((low - top) / up)  # the roof rises by one decade in one decade
    at_ridge = what.peak / what.bandwidth
    assert dots[0][0] - ridge == pytest.approx(right * log10(intensity / at_ridge), abs=0.1)
    best = svg.find_element(CSS, ".best")
    assert attributes(best, "cy") == [pytest.approx(min(y for _, y in dots))]
    said = browser.execute_script("return arguments[0].querySelector('title').textContent", best)
    assert said == "best: 1.000 ms, 1.00e+3 GFLOP/s" or said == "best: 1.000 ms, 1000 GFLOP/s"


def test_the_curve_ends_at_the_best(page):
    what = content()
    browser = page(what)
    detail = open_kernel(browser, BAD)
    svg = detail.find_element(CSS, "svg[data-chart=curve]")
    path = svg.find_element(CSS, ".line").get_attribute("d")
    steps = [float(v) for v in re.findall(r"V (\S+)", path)]
    first = float(re.match(r"M \S+ (\S+)", path)[1])
    untuned = attributes(svg.find_element(CSS, ".untuned"), "y1")[0]
    assert first == pytest.approx(untuned)  # the first trial is the untuned plan's
    # the second failed: 3 ms, 3 ms, 2 ms, 2 ms, 1 ms
    a, b, c, d = steps
    assert (a, c) == (pytest.approx(first), pytest.approx(b))
    assert b - first == pytest.approx(d - b)


def test_the_graph_shows_joins_and_conversions_and_opens_kernels(page):
    browser = page(content())
    graph = browser.find_element(CSS, "#graph")
    assert len(graph.find_elements(CSS, ".node:not(.joined)")) == 3
    assert len(graph.find_elements(CSS, ".joined")) == len(graph.find_elements(CSS, ".converts")) == 1
    assert "2 groups joined · plain → NCHW16c" in graph.text
    labels = [each.get_attribute("aria-label") for each in graph.find_elements(CSS, ".step")]
    assert labels[0] == f"{BAD}, Conv+Relu, 2 groups joined, plain → NCHW16c"
    # what no task is has nothing to open
    assert [each.get_attribute("tabindex") for each in graph.find_elements(CSS, ".step")] == ["0", "0", None]
    graph.find_elements(CSS, ".step")[1].click()
    assert browser.find_element(CSS, "#detail h2").text == "pool"
    assert f"{BAD}: a run before and after" in browser.find_element(CSS, ".figures").text


def test_keys_alone_suffice(page):
    from_keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    browser = page(content())
    body = browser.find_element(CSS, "body")
    reached = []
    for _ in range(60):
        browser.switch_to.active_element.send_keys(from_keys.TAB)
        now = browser.switch_to.active_element
        if now == body:
            break
        reached.append((now.tag_name, now.accessible_name))
        # what has the focus is seen to have it
        style = "const s = getComputedStyle(arguments[0]); return s.outlineStyle"
        assert browser.execute_script(style, now) != "none", reached[-1]
    names = [name for _, name in reached]
    assert {"Filter by name", "Best", "pool", "never measured"} <= set(names)
    assert f"{BAD}, Conv+Relu, 2 groups joined, plain → NCHW16c" in names
    head = next(each for each in browser.find_elements(CSS, "thead button") if each.text == "Best")
    head.send_keys(from_keys.ENTER)
    assert column(browser, "Name")[0] == BAD
    for key in (from_keys.ENTER, from_keys.SPACE):
        open_kernel(browser, "never measured")
        browser.find_elements(CSS, "#graph .step")[1].send_keys(key)
        assert browser.find_element(CSS, "#detail h2").text == "pool"
        assert browser.switch_to.active_element.text == "pool"


def luminance(colour):
    parts = [int(v) / 255 for v in re.findall(r"\d+", colour)[:3]]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return sum(v * weight for v, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


COLOURS = """
const shown = (e) => e.getClientRects().length > 0;
const ground = (e) => {
  for (let at = e; at; at = at.parentElement) {
    const found = getComputedStyle(at).backgroundColor;
    if (found !== "rgba(0, 0, 0, 0)" && found !== "transparent") return found;
  }
  return "rgb(255, 255, 255)";
};
const own = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
const texts = [...document.querySelectorAll("main *")].filter((e) => shown(e) && own(e));
return texts.filter((e) => e.tagName !== "title").map((e) => {
  const svg = e instanceof SVGElement;
  const colour = getComputedStyle(e)[svg ? "fill" : "color"];
  return [e.textContent.slice(0, 40), colour, ground(svg ? e.ownerSVGElement : e)];
});
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_contrast(page, scheme):
    browser = page(content())
    colours(browser, scheme)
    open_kernel(browser, BAD)
    found = browser.execute_script(COLOURS)
    assert len(found) > 60
    low = [each for each in found if contrast(each[1], each[2]) < TEXT]
    assert not low
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (luminance(paper) < 0.2) == (scheme == "dark")
    for shape in (".dot", ".best", ".first", ".roof", ".line", ".converts"):
        style = browser.execute_script(
            "const s = getComputedStyle(document.querySelector(arguments[0]));"
            "return s.fill === 'none' ? s.stroke : s.fill",
            shape,
        )
        assert contrast(style, paper) >= SHAPES, shape


def test_what_it_is_compared_with_has_a_column(page):
    what = content()
    kernels = (replace(what.kernels[0], before=2e-3), *what.kernels[1:])
    browser = page(replace(what, kernels=kernels, against="before 2026-01-15"))
    assert column(browser, "Against") == ["–", "2.000 ms", "–"]
    assert "today, beside before 2026-01-15" in browser.find_element(CSS, "main").text
    assert browser.find_elements(CSS, "thead th")[-1].text == "Of its limit"


@pytest.mark.parametrize("width", [420, 1280])
def test_no_width_cuts_it_off(page, width):
    browser = page(content())
    open_kernel(browser, BAD)
    browser.set_window_size(width, 900)
    over = browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
    assert over <= 1
