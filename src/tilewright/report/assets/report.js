"use strict";
// Everything that comes from a model or a database goes into the page as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const page = document.getElementById("report");
  const SVG = "http://www.w3.org/2000/svg";

  function add(parent, name, attributes = {}, ...children) {
    const svg = parent instanceof SVGElement || name === "svg";
    const made = svg ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value);
    }
    for (const child of children) made.append(child);
    parent.append(made);
    return made;
  }

  function seconds(value) {
    if (value === null || value === undefined) return "–";
    if (value < 1e-3) return `${(value * 1e6).toPrecision(4)} µs`;
    return value < 1 ? `${(value * 1e3).toPrecision(4)} ms` : `${value.toPrecision(4)} s`;
  }
  const count = (value) => (value === null || value === undefined ? "–"
    : value >= 1e9 ? `${(value / 1e9).toPrecision(3)} G` : value >= 1e6 ? `${(value / 1e6).toPrecision(3)} M`
    : value >= 1e3 ? `${(value / 1e3).toPrecision(3)} k` : String(value));
  const percent = (value) => (value === null ? "–" : `${(100 * value).toFixed(1)} %`);
  const last = (kernel) => kernel.best ?? kernel.untuned;
  const gain = (kernel) => (kernel.best && kernel.untuned ? kernel.untuned / kernel.best : null);
  const total = data.kernels.reduce((sum, k) => sum + (k.untuned ?? 0) * k.uses, 0);
  const share = (kernel) => (total && kernel.untuned !== null ? (kernel.untuned * kernel.uses) / total : null);
  const ofLimit = (kernel) => (kernel.limit && last(kernel) ? kernel.limit / last(kernel) : null);
  const trials = (kernel) => kernel.points.seconds.length;

  // ---- head ----
  add(page, "h1", {}, data.title);
  add(page, "p", { class: "soft" }, data.made + (data.against ? `, beside ${data.against}` : ""));
  const facts = add(page, "dl", { class: "facts" });
  for (const [name, text] of data.facts) {
    const pair = add(facts, "div");
    add(pair, "dt", {}, name);
    add(pair, "dd", {}, text);
  }
  const figures = add(page, "div", { class: "figures" });
  function figure(label, text) {
    const made = add(figures, "div", { class: "figure" });
    add(made, "b", {}, text);
    add(made, "span", { class: "soft" }, label);
  }
  for (const network of data.networks) {
    if (network.untuned === null || network.best === null) continue;
    figure(`${network.name}: a run before and after`, `${seconds(network.untuned)} → ${seconds(network.best)}`);
  }
  if (data.untuned !== null) figure(data.best === null ? "a run" : "all tasks before", seconds(data.untuned));
  if (data.best !== null) figure("all tasks after", seconds(data.best));
  if (data.untuned && data.best) figure("times as fast", (data.untuned / data.best).toFixed(3));
  figure(data.kind === "tuning" ? "tasks" : "kernels", String(data.kernels.length));
  const every = data.kernels.reduce((sum, k) => sum + trials(k), 0);
  if (every) figure("trials", String(every));
  const limits = data.kernels.every((k) => k.limit !== null && last(k)) && data.kernels.length;
  if (limits) {
    const least = data.kernels.reduce((sum, k) => sum + k.limit * k.uses, 0);
    const now = data.kernels.reduce((sum, k) => sum + last(k) * k.uses, 0);
    figure("of the machine's limit", percent(least / now));
  }

  // ---- charts ----
  function chart(parent, label, width = 460, height = 260) {
    const svg = add(parent, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
    add(svg, "title", {}, label);
    return { svg, left: 72, right: width - 12, top: 14, bottom: height - 34, width, height };
  }
  function scale(low, high, from, to, log) {
    const map = log ? Math.log10 : (x) => x;
    const span = map(high) - map(low) || 1;
    return (x) => from + ((map(x) - map(low)) / span) * (to - from);
  }
  function ticks(low, high, log) {
    if (log) {
      const found = [];
      for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p += 1) {
        for (const digit of [1, 2, 5]) {
          const tick = digit * 10 ** p;
          if (tick >= low && tick <= high) found.push(tick);
        }
      }
      return found.length > 8 ? found.filter((t) => /^1(e|0*$|\.0*$)/.test(String(t)) || Number.isInteger(Math.log10(t))) : found;
    }
    const step = 10 ** Math.floor(Math.log10((high - low) / 4 || 1));
    const by = [1, 2, 5, 10].map((f) => f * step).find((s) => (high - low) / s <= 6) || step;
    const found = [];
    for (let t = Math.ceil(low / by) * by; t <= high + by / 1e6; t += by) found.push(t);
    return found;
  }
  function axes(c, x, y, xs, ys, xText, yText, xLabel, yLabel) {
    add(c.svg, "line", { class: "axis", x1: c.left, x2: c.right, y1: c.bottom, y2: c.bottom });
    add(c.svg, "line", { class: "axis", x1: c.left, x2: c.left, y1: c.top, y2: c.bottom });
    for (const t of xs) {
      add(c.svg, "text", { x: x(t), y: c.bottom + 15, "text-anchor": "middle" }, xText(t));
    }
    for (const t of ys) {
      add(c.svg, "line", { class: "axis", x1: c.left, x2: c.right, y1: y(t), y2: y(t), opacity: 0.5 });
      add(c.svg, "text", { x: c.left - 6, y: y(t) + 4, "text-anchor": "end" }, yText(t));
    }
    add(c.svg, "text", { x: (c.left + c.right) / 2, y: c.height - 4, "text-anchor": "middle" }, xLabel);
    add(c.svg, "text", { x: 4, y: 11 }, yLabel);
  }
  function bestSoFar(points) {
    const found = [];
    let best = null;
    points.seconds.forEach((value, at) => {
      if (value !== null && data.statuses[points.statuses[at]] === "ok") best = best === null ? value : Math.min(best, value);
      if (best !== null) found.push([at + 1, best]);
    });
    return found;
  }
  function curve(parent, label, found, untuned) {
    const c = chart(parent, label);
    const values = found.map((p) => p[1]).concat(untuned ? [untuned] : []);
    const [low, high] = [Math.min(...values) * 0.95, Math.max(...values) * 1.05];
    const x = scale(1, Math.max(found.at(-1)[0], 2), c.left, c.right);
    const y = scale(low, high, c.bottom, c.top);
    axes(c, x, y, ticks(1, Math.max(found.at(-1)[0], 2)), ticks(low, high), (t) => String(Math.round(t)), seconds, "trials", label);
    if (untuned) add(c.svg, "line", { class: "untuned", x1: c.left, x2: c.right, y1: y(untuned), y2: y(untuned) });
    let path = `M ${x(found[0][0])} ${y(found[0][1])}`;
    for (const [at, value] of found.slice(1)) path += ` H ${x(at)} V ${y(value)}`;
    add(c.svg, "path", { class: "line", d: path });
    return c;
  }

  const tuned = data.kernels.filter((k) => k.untuned !== null && bestSoFar(k.points).length > 1);
  if (tuned.length) {
    add(page, "h2", {}, "Best so far");
    add(page, "p", { class: "soft" }, "The time of all tasks by their best plans so far; dashed: untuned.");
    const curves = tuned.map((k) => [k, bestSoFar(k.points)]);
    const most = Math.max(...curves.map(([, found]) => found.at(-1)[0]));
    const sums = [];
    for (let at = 1; at <= most; at += Math.max(1, Math.floor(most / 400))) {
      let sum = 0;
      for (const [k, found] of curves) {
        let value = k.untuned;
        for (const [n, best] of found) { if (n > at) break; value = best; }
        sum += Math.min(value, k.untuned) * k.uses;
      }
      sums.push([at, sum]);
    }
    curve(add(page, "div", { class: "charts" }), "time of all tasks", sums, tuned.reduce((s, k) => s + k.untuned * k.uses, 0));
  }

  // ---- table ----
  const compared = data.kernels.some((k) => k.before !== null);
  const measured = data.kernels.some((k) => k.best !== null || trials(k));
  const columns = [
    ["Name", (k) => k.name, null],
    ["Algorithm", (k) => k.algorithm || k.operators, null],
    ["Calls", (k) => k.uses, (v) => String(+v.toFixed(2))],
    ["FLOP", (k) => k.flops, count],
    ["Share", share, percent],
    [measured ? "Untuned" : "Time", (k) => k.untuned, seconds],
    ...(measured ? [
      ["Best", (k) => k.best, seconds],
      ["Speed-up", gain, (v) => (v === null ? "–" : `${v.toFixed(2)}×`)],
      ["Trials", trials, String],
      ["Failed", (k) => Object.values(k.failed).reduce((a, b) => a + b, 0), String],
    ] : []),
    ...(compared ? [["Against", (k) => k.before, seconds]] : []),
    ["Of its limit", ofLimit, percent],
  ];
  add(page, "h2", {}, data.kind === "tuning" ? "Tasks" : "Kernels");
  const search = add(page, "input", { type: "search", "aria-label": "Filter by name", placeholder: "Filter by name" });
  const table = add(add(page, "div", { class: "scroll" }), "table", { id: "table" });
  add(table, "caption", {}, "Click a column to sort by it, a name for details.");
  const head = add(add(table, "thead"), "tr");
  const body = add(table, "tbody");
  let order = { column: columns.findIndex(([name]) => name === "Share"), down: true };
  columns.forEach(([name], at) => {
    const button = add(add(head, "th", { scope: "col", class: at === 1 ? "text" : undefined }), "button", { type: "button" }, name);
    button.addEventListener("click", () => {
      order = { column: at, down: order.column === at ? !order.down : at > 1 };
      fill();
    });
  });
  function fill() {
    const [, value] = columns[order.column];
    const wanted = search.value.toLowerCase();
    const rows = data.kernels.map((kernel, at) => ({ kernel, at }))
      .filter(({ kernel }) => [kernel.name, ...kernel.nodes, kernel.algorithm].join(" ").toLowerCase().includes(wanted));
    rows.sort((a, b) => {
      const [p, q] = [value(a.kernel), value(b.kernel)];
      if (p === null || q === null) return (p === null) - (q === null);
      const way = typeof p === "string" ? p.localeCompare(q) : p - q;
      return (order.down ? -way : way) || a.at - b.at;
    });
    [...head.children].forEach((cell, at) => {
      if (at === order.column) cell.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    body.replaceChildren();
    for (const { kernel, at } of rows) {
      const row = add(body, "tr", { "data-at": at, "aria-selected": String(at === shown) });
      columns.forEach(([name, get, text], n) => {
        const cell = add(row, "td", { class: n === 1 ? "text" : undefined });
        const found = get(kernel);
        if (n === 0) {
          const button = add(cell, "button", { type: "button", title: kernel.nodes.join(", ") }, found);
          button.addEventListener("click", () => detail(at, true));
          return;
        }
        cell.append(text === null ? found : text(found));
        if (name === "Share" && found !== null) {
          add(cell, "span", { class: "bar", style: `width:${(found * 5).toFixed(2)}rem;margin-left:.5rem`, "aria-hidden": "true" });
        }
        if (name === "Speed-up" && found !== null) cell.className = found > 1.005 ? "gain" : found < 0.995 ? "worse" : "";
      });
    }
  }
  search.addEventListener("input", fill);

  // ---- one kernel ----
  const place = add(page, "section", { class: "detail", id: "detail", "aria-live": "polite", hidden: "" });
  let shown = null;

  function roofline(parent, kernel) {
    if (!data.peak || !data.bandwidth || !kernel.flops || !kernel.nbytes) return;
    const dots = kernel.points.seconds.map((s, at) => [s, data.statuses[kernel.points.statuses[at]]])
      .filter(([s, status]) => s !== null && status === "ok").map(([s]) => s);
    const own = [kernel.untuned, kernel.best].filter((s) => s !== null);
    if (!own.length && !dots.length) return;
    const rates = [...own, ...dots].map((s) => kernel.flops / s);
    const intensity = kernel.flops / kernel.nbytes;
    const ridge = data.peak / data.bandwidth;
    const [xLow, xHigh] = [Math.min(intensity, ridge) / 8, Math.max(intensity, ridge) * 8];
    const [yLow, yHigh] = [Math.min(...rates, data.bandwidth * xLow) / 2, Math.max(data.peak, ...rates) * 1.6];
    const c = chart(parent, "Roofline: operations a second by operations a byte");
    const x = scale(xLow, xHigh, c.left, c.right, true);
    const y = scale(yLow, yHigh, c.bottom, c.top, true);
    axes(c, x, y, ticks(xLow, xHigh, true), ticks(yLow, yHigh, true), (t) => String(+t.toPrecision(2)), (t) => count(t), "operations a byte of arguments", "operations a second");
    add(c.svg, "path", { class: "roof", d: `M ${x(xLow)} ${y(data.bandwidth * xLow)} L ${x(ridge)} ${y(data.peak)} H ${c.right}` });
    function point(kind, s, r) {
      const made = add(c.svg, "circle", { class: kind, cx: x(intensity), cy: y(kernel.flops / s), r });
      add(made, "title", {}, `${kind === "dot" ? "trial" : kind === "first" ? "untuned" : "best"}: ${seconds(s)}, ${count(kernel.flops / s)}FLOP/s`);
    }
    for (const s of dots) point("dot", s, 3);
    if (kernel.untuned) point("first", kernel.untuned, 5);
    if (kernel.best) point("best", kernel.best, 5);
  }

  function lines(parent, text, others, name) {
    const pre = add(parent, "pre", { tabindex: "0", "aria-label": name });
    const known = new Set(others.split("\n"));
    text.split("\n").forEach((line, at, all) => {
      const end = at < all.length - 1 ? "\n" : "";
      if (others && !known.has(line) && line.trim()) add(pre, "mark", { class: name === "Default" ? "removed" : "added" }, line + end);
      else pre.append(line + end);
    });
  }

  function code(parent, title, text, copy) {
    if (!text) return;
    const whole = add(parent, "details", copy ? { open: "" } : {});
    add(whole, "summary", {}, title);
    if (copy) {
      const button = add(whole, "button", { type: "button", class: "plain" }, "Copy");
      button.addEventListener("click", async () => {
        try {
          await navigator.clipboard.writeText(text);
        } catch {
          const range = document.createRange();
          range.selectNodeContents(pre);
          getSelection().removeAllRanges();
          getSelection().addRange(range);
        }
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1500);
      });
    }
    const pre = add(whole, "pre", { tabindex: "0" }, text);
  }

  // Bars by term: terms of a price overlap, so that bars are longer than it says.
  function prices(parent, found) {
    const most = Math.max(...found.map((each) => each.terms.reduce((sum, [, s]) => sum + s, 0)), ...found.map((each) => each.seconds));
    add(parent, "h3", {}, "What the model says of the plan and of other ways");
    const list = add(parent, "div", { class: "prices" });
    for (const each of found) {
      const row = add(list, "div", { class: each.change ? "price" : "price taken" });
      add(row, "span", {}, `${each.nest}: ${each.change || "taken"}`);
      add(row, "span", {}, seconds(each.seconds));
      const bar = add(row, "span", { class: "terms" });
      for (const [at, [term, s]] of each.terms.entries()) {
        if (s < most / 400) continue;
        const style = `width:${((100 * s) / most).toFixed(2)}%`;
        add(bar, "span", { class: `term t${at}`, style, title: `${term} ${seconds(s)}` }, s > most / 12 ? term : "");
      }
    }
  }

  function detail(at, scroll) {
    shown = at;
    const kernel = data.kernels[at];
    place.hidden = false;
    place.replaceChildren();
    add(place, "h2", { tabindex: "-1", id: "detail-name" }, kernel.name);
    add(place, "p", { class: "soft" }, [kernel.operators, kernel.algorithm].filter(Boolean).join(" · "));
    if (kernel.nodes.length) add(place, "p", {}, `Nodes: ${kernel.nodes.join(", ")}`);
    if (kernel.layouts) add(place, "p", {}, `Layouts: ${kernel.layouts}`);
    add(place, "p", {}, `Untuned ${seconds(kernel.untuned)}, best ${seconds(kernel.best)}, limit ${seconds(kernel.limit)}.`);
    const charts = add(place, "div", { class: "charts" });
    roofline(charts, kernel);
    const found = bestSoFar(kernel.points);
    if (found.length > 1) {
      const c = curve(charts, "best so far", found, kernel.untuned);
      c.svg.setAttribute("data-chart", "curve");
    }
    const failed = Object.entries(kernel.failed);
    if (failed.length) {
      add(place, "h3", {}, "Trials that failed");
      const list = add(place, "ul");
      const why = Object.fromEntries(kernel.reasons);
      for (const [status, n] of failed) add(list, "li", {}, `${status}: ${n}${why[status] ? `, such as: ${why[status]}` : ""}`);
    }
    if (kernel.prices.length) prices(place, kernel.prices);
    if (kernel.plan) {
      add(place, "h3", {}, kernel.default_plan ? "The winning plan beside the default" : "Plan");
      const plans = add(place, "div", { class: "plans" });
      if (kernel.default_plan) lines(plans, kernel.default_plan, kernel.plan, "Default");
      lines(plans, kernel.plan, kernel.default_plan, "Winner");
    }
    code(place, "Schedule, as Python", kernel.schedule, true);
    code(place, "Loop nest", kernel.loops, false);
    for (const row of body.children) row.setAttribute("aria-selected", String(row.dataset.at === String(at)));
    if (scroll) {
      place.scrollIntoView({ block: "start" });
      document.getElementById("detail-name").focus({ preventScroll: true });
    }
  }

  // ---- graphs ----
  const places = new Map(data.kernels.map((kernel, at) => [kernel.key, at]).filter(([key]) => key));
  const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  const sides = (step) => [step.reads, step.writes].map((side) => side.join("/") || "–");

  function graph(network, number) {
    const { steps, links } = network;
    if (!steps.length) return;
    add(page, "h2", {}, data.networks.length > 1 ? `Graph of ${network.name}` : "Graph");
    add(page, "p", { class: "soft" }, "Kernels in the order in which values flow. Red: a tenth of the time or more; a second outline: "
      + "groups of nodes that one kernel joins; a bar at the left: what it reads is stored in another layout than what it writes.");
    const depth = steps.map(() => 0);
    for (const { source, reader } of links) depth[reader] = Math.max(depth[reader], depth[source] + 1);
    const rows = new Map();
    steps.forEach((_, at) => rows.set(depth[at], [...(rows.get(depth[at]) || []), at]));
    const widest = Math.max(...[...rows.values()].map((row) => row.length));
    const [boxW, boxH, gapX, gapY] = [264, 44, 24, 30];
    const width = Math.max(480, widest * (boxW + gapX) + gapX);
    const height = rows.size * (boxH + gapY) + gapY;
    const scroll = add(page, "div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Graph of ${network.name}` });
    const svg = add(scroll, "svg", {
      viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Kernels and the values between them", id: number ? `graph-${number}` : "graph",
      style: `width:${width}px;max-width:${width <= 900 ? "100%" : "none"};display:block;margin:auto`,
    });
    const at = (n) => {
      const row = rows.get(depth[n]);
      const left = (width - row.length * (boxW + gapX) + gapX) / 2;
      return [left + row.indexOf(n) * (boxW + gapX), gapY / 2 + depth[n] * (boxH + gapY)];
    };
    for (const { source, reader, value, layout } of links) {
      const [x1, y1] = at(source);
      const [x2, y2] = at(reader);
      const path = add(svg, "path", { class: "edge", d: `M ${x1 + boxW / 2} ${y1 + boxH} C ${x1 + boxW / 2} ${y1 + boxH + gapY}, ${x2 + boxW / 2} ${y2 - gapY}, ${x2 + boxW / 2} ${y2}` });
      add(path, "title", {}, value + (layout ? `: ${layout}` : ""));
      if (layout && layout !== "plain" && depth[reader] === depth[source] + 1) add(svg, "text", { x: (x1 + x2 + boxW) / 2 + 4, y: (y1 + boxH + y2) / 2 + 4 }, layout);
    }
    steps.forEach((step, n) => {
      const [x, y] = at(n);
      const found = places.get(step.task);
      const hot = found !== undefined && (share(data.kernels[found]) ?? 0) >= 0.1;
      const [reads, writes] = sides(step);
      const words = [step.joined.length ? `${step.joined.length} groups joined` : "", reads === writes || !step.reads.length ? "" : `${reads} → ${writes}`].filter(Boolean);
      const said = [step.label, step.operators, ...words].join(", ");
      const group = add(svg, "g", found === undefined ? { class: "step", "aria-label": said } : { class: "step", role: "button", tabindex: "0", "aria-label": said });
      if (step.joined.length) add(group, "rect", { class: "node joined", x: x - 4, y: y - 4, width: boxW + 8, height: boxH + 8, rx: 7 });
      add(group, "rect", { class: `node${hot ? " hot" : ""}`, x, y, width: boxW, height: boxH, rx: 5 });
      if (reads !== writes && step.reads.length) add(group, "rect", { class: "converts", x, y, width: 6, height: boxH, rx: 3 });
      add(group, "text", { class: "node-text", x: x + boxW / 2 + 3, y: y + 18, "text-anchor": "middle" }, short(step.operators || step.label, 36));
      add(group, "text", { x: x + boxW / 2 + 3, y: y + 35, "text-anchor": "middle" }, short(words.join(" · ") || step.label, 38));
      add(group, "title", {}, [step.label, ...step.joined].join("\n"));
      if (found === undefined) return;
      group.addEventListener("click", () => detail(found, true));
      group.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        detail(found, true);
      });
    });
  }

  fill();
  page.append(place);
  data.networks.forEach(graph);
  if (data.kernels.length) detail(Number(body.firstElementChild?.dataset.at ?? 0), false);
})();
