// The page of a training run.
"use strict";
const run = (() => {
  const { h, number, count, percent } = kit;

  // ---- Words ----------------------------------------------------------------------------------

  // A duration in seconds.
  function duration(x) {
    if (x === null || x === undefined || !Number.isFinite(x)) return "–";
    if (x < 10) return `${number(x, 2)} s`;
    const whole = Math.round(x), two = n => String(n).padStart(2, "0");
    if (whole < 60) return `${whole} s`;
    if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
    return `${count(Math.floor(whole / 3600))} h ${two(Math.floor(whole % 3600 / 60))} min`;
  }
  const clock = x => x === 0 ? "0" : x < 120 ? `${number(x, 3)} s` : x < 7200 ? `${number(x / 60, 3)} min` : `${number(x / 3600, 3)} h`;
  const big = x => x >= 1e6 ? kit.quantity(x, "").trim() : count(Math.round(x));
  const loss = x => x === null || x === undefined ? "–" : x.toFixed(Math.abs(x) < 100 ? 3 : 1).replace("-", "−");

  // What the run is doing, judged by the time since the page was written.
  function status(data, now) {
    const { state, every, text } = data.status, silence = (now - data.written) / 1000;
    const steps = data.planned ? `step ${count(data.step)} of ${count(data.planned)}` : `step ${count(data.step)}`;
    const at = new Date(data.written).toLocaleString();
    if (state === "finished") return { state, text: `Finished: ${steps}, ${duration(data.seconds)} of training.`, note: `Written on ${at}.` };
    if (state === "interrupted") return { state, text: `Stopped at ${steps}, ${duration(data.seconds)} of training.`, note: `${text} (Written on ${at}.)` };
    if (state === "failed") return { state, text: `Failed at ${steps}, ${duration(data.seconds)} of training.`, note: `${text} (Written on ${at}.)` };
    const patience = Math.max(60, 3 * (every ?? 60));
    if (silence > patience) return {
      state: "silent", text: `This run ended without a last word, at or after ${steps}.`,
      note: `The page was last written on ${at}, ${duration(silence)} ago; a program that runs writes it every ${duration(every)}. It was killed, or the machine stopped, or one operation takes unusually long. What follows is complete up to then.`,
    };
    return { state, text: `Running: ${steps}, ${duration(data.seconds)} of training.`, note: `Written ${duration(Math.max(0, silence))} ago. The page loads itself again while the run goes on.` };
  }

  // ---- Axes -----------------------------------------------------------------------------------

  const wholeTicks = (low, high, n) => kit.ticks(low, high, n).filter(Number.isInteger);
  // The axes of series, for points with steps and seconds.
  const AXES = {
    step: { title: "step", format: x => big(x), of: points => points.step, ticks: wholeTicks },
    time: { title: "training time", format: clock, of: points => points.seconds, ticks: timeTicks },
    tokens: { title: "tokens", format: x => big(x), of: (points, data) => points.step.map(step => step * data.tokens_per_step), ticks: wholeTicks },
  };
  // Round numbers of seconds, minutes or hours.
  function timeTicks(low, high, n) {
    const unit = high < 120 ? 1 : high < 7200 ? 60 : 3600;
    return kit.ticks(low / unit, high / unit, n).map(x => x * unit);
  }
  const axis = () => AXES[kit.get("x", "step")] ?? AXES.step;
  // Buttons for the axis; `draw` is called now and when it changes.
  function axes(body, hasTokens, draw) {
    const place = h("div"), names = Object.keys(AXES).filter(name => name !== "tokens" || hasTokens);
    const buttons = names.map(name => h("button", { onclick() { kit.set({ x: name, zoom: null }); } }, AXES[name].title));
    const mark = () => buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(axis() === AXES[names[i]])));
    kit.on((now, before) => { if (now.x !== before.x || now.whole !== before.whole) { mark(); place.replaceChildren(draw()); } });
    mark();
    place.append(draw());
    body.append(h("div", { class: "row small" }, h("span", { class: "soft" }, "over"), buttons), place);
  }
  // The enlarged range, which is in the address.
  function zoom() {
    const range = kit.get("zoom", "").split("_").map(Number);
    return range.length === 2 && range.every(Number.isFinite) && range[0] < range[1] ? range : null;
  }
  const zoomed = range => kit.set({ zoom: range ? range.map(x => Number(x.toPrecision(6))).join("_") : null });
  const shared = () => ({ x: { title: axis().title, format: axis().format, ticks: axis().ticks }, zoom: zoom(), zoomed });

  // The end of an axis that keeps a few extreme values from flattening the others: `most` if some values are far
  // above it. Otherwise nothing.
  const cut = (values, most) => {
    const highest = values.reduce((a, b) => b > a ? b : a, -Infinity);
    return highest > 1.3 * most && kit.get("whole") === undefined ? { most, highest } : null;
  };
  const largest = values => values.reduce((a, b) => b !== null && b > a ? b : a, -Infinity);
  // What says that an axis was cut, and undoes it.
  const cutNote = (what, { most, highest }, format) => h("p", { class: "soft small" }, `${what} up to ${format(highest)}; the chart ends at ${format(most)}. `,
    h("button", { onclick() { kit.set({ whole: 1 }); } }, "show all"));

  // ---- Panels ---------------------------------------------------------------------------------

  function overview(data) {
    return kit.panel("overview", "What the curves say", [
      "Statements that follow from the curves by fixed rules. Each rule is printed below its statement. They are rules of thumb: the curves decide.",
    ], body => {
      const verdicts = data.verdicts.map(v => h("li", { "data-tone": v.tone }, h("p", {}, h("strong", {}, v.text)), h("p", { class: "soft small" }, v.rule)));
      body.append(h("ul", { class: "verdicts" }, verdicts));
      const { last, best } = data.evaluations;
      const results = [
        last && ["held-out loss", `${loss(last[1])} after step ${count(last[0])}`],
        best && ["lowest", `${loss(best[1])} after step ${count(best[0])}`],
      ];
      body.append(kit.facts([...results, ...data.facts].filter(Boolean)));
      if (data.left_out.length) body.append(h("p", { class: "soft small" }, data.left_out.join(" ")));
    });
  }

  function levels(data) {
    const { uniform, unigram, bigram } = data.levels ?? {};
    return [[uniform, "blind guess"], [unigram, "unigrams"], [bigram, "bigrams"]].filter(([y]) => typeof y === "number").map(([y, name]) => ({ y, name: `${name} ${loss(y)}` }));
  }

  function losses(data) {
    return kit.panel("loss", "Loss", [
      "The mean of −ln p(token), in nats per token. Batch: the loss of each step's batch before the step; smoothed: its exponential mean over about a twentieth of the steps so far, between 5 and 200 steps. Held-out: the loss on windows that the model is not trained on, the same at every evaluation.",
      "The dashed lines are the losses that need no network. Blind guess: ln V, every token of the vocabulary of V equally probable. Unigrams: p(b) = (n(b) + 1) / (N + V), from how often b occurs among the N tokens of the training text. Bigrams: p(b | a) = (n(a, b) + d(a) p(b)) / (n(a) + d(a)), from how often b follows a; d(a) is the number of different tokens that follow a, which leaves a probability to pairs that do not occur (Witten and Bell 1991). Each line is the mean of −ln p over all held-out tokens but the first.",
      "Drag over the chart to enlarge a range, double-click to show all.",
    ], body => {
      if (!data.series.step.length && !data.evaluations.step.length) return body.append(h("p", { class: "soft" }, "No step has been taken yet."));
      let chart;
      const mark = () => chart.moveTo(kit.get("look") === undefined ? undefined : place(data, Number(kit.get("look"))));
      kit.on((now, before) => { if (now.look !== before.look) mark(); });
      body.append(h("p", { id: "step-again", class: "soft small" }, "A click on the chart names the commands that compute the step again."));
      kit.test("a click names the step with the largest loss there", ({ assert }) => {
        const { step, loss } = data.series, i = step.length >> 1, values = loss.high ?? loss.mean;
        if (!step.length || values[i] === null) return 0;
        stepNear(data, loss, axis().of(data.series, data)[i]);
        const [, named] = document.querySelector("#step-again code").textContent.match(/ (\d+) --xray/);
        assert(values[step.indexOf(Number(named))] >= values[i], named);
        return 1;
      });
      axes(body, data.tokens_per_step > 0, () => {
        const calm = 1.1 * Math.max(largest(data.evaluations.loss.mean), data.levels?.uniform ?? 0, Number(data.series.smoothed.find(x => x !== null) ?? 0));
        const end = calm > 0 ? cut(data.series.loss.high ?? data.series.loss.mean, calm) : null;
        chart = kit.lineChart({
          ...shared(), height: 340, levels: levels(data), y: { title: data.unit, format: x => number(x, 4), max: end?.most },
          series: [
            { name: "batch", x: axis().of(data.series, data), y: data.series.loss.mean, low: data.series.loss.low, high: data.series.loss.high, color: "var(--c7)", width: .8 },
            { name: "smoothed", x: axis().of(data.series, data), y: data.series.smoothed, color: "var(--c0)", width: 2 },
            { name: "held-out", x: axis().of(data.evaluations, data), y: data.evaluations.loss.mean, low: data.evaluations.loss.low, high: data.evaluations.loss.high, color: "var(--c1)", width: 2, points: data.evaluations.step.length <= 100 },
          ].filter(one => one.x.length),
          pick: x => { pickLook(data, x); stepNear(data, data.series.loss, x); },
        });
        mark();
        return h("div", {}, chart.element, end && cutNote("Losses of batches go", end, loss));
      });
    });
  }

  // How the steps near a place on the axis that is shown are computed again: the one with the largest value.
  function stepNear(data, column, x) {
    const { step } = data.series, places = axis().of(data.series, data), values = column.high ?? column.mean;
    const width = Math.abs(places[places.length - 1] - places[0]) / 100;
    const near = step.map((_, i) => i).filter(i => Math.abs(places[i] - x) <= width && values[i] !== null);
    if (!near.length) return;
    const at = near.reduce((a, b) => values[b] > values[a] ? b : a);
    const folder = /^[\w.-]+$/.test(data.title) ? data.title : `'${data.title.replaceAll("'", "'\\''")}'`;
    document.getElementById("step-again").replaceChildren(
      `Step ${column.high ? "about " : ""}${count(step[at])}: `, h("code", {}, `retrograd replay ${folder} ${step[at]} --xray`), " computes it again; ",
      h("code", {}, `retrograd blame ${folder} ${step[at]}`), " shows its sequences; ",
      h("a", { href: `xray-${step[at] - 1}.html` }, "its page"), ", if that was written.");
  }

  function rates(data) {
    return kit.panel("rates", "Steps", [
      "Learning rate: that of the schedule. Gradient norm: √Σg² over all parameters, before clipping; above the dashed line gradients are scaled down to it. Time of a step: batch, forward, backward, update, without evaluations.",
      "MFU, model FLOP utilisation: the floating-point operations that a step requires (matrix products only, forward once and backward twice that), divided by its time and by the peak of this machine, which was measured when the run started: independent f32 multiply-adds in registers, on all threads of the run (Chowdhery et al. 2022). Products with fewer bits, such as bf16, may exceed it.",
      "Memory: the bytes of all tensors of the process at each evaluation, and the most at once since the program started, which is during a step. Bytes in use that grow from evaluation to evaluation are tensors that something keeps.",
    ], body => {
      const { series } = data;
      if (!series.step.length) return body.append(h("p", { class: "soft" }, "No step has been taken yet."));
      const place = h("div", { class: "columns" });
      const rate = x => x > 0 ? data.tokens_per_step / x : null;
      const perSecond = data.tokens_per_step > 0 && { mean: series.step_seconds.mean.map(rate), low: series.step_seconds.high?.map(rate), high: series.step_seconds.low?.map(rate) };
      const draw = () => {
        const chart = (title, column, options, color, note) => h("div", {}, h("h3", {}, title), kit.lineChart({
          ...shared(), height: 190, pick: x => stepNear(data, column, x), ...options,
          series: [{ name: title, x: axis().of(series, data), y: column.mean, low: column.low, high: column.high, color: `var(--c${color})`, width: 1.4 }],
        }).element, note);
        const usual = series.step_seconds.mean.filter(x => x !== null).sort((a, b) => a - b)[series.step.length >> 1];
        const slow = usual > 0 ? cut(series.step_seconds.high ?? series.step_seconds.mean, 4 * usual) : null;
        const memory = data.memory ?? { step: [] };
        const hasPeak = series.utilisation.mean.some(x => x !== null);
        return [
          chart("Learning rate", series.lr, { y: { min: 0, format: x => number(x, 3) } }, 0),
          chart("Gradient norm", series.grad_norm, { y: { log: true, format: x => number(x, 3) }, levels: data.clip ? [{ y: data.clip, name: `clipped above ${number(data.clip, 3)}` }] : [] }, 1),
          perSecond && chart("Tokens per second", perSecond, { y: { min: 0, format: big } }, 2),
          chart("Time of a step", series.step_seconds, { y: { min: 0, max: slow?.most, format: x => kit.seconds(x) } }, 3, slow && cutNote("Steps took", slow, kit.seconds)),
          hasPeak && chart("MFU", series.utilisation, { y: { min: 0, format: percent } }, 5),
          memory.step.length > 0 && h("div", {}, h("h3", {}, "Memory of tensors"), kit.lineChart({
            ...shared(), height: 190, y: { min: 0, format: kit.bytes },
            series: [["in use", "live", 4], ["peak", "peak", 0]].map(([name, key, color]) => ({ name, x: axis().of(memory, data), y: memory[key], color: `var(--c${color})`, width: 1.6, points: memory.step.length <= 60 })),
          }).element),
        ].filter(Boolean);
      };
      place.append(...draw());
      kit.on((now, before) => { if (now.x !== before.x || now.whole !== before.whole) place.replaceChildren(...draw()); });
      body.append(place);
      kit.test("every cell of the grid is a chart", ({ assert }) => {
        for (const cell of place.children) assert(cell.querySelector("h3"), `a cell is “${cell.textContent.slice(0, 40)}”`);
      });
      const peaks = data.peaks.map(([from, flops]) => `${kit.quantity(flops, "FLOP/s")}${data.peaks.length > 1 ? ` from step ${count(from)}` : ""}`);
      if (peaks.length && data.flops) body.append(h("p", { class: "soft small" }, `A step requires ${kit.quantity(data.flops, "FLOP")}; the measured peak is ${peaks.join(", ")}.`));
    });
  }

  // Rows over looks, as colours. value(row, index of a look) in the units of low and high.
  // groups [[name, rows]] are labels of several rows each, for many rows.
  function overTime(looks, names, value, { ramp, low, high, text, name, groups }) {
    const tall = groups ? Math.max(4, Math.ceil(16 / Math.max(1, ...groups.map(g => g[1])))) : 17;
    const map = kit.heatMap({
      rows: names.length, columns: looks.length, height: tall, size: 9999, stretch: true, ramp, low, high, name,
      value, label: (i, j) => `${names[i]}, step ${count(looks[j].step)}: ${text(i, j)}`,
      pick: (i, j) => kit.set({ look: looks[j].step }),
    });
    const label = ([text, rows]) => h("div", { style: { height: `${rows * tall}px`, lineHeight: `${Math.min(17, rows * tall)}px` }, title: text }, h("bdi", {}, text));
    return h("div", { class: "over-time" }, h("div", { class: "names", "aria-hidden": "true" }, (groups ?? names.map(name => [name, 1])).map(label)), map.element,
      h("div", { class: "ends" }, h("span", {}, `step ${count(looks[0].step)}`), h("span", {}, `step ${count(looks[looks.length - 1].step)}`)));
  }
  const legend = (ramp, low, middle, high) => h("div", { class: "row" }, kit.scale(ramp, low, high), middle && h("span", { class: "soft small" }, middle));

  function layers(data) {
    return kit.panel("layers", "Layers", [
      "One row for each part of the model, one column for each evaluation. Update to weight: the norm of the change of the weights by that step, divided by their norm. About 10⁻³ is usual with AdamW when a run learns well (pale on light pages, dark on dark ones); much less, in blue, means that the part hardly moves, as at the end of a schedule; much more, in orange, that it forgets what it knew. A cell without a colour: no update, as with a learning rate of 0. Muon moves matrices more, by 10⁻² and above at the peak of its schedule. Gradient norm: that of the part, before clipping.",
      "Output scale: the root of the mean square of what each layer passes on to the next one (of the residual stream), for the sentence below. It usually grows from layer to layer. A jump in time, or a layer far above the one before it, is where numbers become too large.",
      "Click on a cell to see the model at that step below.",
    ], body => {
      // No step was observed before the first one.
      const parts = data.looks.parts, looks = data.looks.at.filter(look => look.updates.length);
      const scaled = data.looks.at.filter(look => look.scales?.length), scales = scaled.flatMap(look => look.scales).filter(x => x !== null);
      if (!parts.length || !looks.length) return body.append(h("p", { class: "soft" }, "No step has been observed yet."));
      const log = (list, i) => list[i] > 0 ? Math.log10(list[i]) : null;
      const norms = looks.flatMap(look => look.grad_norms.map((_, i) => log(look.grad_norms, i))).filter(x => x !== null);
      const low = Math.min(...norms), high = Math.max(...norms, low + 1e-3);
      body.append(h("div", { class: "columns" },
        h("div", {}, h("h3", {}, "Update to weight"), legend("diverging", "10⁻¹", "middle: 10⁻³", "10⁻⁵"),
          overTime(looks, parts, (i, j) => log(looks[j].updates, i), { ramp: "diverging", low: -1, high: -5, name: "update to weight ratio of each part over time", text: (i, j) => number(looks[j].updates[i] ?? null, 3) })),
        h("div", {}, h("h3", {}, "Gradient norm"), legend("sequential", number(10 ** low, 2), null, number(10 ** high, 2)),
          overTime(looks, parts, (i, j) => log(looks[j].grad_norms, i), { ramp: "sequential", low, high, name: "gradient norm of each part over time", text: (i, j) => number(looks[j].grad_norms[i] ?? null, 3) }))));
      if (!scales.length) return;
      const most = largest(scales), names = scaled[scaled.length - 1].scales.map((_, l) => `layer ${l + 1}`);
      body.append(h("h3", {}, "Output scale"), legend("sequential", "0", null, number(most, 3)),
        overTime(scaled, names, (i, j) => scaled[j].scales[i] ?? null, { ramp: "sequential", low: 0, high: most || 1, name: "root mean square of the output of each layer over time", text: (i, j) => number(scaled[j].scales[i] ?? null, 3) }));
    });
  }

  // The names of the heads, in order.
  function heads(data) {
    return data.looks.layers.flatMap((n, layer) => Array.from({ length: n }, (_, head) => ({ layer, head, name: `layer ${layer + 1}, head ${head + 1}` })));
  }

  function entropies(data) {
    return kit.panel("entropy", "Attention over time", [
      "Entropy: how widely each head spreads its attention within the sentence below: the entropy of the weights of a query, divided by the logarithm of the number of tokens it may attend to; the mean over queries. 0: every query attends to a single token. 1: it attends to all equally. A head that specialises goes down; a sudden fall of all heads to 0 is a sign of too high a learning rate.",
      "Distance: how many tokens back each head looks, the mean of the distance by the weights, over queries. 0: every query attends to its own token. 1: to the previous one, if the entropy is 0 too. A head that goes up reads what is far away.",
    ], body => {
      const looks = data.looks.at, all = heads(data);
      if (!all.length || !looks.some(look => look.entropy.length)) return body.append(h("p", { class: "soft" }, "This model has no attention weights to show."));
      const groups = all.length > 24 ? data.looks.layers.map((n, l) => [`layer ${l + 1}`, n]) : undefined, names = all.map(head => head.name);
      const far = largest(looks.flatMap(look => look.distance ?? []));
      const map = (key, high, name, what) => overTime(looks, names, (i, j) => looks[j][key]?.[i] ?? null, { ramp: "sequential", low: 0, high, name, groups, text: (i, j) => `${what(number(looks[j][key]?.[i] ?? null, 3))}` });
      body.append(h("div", { class: "columns" },
        h("div", {}, h("h3", {}, "Entropy"), legend("sequential", "0: one token", null, "1: all equally"), map("entropy", 1, "attention entropy of each head over time", x => x)),
        far > -Infinity ? h("div", {}, h("h3", {}, "Distance"), legend("sequential", "0: the token itself", null, `${number(far, 3)} tokens back`), map("distance", far || 1, "attention distance of each head over time", x => `${x} tokens back`)) : null));
    });
  }

  // Steps and seconds of all points that the page has, in order.
  function moments(data) {
    const pairs = [data.series, data.evaluations].flatMap(points => points.step.map((step, i) => ({ step, seconds: points.seconds[i] })));
    return pairs.sort((a, b) => a.step - b.step);
  }
  // The place of a step on the axis that is shown.
  function place(data, step) {
    if (axis() === AXES.step) return step;
    if (axis() === AXES.tokens) return step * data.tokens_per_step;
    return moments(data).reduce((a, b) => Math.abs(b.step - step) < Math.abs(a.step - step) ? b : a).seconds;
  }
  // Chooses the look nearest to a place on the axis that is shown.
  function pickLook(data, x) {
    const looks = data.looks.at;
    if (looks.length) kit.set({ look: looks.reduce((a, b) => Math.abs(place(data, b.step) - x) < Math.abs(place(data, a.step) - x) ? b : a).step });
  }

  const decoded = new Map();
  // The weights of a head as numbers from 0 to 1: the lower triangle, row by row.
  function weights(text) {
    if (!decoded.has(text)) {
      if (decoded.size > 400) decoded.clear();
      decoded.set(text, Uint8Array.from(atob(text), c => c.charCodeAt(0)));
    }
    return decoded.get(text);
  }
  const visible = token => token.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ | $/g, "␣");

  function looks(data) {
    return kit.panel("looks", "The model at each evaluation", [
      "The same sentence and the same prompt at every evaluation. Move the slider to watch how heads and samples change while the model is trained.",
      "Attention: a matrix for each head. A row is a token that asks (the query), a column a token that is read (the key), at or before it. The darker (on dark pages: the brighter), the more weight; a row sums to 1, or to less if the head has a sink. Colours show the root of the weight, so that small ones can be seen. A column that stays dark is a token that everything attends to; a dark diagonal, a head that reads the token itself; a diagonal below it, the previous token.",
      "Sample: the continuation of the prompt at temperature 0.8, with the same random numbers each time.",
    ], body => {
      const at = data.looks.at, all = heads(data), tokens = data.looks.sentence;
      if (!at.length) return body.append(h("p", { class: "soft" }, "There has been no evaluation yet."));
      const index = () => {
        const step = Number(kit.get("look", NaN)), found = at.findIndex(look => look.step >= step);
        return Number.isFinite(step) ? found < 0 ? at.length - 1 : found : at.length - 1;
      };
      const title = i => `step ${count(at[i].step)} (${i + 1} of ${at.length})`;
      const slider = kit.slider({ name: "evaluation after", min: 0, max: at.length - 1, value: index(), text: title, change: i => kit.set({ look: i === at.length - 1 ? null : at[i].step }) });
      let timer = null;
      const stop = () => { clearInterval(timer); timer = null; play.textContent = "▶ play"; play.setAttribute("aria-pressed", "false"); play.classList.remove("playing"); };
      const play = h("button", { "aria-pressed": "false", onclick() {
        if (timer) return stop();
        if (index() === at.length - 1) slider.move(0);
        play.textContent = "❚❚ stop"; play.setAttribute("aria-pressed", "true"); play.classList.add("playing");
        timer = setInterval(() => { if (index() === at.length - 1) stop(); else slider.move(index() + 1); }, Math.max(60, Math.min(700, 9000 / at.length)));
      } }, "▶ play");
      const few = all.length <= 12;
      const layer = () => Math.min(Math.max(Number(kit.get("layer", 1)) || 1, 1), data.looks.layers.length) - 1;
      const select = few ? null : h("select", { "aria-label": "layer", onchange() { kit.set({ layer: select.value }); } }, data.looks.layers.map((_, l) => h("option", { value: l + 1 }, `layer ${l + 1}`)));
      const note = h("p", { class: "soft small" }), maps = h("div", { class: "heads" }), text = h("div", { class: "sample" });
      let shown = null, drawnMaps = [], drawnLayer = null;
      // The look whose weights are shown: weights of some looks may be left out.
      const withWeights = i => { for (let k = i; k >= 0; k--) if (at[k].weights) return k; return at.findIndex(look => look.weights); };
      function build() {
        const chosen = all.map((head, i) => ({ ...head, i })).filter(head => few || head.layer === layer());
        // One row of matrices, or several of the same length.
        const room = Math.min(innerWidth, 1560) - 70, fits = Math.max(1, Math.floor(room / 144));
        const rows = Math.max(chosen.length > 6 ? 2 : 1, Math.ceil(chosen.length / fits));
        const each = room / Math.max(Math.ceil(chosen.length / rows), 3) - 16;
        const size = Math.max(4, Math.min(10, Math.floor(each / Math.max(1, tokens.length))));
        drawnLayer = layer();
        drawnMaps = chosen.map(head => {
          const value = (i, j) => j > i || shown === null ? null : weights(at[shown].weights[head.i])[i * (i + 1) / 2 + j] / 255;
          const map = kit.heatMap({ rows: tokens.length, columns: tokens.length, size, width: size * tokens.length, value, name: head.name,
            label: (i, j) => j > i ? "later tokens are masked" : `“${visible(tokens[i])}” attends to “${visible(tokens[j])}”: ${number(value(i, j) ** 2, 3)}` });
          const caption = h("figcaption");
          return { head, map, caption, figure: h("figure", { style: { width: `max(${size * tokens.length}px, 8rem)` } }, caption, map.element) };
        });
        maps.replaceChildren(...drawnMaps.map(m => m.figure));
        maps.style.maxWidth = rows > 1 ? `${Math.ceil(chosen.length / rows) * (Math.max(128, size * tokens.length) + 15)}px` : "";
      }
      function update() {
        const i = index(), look = at[i], k = withWeights(i);
        if (slider.value !== i) slider.move(i, true);
        shown = k < 0 ? null : k;
        if (shown !== null && tokens.length) {
          if (drawnLayer !== layer()) build();
          for (const { head, map, caption } of drawnMaps) {
            caption.textContent = `${head.name} · entropy ${number(at[shown].entropy[head.i] ?? null, 2)}`;
            map.again();
          }
        }
        note.textContent = shown === null ? "This model has no attention weights to show." : shown === i ? "Attention within:" : `Attention after step ${count(at[shown].step)} (those of later evaluations are left out), within:`;
        text.replaceChildren(h("b", {}, data.looks.prompt), look.sample);
        if (select) select.value = layer() + 1;
      }
      kit.on((now, before) => { if (now.look !== before.look || now.layer !== before.layer) update(); });
      update();
      body.append(h("div", { class: "row" }, slider.element, play, select), note,
        tokens.length && shown !== null ? h("p", { class: "tokens" }, tokens.map((token, i) => h("span", { style: { background: i % 2 ? "var(--faint)" : "transparent" } }, visible(token)))) : null,
        maps, h("h3", {}, "Sample"), text);
      kit.test("every evaluation can be shown", ({ assert, layoutErrors }) => {
        for (let i = 0; i < at.length; i++) {
          slider.move(i);
          assert(text.textContent === data.looks.prompt + at[i].sample, `evaluation ${i} shows another sample`);
          assert(index() === i, `evaluation ${i} is not chosen`);
        }
        for (let l = 0; l < data.looks.layers.length; l++) {
          kit.set({ layer: l + 1 });
          if (shown !== null) assert(drawnMaps.length > 0 && drawnMaps.every(m => m.caption.textContent), `layer ${l + 1} has no heads`);
        }
        const wrong = layoutErrors();
        assert(!wrong.length, wrong[0]);
        kit.set({ look: null, layer: null });
        return at.length + data.looks.layers.length;
      });
    });
  }

  function events(data) {
    return kit.panel("events", "Events", [
      "Starts, resumptions and ends of the program; the lowest held-out loss; changes of the schedule; numbers that were not finite.",
    ], body => {
      const clipped = data.clipped.filter(x => x !== null), share = clipped.reduce((a, b) => a + b, 0) / clipped.length;
      if (clipped.length) body.append(h("p", {}, `Gradients were clipped in ${percent(share)} of the steps.`));
      if (!data.events.length) return body.append(h("p", { class: "soft" }, "Nothing has happened yet."));
      body.append(h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { class: "num" }, "step"), h("th", {}, "event"), h("th", {}, ""))),
        h("tbody", {}, data.events.map(([step, kind, text]) => h("tr", {}, h("td", { class: "num" }, count(step)), h("td", {}, kind), h("td", { class: "wrap" }, text)))))));
    });
  }

  function recipe(data) {
    return kit.panel("recipe", "Recipe", [
      "The hyperparameters, which with the text determine the weights bit for bit. Those that differ from the preset come first and are marked.",
    ], body => {
      const { base, rows } = data.recipe;
      if (!rows.length) return body.append(h("p", { class: "soft" }, "The recipe is not known."));
      const differs = ([, value, other]) => base !== null && other !== null && value !== other;
      const sorted = [...rows.filter(differs), ...rows.filter(row => !differs(row))], changed = rows.filter(differs).length;
      if (base !== null) body.append(h("p", {}, changed === 0 ? `That of the preset ${base}.` : `${changed} of ${rows.length} values differ from the preset ${base}.`));
      body.append(h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["", "here", base === null ? null : base].filter(x => x !== null).map(x => h("th", {}, x)))),
        h("tbody", {}, sorted.map(row => h("tr", {}, h("td", {}, row[0]), h("td", { class: differs(row) ? "wrap differs" : "wrap" }, row[1]), base === null ? null : h("td", { class: "wrap soft" }, row[2] ?? "")))))));
    });
  }

  // ---- The page -------------------------------------------------------------------------------

  // Loads the page again while the run goes on, but not while it is used. The place on the page stays.
  function reload(data) {
    const seconds = Math.min(Math.max((data.status.every ?? 20) / 4, 3), 30);
    let used = 0;
    for (const name of ["pointerdown", "pointermove", "keydown", "wheel", "touchmove"]) addEventListener(name, () => { used = Date.now(); }, { passive: true });
    setInterval(() => {
      if (document.hidden || Date.now() - used < 1500 || String(getSelection()) || document.querySelector("button.playing")) return;
      try { history.replaceState({ scroll: scrollY }, ""); } catch { /* the place is lost */ }
      location.reload();
    }, seconds * 1000);
  }

  function page(data) {
    if (data?.run !== 1) throw new Error(data?.run > 1 ? "it is of a newer version" : "its data is not that of a training run");
    const box = h("div", { class: "status", role: "status" });
    const show = () => {
      const { state, text, note } = status(data, Date.now());
      box.dataset.state = state;
      box.replaceChildren(h("p", {}, h("strong", {}, text)), h("p", { class: "soft small" }, note),
        ...(data.planned ? [h("div", { class: "bar", "aria-hidden": "true" }, h("span", { style: { width: `${Math.min(100, 100 * data.step / data.planned)}%` } }))] : []));
    };
    show();
    if (data.status.state === "running" && location.hash !== "#selftest") { setInterval(show, 1000); reload(data); }
    const scroll = history.state?.scroll;
    if (scroll) setTimeout(() => scrollTo(0, scroll), 80);
    kit.test("a run that was killed is noticed", ({ assert }) => {
      const killed = { ...data, status: { state: "running", every: 30 }, written: 0 };
      assert(status(killed, 20e3).state === "running", "20 s after the last write it does not run");
      assert(status(killed, 3600e3).text.includes("without a last word"), "after an hour it runs still");
    });
    kit.test("the curve of the loss is on the first screen", ({ assert }) => {
      const { top } = document.getElementById("loss").getBoundingClientRect();
      assert(document.querySelector(".panel").id === "loss", `the first panel is ${document.querySelector(".panel").id}`);
      assert(innerWidth < 900 || top + scrollY < innerHeight / 2, `it begins at ${top + scrollY}`);
    });
    kit.test("small updates do not look like an alarm", ({ assert }) => {
      const canvas = document.querySelector('canvas[aria-label^="update"]'), looks = data.looks.at.filter(look => look.updates.length);
      if (!canvas) return 0;
      const { width, height } = canvas, pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
      looks.forEach(({ updates, step }, j) => updates.forEach((update, i) => {
        const at = 4 * (Math.floor((i + .5) * height / updates.length) * width + Math.floor((j + .5) * width / looks.length)), [r, , b, a] = pixels.slice(at, at + 4);
        if (update === 0) assert(a === 0, `no update in step ${step} has a colour`);
        else if (update !== null && update < 1e-4) assert(b > r, `an update of ${update} in step ${step} is red`);
      }));
      return looks.length;
    });
    kit.test("a short axis of steps has whole numbers", ({ assert }) => {
      const ticks = AXES.step.ticks(0, 1, 10).map(AXES.step.format);
      assert(ticks.join() === "0,1", `they are ${ticks}`);
    });
    kit.test("every axis can be chosen", ({ assert }) => {
      for (const x of Object.keys(AXES)) { kit.set({ x, whole: 1 }); kit.set({ whole: null }); }
      kit.set({ x: null });
      assert(axis() === AXES.step, "the axis is not that of steps");
      return 3;
    });
    const sections = [losses(data), overview(data), rates(data), layers(data), entropies(data), looks(data), events(data), recipe(data)];
    kit.findable(() => [
      ...data.looks.parts.map(([name]) => ({ name, note: "part of the model", state: { at: "layers" } })),
      ...data.looks.at.map(({ step }) => ({ name: `step ${count(step)}`, note: "evaluation", state: { look: step, at: "looks" } })),
      ...data.recipe.rows.map(([name, value]) => ({ name, note: `setting: ${value}`, state: { at: "recipe" } })),
      ...data.events.map(([step, kind, text]) => ({ name: kind, note: `step ${count(step)}: ${text}`, state: { at: "events" } })),
    ]);
    const element = kit.page(data.title, "A training run", sections);
    element.querySelector("header").after(box);
    return element;
  }

  return { page, duration, clock, big, loss, AXES, axis, axes, shared, status };
})();
