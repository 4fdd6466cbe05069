// Several training runs on one page, and the start of both pages.
"use strict";
run.compare = data => {
  const { h, count, number } = kit;
  const { loss, duration, axis, axes, shared } = run;
  const { runs, notes } = data;
  if (!Array.isArray(runs)) throw new Error("its data is not that of training runs");
  const dashes = [null, "6 3", "2 3", "8 3 2 3"];
  // Of pairs, A and B have a colour each.
  const color = i => kit.color(data.pairs ? i % 2 : i);
  const look = i => ({ color: color(i), dash: data.pairs ? null : dashes[Math.floor(i / 8) % dashes.length] });
  const swatch = i => h("span", { class: "swatch", style: { background: color(i), marginRight: ".4rem" } });

  function losses() {
    return kit.panel("loss", "Loss", [
      "The losses of all runs: held-out loss with points, or the smoothed loss of batches. A click on a name hides a run. Runs on different texts, or with different tokenizers, have losses that cannot be compared.",
    ], body => {
      const kinds = { held: "held-out", batch: "batch, smoothed" };
      const kind = () => kit.get("loss", "held") in kinds ? kit.get("loss", "held") : "held";
      const buttons = Object.entries(kinds).map(([name, title]) => h("button", { onclick() { kit.set({ loss: name }); } }, title));
      const mark = () => buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(Object.keys(kinds)[i] === kind())));
      const draw = () => kit.lineChart({
        ...shared(), height: 360, legend: true, y: { title: runs[0]?.unit ?? "", format: x => number(x, 4) },
        series: runs.map((one, i) => kind() === "held"
          ? { name: one.title, x: axis().of(one.evaluations, one), y: one.evaluations.loss.mean, points: one.evaluations.step.length <= 60, ...look(i) }
          : { name: one.title, x: axis().of(one.series, one), y: one.series.smoothed, ...look(i) }),
        levels: sameLevels(),
      }).element;
      const place = h("div");
      body.append(h("div", { class: "row small" }, h("span", { class: "soft" }, "loss"), buttons), place);
      mark();
      axes(place, runs.every(one => one.tokens_per_step > 0), draw);
      kit.on((now, before) => { if (now.loss !== before.loss) { mark(); place.replaceChildren(); axes(place, runs.every(one => one.tokens_per_step > 0), draw); } });
      kit.test("both losses can be shown", () => { kit.set({ loss: "batch" }); kit.set({ loss: null }); return 2; });
    });
  }
  // The lines of the text, if all runs have the same.
  function sameLevels() {
    const all = runs.map(one => one.levels), first = all[0];
    if (!first || !all.every(l => l && l.uniform === first.uniform && l.unigram === first.unigram && l.bigram === first.bigram)) return [];
    return [["blind guess", first.uniform], ["unigrams", first.unigram], ["bigrams", first.bigram]].map(([name, y]) => ({ y, name: `${name} ${loss(y)}` }));
  }

  function results() {
    return kit.panel("results", "Results", [
      "Held-out losses of the curve: on the windows of the evaluations during training. Tokens per second: those of all steps together. A click on a heading sorts.",
    ], body => {
      const value = one => one.evaluations.last?.[1] ?? null, lowest = one => one.evaluations.best?.[1] ?? null;
      const rate = one => one.seconds > 0 ? one.step * one.tokens_per_step / one.seconds : null;
      const state = one => ({ running: "running, or no last word", finished: "finished", interrupted: "stopped", failed: "failed" })[one.status.state] ?? "";
      body.append(kit.table([
        { title: "run", value: one => one.title, text: one => h("span", { class: "run-name" }, swatch(runs.indexOf(one)), one.title) },
        { title: "state", value: state },
        { title: "steps", num: true, value: one => one.step, text: one => count(one.step) },
        { title: "time", num: true, value: one => one.seconds, text: one => duration(one.seconds) },
        { title: "tokens/s", num: true, value: rate, text: one => rate(one) === null ? "–" : run.big(rate(one)) },
        { title: "held-out loss", num: true, value, text: one => value(one) === null ? "–" : value(one).toFixed(4) },
        { title: "lowest", num: true, value: lowest, text: one => lowest(one) === null ? "–" : lowest(one).toFixed(4) },
        { title: "at step", num: true, value: one => one.evaluations.best?.[0] ?? null, text: one => one.evaluations.best ? count(one.evaluations.best[0]) : "–" },
      ], runs, { by: 5, down: false }));
      for (const one of runs) if (one.verdicts[0]) body.append(h("p", { class: "small" }, swatch(runs.indexOf(one)), h("strong", {}, `${one.title}: `), one.verdicts[0].text));
    });
  }

  function recipes() {
    return kit.panel("recipes", "Differences of the recipes", ["The hyperparameters that are not the same in all runs. –: a run, of another version perhaps, does not have it."], body => {
      const of = one => new Map(one.recipe.rows.map(([name, value]) => [name, value])), all = runs.map(of);
      const names = [...new Set(all.flatMap(map => [...map.keys()]))];
      const differing = names.filter(name => new Set(all.map(map => map.get(name))).size > 1);
      if (!differing.length) return body.append(h("p", {}, names.length ? "All runs have the same recipe." : "No recipe is known."));
      body.append(h("div", { class: "scroll" }, h("table", {},
        h("thead", {}, h("tr", {}, h("th", {}, ""), runs.map((one, i) => h("th", {}, swatch(i), one.title)))),
        h("tbody", {}, differing.map(name => h("tr", {}, h("td", {}, name), all.map(map => h("td", { class: "wrap" }, map.get(name) ?? "–"))))))),
        h("p", { class: "soft small" }, `${names.length - differing.length} others are the same in all runs.`));
    });
  }

  function samples() {
    return kit.panel("samples", "Samples", ["The last sample of each run: the continuation of its prompt, at temperature 0.8."], body => {
      const some = runs.filter(one => one.looks.at.length);
      if (!some.length) return body.append(h("p", { class: "soft" }, "These runs have no samples."));
      body.append(h("div", { class: "samples" }, some.map(one => {
        const last = one.looks.at[one.looks.at.length - 1];
        return h("div", {}, h("h3", {}, swatch(runs.indexOf(one)), one.title), h("p", { class: "soft small" }, `after step ${count(last.step)}`), h("div", { class: "sample" }, h("b", {}, one.looks.prompt), last.sample));
      })));
    });
  }

  const sections = [...data.pairs ? [pairsPanel(data.pairs)] : [], results(), losses(), recipes(), samples()];
  const element = kit.page(data.title, runs.map(one => one.title).join(", "), sections);
  if (notes?.length) element.querySelector("header").after(h("div", { class: "message", id: "notes" }, notes.map(note => h("p", {}, note))));
  kit.test("every axis can be chosen", () => { for (const x of Object.keys(run.AXES)) kit.set({ x }); kit.set({ x: null }); return 3; });
  return element;
};
kit.start(data => data?.compare ? run.compare(data) : run.page(data));
