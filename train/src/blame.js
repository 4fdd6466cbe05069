// The sequences of a batch: which of them moved the weights, and the loss of each token.
"use strict";
kit.start(data => {
  const { h, number, percent } = kit, { sequences, step } = data, id = one => `sequence-${one.number}`, start = one => JSON.stringify(one.labels.join("").slice(0, 40));
  const signed = x => x === null ? "–" : (x > 0 ? "+" : "") + x.toFixed(5).replace("-", "−");
  const most = sequences.reduce((m, one) => one.losses.reduce((a, b) => Math.max(a, b), m), 1e-9);
  const column = (title, name, text) => ({ title, num: true, value: one => one[name], text: one => text(one[name]) });
  const table = kit.panel("batch", "The batch", [
    "The gradient of the step is the mean of the gradients of its sequences. Share of norms: the norm of a sequence's gradient, divided by the sum of these norms. Cosine: of a sequence's gradient and the sum of the others.",
    "Effect on held-out loss: the loss after the step, minus that after the same step with the mean of the other sequences. Above 0 the sequence made the loss worse. A click on a row shows its text.",
  ], body => body.append(h("p", {}, data.sentence), kit.table([
    column("sequence", "number", String), column("loss", "loss", number), column("share of losses", "loss_share", percent),
    column("gradient norm", "norm", number), column("share of norms", "norm_share", percent),
    column("cosine", "cosine", x => number(x, 3)), column("effect on held-out loss", "effect", signed),
    { title: "text", value: start, text: one => h("span", { class: "mono" }, start(one)) },
  ], sequences, { by: 4, pick: one => document.getElementById(id(one)).scrollIntoView() }),
  h("p", { class: "small" }, data.xray ? h("a", { href: data.xray }, "The step, event by event") : ["The step, event by event: ", h("code", {}, data.command)])));

  const token = one => (label, i) => {
    const loss = one.losses[i], color = kit.ramp("sequential", loss / most), style = { background: kit.rgb(color), color: kit.inkOn(color) };
    return h("span", { "data-tip": `${JSON.stringify(label)}: loss ${number(loss)}`, style }, label.replace(/\n/g, "⏎").replace(/\t/g, "⇥"));
  };
  const texts = kit.panel("texts", "Losses of tokens", [
    "The colour of a token is its loss, the negative logarithm of the probability that the model gave to it before the step. The first token of a sequence, which is not predicted, is left out.",
  ], body => body.append(kit.scale("sequential", "loss 0", number(most, 3)), ...sequences.map(one => {
    const tokens = h("div", { class: "mono", style: { whiteSpace: "pre-wrap", overflowWrap: "anywhere", lineHeight: "1.8" } });
    kit.drawn(tokens, () => tokens.replaceChildren(...one.labels.map(token(one))));
    const title = `Sequence ${one.number}: loss ${number(one.loss)}, ${percent(one.norm_share)} of the gradient norms`;
    return h("div", { id: id(one) }, h("h3", {}, title), kit.tooltip(tokens, event => event.target.dataset?.tip));
  })));
  kit.test("every token has a tooltip", ({ assert }) => assert(document.querySelectorAll("#texts [data-tip]").length === sequences.length * sequences[0].labels.length, "some have none"));
  return kit.page(document.title, step, [table, texts]);
});
