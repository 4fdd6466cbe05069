// The page of one recorded step.
"use strict";
kit.start(data => {
  const step = xray.step(data), { made = {}, left_out: leftOut = [] } = data;
  // Panels that are side by side where there is room.
  const pair = (...panels) => kit.h("div", { class: "pair" }, panels);
  const panels = [xray.tape(step), pair(xray.graph(step), xray.inspector(step)), pair(xray.memory(step), xray.health(step))];
  if (data.lesson) panels.push(pair(xray.cost(step), xray.order(step)), xray.compare(step)); else panels.push(xray.cost(step), xray.compare(step));
  const threads = made.threads && `${made.threads} ${made.threads === 1 ? "thread" : "threads"}`;
  const facts = [made.version && `retrograd ${made.version}`, made.cpu, made.level, threads, made.dtype, `${step.operations.length} operations, ${step.events.length} events`,
    made.loss !== undefined && `loss ${kit.number(made.loss, 6)}${made.shards > 1 ? ` of ${made.shards} shards` : ""}`];
  const page = kit.page(data.title ?? "One recorded step", facts.filter(f => f).join(" · "), panels);
  if (leftOut.length) page.append(kit.h("p", { class: "soft small" }, `Not on this page: ${leftOut.join("; ")}.`));
  // The last element of the page stays at the lower edge of the window.
  page.append(xray.player(step));
  return page;
});
