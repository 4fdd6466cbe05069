// The differences of pairs of runs.
"use strict";
function pairsPanel({ pairs, result, verdict }) {
  const { h, number } = kit;
  return kit.panel("pairs", "Pairs", [
    "B − A in bits per byte on all of the held-out text: each pair, and the mean so far with the ends of its 95 % interval, which is valid at every number of pairs. Below 0, B is better.",
  ], body => {
    const x = pairs.map((_, i) => i + 1), differences = pairs.map(pair => pair.b.loss - pair.a.loss);
    const [low, high] = result.interval ?? [null, null], last = x.length;
    body.append(h("p", {}, h("strong", {}, verdict), `. B − A: ${number(result.mean, 4)} bits per byte; 95 % interval ${result.interval ? `${number(low, 4)} to ${number(high, 4)}` : "not bounded yet"}.`),
      kit.lineChart({
        height: 220, legend: true, x: { title: "pair", format: i => pairs[i - 1] ? `seed ${pairs[i - 1].seed}` : "" }, y: { title: "bits per byte", format: x => number(x, 3) }, levels: [{ y: 0, name: "equal" }],
        series: [
          { name: "B − A", x, y: differences, color: "var(--c0)", points: true, width: 0 },
          { name: "mean and interval", x: [.9, last + .1], y: [result.mean, result.mean], low: [low, low], high: [high, high], color: "var(--c1)" },
        ],
      }).element);
  });
}
