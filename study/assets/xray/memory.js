// Memory in use over the events, and what recomputing a module would save.
"use strict";
xray.memory = step => {
  const { h, bytes, seconds, percent } = kit;
  const { nodes, events, modules, life, operations, title, path, shape, go, choose, watch, ancestors, NEVER } = step;
  const panel = kit.panel("memory", "Memory", [
    "Bytes in use over the events of the step. Before it, these are parameters, data, and whatever else the program holds. Saved tensors are inputs and results that the rule of an operation needs; they are kept until it has run. Gradients include those of parameters. The rest is temporary: values that later operations still use.",
    "Check a module to see the step in which its operations are computed a second time in the backward pass instead of being kept (activation checkpointing: Chen et al. 2016, arXiv:1604.06174). The added time is that of its forward pass.",
  ], body => {
    body.append(h("p", { class: "soft small lead" }, "Bytes in use after each event."));
    const live = events.map(e => e.live ?? 0), savedAt = new Float64Array(events.length);
    if (!live.some(x => x > 0)) { body.append(h("p", { class: "soft" }, "No memory was recorded.")); return; }
    const savedOf = n => (nodes[n].saved ?? []).filter(x => !x.shared).reduce((sum, x) => sum + x.bytes, 0);
    let now = 0;
    const change = new Float64Array(events.length + 1);
    for (const n of operations) { const size = savedOf(n); if (!size) continue; change[Math.max(0, life[n].forward)] += size; if (life[n].end !== NEVER) change[life[n].end] -= size; }
    for (let i = 0; i < events.length; i++) { now += change[i]; savedAt[i] = now; }
    const base = step.data.memory?.before ?? 0, grads = events.map(e => e.gradients ?? 0), x = events.map((_, i) => i + 1);
    const off = new Set();
    const place = h("div"), says = h("p");
    const candidates = modules.map((m, i) => i).filter(m => m > 0 && /\.\d+$/.test(modules[m].path) && operations.some(o => ancestors(nodes[o].module ?? 0).includes(m)));
    const blockOf = m => operations.filter(o => ancestors(nodes[o].module ?? 0).includes(m));
    function without() {
      const result = live.slice();
      let added = 0;
      for (const m of off) {
        const ops = blockOf(m), firstRuleOf = Math.min(...ops.map(o => life[o].rule)), lastForward = Math.max(...ops.map(o => life[o].forward));
        const input = savedOf(ops[0]);
        for (let i = lastForward; i < Math.min(firstRuleOf, events.length); i++) result[i] -= Math.max(0, ops.reduce((sum, o) => sum + (life[o].forward <= i ? savedOf(o) : 0), 0) - input);
        added += ops.reduce((sum, o) => sum + (nodes[o].seconds ?? 0), 0);
      }
      return { result, added };
    }
    let chart;
    function drawAll() {
      const { result, added } = without(), peak = Math.max(...live), other = Math.max(...result), total = operations.reduce((sum, o) => sum + (nodes[o].seconds ?? 0) + (nodes[o].backward_seconds ?? 0), 0);
      const peakAt = live.indexOf(peak);
      const band = (name, low, high, color) => ({ name, x, y: high, low, high, color, width: 1 });
      const a = x.map(() => base), b = a.map((v, i) => v + grads[i]), c = b.map((v, i) => Math.min(live[i], v + savedAt[i]));
      const series = [band("in use before the step", x.map(() => 0), a, "var(--c7)"), band("gradients", a, b, "var(--c1)"), band("saved for the backward pass", b, c, "var(--c0)"), band("temporary", c, live, "var(--c2)")];
      if (off.size) series.push({ name: "with recomputation", x, y: result, color: "var(--ink)", dash: "5 3" });
      chart = kit.lineChart({ series, legend: true, height: 260, at: step.at + 1, pick: v => go(Math.round(v) - 1), x: { title: "event", format: v => kit.count(Math.round(v)) }, y: { title: "bytes in use", min: 0, format: bytes } });
      place.replaceChildren(chart.element);
      says.textContent = `The peak is ${bytes(peak)}, at event ${kit.count(peakAt + 1)}.` + (off.size ? ` With recomputation of ${off.size} ${off.size === 1 ? "module" : "modules"} it is ${bytes(other)} (${percent(1 - other / peak)} less), and the step takes about ${seconds(added)} longer${total ? ` (${percent(added / total)})` : ""}.` : "");
    }
    const chartSide = h("div", {}, place);
    body.append(says);
    if (candidates.length) chartSide.append(h("div", { class: "row small" }, h("span", { class: "soft" }, "Recompute:"), candidates.slice(0, 48).map(m => h("label", {}, h("input", { type: "checkbox", onchange(e) { if (e.target.checked) off.add(m); else off.delete(m); drawAll(); } }), ` ${modules[m].path}`))));
    drawAll();
    const peakAt = live.indexOf(Math.max(...live));
    const alive = operations.filter(n => life[n].forward <= peakAt && life[n].end > peakAt).flatMap(n => (nodes[n].saved ?? []).filter(x => !x.shared).map(x => ({ n, ...x }))).sort((p, q) => q.bytes - p.bytes);
    body.append(h("div", { class: "sides" }, chartSide, h("div", {}, h("h3", {}, "Largest saved tensors at the peak"), alive.length ? kit.table([
      { title: "operation", value: r => title(r.n) }, ...(modules.length > 1 ? [{ title: "module", value: r => path(r.n) }] : []), { title: "tensor", value: r => r.name }, { title: "shape", value: r => shape(r.shape) },
      { title: "bytes", num: true, value: r => r.bytes, text: r => bytes(r.bytes) }], alive.slice(0, 12), { by: modules.length > 1 ? 4 : 3, pick: r => choose(r.n) }) : h("p", { class: "soft" }, "None: no operation keeps a tensor of its own."))));
    watch(() => chart?.moveTo(step.at + 1));
  });
  kit.test("recomputation can be tried", async ({ frames }) => {
    for (const box of panel.querySelectorAll("input[type=checkbox]")) { box.click(); await frames(1); box.click(); }
  });
  return panel;
};
