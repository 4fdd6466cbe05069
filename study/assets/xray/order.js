// Gradients by naive recursion beside those of the engine.
"use strict";
xray.order = step => {
  const { h, number } = kit;
  const { life, operations, title } = step;
  return kit.panel("order", "Why the order matters", [
    "An implementation that calls the rule of an operation whenever a gradient arrives, by recursion, uses a gradient that is not yet complete. A node that is used twice is then differentiated twice, and what it passes on the second time contains the first.",
    "The engine differentiates a node once, when all operations that use it have been differentiated: in the reverse order of their creation.",
  ], body => {
    body.append(h("p", { class: "soft small lead" }, "What an implementation computes that calls rules in another order than the engine."));
    const { rows, visits, naive_visits: naive } = step.data.lesson, wrong = rows.filter(r => !r.equal);
    body.append(h("p", {}, wrong.length ? `In this graph, recursion calls ${naive} rules instead of ${visits}, and ${wrong.length} of ${rows.length} gradients are wrong.` : `In this graph no operation that is used twice has inputs of its own, so recursion gives the same gradients, ${naive === visits ? `with as many calls of rules: ${visits}` : `in ${naive} calls of rules instead of ${visits}`}.`),
      ...operations.filter(n => wrong.length && life[n].arrivals.length > 1).slice(0, 3).map(n => h("p", { class: "small" }, `${title(n)} receives ${life[n].arrivals.length} gradients. Recursion calls its rule for each of them, with the sum so far; the engine calls it once, with the whole sum.`)),
      kit.table([{ title: "variable", value: r => r.name }, { title: "uses", num: true, value: r => r.uses }, { title: "norm of the gradient", num: true, value: r => r.right, text: r => number(r.right, 6) },
        { title: "by recursion", num: true, value: r => r.wrong, text: r => r.equal ? number(r.wrong, 6) : h("span", { class: "bad" }, number(r.wrong, 6)) }], rows));
  });
};
