// The page of one recorded step.
"use strict";
kit.start(data => {
  const step = xray.step(data), { made = {}, left_out: leftOut = [] } = data;
  const panels = [xray.tape(step), xray.player(step), xray.graph(step), xray.inspector(step), xray.memory(step), xray.health(step), xray.cost(step)];
  if (data.lesson) panels.push(xray.order(step));
  panels.push(xray.compare(step));
  const threads = made.threads && `${made.threads} ${made.threads === 1 ? "thread" : "threads"}`;
  const facts = [made.version && `retrograd ${made.version}`, made.cpu, made.level, threads, made.dtype, `${step.operations.length} operations, ${step.events.length} events`,
    made.loss !== undefined && `loss ${kit.number(made.loss, 6)}`];
  const page = kit.page(data.title ?? "One recorded step", facts.filter(f => f).join(" · "), panels);
  if (leftOut.length) page.append(kit.h("p", { class: "soft small" }, `To keep this file small, it leaves out: ${leftOut.join("; ")}.`));
  return page;
});
