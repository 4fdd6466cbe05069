// The layout of a graph.
"use strict";
// Places boxes in ranks, so that every edge leads downwards; an edge over several ranks gets a place in
// each of them (Sugiyama, Tagawa, Toda 1981).
xray.layered = (items, edges, isLight, boxWidth, boxHeight) => {
  const rank = new Map(), from = new Map(items.map(i => [i, []]));
  for (const [a, b] of edges) from.get(b).push(a);
  for (const i of items) rank.set(i, from.get(i).reduce((r, a) => Math.max(r, (rank.get(a) ?? -1) + 1), 0));
  // A box without inputs stands right above the box that uses it first.
  const to = new Map(items.map(i => [i, []]));
  for (const [a, b] of edges) to.get(a).push(b);
  for (const i of items) if (!from.get(i).length && to.get(i).length) rank.set(i, Math.max(0, Math.min(...to.get(i).map(b => rank.get(b))) - 1));
  const rows = [];
  const put = (place, r) => { (rows[r] ??= []).push(place); place.rank = r; return place; };
  const places = new Map(items.map(i => [i, put({ item: i, up: [], down: [], wide: boxWidth }, rank.get(i))]));
  const lines = edges.map(([a, b]) => {
    const line = [places.get(a)];
    for (let r = rank.get(a) + 1; r < rank.get(b); r++) line.push(put({ up: [], down: [], wide: 14 }, r));
    line.push(places.get(b));
    for (let i = 1; i < line.length; i++) { line[i - 1].down.push(line[i]); line[i].up.push(line[i - 1]); }
    return line;
  });
  const mean = list => list.reduce((sum, p) => sum + p.order, 0) / list.length;
  rows.forEach(row => row.forEach((p, i) => { p.order = i; }));
  for (let sweep = 0; sweep < 6; sweep++) {
    const side = sweep % 2 ? "down" : "up";
    for (const row of sweep % 2 ? [...rows].reverse() : rows) {
      row.forEach(p => { p.want = p[side].length ? mean(p[side]) : p.order; });
      row.sort((a, b) => a.want - b.want);
      row.forEach((p, i) => { p.order = i; });
    }
  }
  const GAP = 18;
  // A parameter follows the operation that uses it, and an operation its neighbours more than lines that pass.
  const weightOf = p => p.item === undefined ? .3 : isLight(p.item) ? .001 : 1;
  for (const row of rows) { let x = 0; for (const p of row) { p.x = x + p.wide / 2; x += p.wide + GAP; } const shift = -x / 2; row.forEach(p => { p.x += shift; }); }
  for (let sweep = 0; sweep < 40; sweep++) {
    for (const row of sweep % 2 ? [...rows].reverse() : rows) {
      for (const p of row) {
        let sum = 0, weight = 0;
        for (const q of [...p.up, ...p.down]) { const w = weightOf(q); sum += w * q.x; weight += w; }
        p.want = weight ? sum / weight : p.x;
      }
      // Positions without overlaps that are nearest to the wanted ones, by the weighted sum of squares:
      // isotonic regression by pooling adjacent violators (Ayer et al. 1955).
      const pools = [];
      let edge = 0;
      for (const p of row) {
        p.touching = edge + p.wide / 2;
        edge += p.wide + GAP;
        let pool = { x: p.want - p.touching, w: weightOf(p), places: [p] };
        for (let last; (last = pools.at(-1)) && last.x > pool.x; pools.pop()) {
          pool = { x: (last.x * last.w + pool.x * pool.w) / (last.w + pool.w), w: last.w + pool.w, places: [...last.places, ...pool.places] };
        }
        pools.push(pool);
      }
      for (const { x, places } of pools) for (const p of places) p.x = x + p.touching;
    }
  }
  const all = rows.flat(), left = Math.min(...all.map(p => p.x - p.wide / 2)) - 10;
  const rowHeight = boxHeight + 28;
  for (const p of all) { p.x -= left; p.y = 10 + p.rank * rowHeight + boxHeight / 2; }
  return { places, lines, width: Math.max(...all.map(p => p.x + p.wide / 2)) + 10, height: rows.length * rowHeight - 8 };
};
