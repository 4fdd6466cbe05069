// The inspector: formula, values and gradient of one node, and one element with its numbers.
"use strict";
xray.inspector = step => {
  const { h, number, bytes, count } = kit;
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
        h("div", {}, kit.scale("diverging", `−${number(scale, 2)}`, number(scale, 2))), note ? h("p", { class: "soft small" }, note) : "");
    }
    if (one.histogram && one.count >= 16) list.push(kit.histogram(one.histogram, one.min, one.max));
    if (one.count > 1) list.push(kit.facts([["from, to", `${digits(one.min)}, ${digits(one.max)}`], ["mean, deviation", `${digits(one.mean)}, ${digits(one.std)}`], [one.nan || one.inf ? "norm of the finite" : "norm", digits(one.norm)],
      ["zeros", `${count(one.zeros)} of ${count(one.count)}`], one.nan || one.inf ? ["not finite", h("span", { class: "bad" }, `${count(one.nan)} NaN, ${count(one.inf)} infinite`)] : null]));
    return h("div", {}, list);
  }
  const factor = (x, n) => n > 1 && x < 0 ? `(${number(x)})` : number(x);
  // What the rule of a pointwise operation delivers to its inputs from one element, whose gradient is g, with the numbers in
  // the formula. Formulas that contain more than inputs, result and gradient are left out.
  const WORDS = new Set(["g", "x", "y", "z", "e", "ln", "sin", "cos", "tanh", "erf", "sign", "σ", "Φ", "φ", "min", "max", "if", "and", "else"]);
  function delivered(n, one, g) {
    const node = nodes[n], formula = step.data.formulas?.[node.formula], inputs = node.inputs ?? [];
    // Elements of the same index are those of the same place only in tensors of the same shape.
    const constants = Object.fromEntries((node.constants ?? []).map(([name, x]) => [name, number(Number(x))]));
    const same = inputs.map(input => input.node === undefined || shape(nodes[input.node].shapes[input.output ?? 0]) !== shape(node.shapes[0]) ? null : nodes[input.node].elements?.find(e => e.index === one.index));
    if (!formula || inputs.length > 2 || node.shapes.length > 1) return [];
    const value = e => e.forward.split(" = ").at(-1), known = { ...constants, g: number(g), y: value(one), x: same[0] && value(same[0]), z: same[1] && value(same[1]) };
    return formula.backward.split("\n").flatMap((line, i) => {
      const [left, right] = line.split(" = "), words = right?.match(/[\p{L}]+/gu) ?? [], part = same[i]?.parts.find(p => p[0] === n);
      if (!part || left !== ["dx", "dz"][i] || !words.every(w => known[w] || WORDS.has(w) && !"xyzg".includes(w))) return [];
      const plugged = right.replace(/\p{L}+/gu, (name, at) => known[name]?.startsWith("−") && at > 0 ? `(${known[name]})` : known[name] ?? name);
      const result = number(Number(part[1]));
      return [`${left} = ${right}${plugged === right ? "" : ` = ${plugged}`}${plugged === result ? "" : ` = ${result}`}, to ${title(inputs[i].node)}`];
    });
  }
  const panel = kit.panel("inspector", "Inspector", [
    "The chosen operation or parameter; without a choice, that of the current event. The first formula is the operation: x, z and w are inputs, y is the result. The second one is its rule, the vector-Jacobian product: from g, the gradient of the loss by y, it computes dx, the gradient of the loss by x.",
    "Under “one element”, the numbers of one element stand in these formulas. Its gradient g is the sum of what each operation that uses it delivers; of products, the sum behind it is shown, too. For some parameters, a central difference was computed when the page was made: the change of the loss by a small change of the element.",
    "How it ran: saved tensors are those that its rule needs; a kernel is the routine that computed it.",
    "Pictures show large tensors in at most 32 by 32 cells: blue is positive, orange is negative. Each cell is the element of largest magnitude in its part.",
  ], body => {
    body.append(h("p", { class: "soft small lead" }, "One operation or parameter: its formulas, its numbers, and its gradient at the current event."));
    const place = h("div");
    body.append(place);
    let shown = null, last = null;
    watch(() => {
      const n = subject(), node = nodes[n], gradients = life[n].arrivals.filter(i => i <= step.at), key = `${n} ${gradients.length} ${life[n].forward <= step.at} ${step.chosen} ${step.element}`;
      if (key === shown) return;
      shown = key;
      kit.guarded("inspector", place, () => {
        const formula = step.data.formulas?.[node.formula];
        const inputs = (node.inputs ?? []).map((input, i) => [input.symbol ?? `input ${i}`, input.node !== undefined
          ? h("span", {}, h("button", { class: "plain", onclick: () => choose(input.node) }, title(input.node)), ` ${shape(input.shape ?? nodes[input.node].shapes[input.output ?? 0])}`)
          : `a constant${input.shape ? " " + shape(input.shape) : ""}${input.reason && input.reason !== "made as a constant" ? `: ${input.reason}` : ""}`]);
        const users = [...new Set(operations.filter(o => (nodes[o].inputs ?? []).some(i => i.node === n)))];
        const final = gradients.length ? events[gradients.at(-1)] : null;
        const elements = node.elements ?? [];
        // Of a node that was chosen now, an element with a central difference, if there is one.
        if (n !== last && !elements[step.element]?.check) step.element = Math.max(0, elements.findIndex(one => one.check));
        last = n;
        step.element = Math.min(step.element, Math.max(0, elements.length - 1));
        const plugged = h("div");
        const showElement = () => {
          const one = elements[step.element], parts = one.parts.slice(0, gradients.length), lines = [];
          const g = parts.reduce((sum, p) => sum + Number(p[1]), 0), isComplete = gradients.length === life[n].arrivals.length;
          if (life[n].forward <= step.at) lines.push(h("p", { class: "element" }, one.forward));
          for (const [k, terms] of one.terms ?? []) if (k < parts.length) lines.push(h("p", { class: "element" }, `from ${title(parts[k][0])}: ${terms} = ${number(Number(parts[k][1]))}`));
          if (parts.length) lines.push(h("p", { class: "element" }, `g = ${parts.map(p => `${factor(Number(p[1]), parts.length)} (${p[0] === null ? "given" : `from ${title(p[0])}`})`).join(" + ")}${parts.length > 1 ? ` = ${number(g)}` : ""}`));
          if (life[n].rule <= step.at) lines.push(...delivered(n, one, g).map(text => h("p", { class: "element" }, text)));
          if (one.check && isComplete) {
            const { difference, error, step: by, agrees } = one.check;
            lines.push(h("p", { class: "element" }, `central difference: (L(w + h) − L(w − h)) / 2h = ${number(difference)} ± ${number(error, 2)}, h = ${number(by, 2)}. `,
              h("strong", { class: agrees ? "good" : "bad" }, agrees ? "It agrees with g." : "It does not agree with g.")),
              h("p", { class: "soft small" }, `L is the loss of the recorded code, run again with this element changed by h. The error that is to be expected comes from rounding (${step.data.made?.dtype ?? "the type"}) and from the size of h.`));
          }
          plugged.replaceChildren(...lines);
        };
        if (elements.length) showElement();
        const choice = elements.length > 1 ? h("select", { "aria-label": "element", onchange(e) { step.element = Number(e.target.value); showElement(); } }, elements.map((one, i) => h("option", { value: i, selected: i === step.element }, one.index, one.check ? " with a central difference" : ""))) : null;
        // Formulas name inputs that are optional.
        const here = (node.inputs ?? []).flatMap(input => input.symbol?.split(", ") ?? [null]), letterOf = line => /^d([a-z])\b/.exec(line)?.[1];
        const lines = formula?.backward.split("\n") ?? [], isMissing = line => here.length > 0 && !here.includes(null) && letterOf(line) && !here.includes(letterOf(line));
        const missing = lines.filter(isMissing).map(letterOf);
        const kind = node.kind !== "leaf" ? "" : node.trainable === undefined ? "leaf: a variable that no operation computed" : node.trainable ? "parameter" : "frozen parameter: it is not trained";
        const links = (list, more) => [list.map(u => h("button", { class: "plain", onclick: () => choose(u) }, title(u))), more > 0 ? ` and ${more} more` : null];
        place.replaceChildren(
          h("div", { class: "row" }, h("strong", {}, title(n)), h("span", { class: "soft" }, [modules[node.module]?.path, kind].filter(t => t).join(" · ")),
            step.chosen !== null ? h("button", { onclick: () => choose(null) }, "follow the current event") : null),
          formula ? h("div", {}, h("div", { class: "formula" }, formula.forward), h("div", { class: "formula" }, lines.filter(line => !isMissing(line)).join("\n")), missing.length ? h("p", { class: "soft small" }, `Here without ${missing.join(" and ")}.`) : null)
            : node.kind === "op" ? h("p", { class: "soft small" }, `“${node.name}” is no operation of the library, so its formula is not known.`) : "",
          kit.facts([["shape", node.shapes.map(shape).join(" ")], ...inputs, ...(node.constants ?? []).map(([name, x]) => [name, number(Number(x))]), users.length ? ["used by", links(users.slice(0, 8), users.length - 8)] : null,
            node.no_gradient ? ["no gradient", h("span", { class: "bad" }, step.coded(node.no_gradient))] : null]),
          elements.length ? h("div", {}, h("h3", {}, "One element ", choice), plugged) : "",
          h("div", { class: "values" },
            life[n].forward <= step.at ? valueView(node.value, "Value") : h("p", { class: "soft" }, "The value is computed later."),
            final ? valueView(final.value, gradients.length < life[n].arrivals.length ? `Gradient so far (${gradients.length} of ${life[n].arrivals.length})` : "Gradient") : h("p", { class: "soft" }, life[n].arrivals.length ? "The gradient arrives later." : "No gradient arrives here.")),
          node.kind === "op" ? h("h3", {}, "How it ran") : "",
          kit.facts([node.line ? ["source", h("code", {}, node.line)] : null, node.kind === "op" ? ["saved", node.saved?.length ? node.saved.map(x => `${x.name} ${shape(x.shape)} ${bytes(x.bytes)}`).join("; ") : "nothing"] : null,
            node.rule?.length ? ["its rule called", node.rule.join(", ")] : null,
            node.kernel ? ["kernel", node.kernel] : null, node.flops ? ["FLOPs", kit.quantity(node.flops, "FLOP")] : null,
            node.seconds || node.backward_seconds ? ["time in kernels", `${step.time(node.seconds, node.medians?.[0])}${node.backward_seconds ? `, backward ${step.time(node.backward_seconds, node.medians?.[1])}` : ""}`] : null]),
          node.inside ? h("details", {}, h("summary", {}, "As a composition of ordinary operations"), h("div", { class: "formula" }, node.inside)) : "");
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
