// How far two computations of the same operations are apart.
"use strict";
kit.start(data => {
  const { h, number, count } = kit;
  const { operations } = data, all = data.all.map(([operation, input, module, is_backward, relative]) => ({ operation, input, module, is_backward, relative }));
  const name = d => d.operation + (d.input === null ? "" : `, gradient of ${d.input}`) + (d.module ? ` in ${d.module}` : "");
  const ulp = x => x === null ? "∞" : number(x, 3);
  const along = kit.panel("along", "Along the computation", [
    "The error of each result and of each delivered gradient, in the order of time, shard after shard: the norm of the difference by that of the second tensor, in units of 2⁻²⁴, which is half an ULP of 1. One line each for the forward and the backward pass.",
  ], body => body.append(kit.lineChart({
    height: 320, legend: true, x: { title: "value", format: i => `${i} ${all[i] ? name(all[i]) : ""}` }, y: { title: "error, 2⁻²⁴", log: true, format: x => number(x, 3) },
    series: [["forward", d => !d.is_backward], ["backward", d => d.is_backward]].map(([name, is], i) => ({
      name, color: kit.color(i), x: all.flatMap((d, i) => is(d) ? [i] : []), y: all.filter(is).map(d => d.relative > 0 ? d.relative : null),
    })),
  }).element));
  const table = kit.panel("operations", "By operation", [
    "All values of an operation together: how many elements have which distance in ULP of f32 (bars: equal bits, then up to 0.5, 1, 2, 4 .. ULP), a bound of half of them, and the largest. A large distance of a number near 0 may be a small error of its tensor: that is the last column, of the worst value.",
  ], body => body.append(kit.table([
    { title: "operation", value: d => d.operation },
    { title: "pass", value: d => d.is_backward ? "backward" : "forward" },
    { title: "elements", num: true, value: d => d.counts.reduce((a, b) => a + b, 0), text: d => count(d.counts.reduce((a, b) => a + b, 0)) },
    { title: "differ", num: true, value: d => 1 - d.counts[0] / d.counts.reduce((a, b) => a + b, 0), text: d => kit.percent(1 - d.counts[0] / d.counts.reduce((a, b) => a + b, 0)) },
    { title: "distances", value: d => d.median, text: d => { const top = Math.max(...d.counts); return h("span", { class: "row", style: { gap: "1px", alignItems: "flex-end", height: "24px", flexWrap: "nowrap" } }, d.counts.map((n, i) => h("i", { title: `${i === 0 ? "equal" : i + 1 < d.counts.length ? `up to ${2 ** (i - 2)} ULP` : "more"}: ${count(n)}`, style: { width: "4px", background: kit.color(0), height: `${n ? 2 + 22 * n / top : 1}px` } }))); } },
    { title: "median ≤", num: true, value: d => d.median ?? Infinity, text: d => ulp(d.median) },
    { title: "largest", num: true, value: d => d.largest ?? Infinity, text: d => ulp(d.largest) },
    { title: "error, 2⁻²⁴", num: true, value: d => d.relative ?? Infinity, text: d => ulp(d.relative) },
  ], operations, { by: 7, down: true })));
  return kit.page(data.title, `${count(all.length)} values`, [along, table]);
});
