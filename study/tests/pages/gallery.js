// Each part of the kit once, for its tests.
"use strict";
// Notes which parts are used.
const used = new Set();
const parts = new Proxy(kit, { get(all, name) { used.add(name); return all[name]; } });
parts.start(data => {
  const { h, s, panel, test } = parts;
  const x = data.numbers.map((_, i) => i);
  let moved = 0;
  const texts = panel("texts", "Texts and numbers", ["What the explanation says.", "And a second paragraph."], body => {
    body.append(
      h("p", {}, ["Elements ", [h("strong", {}, "in lists")], null, " are allowed."]),
      parts.facts([["number", parts.number(1 / 3)], ["bytes", parts.bytes(12345)], ["seconds", parts.seconds(2e-6)], ["share", parts.percent(.123)],
        ["count", parts.count(1234567)], ["quantity", parts.quantity(5e9, "FLOP/s")], ["a name that has no place to break: " + "w".repeat(90), data.name], null]),
      h("div", { class: "row" }, h("button", { "aria-pressed": "true" }, "pressed"), h("button", {}, "not pressed"),
        parts.tooltip(h("button", { id: "hinted" }, "with a hint"), "The hint."), h("select", {}, h("option", {}, "a choice")), h("input", { type: "search", "aria-label": "text" })),
      h("p", { class: "message" }, h("span", { class: "bad" }, "A message. "), h("span", { class: "good" }, "All is well.")),
      h("p", {}, h("code", {}, "code"), " ", h("span", { class: "soft small" }, "and a note"), " ", h("a", { href: "#texts" }, "a link")));
    body.append(parts.fill(h("p", {}), { class: "soft" }, ["filled"]));
  });
  const charts = panel("charts", "Charts", "Lines, bands, levels, points; a logarithmic axis.", body => {
    const chart = parts.lineChart({ x: { title: "step" }, y: { title: "loss", log: true }, levels: [{ y: 2, name: "blind" }], at: 3, pick: v => { moved = v; },
      series: [{ name: "training", x, y: data.numbers, low: data.numbers.map(v => v * .8), high: data.numbers.map(v => v * 1.2) }, { name: "held out", x, y: data.numbers.map(v => v * 1.1), points: true, color: parts.color(1), dash: "4 2" }] });
    chart.moveTo(5);
    body.append(chart.element, parts.histogram([0, 3, 12, 40, 12, 3, 1], -1, 1));
  });
  const maps = panel("maps", "Matrices", "Colours of two ramps.", body => {
    const map = parts.heatMap({ rows: 4, columns: 6, size: 24, ramp: "diverging", low: -1, high: 1, name: "a matrix", value: (i, j) => i === 3 && j === 5 ? NaN : Math.sin(i * 6 + j) });
    map.select(1, 2);
    const canvas = h("canvas", { width: 32, height: 8 }), place = h("div", {}, canvas);
    parts.drawn(place, () => {
      const c = canvas.getContext("2d");
      for (let i = 0; i < 32; i++) { c.fillStyle = parts.rgb(parts.ramp("sequential", i / 31)); c.fillRect(i, 0, 1, 8); }
    });
    const color = parts.ramp("sequential", .8);
    body.append(map.element, parts.scale("diverging", "−1", "1"), place,
      h("p", { style: { background: parts.rgb(color), color: parts.inkOn(color), width: `${Math.ceil(parts.textWidth("legible", "15px sans-serif")) + 40}px` } }, "legible"),
      h("p", {}, parts.isDark() ? "dark" : "light", `, ticks at ${parts.ticks(0, 10).join(", ")}`));
  });
  const lists = panel("lists", "Tables, trees and sliders", "What can be sorted, folded and moved.", body => {
    const slider = parts.slider({ name: "place", min: 0, max: 9, value: 4, text: v => `${v} of 9`, change: v => parts.set({ place: v }) });
    const output = h("output", { id: "place" }, parts.get("place", "4"));
    parts.on(state => { output.textContent = state.place; });
    body.append(parts.table([{ title: "name", value: r => r[0] }, { title: "size", num: true, value: r => r[1], help: "in bytes" }], [["b", 2], ["a", 10], ["c", 1]], { by: 0, down: false }),
      parts.tree([{ name: "model", note: "3", open: true, children: [{ name: "h.0", children: [{ name: "attn" }] }, { name: "ln_f" }] }]), slider.element, output);
  });
  const broken = panel("guarded", "A part that fails", "It says so in its place.", body => { parts.guarded("a part", body, () => { parts.assert(true, "never"); body.append("it did not fail"); }); });
  parts.showTip("A tooltip", 10, 10);
  parts.hideTip();
  test("tables are sorted", ({ assert }) => {
    const first = () => lists.querySelector("td").textContent, [name, size] = lists.querySelectorAll("th button");
    assert(first() === "a", "by name at first");
    size.click(); assert(first() === "a", "the largest first");
    size.click(); assert(first() === "c", "the smallest first");
    name.click(); assert(first() === "a", "by name again");
    return 4;
  });
  test("trees are folded", ({ assert }) => {
    const fold = [...lists.querySelectorAll(".fold")].find(b => !b.disabled), inner = fold.closest("li").querySelector("ul");
    fold.click(); assert(inner.hidden && fold.getAttribute("aria-expanded") === "false", "it is not folded");
    fold.click(); assert(!inner.hidden, "it is not unfolded");
    return 2;
  });
  test("sliders change the state", ({ assert }) => {
    const input = lists.querySelector("input");
    input.value = 7; input.dispatchEvent(new Event("input"));
    assert(lists.querySelector("#place").textContent === "7", "the state has not changed");
    assert(input.getAttribute("aria-valuetext") === "7 of 9", "the slider has no text");
  });
  test("what is replaced is drawn no more, and what returns is drawn again", async ({ assert, frames }) => {
    let drawings = 0;
    const place = h("div"), again = parts.drawn(place, () => { drawings++; });
    const shown = async (container, wanted, what) => { container?.append(place); await frames(3); parts.redraw(); assert(drawings === wanted, `${what}: ${drawings} drawings instead of ${wanted}`); };
    await shown(null, 0, "outside");
    await shown(maps, 2, "in the page");
    place.remove();
    await shown(null, 2, "removed");
    again(); assert(drawings === 2, "drawn without a width");
    await shown(maps, 4, "in the page again");
    place.remove();
    return 5;
  });
  test("what is asked for several times is done once before the next frame", async ({ assert, frames }) => {
    let done = 0;
    const ask = parts.onFrame(() => { done++; });
    ask(); ask();
    assert(done === 0, "it is done at once");
    await frames(2);
    assert(done === 1, `it is done ${done} times`);
    ask();
    await frames(2);
    assert(done === 2, "it is not done again");
  });
  test("every part was used", ({ assert }) => {
    const rest = Object.keys(kit).filter(name => !used.has(name) && !["fail", "panels", "address", "search"].includes(name));
    assert(rest.length === 0, `not in the gallery: ${rest.join(", ")}`);
  });
  parts.findable(() => data.numbers.map((_, i) => ({ name: `number ${i}`, note: "of the data", state: { number: i, at: "maps" } })));
  const root = parts.page("The kit", "Each part once.", [texts, charts, maps, lists, broken]);
  parts.data();
  return root;
});
