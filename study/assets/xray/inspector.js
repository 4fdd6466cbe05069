// The inspector: formula, values and gradient of one node, and one element with its numbers.
"use strict";
xray.inspector = step => {
  const { h, number, bytes, seconds, count } = kit;
  const { nodes, events, values, modules, life, operations, title, shape, subject, go, choose, watch } = step;
  const LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const digits = x => number(x, 4);
  function valueView(v, name) {
    if (v === undefined || v === null) return null;
    const one = values[v], list = [h("h3", {}, name)];
    if (one.full) {
      const all = one.full, cols = Math.min(one.columns || all.length, 16), rows = Math.ceil(all.length / cols);
      const cells = [...Array(rows).keys()].map(i => h("tr", {}, all.slice(i * cols, (i + 1) * cols).map(x => h("td", {}, x === null ? "NaN" : number(typeof x === "string" ? Number(x) : x, 3)))));
      list.push(h("div", { class: "scroll" }, h("table", { class: "numbers" }, h("tbody", {}, cells))));
    } else if (one.picture) {
      // A cell is a level from -31 to 31; the first character stands for what is not finite.
      const { rows, columns, cells, scale, note } = one.picture, level = (i, j) => LEVELS.indexOf(cells[i * columns + j]) - 32;
      list.push(kit.heatMap({ rows, columns, width: 220, size: 8, ramp: "diverging", low: -31, high: 31, name,
        value: (i, j) => level(i, j) === -32 ? NaN : level(i, j),
        label: (i, j) => level(i, j) === -32 ? "not finite" : `about ${number(level(i, j) / 31 * scale, 2)}` }).element,
        h("p", { class: "soft small" }, kit.scale("diverging", `−${number(scale, 2)}`, number(scale, 2)), note ? ` ${note}` : ""));
    }
    if (one.histogram) list.push(kit.histogram(one.histogram, one.min, one.max));
    list.push(kit.facts([["from, to", `${digits(one.min)}, ${digits(one.max)}`], ["mean, deviation", `${digits(one.mean)}, ${digits(one.std)}`], ["norm", digits(one.norm)],
      ["zeros", `${count(one.zeros)} of ${count(one.count)}`], one.nan || one.inf ? ["not finite", h("span", { class: "bad" }, `${count(one.nan)} NaN, ${count(one.inf)} infinite`)] : null]));
    return h("div", {}, list);
  }
  let element = 0;
  const panel = kit.panel("inspector", "Inspector", [
    "The chosen operation or parameter; without a choice, that of the current event. The second formula is the vector-Jacobian product as it was recorded: the operations that its rule ran, where g is the gradient of the result.",
    "Under “one element”, the numbers of one element stand in the formula. The gradient of an element is the sum of what each operation that uses it delivers.",
    "Pictures show large tensors in at most 32 by 32 cells: blue is positive, orange is negative. Each cell is the element of largest magnitude in its part.",
  ], body => {
    const place = h("div");
    body.append(place);
    let shown = null;
    watch(() => {
      const n = subject(), node = nodes[n], gradients = life[n].arrivals.filter(i => i <= step.at), key = `${n} ${gradients.length} ${life[n].forward <= step.at} ${step.chosen}`;
      if (key === shown) return;
      shown = key;
      kit.guarded("inspector", place, () => {
        const formula = step.data.formulas?.[node.formula];
        const inputs = (node.inputs ?? []).map((input, i) => [input.symbol ?? `input ${i}`, input.node !== undefined
          ? h("span", {}, h("button", { class: "plain", onclick: () => choose(input.node) }, title(input.node)), ` ${shape(input.shape ?? nodes[input.node].shapes[input.output ?? 0])}`)
          : `constant${input.shape ? " " + shape(input.shape) : ""}${input.reason ? `: ${input.reason}` : ""}`]);
        const users = [...new Set(operations.filter(o => (nodes[o].inputs ?? []).some(i => i.node === n)))];
        const final = gradients.length ? events[gradients.at(-1)] : null;
        const elements = node.elements ?? [];
        element = Math.min(element, Math.max(0, elements.length - 1));
        const plugged = h("div");
        const showElement = () => {
          const one = elements[element];
          plugged.replaceChildren(h("p", { class: "element" }, one.forward),
            ...(gradients.length ? [h("p", { class: "element" }, `gradient: ${one.parts.slice(0, gradients.length).map(p => `${number(p[1])}${one.parts.length > 1 ? ` (from ${title(p[0])})` : ""}`).join(" + ")}${one.parts.length > 1 ? ` = ${number(one.parts.slice(0, gradients.length).reduce((sum, p) => sum + p[1], 0))}` : ""}`)] : []),
            ...(one.check !== undefined && one.check !== null && gradients.length === life[n].arrivals.length ? [h("p", { class: "element" }, `central difference: ${number(one.check, 6)}; by the rules: ${number(one.gradient, 6)}`)] : []));
        };
        if (elements.length) showElement();
        const choice = elements.length > 1 ? h("select", { "aria-label": "element", onchange(e) { element = Number(e.target.value); showElement(); } }, elements.map((one, i) => h("option", { value: i, selected: i === element }, one.index))) : null;
        place.replaceChildren(
          h("div", { class: "row" }, h("strong", {}, title(n)), h("span", { class: "soft" }, `${modules[node.module]?.path ?? ""} ${node.kind === "leaf" ? node.trainable === false ? "frozen parameter" : "leaf" : ""}`),
            step.chosen !== null ? h("button", { onclick: () => choose(null) }, "follow the current event") : null),
          h("div", {}, formula ? [h("div", { class: "formula" }, formula.forward), h("div", { class: "formula" }, formula.backward)]
            : node.kind === "op" ? h("p", { class: "soft small" }, `“${node.name}” is no operation of the library, so its formula is not known.`) : null),
          h("div", { class: "columns" },
            h("div", {}, kit.facts([["shape", node.shapes.map(shape).join(" ")], ...inputs, node.line ? ["source", h("code", {}, node.line)] : null,
              users.length ? ["used by", users.slice(0, 8).map(u => h("button", { class: "plain", onclick: () => choose(u) }, title(u)))] : null,
              node.kind === "op" ? ["saved", node.saved?.length ? node.saved.map(x => `${x.name} ${shape(x.shape)} ${bytes(x.bytes)}`).join("; ") : "nothing"] : null,
              node.kernel ? ["kernel", node.kernel] : null, node.flops ? ["FLOPs", kit.quantity(node.flops, "FLOP")] : null,
              node.seconds ? ["time in kernels", `${seconds(node.seconds)}${node.backward_seconds ? `, backward ${seconds(node.backward_seconds)}` : ""}`] : null,
              node.no_gradient ? ["no gradient", h("span", { class: "bad" }, node.no_gradient)] : null]),
              elements.length ? h("div", {}, h("h3", {}, "One element ", choice), plugged) : null,
              node.rule?.length ? h("p", { class: "small soft" }, `Its rule ran: ${node.rule.join(", ")}.`) : null,
              node.inside ? h("details", {}, h("summary", {}, "As a composition of ordinary operations"), h("div", { class: "formula" }, node.inside)) : null),
            life[n].forward <= step.at ? valueView(node.value, "Value") : h("p", { class: "soft" }, "The value is computed later."),
            final ? valueView(final.value, gradients.length < life[n].arrivals.length ? `Gradient so far (${gradients.length} of ${life[n].arrivals.length})` : "Gradient") : h("p", { class: "soft" }, life[n].arrivals.length ? "The gradient arrives later." : "No gradient arrives here.")));
      });
    });
  });
  kit.test("every node can be chosen", async ({ assert, frames, layoutErrors }) => {
    go(events.length - 1);
    const stride = Math.max(1, Math.floor(nodes.length / 400));
    let shown = 0;
    for (let i = 0; i < nodes.length; i += stride) {
      choose(i, false);
      assert(panel.textContent.includes(title(i)), `the inspector does not show ${title(i)}`);
      assert(!/\b(null|undefined)\b/.test(panel.textContent), `the inspector of ${title(i)} has a missing value`);
      assert(!panel.querySelector(".message"), `the inspector cannot show ${title(i)}: ${panel.querySelector(".message")?.textContent}`);
      if (i % (10 * stride) === 0) { await frames(2); const errors = layoutErrors(panel); assert(!errors.length, `${title(i)}: ${errors[0]}`); }
      shown++;
    }
    choose(null, false);
    return shown;
  });
  return panel;
};
