// What is wrong with the step, and norms of weights, gradients and updates.
"use strict";
// A panel with what is wrong; null if nothing is.
xray.findings = step => {
  const { h, number, count } = kit;
  const { nodes, events, values, firstBad, title, sentence, go, choose } = step;
  const MOST = 8, found = [], leaves = nodes.map((n, i) => i).filter(i => nodes[i].kind === "leaf");
  const message = (id, what, ...rest) => found.push(h("div", { class: "message", id }, h("p", {}, h("strong", { class: "bad" }, what)), rest));
  const list = (all, one) => [h("ul", {}, all.slice(0, MOST).map(x => h("li", {}, one(x)))), all.length > MOST ? h("p", {}, `And ${count(all.length - MOST)} more.`) : null];
  const choosing = (n, then) => h("button", { class: "plain", onclick() { then?.(); choose(n); } }, nodes[n].name);
  if (firstBad >= 0) {
    const e = events[firstBad], n = e.what === "moved" || e.what === "added" ? e.to : e.node, v = values[e.value];
    const range = one => one.value === undefined || one.value === null ? "no values recorded" : `from ${number(values[one.value].min)} to ${number(values[one.value].max)}`;
    message("origin", `The first value that is not finite: ${count(v.nan)} NaN and ${count(v.inf)} infinite of ${count(v.count)} ${v.count === 1 ? "element" : "elements"}.`,
      h("p", {}, sentence(firstBad), nodes[e.node]?.line ? [" Source: ", h("code", {}, nodes[e.node].line), "."] : ""),
      h("ul", {}, (nodes[e.node]?.inputs ?? []).map((input, i) => input.node === undefined ? null : h("li", {}, `${input.symbol ?? `input ${i}`}, ${title(input.node)}: ${range(nodes[input.node])}`))),
      h("button", { onclick() { choose(e.node ?? n); go(firstBad); document.getElementById("tape").scrollIntoView(); } }, "go there"));
  }
  const wrong = leaves.flatMap(n => (nodes[n].elements ?? []).map((one, i) => ({ n, i, one })).filter(({ one }) => one.check && !one.check.agrees));
  if (wrong.length) message("checks", `${count(wrong.length)} of ${count(step.checks)} elements of gradients do not agree with central differences of the loss:`,
    list(wrong, ({ n, i, one }) => [h("button", { class: "plain", onclick: () => { go(events.length - 1); step.element = i; choose(n); } }, `${nodes[n].name}${one.index.startsWith("[") ? one.index : ""}`), `: the rules give ${number(one.parts.reduce((sum, p) => sum + Number(p[1]), 0))}, the difference is ${number(one.check.difference)} ± ${number(one.check.error, 2)}`]),
    h("p", {}, "A rule between these parameters and the loss is wrong, or the loss is not smooth at these values."));
  const missing = leaves.filter(n => nodes[n].no_gradient && nodes[n].trainable !== false);
  if (missing.length) message("missing", `${count(missing.length)} ${missing.length === 1 ? "parameter has" : "parameters have"} no gradient:`, list(missing, n => [choosing(n), ": ", step.coded(nodes[n].no_gradient)]));
  const large = leaves.filter(n => step.update(n) > .1 || Number.isNaN(step.update(n)));
  if (large.length) message("updates", `${count(large.length)} ${large.length === 1 ? "parameter was" : "parameters were"} changed by more than a tenth of the norm in one update:`, list(large, n => [choosing(n), `: ${number(step.update(n), 3)} (about 0.001 is usual)`]));
  if (step.data.difference) message("runs", `${step.data.difference}.`);
  return found.length ? kit.panel("findings", "Findings", [
    "What is wrong with this step. The origin of a value that is not finite is the first event whose result has one although none of its inputs has.",
  ], body => body.append(...found)) : null;
};
xray.health = step => {
  const { h, number, count, percent } = kit;
  const { nodes, events, values, life, operations, firstBad, title, inModule, shape, choose } = step;
  return kit.panel("health", "Health of gradients", [
    "For each parameter: the norm of its weights and of its gradient, their ratio, the ratio of the optimiser's update to the weights if the update was recorded (about 0.001 is usual; more than 0.1 is red), and the share of zeros in its gradient. ‖·‖ is the norm: the square root of the sum of squares.",
  ], body => {
    body.append(h("p", { class: "soft small lead" }, "Whether all gradients are there, are finite, and have usable sizes."));
    const leaves = nodes.map((n, i) => i).filter(i => nodes[i].kind === "leaf");
    const gradientOf = n => { const last = life[n].arrivals.at(-1); return last === undefined ? null : values[events[last].value]; };
    if (firstBad < 0) body.append(h("p", { class: "small" }, h("span", { class: "good" }, "All recorded values and gradients are finite.")));
    const frozen = leaves.filter(n => nodes[n].no_gradient && nodes[n].trainable === false);
    if (frozen.length) body.append(h("p", { class: "small" }, `${count(frozen.length)} ${frozen.length === 1 ? "parameter is" : "parameters are"} frozen and without a gradient.`));
    if (step.checks && leaves.every(n => (nodes[n].elements ?? []).every(one => one.check?.agrees ?? true))) body.append(h("p", { class: "small" }, h("span", { class: "good" }, `${count(step.checks)} elements of gradients agree with central differences of the loss.`)));
    const rows = leaves.filter(n => nodes[n].value !== undefined && nodes[n].value !== null).map(n => {
      const v = values[nodes[n].value], g = gradientOf(n);
      // The norm is that of the finite elements.
      const norm = x => x.nan ? NaN : x.inf ? Infinity : x.norm;
      return { n, weight: norm(v), gradient: g ? norm(g) : null, ratio: g && v.norm ? norm(g) / norm(v) : null, update: step.update(n), zeros: g ? g.zeros / g.count : null };
    });
    const columns = [{ title: "parameter", value: r => nodes[r.n].name }, { title: "shape", value: r => shape(nodes[r.n].shapes[0]) },
      { title: "‖w‖", num: true, value: r => r.weight, text: r => number(r.weight, 3) }, { title: "‖g‖", num: true, value: r => r.gradient, text: r => number(r.gradient, 3) },
      { title: "‖g‖ / ‖w‖", num: true, value: r => r.ratio, text: r => number(r.ratio, 3) }];
    if (rows.some(r => r.update !== null)) columns.push({ title: "update / ‖w‖", num: true, value: r => r.update, text: r => r.update > .1 || Number.isNaN(r.update) ? h("span", { class: "bad" }, number(r.update, 3)) : number(r.update, 3) });
    columns.push({ title: "zeros in g", num: true, value: r => r.zeros, text: r => percent(r.zeros) });
    const table = kit.table(columns, rows, { pick: r => choose(r.n) });
    table.classList.add("long");
    body.append(table);
    const dead = operations.filter(n => /relu|silu|gelu/.test(nodes[n].name) && nodes[n].value !== undefined && nodes[n].value !== null && values[nodes[n].value].zeros > .9 * values[nodes[n].value].count);
    if (dead.length) body.append(h("p", {}, `More than nine in ten results are 0 in: ${dead.map(n => `${title(n)}${inModule(n)}`).join(", ")}.`));
  });
};
