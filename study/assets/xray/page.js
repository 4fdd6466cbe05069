// The page of one recorded step.
"use strict";
kit.start(data => {
  const step = xray.step(data), { made = {}, left_out: leftOut = [] } = data;
  // Panels that are side by side where there is room.
  const pair = (...panels) => kit.h("div", { class: "pair" }, panels);
  const panels = [xray.findings(step), xray.tape(step), pair(xray.graph(step), xray.inspector(step)), xray.health(step), xray.memory(step), xray.cost(step), data.lesson && xray.order(step), xray.compare(step)];
  kit.test("no table is cut beside free room", ({ assert }) => {
    for (const table of document.querySelectorAll(".panel .scroll > table:not(.numbers)")) {
      const place = table.parentElement, row = document.querySelector(".page").clientWidth;
      assert(place.scrollWidth <= place.clientWidth + 1 || place.clientWidth > row - 120, `a table of ${place.closest(".panel").id} is ${place.scrollWidth} wide in ${place.clientWidth} of ${row}`);
    }
  });
  const threads = made.threads && `${made.threads} ${made.threads === 1 ? "thread" : "threads"}`;
  const facts = [made.version && `retrograd ${made.version}`, made.cpu, made.level, threads, made.dtype, `${kit.count(step.operations.length)} operations, ${kit.count(step.events.length)} events`,
    made.loss !== undefined && `loss ${kit.number(Number(made.loss), 6)}${made.shards > 1 ? ` of ${made.shards} shards` : ""}`];
  const page = kit.page(data.title ?? "One recorded step", facts.filter(f => f).join(" · "), panels.filter(p => p));
  if (leftOut.length) page.append(kit.h("p", { class: "soft small" }, `Not on this page: ${leftOut.join("; ")}.`));
  // The last element of the page stays at the lower edge of the window.
  page.append(xray.player(step));
  return page;
});
