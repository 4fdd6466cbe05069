// Times of operations, and the limits of the machine.
"use strict";
xray.cost = step => {
  const { h, number, bytes, seconds, percent } = kit;
  const { nodes, operations } = step;
  return kit.panel("cost", "Cost", [
    "Time in the kernels of each operation, forward and backward, and how that compares with what this machine can do. The recorded code ran several times, if it took no more than two seconds: a time is the least of the runs of each operation, because other programs only make it longer; the spread is how far the median of the runs is above the least.",
    "FLOPs are multiplications and additions. Bytes are those that must be read and written at least once. The roofline (Williams, Waterman, Patterson 2009) is the smaller of the peak rate and of the bandwidth of a level of memory by the FLOPs per byte. An operation above the line of main memory found its numbers in a cache, whose line is dashed. The column “of the limit” is relative to the nearest level of memory that holds the bytes of the operation.",
  ], body => {
    body.append(h("p", { class: "soft small lead" }, "How long each operation takes, and how that compares with what the machine can do."));
    const timed = operations.filter(n => nodes[n].seconds || nodes[n].backward_seconds);
    if (!timed.length) { body.append(h("p", { class: "soft" }, "No times were recorded.")); return; }
    const groups = new Map();
    for (const n of timed) {
      const g = groups.get(nodes[n].name) ?? { name: nodes[n].name, calls: 0, forward: 0, backward: 0, flops: 0, bytes: 0, least: 0, median: 0 };
      g.calls++; g.forward += nodes[n].seconds ?? 0; g.backward += nodes[n].backward_seconds ?? 0; g.flops += nodes[n].flops ?? 0; g.bytes += nodes[n].traffic ?? 0; g.least += nodes[n].least_seconds ?? 0; g.median += nodes[n].medians ? nodes[n].medians[0] + nodes[n].medians[1] : 0;
      groups.set(nodes[n].name, g);
    }
    const rows = [...groups.values()], sum = of => rows.reduce((all, r) => all + of(r), 0), total = sum(r => r.forward + r.backward);
    const runs = step.data.made?.runs ?? 1, spread = r => r.forward + r.backward ? r.median / (r.forward + r.backward) - 1 : 0;
    const columns = [{ title: "operation", value: r => r.name }, { title: "calls", num: true, value: r => r.calls, text: r => kit.count(r.calls) },
      { title: "forward", num: true, value: r => r.forward, text: r => r.forward ? seconds(r.forward) : "–", help: "time in kernels; – if none ran" }, { title: "backward", num: true, value: r => r.backward, text: r => r.backward ? seconds(r.backward) : "–", help: "time in kernels; – if none ran" },
      { title: "share", num: true, value: r => r.forward + r.backward, text: r => percent((r.forward + r.backward) / total) },
      ...(runs > 1 ? [{ title: "spread", num: true, value: r => spread(r), text: r => percent(spread(r)), help: "how far the median of the runs is above the least time" }] : []),
      { title: "FLOPs", num: true, value: r => r.flops, text: r => r.flops ? kit.quantity(r.flops, "") : "–", help: "of the forward pass" }];
    if (rows.some(r => r.bytes)) columns.push({ title: "bytes", num: true, value: r => r.bytes, text: r => r.bytes ? bytes(r.bytes) : "–", help: "of the forward pass" });
    if (rows.some(r => r.least)) columns.push({ title: "of the limit", num: true, value: r => r.least && r.forward ? r.least / r.forward : null, text: r => r.least && r.forward ? percent(r.least / r.forward) : "–", help: "the least possible time of the forward pass, by the time that it took" });
    const sides = h("div", { class: "sides" });
    body.append(h("p", { class: "small" }, `Operations take ${seconds(sum(r => r.forward))} forward and ${seconds(sum(r => r.backward))} backward${runs > 1 ? `, the least times of ${runs} runs; the medians are ${percent(sum(r => r.median) / total - 1)} above them` : ", in a single run"}.`), sides);
    sides.append(kit.table(columns, rows, { by: 4 }));
    const machine = step.data.machine, points = timed.filter(n => nodes[n].flops && nodes[n].traffic && nodes[n].seconds);
    if (machine?.gflops && machine?.memory?.length && points.length) {
      const of = n => [nodes[n].flops / nodes[n].traffic, nodes[n].flops / nodes[n].seconds / 1e9];
      const xs = points.map(n => of(n)[0]), low = Math.min(.1, ...xs) / 2, high = Math.max(100, ...xs) * 2;
      const rx = [...Array(60).keys()].map(i => low * (high / low) ** (i / 59));
      const names = [...new Set(points.map(n => nodes[n].name))];
      sides.prepend(h("div", {}, h("h3", {}, "Roofline"), kit.lineChart({ height: 300, legend: true, x: { title: "FLOPs per byte", log: true, format: v => number(v, 2) }, y: { title: "GFLOP/s", log: true, format: v => number(v, 3) },
        series: [...machine.memory.map(([name, bandwidth], i) => { const isMain = i === machine.memory.length - 1; return { name: `limit with ${name}`, x: rx, y: rx.map(x => Math.min(machine.gflops, x * bandwidth)), color: "var(--soft)", dash: isMain ? undefined : "4 3" }; }), ...names.map((name, i) => {
          const own = points.filter(n => nodes[n].name === name).map(of).sort((p, q) => p[0] - q[0]);
          return { name, x: own.map(p => p[0]), y: own.map(p => p[1]), color: kit.color(i), points: true, bare: true };
        })] }).element));
    }
  });
};
