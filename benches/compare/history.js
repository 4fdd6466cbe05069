// The history of benchmarks: a chart of each case over commits or dates, and a table of the latest results.
// The data is made by history.py: commits sorted by date, machines, and the points of each case.
"use strict";
kit.start(data => {
  const { h, s } = kit;
  const { commits, machines, cases, faults } = data;
  if (!Array.isArray(cases) || !cases.length) throw new Error("it contains no results");

  // ---- Words ----------------------------------------------------------------------------------

  const short = commit => commit.sha.slice(0, 9) + (commit.dirty ? " + changes" : "");
  const tick = commit => commit.sha.slice(0, 7) + (commit.dirty ? "+" : "");
  const time = seconds => kit.seconds(seconds);
  const minute = date => date.replace("T", " ").replace(/:\d\dZ$/, " UTC");
  const ratioText = r => r.toFixed(3);
  const many = (n, name) => `${n} ${name}${n === 1 ? "" : "s"}`;
  const machineName = m => [m.cpu, m.level, m.precision && m.precision !== "f32" ? m.precision : null,
    `${many(m.threads, "thread")} on ${many(m.cores, "core")}`, m.governor ? `governor ${m.governor}` : null,
    m.turbo === true ? "turbo on" : m.turbo === false ? "turbo off" : null].filter(x => x).join(", ");

  // A name with what differs between the machines.
  const differs = key => machines.some(m => m[key] !== machines[0][key]);
  const nickname = m => [differs("cpu") || !["level", "precision", "threads", "cores"].some(differs) ? m.cpu : null,
    ...["level", "precision"].filter(differs).map(key => m[key]), differs("threads") ? many(m.threads, "thread") : null,
    differs("cores") ? many(m.cores, "core") : null].filter(x => x).join(", ");

  function describe(p) {
    const commit = commits[p.commit];
    const lines = [`${short(commit)} ${commit.subject}`, `commit of ${minute(commit.date)}`, `measured ${minute(p.date)}`,
      `time of a call: ${time(p.seconds)}` + (p.low !== null && p.high !== null ? ` (quartiles ${time(p.low)} to ${time(p.high)}, ${p.turns} turns)` : "")];
    if (p.ratio) lines.push(`${ratioText(p.ratio[0])} times as fast as ${short(commits[p.base])} (${ratioText(p.ratio[1])} to ${ratioText(p.ratio[2])}): ${p.verdict}`);
    if (p.others !== null) lines.push(`other processes: at most ${p.others.toFixed(2)} cores` + (p.disturbed ? "; turns were disturbed" : ""));
    lines.push(machineName(machines[p.machine]));
    return lines.join("\n");
  }

  // ---- Points ---------------------------------------------------------------------------------

  const doubtful = p => p.disturbed || commits[p.commit].dirty;
  const median = list => { const l = [...list].sort((a, b) => a - b), m = l.length >> 1; return l.length % 2 ? l[m] : (l[m - 1] + l[m]) / 2; };
  const DAY = 86400e3;

  // The points of a case on a machine, sorted by x: {x, y, low, high, text, hollow}. Over commits, several
  // measurements of a commit make one point, their median.
  function line(points, machine, quantity, axis) {
    const of = p => quantity === "ratio" ? p.ratio && { y: p.ratio[0], low: p.ratio[1], high: p.ratio[2] } : { y: p.seconds, low: p.low, high: p.high };
    // Of a comparison's two measurements at one moment, the second one is that of an older commit.
    const mine = points.filter(p => p.machine === machine && of(p) && !(p.aside && axis === "dates"));
    const groups = new Map();
    mine.forEach((p, i) => {
      const key = axis === "commits" ? p.commit : i;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(p);
    });
    const joined = [...groups.values()].map(list => {
      const values = list.map(of), last = list[list.length - 1];
      const ends = key => values.map(v => v[key]).filter(v => v !== null);
      return {
        x: axis === "commits" ? last.commit : Date.parse(last.date) / DAY,
        y: median(values.map(v => v.y)),
        low: ends("low").length ? Math.min(...ends("low")) : null,
        high: ends("high").length ? Math.max(...ends("high")) : null,
        hollow: list.some(doubtful),
        text: list.length > 1 ? `median of ${list.length} measurements; the last one:\n${describe(last)}` : describe(last),
      };
    });
    return joined.sort((a, b) => a.x - b.x);
  }

  const dayText = x => {
    const iso = new Date(x * DAY).toISOString();
    return Number.isInteger(x) ? iso.slice(0, 10) : `${iso.slice(5, 10)} ${iso.slice(11, 16)}`;
  };
  // All charts have the same horizontal range.
  const days = cases.flatMap(one => one.points).map(p => Date.parse(p.date) / DAY);
  const firstDay = days.reduce((a, b) => Math.min(a, b)), lastDay = days.reduce((a, b) => Math.max(a, b));
  const margin = Math.max((lastDay - firstDay) * .03, .01);
  const axes = {
    commits: {
      title: "commit, by its date", min: -.4, max: commits.length - .6, format: x => tick(commits[x]),
      ticks: (low, high, n) => kit.ticks(low, high, n).filter(x => Number.isInteger(x) && commits[x]),
    },
    dates: { title: "date of the measurement, UTC", min: firstDay - margin, max: lastDay + margin, format: dayText },
  };
  const quantities = {
    time: { title: "time of a call", format: time },
    ratio: { title: "speed relative to the other commit (1 = equal)", format: x => String(Number(x.toPrecision(4))) },
  };

  function chart(one, quantity, axis) {
    const lines = machines.map((_, m) => line(one.points, m, quantity, axis)).map((points, m) => ({ points, m })).filter(l => l.points.length);
    const series = lines.map(({ points, m }) => ({
      name: nickname(machines[m]), color: kit.color(m), x: points.map(p => p.x), y: points.map(p => p.y),
      low: points.map(p => p.low), high: points.map(p => p.high),
      points: i => points[i].hollow ? { fill: "var(--panel)", stroke: kit.color(m), "stroke-width": 1.6 } : { fill: kit.color(m) },
      text: points.map(p => p.text),
      // A line would join ratios to different commits, and a band needs two points.
      bars: quantity === "ratio" || points.length === 1, bare: quantity === "ratio",
    }));
    // Room above and below, so that the ends of bars can be seen.
    const all = lines.flatMap(l => l.points).flatMap(p => [p.y, p.low, p.high]).concat(quantity === "ratio" ? [1] : []).filter(y => y !== null);
    const low = all.reduce((a, b) => Math.min(a, b), Infinity), high = all.reduce((a, b) => Math.max(a, b), -Infinity);
    const room = high > low ? { min: Math.max(low - .06 * (high - low), 0), max: high + .06 * (high - low) } : {};
    return kit.lineChart({
      series, x: axes[axis], y: { ...quantities[quantity], ...room }, height: 230,
      levels: quantity === "ratio" && series.length ? [{ y: 1, name: "" }] : [],
      empty: quantity === "ratio" ? "No commit was compared with another." : undefined,
      // A text of the point at this place; none of a machine that has no point there.
      label: (name, i, there) => name.x[i] === there ? name.text[i] : null,
    });
  }

  // ---- Parts of the page ----------------------------------------------------------------------

  let quantity = kit.get("show") === "ratio" ? "ratio" : "time";
  let axis = kit.get("over") === "dates" ? "dates" : "commits";
  let search = kit.get("find", "");
  const drawings = [];
  const drawAll = () => drawings.forEach(draw => draw());

  const choice = (name, options, value, change) => h("label", {}, name, h("select", { "aria-label": name, onchange(e) { change(e.target.value); drawAll(); } },
    Object.entries(options).map(([key, text]) => h("option", { value: key, selected: key === value }, text))));
  const count = h("output", { class: "soft small" });
  const marker = hollow => s("svg", { width: 14, height: 14, "aria-hidden": "true" },
    s("circle", { cx: 7, cy: 7, r: 4, fill: hollow ? "var(--panel)" : "var(--soft)", stroke: "var(--soft)", "stroke-width": 1.6 }));
  const stroke = (x1, x2, y1, y2) => s("line", { x1, x2, y1, y2, stroke: "var(--soft)", "stroke-width": 1.6 });
  const band = s("svg", { width: 20, height: 14, "aria-hidden": "true" },
    s("rect", { x: 0, y: 1, width: 20, height: 12, fill: "var(--soft)", opacity: .3 }), stroke(0, 20, 7, 7));
  const bar = s("svg", { width: 14, height: 14, "aria-hidden": "true" }, stroke(7, 7, 0, 14), s("circle", { cx: 7, cy: 7, r: 3, fill: "var(--soft)" }));

  const controls = kit.panel("show", "What is drawn", [
    "Time of a call: the median over the turns of a measurement; the band holds the middle half of the turns. Absolute times do not carry from one machine to another, and on a shared machine they vary from hour to hour.",
    "Speed relative to the commit compared with: the other commit's time divided by this one's, measured in alternating turns within a few seconds. Above 1, this commit is faster. The bar is the interval that contains the true median with a probability of 99 %.",
    "Point at a chart, or give it the focus and press the arrow keys, for the values of a point. Drag to enlarge a range; a double click or Escape shows all again.",
  ], body => {
    body.append(h("div", { class: "row controls" },
      choice("Quantity", { time: "time of a call", ratio: "speed relative to the commit compared with" }, quantity, v => { quantity = v; kit.set({ show: v }); }),
      choice("Horizontal axis", { commits: "commits", dates: "dates of measurement" }, axis, v => { axis = v; kit.set({ over: v }); }),
      h("label", {}, "Cases", h("input", { type: "search", value: search, placeholder: "a part of the name", "aria-label": "Cases whose name contains",
        oninput(e) { search = e.target.value; kit.set({ find: search || null }); filter(); } })), count));
    body.append(h("ul", { class: "keys", "aria-label": "Legend" },
      machines.map((m, i) => h("li", {}, h("span", { class: "swatch", style: { background: kit.color(i) } }), machineName(m))),
      h("li", {}, marker(false), "measured"),
      h("li", {}, marker(true), "disturbed by other processes, or with uncommitted changes"),
      h("li", {}, band, "middle half of the turns"), h("li", {}, bar, "99 % interval of the ratio")),
      h("p", { class: "soft small" }, "Vertical axes do not begin at 0, so that small differences can be seen: their numbers say how small."));
  });

  const latest = kit.panel("latest", "Latest results", "The last measurement of each case on each machine. A verdict compares two commits that were measured in alternating turns. A click on a heading sorts; a click on a row shows the chart of that case.", body => {
    const rows = cases.flatMap(one => {
      const last = new Map();
      // Of the two points of a comparison, the one with the ratio.
      for (const p of one.points) { const before = last.get(p.machine); if (!before || p.date > before.date || !p.aside) last.set(p.machine, p); }
      return [...last.values()].map(p => ({ one, p }));
    });
    const columns = [
      { title: "case", value: r => r.one.name },
      { title: "commit", value: r => short(commits[r.p.commit]) },
      { title: "time", num: true, value: r => r.p.seconds, text: r => time(r.p.seconds) },
      { title: "ratio", num: true, help: "The time of the commit compared with, divided by this one's", value: r => r.p.ratio?.[0] ?? -1, text: r => r.p.ratio ? ratioText(r.p.ratio[0]) : "–" },
      { title: "interval", value: r => r.p.ratio?.[1] ?? -1, text: r => r.p.ratio ? `${ratioText(r.p.ratio[1])} to ${ratioText(r.p.ratio[2])}` : "–" },
      { title: "verdict", value: r => r.p.verdict ?? "", text: r => r.p.verdict || "–" },
      { title: "compared with", value: r => r.p.ratio ? short(commits[r.p.base]) : "", text: r => r.p.ratio ? short(commits[r.p.base]) : "–" },
      { title: "others", num: true, help: "The most cores that other processes used in a turn", value: r => r.p.others ?? -1, text: r => r.p.others === null ? "–" : r.p.others.toFixed(2) },
      { title: "measured", value: r => r.p.date, text: r => minute(r.p.date) },
    ];
    if (machines.length > 1) columns.push({ title: "machine", value: r => nickname(machines[r.p.machine]) });
    body.append(kit.table(columns, rows, { pick: r => r.one.element.scrollIntoView({ block: "center" }) }));
  });

  const groups = new Map();
  for (const one of cases) groups.set(one.group, [...(groups.get(one.group) ?? []), one]);
  const sections = [...groups].map(([name, list], i) => kit.panel(`group-${i}`, name, "One chart for each case of the group. A name consists of the operation, the pass, and sizes; benches/tasks in the source explains them.", body => {
    body.append(h("div", { class: "columns" }, list.map(one => {
      const place = h("div");
      drawings.push(() => { one.chart = chart(one, quantity, axis); place.replaceChildren(one.chart.element); });
      return one.element = h("div", { class: "case" }, h("h3", {}, one.name), place);
    })));
  }));
  const sectionOf = new Map([...groups.values()].map((list, i) => [sections[i], list]));

  function filter() {
    const words = search.toLowerCase().split(/\s+/).filter(w => w);
    let shown = 0;
    for (const [section, list] of sectionOf) {
      for (const one of list) {
        const text = `${one.group} ${one.name}`.toLowerCase();
        one.element.hidden = !words.every(w => text.includes(w));
        if (!one.element.hidden) shown++;
      }
      section.hidden = list.every(one => one.element.hidden);
    }
    count.textContent = shown === cases.length ? `${shown} cases` : `${shown} of ${cases.length} cases`;
  }
  drawAll();
  filter();

  const notes = faults?.length ? kit.panel("faults", "What was left out", "Lines of the files that could not be read.", body => {
    body.append(h("ul", { class: "small" }, faults.map(f => h("li", {}, f))));
  }) : null;

  // ---- The self-test --------------------------------------------------------------------------

  kit.test("every point has its text, by keyboard and by pointer", async ({ assert, frames }) => {
    let n = 0;
    for (const over of ["commits", "dates"]) for (const show of ["time", "ratio"]) {
      quantity = show; axis = over;
      drawAll();
      await frames(3);
      for (const one of cases) {
        const wanted = new Set(machines.flatMap((_, m) => line(one.points, m, show, over)).map(p => p.x));
        const svg = one.chart.element.querySelector("svg[tabindex]");
        if (!wanted.size) { assert(!svg, `${one.name}: a chart without points`); continue; }
        const circles = svg.querySelectorAll("circle").length;
        const all = machines.flatMap((_, m) => line(one.points, m, show, over)).length;
        assert(circles === all, `${one.name}: ${circles} circles for ${all} points`);
        svg.focus();
        const seen = new Set();
        for (let i = 0; i < wanted.size; i++) {
          svg.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
          seen.add(document.getElementById("tip").textContent);
        }
        assert(seen.size === wanted.size, `${one.name}: ${seen.size} texts for ${wanted.size} places`);
        for (const text of seen) assert(text.includes("time of a call"), `${one.name}: the text “${text}”`);
        const circle = svg.querySelector("circle").getBoundingClientRect();
        kit.hideTip();
        svg.dispatchEvent(new PointerEvent("pointermove", { clientX: circle.left + circle.width / 2, clientY: circle.top, bubbles: true }));
        assert(!document.getElementById("tip").hidden, `${one.name}: no text at a point`);
        svg.dispatchEvent(new PointerEvent("pointerleave"));
        svg.blur();
        n++;
      }
    }
    return n;
  });
  kit.test("layout of every view", async ({ frames, layoutErrors }) => {
    let n = 0;
    for (const over of ["commits", "dates"]) for (const show of ["time", "ratio"]) {
      quantity = show; axis = over;
      drawAll();
      await frames(3);
      const wrong = layoutErrors();
      if (wrong.length) throw new Error(`${show} over ${over}: ${wrong.slice(0, 5).join("; ")}`);
      n++;
    }
    return n;
  });
  kit.test("the search hides other cases", ({ assert }) => {
    search = cases[0].name;
    filter();
    assert(!cases[0].element.hidden, "the case that is searched for is hidden");
    assert(cases.every(one => one.element.hidden || `${one.group} ${one.name}`.includes(search.split(" ")[0])), "a case without the words is shown");
    search = "";
    filter();
    assert(cases.every(one => !one.element.hidden), "cases stay hidden");
  });

  const first = commits[0], last = commits[commits.length - 1];
  return kit.page("Benchmarks of retrograd over commits",
    `${cases.length} cases, ${commits.length} commits from ${minute(first.date)} to ${minute(last.date)}`, [controls, latest, ...sections, notes].filter(p => p));
});
