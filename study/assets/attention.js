// The attention explorer. Its data has texts, snapshots of models, and "looks": the heads of a snapshot
// on a text. Weights are bytes, of all pairs that attend or of the largest links of each query.
"use strict";
(() => {
  const { h, s, number, percent, count, ramp, rgb, inkOn } = kit;

  // ---- Data -----------------------------------------------------------------------------------

  function bytes(text) {
    let raw;
    try { raw = atob(text); } catch { throw new Error("its data is damaged"); }
    const out = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
    return out;
  }
  const floats = text => { const b = bytes(text); return new Float32Array(b.buffer, 0, b.length >> 2); };
  const doubles = text => { const b = bytes(text); return new Float64Array(b.buffer, 0, b.length >> 3); };

  // The weight of a byte, and the gradient of one relative to the scale.
  const WEIGHT = Float64Array.from({ length: 256 }, (_, b) => (b / 255) ** 2);
  const SLOPE = Float64Array.from({ length: 256 }, (_, b) => Math.sign(b - 128) * ((b - 128) / 127) ** 2);

  // A mask: for each query the ranges of keys that it attends to.
  class Mask {
    constructor(data) {
      Object.assign(this, data);
      this.starts = new Uint32Array(this.queries + 1);
      this.counts = new Uint32Array(this.queries);
      let at = 0;
      for (let i = 0; i < this.queries; i++) {
        this.starts[i] = at;
        const n = this.runs[at];
        for (let r = 0; r < n; r++) this.counts[i] += this.runs[at + 2 + 2 * r] - this.runs[at + 1 + 2 * r];
        at += 1 + 2 * n;
      }
      if (at !== this.runs.length || this.counts.some(n => n > this.keys)) throw new Error("its data is damaged: a mask does not fit its queries");
    }
    // Calls f(start, end) for each range of visible keys.
    ranges(i, f) {
      const at = this.starts[i], n = this.runs[at];
      for (let r = 0; r < n; r++) f(this.runs[at + 1 + 2 * r], this.runs[at + 2 + 2 * r]);
    }
    attends(i, j) {
      let found = false;
      this.ranges(i, (a, b) => { if (a <= j && j < b) found = true; });
      return found;
    }
  }

  // The number of bytes that a text in base64 stands for.
  const byteCount = text => text.length / 4 * 3 - (text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0);

  // A head, decoded when it is first shown.
  class Head {
    constructor(data, masks) {
      this.data = data;
      this.patterns = data.patterns;
      this.without = data.without;
      const mask = this.mask = masks[data.mask];
      if (!mask) throw new Error("its data is damaged: a head has no mask");
      const most = data.links ? data.links.most : Infinity;
      this.starts = new Uint32Array(mask.queries + 1);
      for (let i = 0; i < mask.queries; i++) this.starts[i + 1] = this.starts[i] + Math.min(most, mask.counts[i]);
      const total = this.starts[mask.queries];
      const fits = byteCount(data.weights) === total && (!data.links || byteCount(data.links.keys) === 2 * total && byteCount(data.links.rest) === mask.queries)
        && (!data.gradient || byteCount(data.gradient.bytes) === total);
      if (!fits) throw new Error("its data is damaged: a head has another number of weights than pairs");
    }
    decode() {
      if (this.weights) return this;
      const { data } = this;
      if (data.links) {
        const pairs = bytes(data.links.keys);
        this.keys = new Uint16Array(pairs.buffer, 0, pairs.length >> 1);
        this.rest = bytes(data.links.rest);
      }
      if (data.gradient) { this.slopes = bytes(data.gradient.bytes); this.scale = data.gradient.scale; }
      this.weights = bytes(data.weights);
      return this;
    }
    // Calls f(key, place) for each pair of a query that is kept.
    each(i, f) {
      this.decode();
      let at = this.starts[i];
      if (this.keys) { for (; at < this.starts[i + 1]; at++) f(this.keys[at], at); return; }
      this.mask.ranges(i, (a, b) => { for (let j = a; j < b; j++) f(j, at++); });
    }
    // Whether weights have signs, and the largest absolute value.
    get isSigned() { return this.data.scale !== undefined; }
    get range() { return this.data.scale ?? 1; }
    // What is shown of the pair at a place: the weight, the gradient, or their product.
    value(what, at) {
      const byte = this.weights[at], weight = this.isSigned ? this.range * SLOPE[byte] : WEIGHT[byte];
      if (what === "weight") return weight;
      if (!this.slopes) return null;
      const slope = this.scale * SLOPE[this.slopes[at]];
      return what === "gradient" ? slope : slope * weight;
    }
    // The colour of a value.
    color(what, value) {
      const x = Math.sqrt(Math.min(1, Math.abs(value) / this.largest(what)));
      return what === "weight" && !this.isSigned ? ramp("sequential", x) : ramp("diverging", .5 + .5 * Math.sign(value) * x);
    }
    pair(what, i, j) {
      let found = null;
      this.each(i, (key, at) => { if (key === j) found = this.value(what, at); });
      return found;
    }
    restOf(i) { this.decode(); return this.rest ? WEIGHT[this.rest[i]] : 0; }
    largest(what) {
      this.decode();
      if (what === "weight") return this.range;
      if (what === "gradient") return this.scale || 1;
      let most = 0;
      for (let at = 0; at < this.weights.length; at++) most = Math.max(most, Math.abs(this.value(what, at)));
      return most || 1;
    }
  }

  // The parts of the scores of a layer, and scores computed from them.
  class Scores {
    constructor(data) {
      Object.assign(this, data);
      this.row = new Map(data.queries.map((i, at) => [i, at]));
      this.column = new Map(data.keys.map((j, at) => [j, at]));
    }
    has(i, j) { return this.row.has(i) && this.column.has(j); }
    decoded(name, list, h) {
      this.cache ??= new Map();
      const key = `${name} ${h}`;
      if (!this.cache.has(key)) this.cache.set(key, name === "constants" || name === "thresholds" ? doubles(list[h]) : floats(list[h]));
      return this.cache.get(key);
    }
    // The score of a pair, step by step: products by dimension, what is added, and the weight.
    of(head, i, j) {
      const r = this.row.get(i), c = this.column.get(j), D = this.width;
      const keyHead = Math.floor(head * this.k.length / this.q.length);
      const products = (qs, ks, name) => {
        const q = this.decoded(`q${name}`, qs, head), k = this.decoded(`k${name}`, ks, keyHead);
        return Array.from({ length: D }, (_, d) => q[r * D + d] * k[c * D + d]);
      };
      const after = products(this.q, this.k, "");
      const before = this.before ? products(this.before[0], this.before[1], "0") : null;
      const added = to => this.added.filter(part => part.to === to).map(part => [part.name, this.decoded(part.name, part.values, head)[r * this.keys.length + c]]);
      let score = after.reduce((sum, x) => sum + x, 0);
      const steps = [];
      const step = (name, formula, to) => { steps.push({ name, formula, from: score, to }); score = to; };
      steps.push({ name: "q·k", formula: `the sum of ${D} products`, from: 0, to: score });
      for (const [name, x] of added("product")) step(name, "q·k + x", score + x);
      if (this.scale !== 1) step("scale", `× ${number(this.scale)}`, score * this.scale);
      if (this.softcap) step("softcap", `${number(this.softcap)} · tanh(s / ${number(this.softcap)})`, this.softcap * Math.tanh(score / this.softcap));
      for (const [name, x] of added("score")) step(name, x < 0 ? `− ${number(-x)}` : `+ ${number(x)}`, score + x);
      const constant = this.decoded("constants", this.constants, head)[r];
      const threshold = this.thresholds && this.decoded("thresholds", this.thresholds, head)[r];
      return { after, before, steps, score, constant, ...this.weight(score, constant, threshold) };
    }
    // The normaliser: its formula with the numbers of this row.
    weight(x, c, threshold) {
      const n = number(c, 5), t = number(x, 5), { name, bias, k } = this.normalizer;
      if (name === "sigmoid") return { weight: 1 / (1 + Math.exp(-(x + bias))), text: `1 / (1 + exp(−(${t} + ${number(bias)})))` };
      if (name === "sparsemax") return { weight: Math.max(x - c, 0), text: `max(${t} − ${n}, 0)` };
      if (name === "entmax15") return { weight: Math.max(x / 2 - c, 0) ** 2, text: `max(${t} / 2 − ${n}, 0)²` };
      if (name === "linear") return { weight: x / c, text: `${t} / ${n}` };
      if (name === "top_k") return x < threshold
        ? { weight: 0, text: `0: it is not one of the ${k} largest scores` }
        : { weight: Math.exp(x - c), text: `exp(${t} − ${n}): it is one of the ${k} largest scores` };
      return { weight: Math.exp(x - c), text: `exp(${t} − ${n})` };
    }
  }

  class Layer {
    constructor(data, masks) {
      Object.assign(this, data);
      this.heads = data.heads.map(head => new Head(head, masks));
      this.scores = data.scores && new Scores(data.scores);
    }
  }

  // Spaces and control characters as signs.
  const SIGNS = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍" };
  const shown = label => label === "" ? "∅" : [...label].map(c => SIGNS[c] ?? (c < " " || c === "\u007f" ? "�" : c)).join("");
  // Its beginning, if it is wider than so many pixels.
  function fitted(label, width) {
    const signs = [...label];
    if (kit.textWidth(label) <= width) return label;
    while (signs.length > 1 && kit.textWidth(`${signs.join("")}…`) > width) signs.pop();
    return `${signs.join("")}…`;
  }

  // ---- Patterns -------------------------------------------------------------------------------

  const PATTERNS = [
    ["previous", "previous token", "The mean of w[i, i−1] over the queries i > 0.", "Clark et al. 2019, arXiv 1906.04341; Voita et al. 2019, arXiv 1905.09418"],
    ["own", "own token", "The mean of w[i, i].", "Clark et al. 2019"],
    ["same", "same token elsewhere", "The mean of Σ w[i, j] over the keys j ≠ i with the same token as the query; queries without such a key do not count.", "duplicate-token heads of Wang et al. 2022, arXiv 2211.00593"],
    ["first", "first token (sink)", "The mean of w[i, 0] over the queries i > 0.", "Xiao et al. 2023, arXiv 2309.17453"],
    ["induction", "induction", "The mean of Σ w[i, j] over the keys 0 < j < i whose previous token is the query's token; queries without such a key do not count. Olsson et al. evaluate this on repeated random tokens, this page on the text shown.", "prefix matching of Olsson et al. 2022, arXiv 2209.11895"],
    ["distance", "mean distance", "The mean of Σ w[i, j] · |i − j| / Σ w[i, j], in tokens.", "Vig, Belinkov 2019, arXiv 1906.04284"],
    ["entropy", "entropy", "The mean of −Σ p ln p in nats, with p[i, j] = w[i, j] / Σ w[i, j]. It is 0 if each query attends to one key, and ln n if it attends to n keys equally.", "Clark et al. 2019"],
    ["most", "largest weight", "The mean of the largest weight of a query.", "confidence of Voita et al. 2019"],
    ["sum", "sum of weights", "The mean of Σ w[i, j]: 1, or less where a sink in the denominator takes a part.", ""],
  ];

  // ---- The page -------------------------------------------------------------------------------

  function draw(data) {
    if (!data || data.attention !== 1) throw new Error("its data is not of version 1 of the attention explorer's format");
    const masks = data.masks.map(mask => new Mask(mask));
    const looks = data.looks.map(look => ({ ...look, layers: look.layers.map(layer => new Layer(layer, masks)) }));
    for (const look of looks) {
      const text = data.texts[look.text];
      if (!text || data.snapshots[look.snapshot] === undefined) throw new Error("its data is damaged: a look has no text or no snapshot");
      for (const layer of look.layers) for (const q of layer.sequences) if (!text.sequences[q]) throw new Error("its data is damaged: a layer has no text");
    }
    if (!looks.length) return kit.page(data.title, data.note, [h("p", { class: "message" }, "Nothing was recorded: this page has no attention weights.")]);

    // What is shown: everything else follows from the address.
    const integer = (key, low, high, otherwise) => {
      const value = Number(kit.get(key, NaN));
      return Number.isInteger(value) && value >= low && value <= high ? value : otherwise;
    };
    const lookAt = (text, snapshot) => looks.find(look => look.text === text && look.snapshot === snapshot);
    const rowOf = (upto, prompt) => Math.max(0, upto - (upto <= prompt ? 1 : 2));
    function selection() {
      const text = integer("text", 0, data.texts.length - 1, looks[0].text);
      const of = looks.filter(look => look.text === text);
      const last = Math.max(...of.map(look => look.snapshot));
      const wanted = integer("snapshot", 0, data.snapshots.length - 1, last);
      const look = lookAt(text, wanted) ?? of.find(look => look.snapshot === last) ?? looks[0];
      const withHeads = look.layers.findIndex(layer => layer.heads.length);
      // The layers whose queries are those of the first sequence are the more interesting ones.
      const cross = look.layers.findIndex(layer => layer.heads.length && layer.sequences[0] !== layer.sequences[1]);
      const [first, second] = data.start ?? [cross >= 0 ? cross : withHeads, 0];
      const l = integer("layer", 0, look.layers.length - 1, first);
      const layer = look.layers[l];
      const most = Math.max(0, (layer?.heads.length ?? 0) - 1);
      const n = integer("head", 0, most, l === first ? Math.min(second, most) : 0);
      const head = layer?.heads[n];
      const { prompt, pair: given } = data.texts[look.text];
      const length = data.texts[look.text].sequences[0].labels.length, isGenerated = prompt !== null && prompt !== undefined;
      // The query is a row that the slider can name: from the last one, no token was generated.
      const made = rowOf(length, prompt), pair = isGenerated ? [Math.min(given?.[0] ?? made, made), given?.[1] ?? 0] : given ?? [0, 0];
      const latest = kit.get("query") === undefined ? Math.min(Math.max(pair[0] + 2, prompt, 1), length) : length;
      const within = (value, size) => Math.max(0, Math.min(value, size - 1));
      const i = head ? within(integer("query", 0, head.mask.queries - 1, pair[0]), head.mask.queries) : 0;
      const j = head ? within(integer("key", 0, head.mask.keys - 1, pair[1]), head.mask.keys) : 0;
      const other = integer("compare", 0, data.snapshots.length - 1, null);
      const against = other === null || other === look.snapshot ? null : lookAt(look.text, other);
      const upto = isGenerated ? integer("upto", Math.max(prompt, 1), length, latest) : null;
      return { look, l, layer, n, head, i, j, upto, text: data.texts[look.text], against, what: kit.get("value", "weight"), by: kit.get("by", "previous") };
    }
    let now = selection();
    const updates = [];
    // Draws a panel now, and again when one of these parts of the selection has changed.
    function live(parts, update) {
      let before = null;
      const again = () => {
        const key = parts.map(part => now[part]);
        if (before && key.every((x, at) => x === before[at])) return;
        before = key;
        update();
      };
      updates.push(again);
      again();
    }
    kit.on(() => { now = selection(); updates.forEach(update => update()); });

    // Labels of the queries and keys of a layer; learned keys have numbers.
    function label(side, index, layer = now.layer) {
      const labels = now.text.sequences[layer.sequences[side]].labels, head = layer.heads[0];
      const size = head ? (side ? head.mask.keys : head.mask.queries) : labels.length;
      if (size < labels.length) return `#${index}`;
      return index < labels.length ? shown(labels[index]) : `learned ${index - labels.length + 1}`;
    }
    const named = (side, index) => `“${label(side, index)}” (${index})`;
    // Layers and heads are counted from 1, as in the texts of the examples; positions from 0, as in formulas.
    const nameOf = (l, n) => `layer ${l + 1}, head ${n + 1}`;
    kit.findable(() => [
      ...now.look.layers.flatMap((layer, l) => layer.heads.map((_, n) => ({ name: nameOf(l, n), note: `head of ${layer.name ?? "attention"}`, state: { layer: l, head: n, at: "matrix" } }))),
      ...now.text.sequences[0].labels.slice(0, 2000).map((one, i) => ({ name: `“${shown(one)}”`, note: `token ${i}`, state: { query: i, at: "matrix" } })),
    ]);
    const weightOf = (head, i, j) => {
      if (!head.mask.attends(i, j)) return "masked";
      const w = head.pair("weight", i, j);
      return w === null ? `below the ${head.data.links.most} largest` : number(w, 3);
    };
    // A query, with the key that was chosen, or with that of its largest weight if this one is masked.
    function pairOf(query) {
      const { head } = now;
      if (!head || query >= head.mask.queries || head.mask.attends(query, now.j)) return { query };
      let best = -1, key = now.j;
      head.each(query, (j, at) => { const size = Math.abs(head.value("weight", at)); if (size > best) { best = size; key = j; } });
      return { query, key };
    }
    const message = text => h("p", { class: "soft" }, text);
    const select = (name, key, options, value) => h("label", {}, name, h("select", { "data-key": key, onchange(e) { kit.set({ [key]: e.target.value || null }, true); } },
      options.map(([v, title]) => h("option", { value: v, selected: String(v) === String(value) }, title))));

    // ---- Choices ----

    const choices = kit.panel("choices", "What is shown", [
      "A look is the state of a model (a snapshot) on a text. Everything below shows the chosen layer and head of this look. The address of the page holds all choices: copy it to share a view.",
    ], body => {
      const controls = h("div", { class: "controls" }), compare = h("span"), facts = h("div");
      body.append(controls, facts);
      // The sliders stay the same elements while they are moved.
      let snapshot = null, generated = null;
      const ofText = () => looks.filter(look => look.text === now.look.text);
      live(["text"], () => {
        const { text, look } = now, all = ofText(), { prompt } = text, labels = text.sequences[0].labels;
        snapshot = generated = null;
        controls.replaceChildren();
        if (data.texts.length > 1) controls.append(select("text", "text", data.texts.map((t, i) => [i, t.name]).filter(([i]) => looks.some(l => l.text === i)), look.text));
        if (all.length > 1) {
          snapshot = kit.slider({ name: "snapshot", min: 0, max: all.length - 1, value: all.indexOf(look),
            text: v => data.snapshots[all[v].snapshot], change: v => kit.set({ snapshot: all[v].snapshot }) });
          controls.append(snapshot.element, compare);
        }
        if (now.upto !== null && labels.length > Math.max(prompt, 1)) {
          generated = kit.slider({ name: "generated tokens", min: Math.max(prompt, 1), max: labels.length, value: now.upto,
            text: v => v === prompt ? "the prompt" : `${v - prompt} of ${labels.length - prompt}: “${shown(labels[v - 1])}”, from the row of “${v > 1 ? shown(labels[v - 2]) : ""}”`,
            change: v => kit.set({ upto: v, ...pairOf(rowOf(v, prompt)) }) });
          controls.append(generated.element);
        }
      });
      live(["upto"], () => { if (now.upto !== null) generated?.move(now.upto, true); });
      live(["look", "against"], () => {
        const { look, text, against } = now, all = ofText();
        snapshot?.move(all.indexOf(look), true);
        compare.replaceChildren(select("compare with", "compare", [["", "nothing"], ...all.filter(o => o !== look).map(o => [o.snapshot, data.snapshots[o.snapshot]])], against?.snapshot ?? ""));
        facts.replaceChildren(kit.facts([
          ["text", text.sequences.length > 1 ? text.sequences.map(q => `${q.name}: ${q.labels.map(shown).join(" ").slice(0, 160)}`).join(" · ") : `${text.name}, ${count(text.sequences[0].labels.length)} tokens`],
          ["model", `${data.snapshots[look.snapshot]}: ${look.layers.length} layers of attention, ${look.layers.reduce((n, l) => n + l.heads.length, 0)} heads`],
          look.loss === null ? null : ["loss on the text", number(look.loss, 5)],
        ]), ...look.notes.map(note => h("p", { class: "small" }, note)));
      });
      if (data.left_out.length) body.append(h("p", { class: "small" }, `Left out, because the page would be larger than its limit: ${data.left_out.join("; ")}.`));
      if (data.exceeded) body.append(h("p", { class: "small" }, `This page is larger than its limit of ${count(data.exceeded)} bytes: nothing else can be left out.`));
    });

    // ---- Heads ----

    const heads = kit.panel("heads", "Layers and heads", [
      "Each square is the matrix of weights of one head: a row for each query, a column for each key, dark where the weight is large. Hatched pairs are masked. The number below it is the chosen average, whose formula stands above; all formulas are at the end of the page.",
      "Sort by a pattern to find heads that attend to the previous token, to the same token elsewhere, behind an earlier occurrence (induction), or to the first token.",
    ], body => {
      const controls = h("div", { class: "controls" }), place = h("div", { class: "heads" });
      body.append(controls, place);
      const order = () => kit.get("order", "layer");
      const buttons = new Map();
      const options = look => [...PATTERNS.map(([key, title]) => [key, title]), ...(look.layers.some(l => l.heads.some(x => x.without !== undefined)) ? [["without", "loss without the head"]] : [])];
      const valueOf = (head, by) => by === "without" ? (head.without === undefined ? null : head.without - now.look.loss) : head.patterns[by] ?? null;
      let sorted = null;
      live(["look", "by"], fill);
      kit.on(() => { if (order() !== sorted) fill(); });
      live(["head"], mark);
      function fill() {
        const { look, by } = now;
        sorted = order();
        controls.replaceChildren(select("average", "by", options(look), by), select("order", "order", [["layer", "by layer"], ["value", "by this average"]], sorted));
        buttons.clear();
        const [, , formula, source] = PATTERNS.find(([key]) => key === by) ?? [null, null, "The loss with the output of the head set to 0, minus the loss.", ""];
        controls.append(h("p", { class: "small soft wide" }, formula, source ? ` ${source}.` : ""));
        const all = look.layers.flatMap((layer, l) => layer.heads.map((head, n) => ({ layer, l, head, n })));
        const cell = ({ l, head, n }, full) => {
          const canvas = h("canvas", { "aria-hidden": "true" });
          const value = valueOf(head, by);
          const button = h("button", { class: "head", "aria-pressed": "false", "aria-label": nameOf(l, n), onclick() { kit.set({ layer: l, head: n }, true); } },
            canvas, h("span", { class: "small" }, full ? `layer ${l + 1}, ${n + 1}` : `head ${n + 1}`),
            h("span", { class: "small soft" }, by === "without" && value !== null && value > 0 ? `+${number(value, 3)}` : number(value, 3)));
          buttons.set(head, button);
          kit.drawn(button, () => thumbnail(canvas, head));
          return button;
        };
        if (sorted === "value") {
          const rank = x => valueOf(x.head, by) ?? -Infinity;
          place.replaceChildren(h("div", { class: "row-of" }, [...all].sort((a, b) => rank(b) - rank(a)).map(x => cell(x, true))));
        } else {
          place.replaceChildren(...look.layers.map((layer, l) => h("div", { class: "layer" },
            h("div", { class: "name" }, `layer ${l + 1}: ${layer.name} (${layer.kind})`),
            layer.heads.length ? h("div", { class: "row-of" }, all.filter(x => x.l === l).map(x => cell(x, false))) : null,
            layer.notes.map(note => h("p", { class: "small soft" }, note)))));
        }
        mark();
      }
      function mark() { for (const [head, button] of buttons) button.setAttribute("aria-pressed", String(head === now.head)); }
    });

    // A matrix of at most 64 by 64 pixels: each has the largest weight of its pairs.
    function thumbnail(canvas, head) {
      const { queries, keys } = head.mask, rows = Math.max(1, Math.min(64, queries)), columns = Math.max(1, Math.min(64, keys));
      paint(canvas, head, "weight", rows, columns, head.range, queries);
    }

    // Paints the pairs of a head on a canvas with so many pixels; masked pairs stay transparent.
    function paint(canvas, head, what, rows, columns, most, upto) {
      const { queries, keys } = head.mask;
      canvas.width = columns; canvas.height = rows;
      if (!queries || !keys) return;
      const best = new Float64Array(rows * columns).fill(NaN);
      const isSequential = what === "weight" && !head.isSigned, size = isSequential ? x => x : Math.abs;
      for (let i = 0; i < Math.min(queries, upto); i++) {
        const y = Math.floor(i * rows / queries) * columns;
        head.mask.ranges(i, (a, b) => {
          const from = Math.floor(a * columns / keys), to = Math.floor((b - 1) * columns / keys);
          for (let x = from; x <= to; x++) if (Number.isNaN(best[y + x])) best[y + x] = 0;
        });
        head.each(i, (j, at) => {
          const cell = y + Math.floor(j * columns / keys), value = head.value(what, at);
          if (size(value) > size(best[cell])) best[cell] = value;
        });
      }
      const context = canvas.getContext("2d"), image = context.createImageData(columns, rows), { data: pixels } = image;
      const colors = Array.from({ length: 513 }, (_, at) => ramp(isSequential ? "sequential" : "diverging", at / 512));
      for (let cell = 0; cell < best.length; cell++) {
        if (Number.isNaN(best[cell])) continue;
        const x = Math.sqrt(Math.min(1, size(best[cell]) / most));
        const c = colors[Math.round(512 * (isSequential ? x : .5 + .5 * Math.sign(best[cell]) * x))];
        pixels[4 * cell] = c[0]; pixels[4 * cell + 1] = c[1]; pixels[4 * cell + 2] = c[2]; pixels[4 * cell + 3] = 255;
      }
      context.putImageData(image, 0, 0);
    }

    // ---- Text ----

    const texts = kit.panel("text", "Text", [
      "Point at a token, or select it and move by the arrow keys: the other tokens are shaded by the weight between it and them in the chosen head. A query attends to keys; a key is attended to by queries.",
      "The shade is that of the square root of the weight, so that small weights are visible. With a sink in the denominator the weights of a query sum to less than 1.",
    ], body => {
      const controls = h("div", { class: "controls" }), place = h("div"), readout = h("p", { class: "readout soft", "aria-live": "polite" });
      body.append(controls, place, readout);
      let spans = [[], []], side = () => kit.get("side", "query");
      live(["look", "layer"], () => {
        const { layer, head } = now;
        if (!head) { controls.replaceChildren(); place.replaceChildren(message("This layer has no attention weights.")); spans = [[], []]; readout.textContent = ""; return; }
        const isSelf = layer.sequences[0] === layer.sequences[1] && head.mask.queries === Math.min(head.mask.keys, head.mask.queries);
        controls.replaceChildren(...(isSelf ? [select("the chosen token", "side", [["query", "attends to (query)"], ["key", "is attended to by (key)"]], side())] : []));
        const box = (which, size, title) => {
          const labels = Array.from({ length: size }, (_, t) => label(which, t));
          const one = labels.filter(t => [...t].length <= 1).length > .9 * labels.length;
          spans[which] = labels.map((text, t) => h("span", { class: one ? "token one" : "token", dir: "auto" }, text));
          const tokens = h("div", { class: "tokens", tabindex: "0", role: "group", "aria-label": `${title}: choose by the arrow keys`,
            onpointerover(e) { const t = spans[which].indexOf(e.target); if (t >= 0) shade(which, t); },
            onpointerleave() { rest(); },
            onclick(e) { const t = spans[which].indexOf(e.target); if (t >= 0) choose(which, t); },
            onkeydown(e) {
              const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[e.key];
              if (!step) return;
              e.preventDefault();
              const t = (which === sideShown(which) && which ? now.j : now.i) + step;
              if (t >= 0 && t < size) choose(which, t);
            } }, spans[which]);
          return isSelf ? tokens : h("div", {}, h("h3", {}, title), tokens);
        };
        spans = [[], []];
        place.replaceChildren(...(isSelf
          ? [box(0, head.mask.queries, "tokens"), ...(head.mask.keys > head.mask.queries ? [h("p", { class: "small soft" }, `and ${head.mask.keys - head.mask.queries} learned keys, which only the matrix shows`)] : [])]
          : [box(0, head.mask.queries, `queries (${now.text.sequences[layer.sequences[0]].name})`), box(1, head.mask.keys, `keys (${now.text.sequences[layer.sequences[1]].name})`)]));
        if (isSelf) spans[1] = spans[0];
      });
      // In one sequence the choice says what a token is; between two, its place does.
      const isOne = () => spans[0] === spans[1];
      const sideShown = which => isOne() ? (side() === "key" ? 1 : 0) : which;
      function choose(which, t) { kit.set(sideShown(which) ? { key: t, side: isOne() ? "key" : null } : pairOf(t)); if (!isOne()) shade(which, t); }
      function shade(which, t) {
        const { head, upto } = now;
        if (!head) return;
        const asKey = sideShown(which) === 1, target = asKey ? spans[0] : spans[1];
        const values = new Float64Array(target.length).fill(NaN);
        if (asKey) for (let i = 0; i < head.mask.queries; i++) { if (!head.mask.attends(i, t)) continue; values[i] = head.pair("weight", i, t) ?? 0; }
        else {
          head.mask.ranges(t, (a, b) => values.fill(0, a, b));
          head.each(t, (j, at) => { if (j < values.length) values[j] = head.value("weight", at); });
        }
        for (const list of isOne() ? [spans[0]] : spans) list.forEach((span, at) => {
          const isTarget = list === target, value = isTarget ? values[at] : NaN;
          const c = Number.isNaN(value) ? null : head.color("weight", value);
          span.style.background = c ? rgb(c) : "";
          span.style.color = c ? inkOn(c) : "";
          span.title = c ? number(value, 3) : "";
          span.classList.toggle("chosen", list === (asKey ? spans[1] : spans[0]) && at === t);
          span.classList.toggle("outside", (isTarget && !c && !(at === t && isOne())) || (upto !== null && at >= upto));
        });
        const top = [...values.keys()].filter(at => Math.abs(values[at]) > 0).sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, 4);
        const rest = asKey ? 0 : head.restOf(t);
        readout.textContent = asKey
          ? `Key ${named(1, t)} has the largest weights for ${top.map(i => `${named(0, i)} ${number(values[i], 3)}`).join(", ") || "no query"}.`
          : `Query ${named(0, t)} attends to ${top.map(j => `${named(1, j)} ${number(values[j], 3)}`).join(", ") || "nothing"}${rest > 0 ? `; keys that are not kept together ${head.isSigned ? `${percent(rest)} of the absolute weights` : number(rest, 3)}` : ""}.`;
      }
      let chosen;
      const inSight = kit.onFrame(() => {
        const box = chosen?.parentNode;
        if (box && (chosen.offsetTop < box.scrollTop || chosen.offsetTop + chosen.offsetHeight > box.scrollTop + box.clientHeight)) box.scrollTop = chosen.offsetTop - box.clientHeight / 2;
      });
      const rest = () => {
        if (!now.head) return;
        const asKey = side() === "key" && isOne(), t = asKey ? now.j : now.i;
        shade(asKey ? 1 : 0, t);
        chosen = spans[asKey ? 1 : 0][t];
        inSight();
      };
      live(["head", "i", "j", "upto"], rest);
      let before = side();
      kit.on(() => { if (side() !== before) { before = side(); rest(); } });
      kit.drawn(body, rest);
    });

    // ---- Matrix ----

    const VALUES = [["weight", "weight"], ["gradient", "gradient of the loss by the weight"], ["product", "gradient × weight"]];
    // What moves the crosses of the matrices that are shown.
    const crosses = new Set();
    const matrices = kit.panel("matrix", "Matrix", [
      "A row for each query, a column for each key. Hatched pairs are masked. A click, or the arrow keys, choose the pair whose score is opened below.",
      "The gradient says how the loss would change if this weight alone were a little larger: blue raises the loss, orange lowers it. The weights of a query do not sum to 1 after such a change, so only differences within a row have a meaning for softmax. Gradient × weight is the first-order effect of removing the link, with the opposite sign.",
    ], body => {
      const controls = h("div", { class: "controls" }), place = h("div", { class: "maps" }), readout = h("p", { class: "readout", "aria-live": "polite" }), legend = h("div", { class: "row" });
      body.append(controls, place, readout, legend);
      live(["head", "against", "what", "upto"], () => {
        const { head, layer, l, n, against } = now;
        crosses.clear();
        if (!head) { controls.replaceChildren(); legend.replaceChildren(); place.replaceChildren(message("This layer has no attention weights.")); return; }
        const hasGradient = !!head.data.gradient;
        const what = hasGradient ? now.what : "weight";
        controls.replaceChildren(...(hasGradient ? [select("value", "value", VALUES, what)] : []));
        const figures = [figure(head, layer, what, `${data.snapshots[now.look.snapshot]}: ${nameOf(l, n)}`)];
        const other = against?.layers[l]?.heads[n];
        if (other && other.mask.queries === head.mask.queries && other.mask.keys === head.mask.keys) {
          figures.push(figure(other, against.layers[l], other.data.gradient ? what : "weight", `${data.snapshots[against.snapshot]}: ${nameOf(l, n)}`));
        } else if (against) figures.push(h("figure", {}, message(`${data.snapshots[against.snapshot]} has no such head.`)));
        place.replaceChildren(...figures);
        const most = number(head.largest(what), 3);
        legend.replaceChildren(what === "weight" && !head.isSigned ? kit.scale("sequential", "0", "1") : kit.scale("diverging", `−${most}`, most), h("span", { class: "small soft" }, "on a scale of square roots"));
        if (!hasGradient) legend.append(h("span", { class: "small soft" }, "There are no gradients of this head on the page."));
      });
      live(["head", "i", "j"], () => {
        const { head, i, j } = now;
        readout.textContent = head ? `Query ${named(0, i)}, key ${named(1, j)}: ${weightOf(head, i, j)}` : "";
      });

      function figure(head, layer, what, title) {
        const { queries, keys } = head.mask;
        const map = h("div", { class: "map" }), canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": `${title}: ${queries} by ${keys} values` });
        const labels = s("svg", { "aria-hidden": "true" }), across = h("div", { class: "cross" }), down = h("div", { class: "cross" });
        map.append(labels, canvas, across, down);
        const element = h("figure", {}, h("figcaption", {}, title), map);
        let box = null;
        kit.drawn(element, width => {
          const longest = side => Math.max(8, ...Array.from({ length: side ? keys : queries }, (_, t) => Math.min(86, Math.ceil(kit.textWidth(label(side, t, layer))))));
          const few = Math.max(queries, keys) <= 64;
          let left = few ? longest(0) + 8 : 0, top = few ? longest(1) + 8 : 0;
          const room = Math.min(width, 820) - 4;
          let cell = Math.min(24, (room - left) / keys);
          if (cell < 10) { left = 0; top = 0; cell = Math.min(24, room / keys); }
          cell = cell >= 2 ? Math.floor(cell) : cell;
          const w = Math.max(1, Math.round(cell * keys)), tall = Math.max(1, Math.round(cell * queries));
          Object.assign(map.style, { width: `${left + w + 2}px`, height: `${top + tall + 2}px` });
          for (const [name, value] of Object.entries({ width: left + w + 2, height: top + tall + 2 })) labels.setAttribute(name, value);
          labels.replaceChildren();
          if (left) {
            // Above the columns, labels of one character stand upright.
            const style = `font-size: ${Math.min(12, Math.floor(cell))}px`, upright = Array.from({ length: keys }, (_, t) => label(1, t, layer)).every(text => kit.textWidth(text) < 14);
            for (let t = 0; t < queries; t++) labels.append(s("text", { class: "soft", style, x: left - 5, y: top + (t + .5) * cell + 4, "text-anchor": "end" }, fitted(label(0, t, layer), 86)));
            for (let t = 0; t < keys; t++) {
              const x = left + (t + .5) * cell + 4, y = top - 5;
              labels.append(upright ? s("text", { class: "soft", style, x: x - 4, y, "text-anchor": "middle" }, label(1, t, layer))
                : s("text", { class: "soft", style, x, y, transform: `rotate(-90 ${x} ${y})` }, fitted(label(1, t, layer), 86)));
            }
          }
          const scale = Math.min(1, 1400 / Math.max(queries, keys));
          paint(canvas, head, what, Math.max(1, Math.ceil(queries * scale)), Math.max(1, Math.ceil(keys * scale)), head.largest(what), now.upto ?? queries);
          Object.assign(canvas.style, { left: `${left}px`, top: `${top}px`, width: `${w}px`, height: `${tall}px` });
          box = { left, top, cell, w, tall };
          cross();
        });
        function cross(i = now.i, j = now.j) {
          if (!box) return;
          const line = Math.max(1, Math.min(2, box.cell / 6));
          Object.assign(across.style, { left: `${box.left}px`, width: `${box.w}px`, top: `${box.top + (i + .5) * box.cell - line / 2}px`, height: `${line}px` });
          Object.assign(down.style, { top: `${box.top}px`, height: `${box.tall}px`, left: `${box.left + (j + .5) * box.cell - line / 2}px`, width: `${line}px` });
        }
        crosses.add(cross);
        const at = e => {
          const r = canvas.getBoundingClientRect();
          const i = Math.floor((e.clientY - r.top) / r.height * queries), j = Math.floor((e.clientX - r.left) / r.width * keys);
          return i >= 0 && i < queries && j >= 0 && j < keys ? [i, j] : null;
        };
        const text = (i, j) => {
          if (!head.mask.attends(i, j)) return `“${label(0, i, layer)}” does not attend to “${label(1, j, layer)}”: masked`;
          const lines = VALUES.filter(([key]) => key === "weight" || head.data.gradient).map(([key, name]) => `${name}: ${key === "weight" ? weightOf(head, i, j) : number(head.pair(key, i, j), 3)}`);
          return [`“${label(0, i, layer)}” (${i}) → “${label(1, j, layer)}” (${j})`, ...lines].join("\n");
        };
        canvas.addEventListener("pointermove", e => { const c = at(e); if (c) { cross(...c); kit.showTip(text(...c), e.clientX, e.clientY); } });
        canvas.addEventListener("pointerleave", () => { kit.hideTip(); cross(); });
        canvas.addEventListener("click", e => { const c = at(e); if (c) kit.set({ query: c[0], key: c[1] }); });
        canvas.addEventListener("keydown", e => {
          const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key];
          if (!step) return;
          e.preventDefault();
          kit.set({ query: Math.min(Math.max(now.i + step[0], 0), queries - 1), key: Math.min(Math.max(now.j + step[1], 0), keys - 1) });
        });
        return element;
      }
      live(["i", "j"], () => { for (const cross of crosses) cross(); });
    });

    // ---- Links ----

    const LINKS = 48;
    const links = kit.panel("links", "Links", [
      "Queries on the left, keys on the right; a line is a weight, wider and darker where it is larger. Point at a token to see its links alone. Of long texts, the queries around the chosen one are shown, and the keys with its largest weights.",
    ], body => {
      const place = h("div", { class: "chart" });
      body.append(place);
      let again = () => {};
      live(["head", "i", "upto"], () => again());
      again = kit.drawn(place, width => {
        const { head, i, upto } = now;
        if (!head) { place.replaceChildren(message("This layer has no attention weights.")); return; }
        const range = (size, at) => { const from = Math.max(0, Math.min(at - LINKS / 2, size - LINKS)); return [from, Math.min(size, from + LINKS)]; };
        const [q0, q1] = range(Math.min(head.mask.queries, upto ?? Infinity), i);
        // Of many keys, those with the largest weights of the chosen query.
        let keys = Array.from({ length: head.mask.keys }, (_, b) => b);
        if (keys.length > LINKS) {
          const weights = new Map();
          head.each(i, (b, at) => weights.set(b, Math.abs(head.value("weight", at))));
          keys = [...weights.keys()].sort((a, b) => weights.get(b) - weights.get(a)).slice(0, LINKS).sort((a, b) => a - b);
        }
        const rowOf = new Map(keys.map((b, row) => [b, row]));
        const side = Math.min(170, width * .3), step = 17, rows = Math.max(q1 - q0, keys.length), height = rows * step + 30;
        const w = Math.min(width, 760), left = side, right = w - side;
        const svg = s("svg", { width: w, height, role: "img", "aria-label": `links of ${nameOf(now.l, now.n)}` });
        svg.append(s("text", { class: "soft", x: left - 6, y: 13, "text-anchor": "end" }, "queries"), s("text", { class: "soft", x: right + 6, y: 13 }, "keys"));
        const y = at => 24 + at * step + step / 2, lines = [];
        const group = s("g", { fill: "none", stroke: "var(--c0)" });
        svg.append(group);
        for (let a = q0; a < q1; a++) head.each(a, (b, at) => {
          const value = Math.abs(head.value("weight", at)) / head.range;
          if (!rowOf.has(b) || value < .01 && a !== i) return;
          const x = (left + right) / 2, ya = y(a - q0), yb = y(rowOf.get(b));
          const line = s("path", { d: `M${left} ${ya}C${x} ${ya} ${x} ${yb} ${right} ${yb}`, "stroke-width": .5 + 3.5 * value });
          group.append(line);
          lines.push({ line, a, b, value });
        });
        function show(what, t) {
          for (const { line, a, b, value } of lines) {
            const on = what === "query" ? a === t : b === t;
            line.setAttribute("stroke", on ? "var(--mark)" : "var(--c0)");
            line.setAttribute("stroke-opacity", on ? .35 + .65 * Math.sqrt(value) : .04 + .26 * value);
            if (on) group.append(line);
          }
          for (const [kind, at, text] of tokens) text.setAttribute("font-weight", kind === what && at === t ? "700" : "400");
        }
        const tokens = [];
        const token = (kind, at, x, anchor, row) => {
          const text = s("text", { x, y: y(row) + 4, "text-anchor": anchor, style: "cursor: pointer" }, fitted(label(kind === "query" ? 0 : 1, at), side - 12));
          text.addEventListener("pointerenter", () => show(kind, at));
          text.addEventListener("click", () => kit.set({ [kind]: at }));
          tokens.push([kind, at, text]);
          svg.append(text);
        };
        for (let a = q0; a < q1; a++) token("query", a, left - 6, "end", a - q0);
        keys.forEach((b, row) => token("key", b, right + 6, "start", row));
        svg.addEventListener("pointerleave", () => show("query", now.i));
        show("query", i);
        const partial = [q1 - q0 < head.mask.queries && `queries ${q0} to ${q1 - 1} of ${count(head.mask.queries)}`, keys.length < head.mask.keys && `the ${keys.length} keys with the largest weights of query ${i}`];
        place.replaceChildren(svg, ...(partial.some(x => x) ? [message(`Shown are ${partial.filter(x => x).join(", and ")}.`)] : []));
      });
    });

    // ---- Score ----

    const score = kit.panel("score", "One score, from q·k to the weight", [
      "The score of a query and a key is the sum of the products of their elements. The bars show each product: blue raises the score, orange lowers it. With rotary positions, the grey bars are the products before the rotation, whose sum would not depend on positions.",
      "The steps are those of the specification of this layer, in its order, with the numbers of this pair. The last one is the normaliser: the constant c of a softmax is the log-sum-exp of the scores of the query, ln Σ exp(s), over the keys that it attends to and the sink.",
    ], body => {
      const place = h("div");
      body.append(place);
      live(["head", "i", "j"], () => {
        const { head, layer, l, n, i, j } = now;
        if (!head) { place.replaceChildren(message("This layer has no attention weights.")); return; }
        const title = h("p", {}, `Query ${named(0, i)}, key ${named(1, j)}, ${nameOf(l, n)} (${layer.name})`);
        const attends = head.mask.attends(i, j);
        if (layer.state) { place.replaceChildren(title, message("A state rule has no scores.")); return; }
        if (!layer.scores) { place.replaceChildren(title, message("The parts of the scores of this layer are not on the page.")); return; }
        if (!layer.scores.has(i, j)) {
          const { pair } = now.text;
          const back = pair && layer.scores.has(...pair) ? h("button", { onclick() { kit.set({ query: pair[0], key: pair[1] }); } }, "show the pair chosen at export") : null;
          place.replaceChildren(title, message("The query and the key of this pair were left out, because those of all pairs would make the page larger than its limit."), back ?? "");
          return;
        }
        const found = layer.scores.of(n, i, j);
        const rows = found.steps.map(({ name, formula, from, to }) => h("tr", {}, h("td", {}, name), h("td", {}, formula), h("td", { class: "num" }, number(to, 5)), h("td", { class: "num soft change" }, name === "q·k" ? "" : `${to >= from ? "+" : "−"}${number(Math.abs(to - from), 4)}`)));
        const { sinks, normalizer } = layer.scores;
        rows.push(h("tr", {}, h("td", {}, "mask"), h("td", {}, attends ? "the query attends to the key" : "the pair is masked"), h("td", { class: "num" }, number(attends ? found.score : -Infinity, 5)), h("td", { class: "change" })));
        rows.push(h("tr", {}, h("td", {}, `weight (${normalizer.name.replace("_", "-")})`), h("td", {}, attends ? found.text : "0, because of the mask"), h("td", { class: "num" }, number(attends ? found.weight : 0, 5)), h("td", { class: "change" })));
        const sink = sinks && Number.isFinite(found.constant) ? h("p", { class: "small soft" }, `The denominator has a sink with the logit ${number(sinks[n], 4)}: its share is ${percent(Math.exp(sinks[n] - found.constant))}.`) : null;
        place.replaceChildren(title, h("div", { class: "columns" },
          h("div", {}, products(found)),
          h("div", {}, waterfall(found.steps), h("div", { class: "scroll" }, h("table", { class: "steps" }, h("thead", {}, h("tr", {}, h("th", {}, "step"), h("th", {}, "formula"), h("th", { class: "num" }, "score"), h("th", { class: "num change" }, "change"))), h("tbody", {}, rows))), sink ?? "")));
      });
    });

    // The products by dimension as bars.
    function products({ after, before }) {
      const place = h("div", { class: "chart" });
      if (!after.length) return message("This variant computes its scores without queries and keys: all of it is in the steps.");
      kit.drawn(place, width => {
        const height = 210, left = 48, top = 24, bottom = 30, w = width - left - 8, tall = height - top - bottom;
        const values = [...after, ...(before ?? [])], high = Math.max(0, ...values), low = Math.min(0, ...values), span = high - low || 1;
        const y = v => top + tall * (high - v) / span, each = w / after.length;
        const svg = s("svg", { width, height, role: "img", "aria-label": "products of query and key by dimension" });
        svg.append(s("text", { class: "soft", x: left, y: 13 }, "q[d] · k[d]"));
        for (const t of kit.ticks(low, high, 4)) svg.append(s("line", { class: "grid", x1: left, x2: left + w, y1: y(t), y2: y(t) }), s("text", { class: "soft", x: left - 5, y: y(t) + 4, "text-anchor": "end" }, number(t, 3)));
        after.forEach((x, d) => {
          const bar = (v, fill, inset) => s("rect", { x: left + d * each + inset, width: Math.max(1, each - 1.2 - 2 * inset), y: Math.min(y(0), y(v)), height: Math.max(.5, Math.abs(y(v) - y(0))), fill });
          if (before) svg.append(bar(before[d], "var(--line)", 0));
          svg.append(bar(x, x >= 0 ? "var(--c0)" : "var(--c1)", before ? Math.min(2, each / 5) : 0));
          svg.append(kit.tooltip(s("rect", { x: left + d * each, width: each, y: top, height: tall, fill: "transparent" }), `dimension ${d}: ${number(x, 4)}${before ? `\nbefore rotary positions: ${number(before[d], 4)}` : ""}`));
        });
        svg.append(s("text", { class: "soft", x: left, y: height - 8 }, "0"), s("text", { class: "soft", x: left + w, y: height - 8, "text-anchor": "end" }, `dimension d = ${after.length - 1}`));
        const sum = list => number(list.reduce((a, b) => a + b, 0), 4);
        place.replaceChildren(svg, h("p", { class: "small soft" }, `Sum ${sum(after)}${before ? `; before rotary positions (grey) ${sum(before)}` : ""}.`));
      });
      return place;
    }

    // The steps as bars from one score to the next.
    function waterfall(steps) {
      const place = h("div", { class: "chart" });
      kit.drawn(place, width => {
        const names = Math.min(150, Math.max(...steps.map(x => kit.textWidth(x.name))) + 8), row = 22, height = steps.length * row + 22;
        const values = steps.flatMap(x => [x.from, x.to]), high = Math.max(0, ...values), low = Math.min(0, ...values);
        const room = Math.max(...steps.map(x => kit.textWidth(number(x.to, 4)))) + 20;
        const w = width - names - room, x = v => names + 8 + w * (v - low) / (high - low || 1);
        const svg = s("svg", { width, height, role: "img", "aria-label": "the score after each step" });
        svg.append(s("line", { class: "axis", x1: x(0), x2: x(0), y1: 0, y2: height - 18 }), s("text", { class: "soft", x: x(0), y: height - 4, "text-anchor": "middle" }, "0"));
        steps.forEach(({ name, from, to }, at) => {
          const y = at * row + 4;
          svg.append(s("text", { x: names, y: y + 12, "text-anchor": "end" }, fitted(name, names - 4)),
            s("rect", { x: Math.min(x(from), x(to)), y, width: Math.max(1.5, Math.abs(x(to) - x(from))), height: row - 8, fill: to >= from ? "var(--c0)" : "var(--c1)", rx: 2 }),
            s("text", { class: "soft", x: Math.max(x(from), x(to)) + 5, y: y + 12 }, number(to, 4)));
          if (at + 1 < steps.length) svg.append(s("line", { class: "cursor", x1: x(to), x2: x(to), y1: y, y2: y + row + 6 }));
        });
        place.replaceChildren(svg);
      });
      return place;
    }

    // ---- State ----

    const state = looks.some(look => look.layers.some(layer => layer.state)) ? kit.panel("state", "The state over time", [
      "A state rule has a matrix in place of keys: each row belongs to a channel of the keys, and every token changes it. The first picture shows the norm of each row after each token, the second which part of each row a token keeps before it writes: the lighter, the more is forgotten. A row of the picture is a row of the state, a column a token.",
      "The weights above are computed from the recurrence: an output is a sum of the values of earlier tokens, and these are their factors.",
    ], body => {
      const place = h("div", { class: "columns" });
      body.append(place);
      live(["layer", "head"], () => {
        const { layer, n } = now, parts = layer?.state;
        if (!parts) { place.replaceChildren(message("This layer has no state.")); return; }
        const picture = (title, text, most) => {
          const values = bytes(text), { rows } = parts, length = values.length / rows;
          const canvas = h("canvas", { width: length, height: rows, role: "img", "aria-label": title, style: { width: `${Math.min(100, 3 * length)}%`, height: `${Math.max(64, Math.min(256, 8 * rows))}px`, imageRendering: "pixelated" } });
          const context = canvas.getContext("2d"), image = context.createImageData(length, rows);
          values.forEach((byte, at) => image.data.set([...ramp("sequential", byte / 255), 255], 4 * (at % rows * length + Math.floor(at / rows))));
          context.putImageData(image, 0, 0);
          canvas.addEventListener("pointermove", e => {
            const r = canvas.getBoundingClientRect(), t = Math.floor((e.clientX - r.left) / r.width * length), row = Math.floor((e.clientY - r.top) / r.height * rows);
            if (t >= 0 && t < length && row >= 0 && row < rows) kit.showTip(`after ${named(0, t)}, row ${row}: ${number(most * values[t * rows + row] / 255, 3)}`, e.clientX, e.clientY);
          });
          canvas.addEventListener("pointerleave", kit.hideTip);
          return h("figure", {}, h("figcaption", {}, title), canvas, h("div", { class: "row" }, kit.scale("sequential", "0", number(most, 3))));
        };
        place.replaceChildren(picture("norms of the rows", parts.norms[n], parts.largest[n]),
          parts.decays.length ? picture("what is kept", parts.decays[n], 1) : message("This rule does not decay."));
      });
    }) : null;

    // ---- Ablation ----

    const hasAblations = looks.some(look => look.layers.some(layer => layer.heads.some(head => head.without !== undefined)));
    const ablation = hasAblations ? kit.panel("ablation", "Without one head", [
      "The loss on the text with the output of one head set to 0, all else as it was: one forward pass for each head. A head whose removal raises the loss is of use for this text; a small difference may also mean that another head does the same (Michel et al. 2019, arXiv 1905.10650).",
    ], body => {
      const place = h("div");
      body.append(place);
      live(["look"], () => {
        const { look } = now;
        const rows = look.layers.flatMap((layer, l) => layer.heads.map((head, n) => ({ layer, l, head, n }))).filter(x => x.head.without !== undefined);
        if (!rows.length) { place.replaceChildren(message("This look has no ablations.")); return; }
        const delta = x => x.head.without - look.loss, most = Math.max(...rows.map(x => Math.abs(delta(x)))) || 1;
        const bar = x => s("svg", { width: 120, height: 14, "aria-hidden": "true" },
          s("line", { class: "axis", x1: 60, x2: 60, y1: 0, y2: 14 }),
          s("rect", { x: Math.min(60, 60 + 58 * delta(x) / most), y: 2, width: Math.max(.5, Math.abs(58 * delta(x) / most)), height: 10, fill: delta(x) >= 0 ? "var(--c0)" : "var(--c1)" }));
        place.replaceChildren(message(`The loss with all heads is ${number(look.loss, 5)}.`), kit.table([
          { title: "layer", value: x => x.l + 1, num: true },
          { title: "head", value: x => x.n + 1, num: true },
          { title: "loss without it", value: x => x.head.without, text: x => number(x.head.without, 5), num: true },
          { title: "difference", value: delta, text: x => `${delta(x) > 0 ? "+" : ""}${number(delta(x), 3)}`, num: true },
          { title: "", value: delta, text: bar },
        ], rows, { by: 3, pick: x => kit.set({ layer: x.l, head: x.n }, true) }));
      });
    }) : null;

    // ---- Mask and tiles ----

    const tiles = kit.panel("tiles", "Specification, mask and tiles", [
      "The parts of the specification of this layer, in the order in which they are applied. The tiled path computes the scores of tiles of queries and keys: it skips tiles in which no pair attends, and applies the mask only in tiles that are partial.",
    ], body => {
      const place = h("div");
      body.append(place);
      live(["layer", "head"], () => {
        const { layer, head } = now;
        if (!layer) return place.replaceChildren(message("There is no layer."));
        if (!head) return place.replaceChildren(...layer.notes.map(message));
        const { mask } = head, lines = mask.tiles.split("\n").filter(line => line);
        const totals = { "#": 0, "+": 0, ".": 0 };
        for (const line of lines) for (const c of line) totals[c]++;
        let pairs = 0;
        for (const n of mask.counts) pairs += n;
        const canvas = h("canvas", { class: "tilemap", role: "img", "aria-label": "tiles" });
        const columns = lines[0]?.length ?? 0, size = Math.max(2, Math.min(28, Math.floor(320 / Math.max(1, columns, lines.length))));
        const element = h("div", { class: "chart" }, canvas);
        kit.drawn(element, () => {
          canvas.width = columns * size; canvas.height = lines.length * size;
          const context = canvas.getContext("2d"), colors = { "#": ramp("sequential", .85), "+": ramp("sequential", .4) };
          lines.forEach((line, y) => [...line].forEach((c, x) => {
            if (!colors[c]) return;
            context.fillStyle = rgb(colors[c]);
            context.fillRect(x * size + (size > 4 ? .5 : 0), y * size + (size > 4 ? .5 : 0), size - (size > 4 ? 1 : 0), size - (size > 4 ? 1 : 0));
          }));
        });
        const all = totals["#"] + totals["+"] + totals["."];
        const swatch = (place, text) => h("span", { class: "scale" }, h("span", { class: "swatch", style: { background: place === null ? "var(--faint)" : rgb(ramp("sequential", place)), border: "1px solid var(--line)" } }), text);
        place.replaceChildren(h("div", { class: "columns" },
          h("div", {}, h("pre", { class: "parts" }, layer.parts), layer.notes.map(note => h("p", { class: "small soft" }, note))),
          h("div", {}, element, h("div", { class: "row" }, swatch(.85, "full"), swatch(.4, "partial"), swatch(null, "empty")),
            h("p", { class: "small" }, `${count(pairs)} of ${count(mask.queries * mask.keys)} pairs attend: ${percent(pairs / Math.max(1, mask.queries * mask.keys))}. Of ${count(all)} tiles of ${mask.tile} by ${mask.tile}, ${count(totals["#"])} are full, ${count(totals["+"])} partial and ${count(totals["."])} empty.`))));
      });
    });

    // ---- Formulas ----

    const formulas = kit.panel("formulas", "Formulas", [
      "How the averages below the heads are defined. w[i, j] is the weight of query i on key j. A query counts only if it attends to a key in question.",
    ], body => {
      body.append(h("dl", { class: "formulas" }, PATTERNS.map(([, title, text, source]) => [h("dt", {}, title), h("dd", {}, text, source ? h("span", { class: "soft" }, ` ${source}.`) : "")])),
        h("p", { class: "small soft" }, "Weights are stored as one byte each, of the square root: their error is at most 1/255. The averages are computed from the exact weights."));
    });

    // ---- Self-test ----

    kit.test("the page opens with the row of the last token", ({ assert }) => {
      const { upto, i, layer, text } = now;
      if (upto === null || upto === text.prompt || layer?.sequences[0] !== 0) return 0;
      assert(i === rowOf(upto, text.prompt), `the slider names row ${rowOf(upto, text.prompt)}, the query is ${i}`);
    });
    kit.test("every look, layer and head", async ({ assert, frames, layoutErrors }) => {
      let done = 0;
      for (const look of looks) {
        kit.set({ text: look.text, snapshot: look.snapshot, compare: null, upto: null, value: "weight", side: null });
        assert(now.look === look, `look ${look.text}, ${look.snapshot} is not shown`);
        for (let l = 0; l < look.layers.length; l++) {
          const layer = look.layers[l];
          kit.set({ layer: l, head: 0, query: 0, key: 0 });
          assert(now.layer === layer, `layer ${l} is not shown`);
          for (let n = 0; n < layer.heads.length; n++) {
            const head = layer.heads[n], { queries, keys } = head.mask;
            kit.set({ layer: l, head: n, query: queries - 1, key: 0 });
            assert(now.head === head, `head ${n} of layer ${l} is not shown`);
            for (let i = 0; i < queries; i++) {
              let sum = head.restOf(i), visible = true;
              head.each(i, (j, at) => { sum += head.value("weight", at); if (queries <= 64 && !head.mask.attends(i, j)) visible = false; });
              assert(head.isSigned || layer.scores?.normalizer.name === "sigmoid" || sum <= 1 + head.mask.counts[i] / 100 + .01, `the weights of query ${i} in head ${n} of layer ${l} sum to ${sum}`);
              assert(visible, `head ${n} of layer ${l} draws a masked pair`);
            }
            if (layer.scores) for (const i of [layer.scores.queries[0], layer.scores.queries.at(-1)]) for (const j of [layer.scores.keys[0], layer.scores.keys.at(-1)]) {
              if (i === undefined || j === undefined || !head.mask.attends(i, j)) continue;
              const { weight } = layer.scores.of(n, i, j), kept = head.pair("weight", i, j);
              if (kept !== null) assert(Math.abs(weight - kept) <= 1 / 255 + 1e-3, `the score of ${i}, ${j} in head ${n} of layer ${l} gives ${weight}, not ${kept}`);
              kit.set({ query: i, key: j });
            }
            done++;
          }
        }
        await frames(2);
      }
      return done;
    });
    kit.test("every control", async ({ assert, frames, layoutErrors }) => {
      let done = 0;
      kit.set({ text: looks.at(-1).text, snapshot: looks.at(-1).snapshot, layer: null, head: null });
      for (const [by] of PATTERNS) { kit.set({ by, order: "value" }); await frames(1); done++; }
      kit.set({ by: "previous", order: "layer" });
      for (const [value] of VALUES) { kit.set({ value }); await frames(1); done++; }
      kit.set({ value: "weight", side: "key" });
      await frames(1);
      kit.set({ side: null });
      for (const other of looks.filter(look => look.text === now.look.text && look !== now.look)) { kit.set({ compare: other.snapshot }); await frames(2); done++; }
      const wrong = layoutErrors();
      assert(!wrong.length, wrong.slice(0, 4).join("; "));
      if (now.upto !== null) for (let t = Math.max(now.text.prompt, 1); t <= now.text.sequences[0].labels.length; t++) { kit.set({ upto: t }); done++; }
      await frames(1);
      kit.set({ compare: null, upto: null, query: null, key: null });
      assert(!document.querySelector(".panel .message"), "a part of the page cannot be shown");
      return done + 1;
    });

    return kit.page(data.title, data.note, [choices, heads, h("div", { class: "columns" }, h("div", {}, texts, links), matrices), ...(state ? [state] : []), score,
      ablation ? h("div", { class: "columns" }, ablation, tiles) : tiles, formulas]);
  }

  kit.start(draw);
})();
