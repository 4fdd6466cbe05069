// The sequences of a batch: which of them moved the weights, and the loss of each token.
"use strict";
kit.start(data => {
  const { h, number, percent } = kit;
  const { sequences, step } = data, id = one => `sequence-${one.number}`;
  if (!Array.isArray(sequences)) throw new Error("its data is not that of a batch");
  const signed = x => x === null ? "–" : (x > 0 ? "+" : "") + x.toFixed(5).replace("-", "−");
  const most = sequences.reduce((m, one) => one.losses.reduce((a, b) => Math.max(a, b), m), 1e-9);
  const table = kit.panel("batch", "The batch", [
    "The gradient of the step is the mean of the gradients of its sequences. Share of norms: the norm of a sequence's gradient, divided by the sum of these norms. Cosine: of a sequence's gradient and the sum of the others.",
    "Effect on held-out loss: the loss after the step, minus that after the same step without the sequence, with the mean of the others. Above 0 the sequence made the loss worse. A click on a row shows its text.",
  ], body => body.append(h("p", {}, `${data.sentence}.`), kit.table([
    { title: "sequence", num: true, value: one => one.number },
    { title: "loss", num: true, value: one => one.loss, text: one => number(one.loss) },
    { title: "share of losses", num: true, value: one => one.loss_share, text: one => percent(one.loss_share) },
    { title: "gradient norm", num: true, value: one => one.norm, text: one => number(one.norm) },
    { title: "share of norms", num: true, value: one => one.norm_share, text: one => percent(one.norm_share) },
    { title: "cosine", num: true, value: one => one.cosine, text: one => number(one.cosine, 3) },
    { title: "effect on held-out loss", num: true, value: one => one.effect, text: one => signed(one.effect) },
    { title: "text", value: one => one.start, text: one => h("span", { class: "mono" }, JSON.stringify(one.start)) },
  ], sequences, { by: 4, pick: one => document.getElementById(id(one)).scrollIntoView() }),
  h("p", { class: "small" }, data.xray ? h("a", { href: data.xray }, "The step, event by event") : ["The step, event by event: ", h("code", {}, data.command)])));

  // The colours of the tokens follow those of the page.
  function tokens(one) {
    const element = h("div", { class: "mono", style: { whiteSpace: "pre-wrap", overflowWrap: "anywhere", lineHeight: "1.8" } });
    kit.tooltip(element, event => event.target.dataset?.tip);
    kit.drawn(element, () => element.replaceChildren(...one.labels.map((label, i) => {
      const shown = label.replace(/\n/g, "⏎").replace(/\t/g, "⇥");
      if (i === 0) return h("span", { "data-tip": `${JSON.stringify(label)} is not predicted` }, shown);
      const loss = one.losses[i - 1], color = kit.ramp("sequential", loss / most);
      return h("span", { "data-tip": `${JSON.stringify(label)}: loss ${number(loss)}`, style: { background: kit.rgb(color), color: kit.inkOn(color) } }, shown);
    })));
    return element;
  }
  const texts = kit.panel("texts", "Losses of tokens", [
    "The colour of a token is its loss, the negative logarithm of the probability that the model gave to it before the step. The first token of a sequence is not predicted.",
  ], body => body.append(kit.scale("sequential", "loss 0", number(most, 3)), ...sequences.map(one => h("div", { id: id(one) },
    h("h3", {}, `Sequence ${one.number}: loss ${number(one.loss)}, ${percent(one.norm_share)} of the gradient norms`), tokens(one)))));
  kit.test("every token is shown", async ({ assert, frames }) => {
    await frames(2);
    const spans = document.querySelectorAll("#texts [data-tip]").length;
    assert(spans === sequences.reduce((n, one) => n + one.labels.length, 0), `there are ${spans} tokens`);
  });
  return kit.page(data.title, `loss ${number(step.loss)}, gradient norm ${number(step.norm)}, learning rate ${number(step.lr)}; held-out loss after the step ${number(step.held_out, 5)}`, [table, texts]);
});
