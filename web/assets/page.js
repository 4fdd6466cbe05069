// The page: a model in training, and expressions. Each has an engine in a worker of its own.
"use strict";
kit.start(data => {
  const { h, number, count } = kit;
  const { parts, text, recipe: usual, programs } = data;

  // ---- Engines --------------------------------------------------------------------------------

  // The element leaves the document with the first drawing.
  const packed = document.getElementById("module").textContent;
  let compiled;
  // The module, which is in the page as base64 of gzip, compiled once.
  const compile = () => compiled ??= (async () => {
    const bytes = Uint8Array.from(atob(packed), c => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return WebAssembly.compile(await new Response(stream).arrayBuffer());
  })();
  const source = URL.createObjectURL(new Blob([`(${engine})()`], { type: "text/javascript" }));
  // An engine: ask(request) gives the value of the answer, or throws its sentence. `told` gets what training says. If the
  // engine ends, the next request starts another one, without a model.
  function start(told, ended) {
    let worker, waiting = new Map(), next = 0, ready = null;
    const send = request => new Promise((resolve, reject) => {
      waiting.set(++next, { resolve, reject });
      worker.postMessage({ id: next, request });
    });
    function end(why) {
      const all = [...waiting.values()], sentence = ended?.(why) ?? why;
      waiting = new Map();
      ready = null;
      worker.terminate();
      all.forEach(one => one.reject(new Error(sentence)));
    }
    async function open() {
      const module = await compile();
      worker = new Worker(source);
      worker.onerror = event => end(event.message || "the engine cannot run in this browser");
      worker.onmessage = ({ data: { id, kind, value, ended: isOver } }) => {
        if (isOver) return end(value);
        const one = waiting.get(id);
        waiting.delete(id);
        if (!one) told?.(kind, value); else if (kind === "e") one.reject(new Error(value)); else one.resolve(value);
      };
      return send({ module });
    }
    return async request => {
      ready ??= open();
      try { await ready; } catch (error) { ready = null; throw error; }
      return send(request);
    };
  }

  // ---- Training -------------------------------------------------------------------------------

  const names = Object.keys(usual);
  // What the address says; a name that is unknown, or a size that is no number, is not taken.
  function addressed(name) {
    const given = kit.get(name), isKnown = parts[name] ? parts[name].includes(given) : given !== undefined && Number.isFinite(Number(given));
    return !isKnown ? usual[name] : parts[name] ? given : Number(given);
  }
  const recipe = Object.fromEntries(names.map(name => [name, addressed(name)]));
  // losses and held-out losses are [step, loss, how many steps it is the mean of].
  let made = null, isTraining = false, losses = [], recent = [], heldOut = [], samples = [], rates = [], step = 0, isBusy = false;
  const message = h("p", { class: "message", role: "alert", hidden: true });
  const say = error => { message.hidden = !error; message.textContent = error?.message ?? error ?? ""; };
  function add(steps, list) {
    list.forEach((loss, i) => { losses.push([steps - list.length + i + 1, loss, 1]); recent.push(loss); });
    recent = recent.slice(-20);
    step = steps;
    if (losses.length > 4000) losses = halved(losses);
    if (list.length) changePlace.replaceChildren();
  }
  const ask = start((kind, value) => {
    if (kind === "e") { isTraining = false; say(value); return refresh(); }
    add(value.step, value.losses);
    status.dataset.bytes = value.bytes;
    rates = [...rates, value.milliseconds / value.losses.length].slice(-40);
    soon();
    if (performance.now() > nextLook && !isBusy) { nextLook = Infinity; turn(look); }
  }, why => {
    made = null;
    isTraining = false;
    const sentence = `The engine stopped: ${why}. The model is lost: start again, with other settings.`;
    say(sentence);
    refresh();
    return sentence;
  });
  // One after the other: what changes the model or asks for several answers.
  let turns = Promise.resolve();
  const turn = f => turns = turns.then(f).catch(say);
  const command = f => turn(async () => {
    say(null);
    isBusy = true;
    drawState();
    try { await f(); } finally { isBusy = false; refresh(); }
  });
  // Neighbours in pairs, so that the memory of a long training stays flat.
  const halved = points => Array.from({ length: Math.ceil(points.length / 2) }, (_, i) => {
    const [a, b] = [points[2 * i], points[2 * i + 1]];
    return b ? [b[0], (a[1] * a[2] + b[1] * b[2]) / (a[2] + b[2]), a[2] + b[2]] : a;
  });
  const lossPlace = h("div"), samplePlace = h("div", { class: "samples" }), headPlace = h("div", { class: "heads" }, h("p", { class: "soft wide" }, "The heads are drawn when there is a model."));
  const status = h("p", { class: "large", id: "status" });
  let chart = null;
  function drawLoss() {
    let all = losses;
    while (all.length > 500) all = halved(all);
    const series = [
      { name: "loss of each step", x: all.map(p => p[0]), y: all.map(p => p[1]) },
      { name: "loss of text that it does not train on", x: heldOut.map(p => p[0]), y: heldOut.map(p => p[1]), points: true },
    ];
    const levels = made ? [{ y: made.uniform, name: "every character equally likely" }] : [];
    chart = kit.lineChart({ series, levels, x: { title: "step" }, y: { title: "loss" }, height: 230, empty: "Press “Train”: the line begins with the first step." });
    lossPlace.replaceChildren(chart.element);
  }
  function drawState() {
    const rate = rates.reduce((a, b) => a + b, 0) / rates.length, last = recent.reduce((a, b) => a + b, 0) / recent.length;
    const now = recent.length ? ` · loss ${number(last, 3)}${rates.length ? ` · ${number(rate, 2)} ms a step` : ""}` : "";
    status.textContent = !made ? "No model yet." : `Step ${count(step)}${now} · ${count(made.parameters)} numbers to learn`;
    trainButton.textContent = isTraining ? "Pause" : step > 0 ? "Go on" : "Train";
    for (const button of buttons) button.disabled = isBusy || !made && button.dataset.model === "needed";
  }
  // At most five times a second.
  let drawing = null;
  const soon = () => drawing ??= setTimeout(() => { drawing = null; drawLoss(); drawState(); }, 200);
  const refresh = () => { drawLoss(); drawState(); };

  let nextLook = 0;
  async function look() {
    nextLook = 0; // also if it fails
    if (!made) return;
    const began = performance.now();
    const seen = await ask({ look: { prompt: promptInput.value, count: 160, temperature: .7 } });
    // Most of the time is that of training.
    nextLook = performance.now() + Math.max(700, 4 * (performance.now() - began));
    heldOut.push([seen.step, seen.held_out, 1]);
    if (heldOut.length > 400) heldOut = halved(heldOut);
    if (seen.why === null) samples = [{ step: seen.step, text: promptInput.value + seen.sample }, ...samples].slice(0, 4);
    samplePlace.replaceChildren(...seen.why === null ? [] : [h("p", { class: "bad" }, seen.why)], ...samples.map(one => h("div", {}, h("div", { class: "soft small" }, `after ${count(one.step)} steps`), h("p", { class: "sample" }, one.text))));
    drawHeads(seen);
    soon();
  }
  let headMaps = [], headKey = null;
  function drawHeads({ labels, heads }) {
    const n = labels.length, flat = heads.flatMap((layer, l) => layer.map((weights, i) => ({ weights, name: `block ${l + 1}, head ${i + 1}` })));
    if (!flat.length) { headPlace.replaceChildren(h("p", { class: "soft" }, "This kind of attention computes no weights.")); headMaps = []; headKey = null; return; }
    const key = `${flat.length}: ${labels.join("")}`;
    if (key !== headKey) {
      headKey = key;
      headMaps = flat.map(({ name }, i) => ({ map: kit.heatMap({ rows: n, columns: n, stretch: true, ramp: "sequential", low: 0, high: 255, name,
        value: (a, b) => headMaps[i]?.weights[a * n + b] ?? 0, label: (a, b) => `“${labels[a]}” reads “${labels[b]}”: ${number(100 * (headMaps[i].weights[a * n + b] / 255), 2)} %` }), weights: flat[i].weights }));
      headPlace.replaceChildren(...headMaps.map(({ map }, i) => h("div", {}, h("div", { class: "soft small" }, flat[i].name), map.element)));
    }
    flat.forEach(({ weights }, i) => { headMaps[i].weights = weights; headMaps[i].map.again(); });
  }

  // A new model. The engine has stopped training when it answers, and said all about the old one.
  async function begin() {
    await pause();
    [made, headKey, pending.hidden] = [null, null, true];
    [losses, recent, heldOut, samples, rates, step, headMaps] = [[], [], [], [], [], 0, []];
    for (const place of [samplePlace, headPlace, stepPlace, changePlace]) place.replaceChildren();
    made = await ask({ start: { ...recipe, text: textInput.value } });
    await look();
  }
  async function pause() {
    isTraining = false;
    if (made) await ask({ training: false });
  }
  const buttons = [];
  function button(name, id, f, options = {}) {
    const { needsModel, ...attributes } = options;
    const element = h("button", { id, onclick: () => command(f), "data-model": needsModel ? "needed" : null, ...attributes }, name);
    buttons.push(element);
    return element;
  }
  const action = (name, id, f) => button(name, id, async () => { await pause(); await f(); }, { needsModel: true });
  const trainButton = button("Train", "train", async () => {
    const on = !isTraining;
    if (on && !made) await begin();
    await pause();
    if (on) isTraining = await ask({ training: true }); else await look();
  }, { class: "first" });

  // The settings; a change takes effect when the model is made again.
  const LABELS = { attention: "kind of attention", positions: "how positions are told", mlp: "feed-forward layer", layers: "blocks", heads: "heads of a block", width: "numbers per character", context: "characters that it sees", batch: "sequences in a step", lr: "learning rate", seed: "seed of chance" };
  const HELP = {
    attention: "How a character reads earlier ones.", positions: "How the model knows which character comes first.", mlp: "The part of a block that looks at one character.",
    layers: "How often characters read each other.", heads: "How many things a character looks for at the same time.", width: "How much is remembered about a character.",
    context: "How far back it looks.", batch: "How many pieces of text a step learns from.", lr: "How far a step moves the numbers.", seed: "Which random numbers it begins with.",
  };
  const inputs = {};
  function setting(name) {
    const change = value => { recipe[name] = value; kit.set({ [name]: value === usual[name] ? null : value }); changed(); };
    const input = inputs[name] = parts[name]
      ? h("select", { id: `set-${name}`, onchange: e => change(e.target.value) }, parts[name].map(one => h("option", { value: one }, one)))
      : h("input", { id: `set-${name}`, type: "number", min: 0, step: name === "lr" ? .001 : 1, onchange: e => change(Number(e.target.value)) });
    return kit.tooltip(h("label", {}, LABELS[name], input), HELP[name]);
  }
  // Some kinds of attention tell positions themselves.
  function changed() {
    for (const name of names) inputs[name].value = recipe[name];
    inputs.positions.disabled = parts.own_positions.includes(recipe.attention);
    pending.hidden = !made;
  }
  kit.on((now, before) => {
    const other = names.filter(name => now[name] !== before[name]);
    if (!other.some(name => recipe[name] !== addressed(name))) return;
    for (const name of other) recipe[name] = addressed(name);
    changed();
  });
  const pending = h("p", { class: "small soft", hidden: true }, "The new settings are used when you start again.");
  const textInput = h("textarea", { id: "text", "aria-label": "text to learn from", spellcheck: false });
  textInput.value = text;
  const readFile = file => file?.text().then(content => { textInput.value = content; pending.hidden = !made; });
  textInput.addEventListener("dragover", e => { e.preventDefault(); textInput.classList.add("over"); });
  textInput.addEventListener("dragleave", () => textInput.classList.remove("over"));
  textInput.addEventListener("drop", e => { textInput.classList.remove("over"); if (e.dataTransfer.files[0]) { e.preventDefault(); readFile(e.dataTransfer.files[0]); } });
  textInput.addEventListener("input", () => { pending.hidden = !made; });
  const promptInput = h("input", { type: "text", id: "prompt", value: "", placeholder: "any beginning", "aria-label": "the beginning of the sample" });

  // ---- One step -------------------------------------------------------------------------------

  const stepPlace = h("div"), changePlace = h("div");
  const frame = (html, title) => h("iframe", { class: "frame", title, srcdoc: html });
  const show = (request, title) => async () => {
    stepPlace.replaceChildren(h("p", { class: "soft" }, "The step is recorded …"));
    try { stepPlace.replaceChildren(frame(await ask(request), title)); } catch (error) { stepPlace.replaceChildren(); throw error; }
  };
  async function changes() {
    const { parameters, tokens } = await ask({ inputs: {} });
    const sizes = new Map(parameters.map(([name, shape]) => [name, shape.reduce((a, b) => a * b, 1)]));
    const which = h("select", { id: "parameter", "aria-label": "parameter" }, parameters.map(([name, shape]) => h("option", { value: name }, `${name} [${shape.join(", ")}]`)));
    const at = h("input", { type: "number", min: 0, value: 0, id: "element", "aria-label": "element" }), value = h("input", { type: "number", step: .1, value: 0, id: "value", "aria-label": "new value" });
    const now = h("output");
    const read = async () => { now.textContent = `it is ${number(await ask({ weight: { parameter: which.value, at: Number(at.value) } }), 4)} now`; };
    which.onchange = at.onchange = () => { at.max = sizes.get(which.value) - 1; read().catch(say); };
    const token = h("select", { id: "token", "aria-label": "character of the text" }, tokens.map((one, i) => h("option", { value: i }, `${i + 1}: ${one}`))), other = h("input", { type: "text", maxlength: 2, value: "e", size: 3, id: "character", "aria-label": "new character" });
    const result = h("div");
    // A number that is not finite is null.
    const share = m => !Number.isFinite(m.difference) || !Number.isFinite(m.before) ? null : m.before > 0 ? m.difference / m.before : m.difference > 0 ? Infinity : 0;
    const compare = (id, change) => h("button", { id, onclick: () => command(async () => {
      const { before, after, moved } = await ask({ compare: change() });
      const most = Math.max(1e-12, ...moved.map(share).filter(Number.isFinite));
      const norm = (title, name) => ({ title, num: true, value: m => m[name], text: m => number(m[name], 3) });
      result.replaceChildren(h("p", {}, `The loss of the next step would be ${number(after, 6)} and not ${number(before, 6)}. The gradients move by:`),
        kit.table([{ title: "parameter", value: m => m.parameter }, norm("gradient before", "before"), norm("after", "after"),
          { title: "moved by", num: true, value: share, text: m => kit.percent(share(m)) },
          { title: "", value: share, text: m => h("span", { class: "bar", style: { width: `${Math.min(1, (share(m) ?? 0) / most) * 8}rem` } }) }], moved, { by: 3 }));
    }) }, "Compare");
    const one = compare("compare-weight", () => ({ weight: { parameter: which.value, at: Number(at.value), value: Number(value.value) } }));
    const two = compare("compare-token", () => ({ token: { at: Number(token.value), text: other.value } }));
    changePlace.replaceChildren(
      h("h3", {}, "Change one number of the model"), h("div", { class: "row" }, which, "element", at, now, "becomes", value, one),
      h("h3", {}, "Change one character of the text of this step"), h("div", { class: "row" }, token, "becomes", other, two), result);
    await read();
  }
  async function save() {
    const bytes = await ask({ weights: {} });
    const link = h("a", { href: URL.createObjectURL(new Blob([bytes])), download: `model-${step}.safetensors` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  // ---- Expressions ----------------------------------------------------------------------------

  const program = h("textarea", { id: "program", "aria-label": "expression", spellcheck: false });
  program.value = kit.get("program") ?? programs[0].text;
  const second = h("input", { type: "checkbox", id: "second", checked: kit.get("second") === "1" });
  const programPlace = h("div"), wrong = h("p", { class: "message", role: "alert", hidden: true });
  kit.engine = start(); // for tests
  const calculate = start();
  async function run() {
    wrong.hidden = true;
    kit.set({ program: program.value, second: second.checked ? 1 : null });
    try { programPlace.replaceChildren(frame(await calculate({ expression: { text: program.value, second: second.checked } }), "forward and backward pass")); }
    catch (error) { wrong.hidden = false; wrong.textContent = error.message; programPlace.replaceChildren(); }
  }
  program.addEventListener("keydown", e => { if (e.key === "Enter" && e.ctrlKey) run(); });
  const example = h("select", { id: "example", "aria-label": "examples", onchange: e => { program.value = programs[e.target.value].text; run(); } }, programs.map((one, i) => h("option", { value: i }, one.name)));

  // ---- Panels ---------------------------------------------------------------------------------

  const [main, more] = [["layers", "heads", "width", "context"], ["attention", "positions", "mlp", "batch", "lr", "seed"]].map(list => list.map(setting));
  const [modelPanel, lossPanel, samplePanel, ...below] = [
    kit.panel("model", "A language model that learns in this page", [
      "The model reads a text one character at a time and guesses the next one. Each step it looks at some pieces of the text, finds in which direction every one of its numbers would make the guesses better (the gradient), and moves them a little in that direction.",
      "Everything is computed in this page. Nothing is loaded and nothing is sent, so it also works without a network.",
    ], body => body.append(
      h("p", {}, "Give it a text, press “Train”, and watch it learn to write like it."), textInput,
      h("div", { class: "row small" }, h("label", {}, "or a file: ", h("input", { type: "file", id: "file", accept: ".txt,text/*", onchange: e => readFile(e.target.files[0]) }))),
      h("div", { class: "settings" }, main), h("details", {}, h("summary", {}, "more settings"), h("div", { class: "settings" }, more)),
      h("div", { class: "row" }, trainButton, action("One step", "one", async () => { const now = await ask({ train: { steps: 1 } }); add(now.step, now.losses); await look(); }),
        button("Start again", "again", begin), pending),
      message, status)),
    kit.panel("loss", "How good its guesses are", ["The loss is the mean of −ln p over the characters, where p is the probability that the model gave to the one that came. 0 would be perfect. The second line is measured on pieces of the last tenth of the text, which no step learns from."], body => { body.append(lossPlace); drawLoss(); }),
    kit.panel("sample", "What it writes", ["The model continues a beginning: it draws a character by its probabilities, appends it, and so on. The random numbers are the same each time, so what changes is the model."],
      body => body.append(h("label", { class: "row small soft" }, "it continues ", promptInput), samplePlace)),
    kit.panel("heads", "Where its heads look", ["A head mixes what earlier characters say into each character. A row is a character that reads, a column one that is read; the darker, the more it counts. Point at a cell to see the characters."], body => body.append(headPlace)),
    kit.panel("step", "This step, from the inside", [
      "The X-ray records two pieces of text of the next step through this very model, forward and backward, with all values: the tape, the graph, each rule and each gradient.",
      "A change shows how one number, or one character, reaches the gradients of all others.",
    ], body => body.append(h("div", { class: "row" }, action("X-ray of this step", "xray", show({ xray: {} }, "X-ray of this step")), action("What the heads read", "explorer", show({ explorer: {} }, "attention explorer")), action("Change one number", "change", changes), action("Save the model", "save", save),
      h("button", { id: "share", async onclick(e) { try { await navigator.clipboard.writeText(location.href); e.target.textContent = "Copied"; } catch { say("This browser does not copy here: the address of the page has the settings."); } } }, "Copy a link to these settings")), changePlace, stepPlace)),
  ];
  const training = h("div", {}, h("div", { class: "columns" }, modelPanel, h("div", {}, lossPanel, samplePanel)), below);
  const expressions = h("div", {}, kit.panel("expression", "The derivative of an expression", [
    "Each line gives a name to a tensor; the last line is the result, a single number. The page shows the graph, and runs the forward and the backward pass event by event.",
    "Operators are + − * / ^ and @ (matrix product). Functions are abs, cos, exp, gelu, ln, log_softmax, max, mean, relu, sigmoid, sin, softmax, sqrt, square, sum, t (transpose) and tanh; randn(2, 3), ones(..) and zeros(..) make tensors.",
    "With the second derivative, the squared norm of the gradient is differentiated: its graph contains the backward pass of the first.",
  ], body => body.append(h("div", { class: "row" }, h("label", { class: "row small" }, "example", example)), program,
    h("div", { class: "row" }, h("button", { class: "first", id: "run", onclick: run }, "Run"), h("label", { class: "row small" }, second, "second derivative")), wrong, programPlace)));
  const views = { train: ["Train a model", training], derive: ["Derivatives", expressions] };
  const tabs = h("div", { class: "row tabs", role: "group", "aria-label": "views" }, Object.entries(views).map(([name, [title]]) => h("button", { id: `tab-${name}`, onclick: () => kit.set({ view: name }, true) }, title)));
  function choose() {
    const view = kit.get("view") === "derive" ? "derive" : "train";
    for (const [name, [, element]] of Object.entries(views)) {
      element.hidden = name !== view;
      for (const { id } of element.querySelectorAll(".panel")) document.querySelector(`nav.contents a[href="#${id}"]`).hidden = element.hidden;
      tabs.querySelector(`#tab-${name}`).setAttribute("aria-pressed", String(name === view));
    }
    if (view === "derive" && !programPlace.children.length && wrong.hidden) run();
  }
  kit.findable(() => names.map(name => ({ name: LABELS[name], note: `setting: ${HELP[name]}`, state: { at: "model" } })));
  kit.on((now, before) => {
    // A panel that is in the other view.
    const view = now.at !== before.at && Object.keys(views).find(name => views[name][1].querySelector(`#${CSS.escape(now.at ?? "")}`));
    if (view && view !== (now.view ?? "train")) return kit.set({ view });
    if (now.view !== before.view) choose();
    if (now.program !== before.program && now.program !== undefined && now.program !== program.value) { program.value = now.program; run(); }
  });
  changed();
  pending.hidden = true;
  drawState();
  setTimeout(choose);
  kit.test("a model trains, and its loss falls", async ({ assert }) => {
    textInput.value = "to be or not to be, that is the question. ".repeat(40);
    Object.assign(recipe, { layers: 1, width: 16, heads: 2, context: 16, batch: 4 });
    await command(begin);
    assert(made, message.textContent);
    const { losses: list } = await ask({ train: { steps: 30 } });
    assert(list[29] < list[0] - .3, `the loss went from ${list[0]} to ${list[29]}`);
  });
  kit.test("wrong input is answered by a sentence", async ({ assert }) => {
    const why = await ask({ start: { ...recipe, text: "" } }).then(() => null, error => error.message);
    assert(why, "an empty text is accepted");
    const shapes = await calculate({ expression: { text: "x = randn(2, 3)\nsum(x @ x)", second: false } }).then(() => null, error => error.message);
    assert(/matmul/.test(shapes), shapes);
    const page = await calculate({ expression: { text: "x = 3\nx^2", second: true } });
    assert(page.startsWith("<!doctype html>"), "the engine does not begin again");
  });
  return kit.page("retrograd in a page", "a language model, and any expression, with their gradients: computed here, by the engine of the library", [tabs, training, expressions]);
});
