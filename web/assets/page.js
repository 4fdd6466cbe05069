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
  // An engine: ask(request) gives the value of the answer, or throws its sentence. After a panic the next request starts
  // another one, without a model.
  function start(told, lost) {
    let worker, waiting = new Map(), next = 0, ready = null;
    function send(request) {
      return new Promise((resolve, reject) => {
        waiting.set(++next, { resolve, reject });
        worker.postMessage({ id: next, request });
      });
    }
    function open() {
      worker = new Worker(source);
      worker.onmessage = ({ data: { id, kind, value, ended } }) => {
        const one = waiting.get(id);
        waiting.delete(id);
        if (ended) {
          for (const other of waiting.values()) other.reject(new Error(value));
          waiting.clear();
          ready = null;
          lost?.(value);
        }
        if (!one) told?.(kind, value); else if (kind === "e") one.reject(new Error(value)); else one.resolve(value);
      };
      return compile().then(module => send({ module }));
    }
    return async request => { await (ready ??= open()); return send(request); };
  }

  // ---- Training -------------------------------------------------------------------------------

  const names = Object.keys(usual);
  const recipe = Object.fromEntries(names.map(name => {
    const given = kit.get(name);
    return [name, given === undefined ? usual[name] : typeof usual[name] === "number" ? Number(given) : given];
  }));
  let made = null, isTraining = false, losses = [], heldOut = [], samples = [], rates = [], looking = false, step = 0;
  const message = h("p", { class: "message", role: "alert", hidden: true });
  const say = error => { message.hidden = !error; message.textContent = error?.message ?? error ?? ""; };
  const ask = start((kind, value) => {
    if (kind === "e") { isTraining = false; say(value); return refresh(); }
    step = value.step;
    value.losses.forEach((loss, i) => losses.push([step - value.losses.length + i + 1, loss]));
    rates.push(value.milliseconds / value.losses.length);
    if (rates.length > 40) rates.shift();
    soon();
    if (performance.now() - looked > 700) look();
  }, why => { made = null; isTraining = false; say(`The engine stopped: ${why} Start again with other settings.`); refresh(); });
  let looked = 0;

  // Neighbours are averaged, so that a line has at most 400 points.
  function thinned(points) {
    const each = Math.max(1, Math.ceil(points.length / 400)), out = [];
    for (let i = 0; i < points.length; i += each) {
      const part = points.slice(i, i + each);
      out.push([part[part.length - 1][0], part.reduce((sum, p) => sum + p[1], 0) / part.length]);
    }
    // Memory stays flat in a long training.
    if (points.length > 20_000) points.splice(0, points.length, ...out);
    return out;
  }
  const lossPlace = h("div"), samplePlace = h("div", { class: "samples" }), headPlace = h("div", { class: "heads" });
  const status = h("p", { class: "large", id: "status", role: "status" });
  let chart = null;
  function drawLoss() {
    const all = thinned(losses);
    const series = [
      { name: "loss of each step", x: all.map(p => p[0]), y: all.map(p => p[1]) },
      { name: "loss of text that it does not train on", x: heldOut.map(p => p[0]), y: heldOut.map(p => p[1]), points: true },
    ];
    const levels = made ? [{ y: made.uniform, name: "every character equally likely" }] : [];
    chart = kit.lineChart({ series, levels, x: { title: "step" }, y: { title: "loss" }, height: 230, empty: "Press “Train”: the line begins with the first step." });
    lossPlace.replaceChildren(chart.element);
  }
  function drawState() {
    const rate = rates.length ? rates.reduce((a, b) => a + b) / rates.length : null;
    const last = losses.slice(-20).reduce((sum, p) => sum + p[1], 0) / Math.max(1, Math.min(20, losses.length));
    status.textContent = !made ? "No model yet." : `Step ${count(step)}${losses.length ? ` · loss ${number(last, 3)} · ${number(rate, 2)} ms a step` : ""} · ${count(made.parameters)} numbers to learn`;
    trainButton.textContent = isTraining ? "Pause" : step > 0 ? "Go on" : "Train";
    for (const button of needModel) button.disabled = !made;
  }
  // At most five times a second.
  let drawing = null;
  const soon = () => drawing ??= setTimeout(() => { drawing = null; drawLoss(); drawState(); }, 200);
  const refresh = () => { drawLoss(); drawState(); };

  async function look() {
    if (looking || !made) return;
    looking = true;
    looked = performance.now();
    try {
      const seen = await ask({ look: { prompt: promptInput.value, count: 160, temperature: .7 } });
      heldOut.push([seen.step, seen.held_out]);
      if (heldOut.length > 500) heldOut = heldOut.filter((_, i) => i % 2 === 1 || i === heldOut.length - 1);
      samples = [{ step: seen.step, text: promptInput.value + seen.sample }, ...samples].slice(0, 4);
      samplePlace.replaceChildren(...samples.map(one => h("div", {}, h("div", { class: "soft small" }, `after ${count(one.step)} steps`), h("p", { class: "sample" }, one.text))));
      drawHeads(seen);
      soon();
    } catch (error) { say(error); } finally { looking = false; }
  }
  let headMaps = [];
  function drawHeads({ labels, heads }) {
    const n = labels.length, flat = heads.flatMap((layer, l) => layer.map((weights, i) => ({ weights, name: `block ${l + 1}, head ${i + 1}` })));
    if (!flat.length) { headPlace.replaceChildren(h("p", { class: "soft" }, "This kind of attention computes no weights.")); headMaps = []; return; }
    if (headMaps.length !== flat.length) {
      headMaps = flat.map(({ name }, i) => ({ map: kit.heatMap({ rows: n, columns: n, stretch: true, ramp: "sequential", low: 0, high: 255, name,
        value: (a, b) => headMaps[i]?.weights[a * n + b] ?? 0, label: (a, b) => `“${labels[a]}” reads “${labels[b]}”: ${number(100 * (headMaps[i].weights[a * n + b] / 255), 2)} %` }), weights: flat[i].weights }));
      headPlace.replaceChildren(...headMaps.map(({ map }, i) => h("div", {}, h("div", { class: "soft small" }, flat[i].name), map.element)));
    }
    flat.forEach(({ weights }, i) => { headMaps[i].weights = weights; headMaps[i].map.again(); });
  }

  async function begin() {
    say(null);
    [losses, heldOut, samples, rates, step, made, headMaps] = [[], [], [], [], 0, null, []];
    samplePlace.replaceChildren(); headPlace.replaceChildren(); stepPlace.replaceChildren(); changePlace.replaceChildren();
    try {
      made = await ask({ start: { ...recipe, text: textInput.value } });
      await look();
    } catch (error) { say(error); }
    refresh();
  }
  async function train(on) {
    try {
      if (on && !made) await begin();
      isTraining = on && made !== null;
      if (made) await ask({ training: isTraining });
      if (!on) { await look(); }
    } catch (error) { say(error); }
    refresh();
  }
  const trainButton = h("button", { class: "first", id: "train", onclick: () => train(!isTraining) }, "Train");
  const needModel = [];
  const action = (name, id, f) => {
    const button = h("button", { id, disabled: true, async onclick() {
      say(null);
      try { await f(button); } catch (error) { say(error); }
    } }, name);
    needModel.push(button);
    return button;
  };
  const paused = async () => { if (isTraining) await train(false); };

  // The settings; a change takes effect when the model is made again.
  const LABELS = { attention: "kind of attention", positions: "how positions are told", mlp: "feed-forward layer", layers: "blocks", heads: "heads of a block", width: "numbers per character", context: "characters that it sees", batch: "sequences in a step", lr: "learning rate", seed: "seed of chance" };
  const HELP = {
    attention: "How a character reads earlier ones.", positions: "How the model knows which character comes first.", mlp: "The part of a block that looks at one character.",
    layers: "How often characters read each other.", heads: "How many things a character looks for at the same time.", width: "How much is remembered about a character.",
    context: "How far back it looks.", batch: "How many pieces of text a step learns from.", lr: "How far a step moves the numbers.", seed: "Which random numbers it begins with.",
  };
  function setting(name) {
    const change = value => { recipe[name] = value; kit.set({ [name]: value === usual[name] ? null : value }); pending.hidden = !made; };
    const input = parts[name]
      ? h("select", { id: name, onchange: e => change(e.target.value) }, parts[name].map(one => h("option", { value: one, selected: one === recipe[name] }, one)))
      : h("input", { id: name, type: "number", value: recipe[name], min: 0, step: name === "lr" ? .001 : 1, onchange: e => change(Number(e.target.value)) });
    return kit.tooltip(h("label", {}, LABELS[name], input), HELP[name]);
  }
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
    await paused();
    stepPlace.replaceChildren(h("p", { class: "soft" }, "The step is recorded …"));
    try { stepPlace.replaceChildren(frame(await ask(request), title)); } catch (error) { stepPlace.replaceChildren(); throw error; }
  };
  async function changes() {
    await paused();
    const { parameters, tokens } = await ask({ inputs: {} });
    const sizes = new Map(parameters.map(([name, shape]) => [name, shape.reduce((a, b) => a * b, 1)]));
    const which = h("select", { id: "parameter" }, parameters.map(([name, shape]) => h("option", { value: name }, `${name} [${shape.join(", ")}]`)));
    const at = h("input", { type: "number", min: 0, value: 0, id: "element" }), value = h("input", { type: "number", step: .1, value: 0, id: "value" });
    const now = h("output");
    const read = async () => { now.textContent = `it is ${number(await ask({ weight: { parameter: which.value, at: Number(at.value) } }), 4)} now`; };
    which.onchange = at.onchange = () => { at.max = sizes.get(which.value) - 1; read().catch(say); };
    const token = h("select", { id: "token" }, tokens.map((one, i) => h("option", { value: i }, `${i + 1}: ${one}`))), other = h("input", { type: "text", maxlength: 2, value: "e", size: 3, id: "character" });
    const result = h("div");
    const compare = change => action("Compare", null, async () => {
      const { before, after, moved } = await ask({ compare: change() });
      const share = m => m.before > 0 ? m.difference / m.before : m.difference > 0 ? Infinity : 0, most = Math.max(1e-12, ...moved.map(share).filter(Number.isFinite));
      result.replaceChildren(h("p", {}, `The loss of the next step would be ${number(after, 6)} and not ${number(before, 6)}. The gradients move by:`),
        kit.table([{ title: "parameter", value: m => m.parameter }, { title: "gradient before", num: true, value: m => m.before }, { title: "after", num: true, value: m => m.after },
          { title: "moved by", num: true, value: share, text: m => kit.percent(share(m)) },
          { title: "", value: share, text: m => h("span", { class: "bar", style: { width: `${Math.min(1, share(m) / most) * 8}rem` } }) }].map(c => c.num ? { text: m => number(c.value(m), 3), ...c } : c), moved, { by: 3 }));
    });
    const one = compare(() => ({ weight: { parameter: which.value, at: Number(at.value), value: Number(value.value) } }));
    const two = compare(() => ({ token: { at: Number(token.value), text: other.value } }));
    one.disabled = two.disabled = false;
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

  const [main, rest] = [["layers", "heads", "width", "context"], ["attention", "positions", "mlp", "batch", "lr", "seed"]].map(list => list.map(setting));
  const training = [
    kit.panel("model", "A language model that learns in this page", [
      "The model reads a text one character at a time and guesses the next one. Each step it looks at some pieces of the text, finds in which direction every one of its numbers would make the guesses better (the gradient), and moves them a little in that direction.",
      "Everything is computed in this page. Nothing is loaded and nothing is sent, so it also works without a network.",
    ], body => body.append(
      h("p", {}, "Give it a text, press “Train”, and watch it learn to write like it."), textInput,
      h("div", { class: "row small" }, h("label", {}, "or a file: ", h("input", { type: "file", id: "file", accept: ".txt,text/*", onchange: e => readFile(e.target.files[0]) }))),
      h("div", { class: "settings" }, main), h("details", {}, h("summary", {}, "more settings"), h("div", { class: "settings" }, rest)),
      h("div", { class: "row" }, trainButton, action("One step", "one", async () => { await paused(); const { step: now, losses: list } = await ask({ train: { steps: 1 } }); step = now; losses.push([now, list[0]]); await look(); refresh(); }),
        h("button", { id: "again", async onclick() { await paused(); pending.hidden = true; await begin(); } }, "Start again"), pending),
      message, status)),
    kit.panel("loss", "How good its guesses are", ["The loss is the mean of −ln p over the characters, where p is the probability that the model gave to the one that came. 0 would be perfect. The second line is measured on the last tenth of the text, which no step learns from."], body => { body.append(lossPlace); drawLoss(); }),
    kit.panel("sample", "What it writes", ["The model continues a beginning: it draws a character by its probabilities, appends it, and so on. The random numbers are the same each time, so what changes is the model."],
      body => body.append(h("label", { class: "row small soft" }, "it continues ", promptInput), samplePlace)),
    kit.panel("heads", "Where its heads look", ["A head mixes what earlier characters say into each character. A row is a character that reads, a column one that is read; the darker, the more it counts. Point at a cell to see the characters."], body => body.append(headPlace)),
    kit.panel("step", "This step, from the inside", [
      "The X-ray records the next step of this very model, forward and backward, with all values: the tape, the graph, each rule and each gradient. It is the page that `retrograd train --xray` writes.",
      "A change shows how one number, or one character, reaches the gradients of all others.",
    ], body => body.append(h("div", { class: "row" }, action("X-ray of this step", "xray", show({ xray: {} }, "X-ray of this step")), action("What the heads read", "explorer", show({ explorer: {} }, "attention explorer")), action("Change one number", "change", changes), action("Save the model", "save", save),
      h("button", { id: "share", async onclick() { await navigator.clipboard.writeText(location.href); } }, "Copy a link to these settings")), changePlace, stepPlace)),
  ];
  const expressions = [kit.panel("expression", "The derivative of an expression", [
    "Each line gives a name to a tensor; the last line is the result, a single number. The page shows the graph, and runs the forward and the backward pass event by event.",
    "Operators are + − * / ^ and @ (matrix product). Functions are abs, cos, exp, gelu, ln, log_softmax, max, mean, relu, sigmoid, sin, softmax, sqrt, square, sum, t (transpose) and tanh; randn(2, 3), ones(..) and zeros(..) make tensors.",
    "With the second derivative, the squared norm of the gradient is differentiated: its graph contains the backward pass of the first.",
  ], body => body.append(h("div", { class: "row" }, h("label", { class: "row small" }, "example", example)), program,
    h("div", { class: "row" }, h("button", { class: "first", id: "run", onclick: run }, "Run"), h("label", { class: "row small" }, second, "second derivative")), wrong, programPlace))];
  const views = { train: ["Train a model", training], derive: ["Derivatives", expressions] };
  const tabs = h("div", { class: "row", role: "tablist" }, Object.entries(views).map(([name, [title]]) => h("button", { role: "tab", id: `tab-${name}`, onclick: () => kit.set({ view: name }, true) }, title)));
  function choose() {
    const view = kit.get("view") === "derive" ? "derive" : "train";
    for (const [name, [, list]] of Object.entries(views)) {
      list.forEach(panel => {
        panel.hidden = name !== view;
        document.querySelector(`nav.contents a[href="#${panel.id}"]`).hidden = panel.hidden;
      });
      tabs.querySelector(`#tab-${name}`).setAttribute("aria-pressed", String(name === view));
    }
    if (view === "derive" && !programPlace.children.length && wrong.hidden) run();
  }
  kit.on((now, before) => { if (now.view !== before.view) choose(); });
  drawState();
  setTimeout(choose);
  kit.test("a model trains, and its loss falls", async ({ assert }) => {
    textInput.value = "to be or not to be, that is the question. ".repeat(40);
    Object.assign(recipe, { layers: 1, width: 16, heads: 2, context: 16, batch: 4 });
    await begin();
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
  return kit.page("retrograd in a page", "a language model, and any expression, with their gradients: computed here, by the engine of the library", [tabs, ...training, ...expressions]);
});
