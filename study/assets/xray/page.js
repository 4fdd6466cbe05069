// The page of one recorded step.
"use strict";
kit.start(data => {
  const step = xray.step(data), { made = {}, left_out: leftOut = [] } = data;
  // Where there is room, these are seen together with the player; graph and inspector are side by side.
  const findings = xray.findings(step);
  const stage = kit.h("div", { class: "stage" }, xray.tape(step), kit.h("div", { class: "pair" }, xray.graph(step), xray.inspector(step)));
  const panels = [findings, stage, xray.health(step), xray.memory(step), xray.cost(step), data.lesson && xray.order(step), xray.compare(step)];
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
  const player = xray.player(step);
  page.append(player);
  const measure = kit.onFrame(() => {
    const [header, nav] = ["header", "nav"].map(name => page.querySelector(name));
    const top = Math.min(stage.getBoundingClientRect().top + scrollY, header.offsetTop + header.offsetHeight + nav.offsetHeight + 16);
    page.style.setProperty("--player", `${player.offsetHeight + 12}px`);
    stage.style.setProperty("--height", `${innerHeight - top - player.offsetHeight - 12}px`);
  });
  const sizes = new ResizeObserver(measure);
  [document.documentElement, player].forEach(element => sizes.observe(element));
  addEventListener("resize", measure);
  kit.test("tape, graph, inspector and player are seen together", ({ assert }) => {
    if (!matchMedia("(min-width: 1100px) and (min-height: 600px)").matches) return;
    scrollTo(0, stage.getBoundingClientRect().top + scrollY - page.querySelector("nav").offsetHeight - 16);
    const low = player.getBoundingClientRect().top;
    for (const panel of stage.querySelectorAll(".panel")) {
      const { top, bottom, height } = panel.getBoundingClientRect();
      assert(top >= 0 && bottom <= low + 1 && height > 100, `${panel.id} is from ${top} to ${bottom}, the player from ${low}`);
    }
    scrollTo(0, 0);
  });
  return page;
});
