// The parts that the pages share: elements, state in the URL, tooltips, charts, and a self-test.
// A page calls kit.start(draw), where draw(data) builds the document from the data in it.
"use strict";
const kit = (() => {
  const SVG = "http://www.w3.org/2000/svg";

  // ---- Elements -------------------------------------------------------------------------------

  // An element. Attributes whose names begin with "on" are listeners; children are elements or text,
  // never HTML, so that no name can be taken for a tag.
  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes ?? {})) {
      if (value === undefined || value === null || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "style" && typeof value === "object") Object.assign(element.style, value);
      else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat(Infinity).filter(c => c !== undefined && c !== null && c !== false));
    return element;
  }
  const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

  // ---- Numbers --------------------------------------------------------------------------------

  const isNumber = x => typeof x === "number" && Number.isFinite(x);

  // A number with a few significant digits, without an exponent where it is readable.
  function number(x, digits = 4) {
    if (x === null || x === undefined) return "–";
    if (Number.isNaN(x)) return "NaN";
    if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
    if (x === 0) return "0";
    const size = Math.abs(x);
    const text = size >= 1e6 || size < 1e-3
      ? x.toExponential(Math.max(0, digits - 2))
      : String(Number(x.toPrecision(digits)));
    return text.replace(/-/g, "−").replace(/^−?\d+/, count);
  }

  // A quantity with a prefix of its unit: 12.3 kB.
  function quantity(x, unit, digits = 3) {
    if (!isNumber(x)) return "–";
    const prefixes = ["n", "µ", "m", "", "k", "M", "G", "T", "P"];
    let i = x === 0 ? 3 : 3 + Math.floor(Math.log10(Math.abs(x)) / 3 + 1e-9);
    i = Math.min(Math.max(i, unit === "B" ? 3 : 0), prefixes.length - 1);
    const scaled = x / 10 ** (3 * (i - 3));
    return `${String(Number(scaled.toPrecision(digits))).replace(/-/g, "−")} ${prefixes[i]}${unit}`;
  }
  const bytes = x => quantity(x, "B");
  const seconds = x => quantity(x, "s");
  const percent = x => isNumber(x) ? `${number(100 * x, 3)} %` : "–";
  const count = n => String(n).replace(/\B(?=(\d{3})+$)/g, ",");

  // Round numbers between two limits, about n of them.
  function ticks(low, high, n = 5) {
    if (!(high > low)) return [low];
    const rough = (high - low) / Math.max(1, n), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(f => f * power).find(x => x >= rough * .999);
    const all = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) all.push(Number((i * step).toPrecision(12)));
    return all;
  }
  function logTicks(low, high) {
    const all = [], first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const each = last - first > 3 ? [1] : last - first > 1 ? [1, 3] : [1, 2, 5];
    const every = Math.max(1, Math.ceil((last - first) / 6));
    for (let e = first; e <= last; e += every) for (const m of each) {
      const x = m * 10 ** e;
      if (x >= low * .999 && x <= high * 1.001) all.push(x);
    }
    return all.length > 1 ? all : [low, high];
  }

  // ---- State in the URL -----------------------------------------------------------------------

  const listeners = [];
  let state = {};
  function readHash() {
    const found = {};
    for (const part of location.hash.slice(1).split("&")) {
      const [key, value] = part.split("=");
      if (key && value !== undefined) try { found[key] = decodeURIComponent(value); } catch { /* a damaged address */ }
    }
    return found;
  }
  // The address of the page, with changes.
  const address = changes => "#" + Object.entries({ ...state, ...changes }).map(([k, v]) => `${k}=${encodeURIComponent(v)}`).join("&");
  // Changes some values; null removes one. The back button restores the previous state if `remember`.
  function set(changes, remember = false) {
    const before = state;
    state = { ...state };
    for (const [key, value] of Object.entries(changes)) {
      if (value === null || value === undefined) delete state[key]; else state[key] = String(value);
    }
    if (Object.keys({ ...before, ...state }).every(k => before[k] === state[k])) return;
    if (!testing) try { history[remember ? "pushState" : "replaceState"](null, "", address()); } catch { /* too many changes */ }
    for (const listener of listeners) listener(state, before);
  }
  const get = (key, otherwise) => state[key] ?? otherwise;
  const on = listener => listeners.push(listener);

  // ---- Tooltips and help ----------------------------------------------------------------------

  let tip;
  function showTip(text, x, y) {
    if (!text) return hideTip();
    tip ??= document.body.appendChild(h("div", { id: "tip", role: "status" }));
    tip.textContent = text;
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 4))}px`;
    tip.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 10) : y + 18}px`;
  }
  const hideTip = () => { if (tip) tip.hidden = true; };
  // A tooltip, a text or a function of the event, by pointer and by keyboard.
  function tooltip(element, text) {
    const of = event => typeof text === "function" ? text(event) : text;
    element.addEventListener("pointermove", e => showTip(of(e), e.clientX, e.clientY));
    element.addEventListener("pointerleave", hideTip);
    // A part of a picture that listens to the focus would be a stop of the tabulator.
    if (element instanceof SVGElement && !element.hasAttribute("tabindex")) return element;
    element.addEventListener("focus", e => {
      const box = element.getBoundingClientRect();
      showTip(of(e), box.left, box.bottom - 12);
    });
    element.addEventListener("blur", hideTip);
    return element;
  }

  // ---- The page -------------------------------------------------------------------------------

  const panels = [];
  // A section with a title, an explanation behind a button, and what `draw` puts in it.
  function panel(id, title, help, draw) {
    const opened = () => get("help", "").split(",").filter(Boolean), isOpen = opened().includes(id);
    const text = h("div", { class: "help", id: `help-${id}`, hidden: !isOpen }, [help].flat().map(t => h("p", {}, t)));
    const button = h("button", {
      class: "plain", "aria-expanded": String(isOpen), "aria-controls": `help-${id}`, title: "What this shows",
      onclick() {
        text.hidden = !text.hidden;
        button.setAttribute("aria-expanded", String(!text.hidden));
        set({ help: [...opened().filter(other => other !== id), ...(text.hidden ? [] : [id])].join(",") || null });
      },
    }, "?");
    const body = h("div", { class: "body" });
    const element = h("section", { class: "panel", id, "aria-label": title }, h("div", { class: "head" }, h("h2", {}, title), button), text, body);
    panels.push({ id, title, element });
    guarded(id, body, () => draw(body));
    return element;
  }
  // Runs what draws a part of the page. What fails says so in its place, and the self-test reports it.
  const failures = [];
  function guarded(name, place, f) {
    try { return f(); } catch (error) {
      failures.push(`${name}: ${error.message}`);
      place.replaceChildren(h("p", { class: "message" }, `This part cannot be shown: ${error.message}.`));
    }
  }
  function contents() {
    const link = ({ id, title }) => h("a", { href: `#${id}`, onclick(event) {
      event.preventDefault();
      document.getElementById(id).scrollIntoView();
      set({ at: id });
    } }, title);
    const links = panels.map(link);
    const nav = h("nav", { class: "contents", "aria-label": "Contents" }, links);
    const seen = new Set();
    const observer = new IntersectionObserver(entries => {
      for (const e of entries) if (e.isIntersecting) seen.add(e.target.id); else seen.delete(e.target.id);
      const first = panels.findIndex(p => seen.has(p.id));
      links.forEach((a, i) => i === first ? a.setAttribute("aria-current", "true") : a.removeAttribute("aria-current"));
    }, { rootMargin: "-60px 0px -40% 0px" });
    for (const p of panels) observer.observe(p.element);
    return nav;
  }
  function themeButton() {
    const root = document.documentElement;
    return h("button", { class: "plain", onclick() {
      root.dataset.theme = isDark() ? "light" : "dark";
      set({ theme: root.dataset.theme });
      redraw();
    } }, "light / dark");
  }

  // The document: a title, a line below it, what is beside it, and panels.
  function page(title, subtitle, sections) {
    const nav = sections.length > 1 ? contents() : null;
    return h("div", { class: "page" },
      h("header", {}, h("div", { class: "titles" }, h("h1", {}, title), h("p", { class: "soft small" }, subtitle)), panels.length ? kit.search() : null, themeButton()),
      nav, sections);
  }
  const fail = sentence => document.body.replaceChildren(h("div", { class: "page" },
    h("h1", {}, document.title), h("p", { class: "message", id: "failure" }, sentence)));

  // The data in the document; an error that says what is wrong with it.
  function data(id = "data") {
    const element = document.getElementById(id);
    if (!element) throw new Error("it contains no data");
    try { return JSON.parse(element.textContent); } catch { throw new Error("its data is damaged or incomplete"); }
  }

  // ---- Drawing again --------------------------------------------------------------------------

  // The drawings that can be seen, and what to do when an element has another size. An element that was replaced is
  // in neither, so that it can be freed.
  const drawings = new Set(), measures = new WeakMap();
  const sizes = new ResizeObserver(entries => entries.forEach(({ target }) => measures.get(target).forEach(measure => measure())));
  // Calls draw(width) as soon as the element is in the document, and whenever its width or the colours change.
  function drawn(element, draw) {
    let width = 0;
    const again = () => { if (width > 0) guarded("a drawing", element, () => draw(width)); };
    const measure = () => {
      const now = Math.floor(element.clientWidth);
      if (now === width) return;
      width = now;
      if (width > 0) drawings.add(again); else drawings.delete(again);
      again();
    };
    measures.set(element, [...measures.get(element) ?? [], measure]);
    sizes.observe(element);
    requestAnimationFrame(measure);
    return again;
  }
  const redraw = () => drawings.forEach(again => again());
  // Calls f before the next frame, once however often it was asked: what reads places of elements makes a layout.
  const onFrame = f => {
    let frame = 0;
    return () => { frame ||= requestAnimationFrame(() => { frame = 0; f(); }); };
  };
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  prefersDark.addEventListener("change", redraw);

  // ---- Colours --------------------------------------------------------------------------------

  const color = i => `var(--c${i % 8})`;
  const isDark = () => {
    const theme = document.documentElement.dataset.theme;
    return theme ? theme === "dark" : prefersDark.matches;
  };
  const RAMPS = {
    // From nothing to much: the colour of the paper to a strong blue, and back from it on dark pages.
    sequential: [
      [[255, 255, 255], [206, 225, 240], [133, 182, 220], [54, 121, 184], [10, 52, 110]],
      [[27, 31, 38], [28, 58, 92], [40, 104, 160], [102, 166, 220], [222, 238, 252]],
    ],
    // From negative by 0 to positive.
    diverging: [
      [[150, 62, 10], [232, 160, 104], [255, 255, 255], [128, 178, 220], [18, 74, 140]],
      [[255, 176, 112], [164, 88, 36], [27, 31, 38], [40, 104, 160], [150, 204, 255]],
    ],
  };
  // The colour at a place from 0 to 1 of a ramp, as numbers.
  function ramp(name, place) {
    if (!isNumber(place)) return [200, 30, 120];
    const stops = RAMPS[name][isDark() ? 1 : 0];
    const at = Math.min(Math.max(place, 0), 1) * (stops.length - 1), i = Math.min(Math.floor(at), stops.length - 2);
    return stops[i].map((a, c) => Math.round(a + (at - i) * (stops[i + 1][c] - a)));
  }
  const rgb = c => `rgb(${c[0]} ${c[1]} ${c[2]})`;
  // Black or white, whichever has the larger contrast to a colour: at least 4.58, by its luminance (WCAG 2.2).
  const luminance = c => c.map(x => x / 255).map(x => x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4).reduce((sum, x, i) => sum + x * [.2126, .7152, .0722][i], 0);
  const inkOn = c => luminance(c) > .179 ? "#000000" : "#ffffff";

  // A legend of a ramp: its ends by name.
  function scale(name, low, high) {
    const canvas = h("canvas", { width: 64, height: 1, "aria-hidden": "true" });
    const element = h("span", { class: "scale" }, low, canvas, high);
    drawn(canvas, () => {
      const context = canvas.getContext("2d");
      for (let i = 0; i < 64; i++) { context.fillStyle = rgb(ramp(name, i / 63)); context.fillRect(i, 0, 1, 1); }
    });
    return element;
  }

  // ---- Charts ---------------------------------------------------------------------------------

  const textWidth = (() => {
    const context = document.createElement("canvas").getContext("2d");
    return (text, font = "12px system-ui, sans-serif") => { context.font = font; return context.measureText(text).width * 1.06; };
  })();

  // Lines over x. options: series [{name, x, y, low, high, color, dash, width, points, bars}], x and y
  // {title, log, format, min, max; ticks(low, high, n) of x}, levels [{y, name}] (horizontal lines), height, at (a place of the
  // cursor), pick(x), label(series, i, x) (the text of the point nearest to x in the tooltip; none if
  // null). points is true, or a function of i that returns attributes of the circle. low and high
  // bound a band; with bars, they are the ends of a bar at each point. Missing values are null. A drag enlarges a range, a double click shows all:
  // zoom [from, to] is the first range, zoomed(range) is called when it changes.
  function lineChart(options) {
    const series = options.series.map((one, i) => ({ color: color(i), ...one, shown: one.shown ?? true }));
    const legend = h("div", { class: "legend" });
    const place = h("div");
    const element = h("div", { class: "chart" }, legend, place);
    let zoom = options.zoom ?? null, cursor = null, frame = null;
    const enlarge = range => { zoom = range; options.zoomed?.(zoom); again(); };
    const format = axis => axis?.format ?? (x => number(x, 4));
    if (series.length > 1 || options.legend) for (const one of series) {
      const button = h("button", { "aria-pressed": String(one.shown), onclick() {
        one.shown = !one.shown;
        button.setAttribute("aria-pressed", String(one.shown));
        again();
      } }, h("span", { class: "swatch", style: { background: one.color } }), one.name);
      legend.append(button);
    }
    const readable = axis => x => isNumber(x) && (!axis?.log || x > 0);
    function limits(axis, values) {
      let low = Infinity, high = -Infinity;
      for (const list of values) for (const x of list ?? []) if (readable(axis)(x)) { if (x < low) low = x; if (x > high) high = x; }
      if (low > high) return null;
      low = axis?.min ?? low; high = axis?.max ?? high;
      if (low === high) { const d = Math.abs(low) * .05 || 1; low -= axis?.log ? low * .05 : d; high += d; }
      return [low, high];
    }
    function draw(width) {
      const height = options.height ?? 240;
      const shown = series.filter(one => one.shown);
      const inX = one => zoom ? (v, i) => one.x[i] >= zoom[0] && one.x[i] <= zoom[1] : () => true;
      const xs = zoom ?? limits(options.x, shown.map(one => one.x));
      const ys = limits(options.y, [...shown.flatMap(one => [one.y, one.low, one.high].map(l => l?.filter(inX(one)))), (options.levels ?? []).map(l => l.y)]);
      if (!xs || !ys) { place.replaceChildren(h("p", { class: "soft" }, options.empty ?? "There are no values to draw.")); return; }
      const yTicks = (options.y?.log ? logTicks : ticks)(...ys, Math.max(2, Math.floor(height / 42)));
      const left = Math.ceil(Math.max(...yTicks.map(t => textWidth(format(options.y)(t))))) + 12;
      const top = 22, bottom = 40, right = 14;
      const w = Math.max(40, width - left - right), hgt = height - top - bottom;
      const at = (axis, [a, b]) => axis?.log
        ? v => (Math.log(v) - Math.log(a)) / (Math.log(b) - Math.log(a)) : v => (v - a) / (b - a);
      const fx = at(options.x, xs), fy = at(options.y, ys);
      const px = v => left + w * fx(v), py = v => top + hgt * (1 - fy(v));
      const xTicks = (options.x?.ticks ?? (options.x?.log ? logTicks : ticks))(...xs, Math.max(2, Math.floor(w / 75)));
      const clip = `clip${Math.random().toString(36).slice(2)}`;
      const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0",
        "aria-label": `${options.y?.title ?? series[0]?.name} over ${options.x?.title ?? ""}` },
        s("defs", {}, s("clipPath", { id: clip }, s("rect", { x: left - 5, y: top - 5, width: w + 10, height: hgt + 10 }))));
      for (const t of yTicks) svg.append(s("line", { class: "grid", x1: left, x2: left + w, y1: py(t), y2: py(t) }),
        s("text", { class: "soft", x: left - 6, y: py(t) + 4, "text-anchor": "end" }, format(options.y)(t)));
      let free = -Infinity;
      for (const t of xTicks) {
        const text = format(options.x)(t), half = textWidth(text) / 2, middle = Math.min(Math.max(px(t), half), width - half);
        svg.append(s("line", { class: "axis", x1: px(t), x2: px(t), y1: top + hgt, y2: top + hgt + 4 }));
        if (middle - half < free) continue;
        free = middle + half + 8;
        svg.append(s("text", { class: "soft", x: middle, y: top + hgt + 17, "text-anchor": "middle" }, text));
      }
      svg.append(s("line", { class: "axis", x1: left, x2: left + w, y1: top + hgt, y2: top + hgt }),
        s("text", { x: left, y: 13, class: "soft" }, options.y?.title ?? ""),
        s("text", { x: left + w, y: height - 6, class: "soft", "text-anchor": "end" }, options.x?.title ?? ""));
      const inside = s("g", { "clip-path": `url(#${clip})` });
      svg.append(inside);
      const below = [];
      for (const { y, name } of options.levels ?? []) if (y >= Math.min(...ys) && y <= Math.max(...ys)) {
        inside.append(s("line", { class: "cursor", x1: left, x2: left + w, y1: py(y), y2: py(y) }));
        below.push({ y: py(y), name });
      }
      below.sort((a, b) => a.y - b.y);
      let last = -Infinity;
      for (const level of below) {
        const y = level.y - 4 - last < 13 ? Math.min(level.y + 13, top + hgt - 2) : level.y - 4;
        if (y - last < 13) continue;
        last = y;
        svg.append(s("text", { class: "soft level", x: left + w - 4, y, "text-anchor": "end" }, level.name));
      }
      for (const one of shown) {
        const ok = i => readable(options.x)(one.x[i]) && readable(options.y)(one.y[i]);
        if (one.low && one.high) {
          const known = one.x.map((_, i) => i).filter(i => ok(i) && readable(options.y)(one.low[i]) && readable(options.y)(one.high[i]));
          if (one.bars) for (const i of known) inside.append(s("line", { x1: px(one.x[i]), x2: px(one.x[i]), y1: py(one.low[i]), y2: py(one.high[i]), stroke: one.color, "stroke-width": 1.6, opacity: .55 }));
          const up = known.map(i => `${px(one.x[i]).toFixed(1)},${py(one.high[i]).toFixed(1)}`);
          const down = known.reverse().map(i => `${px(one.x[i]).toFixed(1)},${py(one.low[i]).toFixed(1)}`);
          if (up.length && !one.bars) inside.append(s("polygon", { points: [...up, ...down].join(" "), fill: one.color, opacity: .18 }));
        }
        let path = "", pen = false;
        for (let i = 0; i < one.x.length; i++) {
          if (ok(i)) { path += `${pen ? "L" : "M"}${px(one.x[i]).toFixed(1)} ${py(one.y[i]).toFixed(1)}`; pen = true; } else pen = false;
        }
        if (!one.bare) inside.append(s("path", { d: path, fill: "none", stroke: one.color, "stroke-width": one.width ?? 1.6, "stroke-dasharray": one.dash, "stroke-linejoin": "round" }));
        if (one.points || one.x.length === 1) one.x.forEach((x, i) => ok(i) && inside.append(s("circle", { cx: px(x), cy: py(one.y[i]), r: 3, fill: one.color, ...(typeof one.points === "function" ? one.points(i) : {}) })));
      }
      const rule = s("line", { class: "cursor", y1: top, y2: top + hgt, x1: 0, x2: 0, visibility: "hidden" });
      const span = s("rect", { y: top, height: hgt, x: 0, width: 0, fill: "var(--accent)", opacity: .12 });
      svg.append(span, rule);
      const back = options.x?.log
        ? p => Math.exp(Math.log(xs[0]) + p * (Math.log(xs[1]) - Math.log(xs[0]))) : p => xs[0] + p * (xs[1] - xs[0]);
      const valueAt = clientX => back(Math.min(Math.max((clientX - svg.getBoundingClientRect().left - left) / w, 0), 1));
      // All places at which any line has a point.
      const stops = { x: [...new Set(shown.flatMap(one => one.x))].sort((a, b) => a - b) };
      const nearest = (one, x) => {
        let low = 0, high = one.x.length - 1;
        while (low < high) { const middle = (low + high) >> 1; if (one.x[middle] < x) low = middle + 1; else high = middle; }
        return low > 0 && Math.abs(one.x[low - 1] - x) < Math.abs(one.x[low] - x) ? low - 1 : low;
      };
      function rest() {
        if (!isNumber(options.at) || options.at < xs[0] || options.at > xs[1]) { rule.setAttribute("visibility", "hidden"); return; }
        rule.setAttribute("x1", px(options.at)); rule.setAttribute("x2", px(options.at)); rule.setAttribute("visibility", "visible");
      }
      function look(x, clientX, clientY) {
        cursor = x;
        const there = stops.x.length ? stops.x[nearest(stops, x)] : x;
        rule.setAttribute("x1", px(there)); rule.setAttribute("x2", px(there)); rule.setAttribute("visibility", "visible");
        const label = options.label ?? ((one, i) => `${one.name}: ${format(options.y)(one.y[i])}`);
        const lines = shown.filter(one => one.x.length).map(one => label(one, nearest(one, there), there)).filter(line => line !== null);
        if (!options.label) lines.unshift(`${options.x?.title ?? "x"} ${format(options.x)(there)}`);
        showTip(lines.join("\n"), clientX, clientY);
        return there;
      }
      let from = null;
      svg.addEventListener("pointerdown", e => { from = e.clientX; });
      svg.addEventListener("pointermove", e => {
        look(valueAt(e.clientX), e.clientX, e.clientY);
        if (from !== null && Math.abs(e.clientX - from) > 4) {
          const [a, b] = [from, e.clientX].map(valueAt).sort((p, q) => p - q);
          span.setAttribute("x", px(a)); span.setAttribute("width", px(b) - px(a));
        }
      });
      svg.addEventListener("pointerup", e => {
        if (from !== null && Math.abs(e.clientX - from) > 4) enlarge([from, e.clientX].map(valueAt).sort((p, q) => p - q));
        else options.pick?.(look(valueAt(e.clientX), e.clientX, e.clientY));
        from = null;
      });
      svg.addEventListener("pointerleave", () => { from = null; span.setAttribute("width", 0); rest(); hideTip(); });
      svg.addEventListener("dblclick", () => enlarge(null));
      svg.addEventListener("keydown", e => {
        if (e.key === "Escape") { enlarge(null); return; }
        if (!stops.x.length || !["ArrowLeft", "ArrowRight", "Enter"].includes(e.key)) return;
        e.preventDefault();
        const i = cursor === null ? 0 : nearest(stops, cursor) + (e.key === "ArrowLeft" ? -1 : e.key === "ArrowRight" ? 1 : 0);
        const x = stops.x[Math.min(Math.max(i, 0), stops.x.length - 1)];
        if (e.key === "Enter") { options.pick?.(x); return; }
        const box = svg.getBoundingClientRect();
        look(x, box.left + px(x), box.top + top);
      });
      svg.addEventListener("blur", () => { rest(); hideTip(); });
      place.replaceChildren(svg);
      rest();
      frame = { rest };
    }
    const again = drawn(element, draw);
    return { element, again, moveTo(x) { options.at = x; frame?.rest(); } };
  }

  // A matrix as colours. options: rows, columns, value(i, j), ramp, low, high (values at the ends), size
  // (pixels of a cell; as wide as there is room without it), height (of a cell, if it is no square), stretch (to the whole width), label(i, j),
  // pick(i, j), at [i, j], name.
  function heatMap(options) {
    const { rows, columns } = options;
    const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": options.name ?? `${rows} by ${columns} values` });
    const element = h("div", { class: "chart" }, canvas);
    let at = options.at ?? null, size = 1, tall = 1;
    function draw(width) {
      size = Math.max(1, Math.floor(Math.min(options.size ?? 40, (options.width ?? width) / columns)));
      tall = options.height ?? size;
      const density = Math.min(devicePixelRatio || 1, 2);
      canvas.width = columns * size * density; canvas.height = rows * tall * density;
      canvas.style.width = options.stretch ? "100%" : `${Math.min(columns * size, width)}px`;
      canvas.style.height = `${rows * tall * (options.height ? 1 : Math.min(1, width / (columns * size)))}px`;
      const context = canvas.getContext("2d");
      context.scale(density, density);
      const low = options.low ?? 0, high = options.high ?? 1;
      for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) {
        const value = options.value(i, j);
        if (value === null || value === undefined) continue;
        context.fillStyle = rgb(ramp(options.ramp ?? "sequential", (value - low) / (high - low)));
        context.fillRect(j * size, i * tall, size, tall);
      }
      if (at) {
        context.strokeStyle = getComputedStyle(canvas).color;
        context.lineWidth = Math.max(1, size / 8);
        context.strokeRect(at[1] * size + .5, at[0] * tall + .5, Math.max(1, size - 1), Math.max(1, tall - 1));
      }
    }
    const again = drawn(element, draw);
    const cell = e => {
      const box = canvas.getBoundingClientRect();
      const i = Math.floor((e.clientY - box.top) / box.height * rows), j = Math.floor((e.clientX - box.left) / box.width * columns);
      return i >= 0 && i < rows && j >= 0 && j < columns ? [i, j] : null;
    };
    const text = ([i, j]) => options.label ? options.label(i, j) : `${i}, ${j}: ${number(options.value(i, j))}`;
    canvas.addEventListener("pointermove", e => { const c = cell(e); showTip(c && text(c), e.clientX, e.clientY); if (c) options.hover?.(...c); });
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("click", e => { const c = cell(e); if (c) move(c); });
    canvas.addEventListener("keydown", e => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key];
      if (!step) return;
      e.preventDefault();
      const [i, j] = at ?? [0, -1];
      const next = [Math.min(Math.max(i + step[0], 0), rows - 1), Math.min(Math.max(j + step[1], 0), columns - 1)];
      const box = canvas.getBoundingClientRect();
      showTip(text(next), box.left + (next[1] + 1) * box.width / columns, box.top + next[0] * box.height / rows);
      move(next);
    });
    canvas.addEventListener("blur", hideTip);
    function move(c) { at = c; again(); options.pick?.(...c); }
    return { element, again, select(i, j) { at = i === null ? null : [i, j]; again(); } };
  }

  // Bars of a histogram: how many values lie between low and high, in bins of equal width.
  function histogram(counts, low, high, height = 70) {
    const place = h("div", { class: "chart" });
    drawn(place, width => {
      const most = Math.max(1, ...counts), w = Math.min(width, 360), each = w / counts.length, base = height - 18;
      const svg = s("svg", { width: w, height, role: "img", "aria-label": `histogram from ${number(low)} to ${number(high)}` });
      counts.forEach((n, i) => {
        const size = n === 0 ? 0 : Math.max(1, n / most * (base - 2));
        const from = low + (high - low) * i / counts.length, to = low + (high - low) * (i + 1) / counts.length;
        svg.append(tooltip(s("rect", { x: i * each, y: 0, width: Math.max(1, each), height: base, fill: "transparent" }), `${count(n)} from ${number(from)} to ${number(to)}`),
          s("rect", { x: i * each + .5, y: base - size, width: Math.max(.5, each - 1), height: size, fill: "var(--c0)", "pointer-events": "none" }));
      });
      svg.append(s("line", { class: "axis", x1: 0, x2: w, y1: base, y2: base }),
        s("text", { class: "soft", x: 0, y: height - 4 }, number(low, 3)),
        s("text", { class: "soft", x: w, y: height - 4, "text-anchor": "end" }, number(high, 3)));
      place.replaceChildren(svg);
    });
    return place;
  }

  // A table that is sorted by a click on a heading. columns [{title, value(row), text(row), num, help}].
  function table(columns, rows, options = {}) {
    let by = options.by ?? null, down = options.down ?? true;
    const body = h("tbody");
    const heads = columns.map((column, c) => h("th", { class: column.num ? "num" : null, scope: "col" },
      h("button", { title: column.help ?? "", onclick() { if (by === c) down = !down; else { by = c; down = !!column.num; } fill(); } }, column.title)));
    function fill() {
      const value = row => columns[by].value(row);
      const rank = x => typeof x === "number" && Number.isNaN(x) ? -Infinity : x ?? -Infinity;
      const compare = (a, b) => typeof a === "string" && typeof b === "string" ? a.localeCompare(b) : rank(a) < rank(b) ? -1 : rank(a) > rank(b) ? 1 : 0;
      const sorted = by === null ? rows : [...rows].sort((a, b) => (down ? -1 : 1) * compare(value(a), value(b)));
      heads.forEach((head, c) => head.setAttribute("aria-sort", by === c ? down ? "descending" : "ascending" : "none"));
      body.replaceChildren(...sorted.slice(0, options.most ?? Infinity).map(row => h("tr",
        options.pick ? { tabindex: "0", style: { cursor: "pointer" }, onclick() { options.pick(row); }, onkeydown(e) { if (e.key === "Enter") options.pick(row); } } : {},
        columns.map(column => h("td", { class: column.num ? "num" : null }, column.text ? column.text(row) : String(column.value(row)))))));
    }
    fill();
    return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, heads)), body));
  }

  // A foldable tree. nodes {name, note, children, open}; pick(node); folded(node, open) is called by a click on a triangle.
  // node.show(open) folds or unfolds a node.
  function tree(nodes, pick, folded) {
    const list = nodes => h("ul", { class: "tree" }, nodes.map(node => {
      const inner = node.children?.length ? list(node.children) : null;
      const fold = h("button", { class: "fold", "aria-label": inner ? `unfold ${node.name}` : null, disabled: !inner, onclick() { node.show(inner.hidden); folded?.(node, !inner.hidden); } });
      node.show = open => {
        if (!inner) return;
        inner.hidden = !open;
        fold.textContent = open ? "▾" : "▸";
        fold.setAttribute("aria-expanded", String(!!open));
      };
      node.show(node.open);
      return h("li", {}, h("div", { class: "item" }, fold, h("button", { class: "name", onclick() { pick?.(node); } }, node.name), node.note ? h("span", { class: "soft small" }, node.note) : null), inner);
    }));
    return list(nodes);
  }

  // A slider with a name and a text of its value: {name, min, max, value, text(v), change(v)}.
  function slider({ name, min, max, value, text, change }) {
    const output = h("output");
    const input = h("input", { type: "range", min, max, step: 1, value, "aria-label": name, oninput() { move(Number(input.value)); } });
    function move(v, quiet) {
      v = Math.min(Math.max(v, min), max);
      input.value = v;
      output.textContent = text(v);
      input.setAttribute("aria-valuetext", output.textContent);
      if (!quiet) change(v);
    }
    move(value, true);
    return { element: h("div", { style: { flex: "1 1 14rem", minWidth: 0 } }, h("div", { class: "row small" }, h("span", { class: "soft" }, name), output), input), move, get value() { return Number(input.value); } };
  }

  // Names and values, one below the other.
  const facts = pairs => h("dl", { class: "facts" }, pairs.filter(p => p).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

  // ---- The self-test --------------------------------------------------------------------------

  const tests = [];
  let testing = false;
  const test = (name, f) => tests.push({ name, f });
  const assert = (condition, message) => { if (!condition) throw new Error(message); };
  // Waits until the document was drawn n times; a hidden window is not drawn, so not for ever.
  const frames = async n => {
    for (let i = 0; i < n; i++) await new Promise(done => { requestAnimationFrame(done); setTimeout(done, 999); });
  };

  // What is wrong with the layout: text that leaves its box or is cut off, texts that overlap, a page that is wider than
  // the window. Elements marked data-box must not overlap their siblings with the mark.
  function layoutErrors(root = document.body) {
    const wrong = [];
    const name = e => `${e.tagName.toLowerCase()}${e.id ? "#" + e.id : ""} “${(e.textContent ?? "").trim().slice(0, 30)}”`;
    const visible = e => e.checkVisibility({ checkVisibilityCSS: true }) && e.getClientRects().length > 0;
    if (document.documentElement.scrollWidth > innerWidth + 1) {
      wrong.push(`the page is ${document.documentElement.scrollWidth} wide in a window of ${innerWidth}`);
    }
    const overlap = (a, b, slack) => a.left < b.right - slack && b.left < a.right - slack && a.top < b.bottom - slack && b.top < a.bottom - slack;
    const leaves = (a, b, slack) => a.left < b.left - slack || a.right > b.right + slack || a.top < b.top - slack || a.bottom > b.bottom + slack;
    const common = (a, b) => ({ left: Math.max(a.left, b.left), top: Math.max(a.top, b.top), right: Math.min(a.right, b.right), bottom: Math.min(a.bottom, b.bottom) });
    // The part of the page in which the texts of an element are seen, by the elements around it that clip what is in them;
    // null if it floats over others.
    const parts = new Map([[document.body, { left: -Infinity, top: -Infinity, right: Infinity, bottom: Infinity }]]);
    function partOf(e) {
      if (parts.has(e)) return parts.get(e);
      const style = getComputedStyle(e);
      let part = /sticky|fixed/.test(style.position) ? null : partOf(e.parentElement);
      if (part && style.overflowX !== "visible") {
        const box = e.getBoundingClientRect();
        part = { ...common(part, box), cut: /hidden|clip/.test(style.overflowX) && style.textOverflow === "clip" ? box : null };
      }
      parts.set(e, part);
      return part;
    }
    const texts = [], range = document.createRange(), walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    for (let node; (node = walker.nextNode());) {
      const e = node.parentElement, part = node.data.trim() && !e.closest("select, script, style, noscript") && visible(e) ? partOf(e) : null;
      if (!part) continue;
      const box = e.closest("button, th, td, dd, .box, .help, .message, .panel");
      range.selectNodeContents(node);
      for (const whole of range.getClientRects()) {
        const r = { e, ...common(whole, part) };
        if (part.cut && leaves(whole, part.cut, 2)) wrong.push(`${name(e)} is cut off`);
        if (r.right - r.left < 1 || r.bottom - r.top < 1) continue;
        if (box && leaves(r, box.getBoundingClientRect(), 3)) wrong.push(`${name(e)} leaves its box`);
        texts.push(r);
      }
    }
    texts.sort((a, b) => a.top - b.top);
    for (let i = 0; i < texts.length; i++) for (let j = i + 1; j < texts.length && texts[j].top < texts[i].bottom - 3; j++) {
      if (texts[i].e !== texts[j].e && overlap(texts[i], texts[j], 3)) wrong.push(`${name(texts[i].e)} overlaps ${name(texts[j].e)}`);
    }
    const groups = new Map();
    for (const box of root.querySelectorAll("[data-box]")) if (visible(box)) {
      const key = box.parentNode;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push([box, box.getBoundingClientRect()]);
    }
    for (const boxes of groups.values()) {
      boxes.sort((a, b) => a[1].left - b[1].left);
      for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length && boxes[j][1].left < boxes[i][1].right; j++) {
        if (overlap(boxes[i][1], boxes[j][1], 1)) wrong.push(`${name(boxes[i][0])} overlaps ${name(boxes[j][0])}`);
      }
    }
    return wrong;
  }

  async function selftest() {
    testing = true;
    let passed = 0;
    const wrong = [...failures], began = performance.now();
    const check = (name, errors) => { if (errors.length) wrong.push(...errors.slice(0, 8).map(e => `${name}: ${e}`)); else passed++; };
    await frames(3);
    check("layout", layoutErrors());
    for (const button of document.querySelectorAll('button[aria-controls^="help-"]')) { button.click(); }
    await frames(2);
    check("layout with every explanation", layoutErrors());
    for (const button of document.querySelectorAll('button[aria-controls^="help-"]')) { button.click(); }
    for (const { name, f } of tests) {
      try { const n = await f({ assert, frames, layoutErrors }); passed += typeof n === "number" ? n : 1; } catch (error) { wrong.push(`${name}: ${error.message}`); }
    }
    const output = h("output", { id: "selftest", "data-seconds": ((performance.now() - began) / 1000).toFixed(2), "data-painted": painted?.toFixed(0) },
      wrong.length ? `selftest: ${wrong.length} failed\n${wrong.join("\n")}` : `selftest: ${passed} ok`);
    document.body.append(output);
    testing = false;
  }

  // ---- Start ----------------------------------------------------------------------------------

  let painted;
  function start(draw) {
    state = readHash();
    const isTest = location.hash === "#selftest";
    if (["light", "dark"].includes(state.theme)) document.documentElement.dataset.theme = state.theme;
    addEventListener("error", event => failures.push(event.message));
    addEventListener("unhandledrejection", event => failures.push(String(event.reason)));
    addEventListener("hashchange", () => {
      if (testing) return;
      const before = state;
      state = readHash();
      for (const listener of listeners) listener(state, before);
    });
    addEventListener("keydown", e => { if (e.key === "Escape") hideTip(); });
    try {
      const root = draw(data());
      document.body.replaceChildren(root);
    } catch (error) {
      failures.push(error.message);
      fail(`This page cannot be shown: ${error.message}. The file that made it may be of another version, or the page was cut off while it was written or sent.`);
    }
    requestAnimationFrame(() => { painted = performance.now(); });
    if (state.at) document.getElementById(state.at)?.scrollIntoView();
    if (isTest) setTimeout(selftest, 50);
  }

  return { h, s, fill, number, quantity, bytes, seconds, percent, count, ticks, set, get, on, showTip, hideTip, tooltip, panel, panels, address, page, fail, data,
    drawn, redraw, onFrame, color, ramp, rgb, inkOn, isDark, scale, textWidth, lineChart, heatMap, histogram, table, tree, slider, facts, test, assert, guarded, start };
})();
