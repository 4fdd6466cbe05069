// The position in the step: a slider, buttons, keys, and the current event in words.
"use strict";
xray.player = step => {
  const { h, s } = kit;
  const { events, half, sentence, go, watch } = step;
  let timer = null;
  // The pictures of the buttons, 16 by 16.
  const icon = d => s("svg", { width: 16, height: 16, viewBox: "0 0 16 16", "aria-hidden": "true", style: { display: "inline-block", verticalAlign: "-3px" } }, s("path", { d, fill: "currentColor" }));
  const ICONS = { play: "M4 2L13 8L4 14Z", pause: "M4 2H7V14H4ZM9 2H12V14H9Z", first: "M3 2H5V14H3ZM14 2V14L6 8Z", last: "M13 2H11V14H13ZM2 2V14L10 8Z",
    previous: "M11 3V13L4 8Z", next: "M5 3V13L12 8Z", turn: "M3 3H9A4.5 4.5 0 0 1 9 12H7V15L2 11L7 7V10H9A2.5 2.5 0 0 0 9 5H3Z" };
  const play = h("button", { title: "Play (space)", "aria-label": "Play", onclick: toggle }, icon(ICONS.play));
  function toggle() {
    if (timer) { clearInterval(timer); timer = null; play.replaceChildren(icon(ICONS.play)); return; }
    if (step.at === events.length - 1) go(0);
    play.replaceChildren(icon(ICONS.pause));
    const stride = Math.max(1, Math.round(events.length / 900));
    timer = setInterval(() => { go(step.at + stride); if (step.at === events.length - 1) toggle(); }, 60);
  }
  const jump = (text, name, to) => h("button", { title: name, "aria-label": name, onclick: () => go(to()) }, icon(text));
  const slider = kit.slider({ name: "event", min: 0, max: events.length - 1, value: step.at, text: v => `${kit.count(v + 1)} of ${kit.count(events.length)}`, change: go });
  const what = h("div", { class: "what", "aria-live": "polite" });
  const player = h("div", { class: "player", role: "group", "aria-label": "Position in the step" },
    h("div", { class: "buttons" }, jump(ICONS.first, "First event (Home)", () => 0), jump(ICONS.previous, "Previous event (left arrow)", () => step.at - 1), play,
      jump(ICONS.next, "Next event (right arrow)", () => step.at + 1), jump(ICONS.turn, "Begin of the backward pass", () => half), jump(ICONS.last, "Last event (End)", () => events.length - 1)),
    slider.element, what);
  watch(() => { slider.move(step.at, true); what.textContent = sentence(step.at); });
  addEventListener("keydown", e => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.shiftKey || /^(INPUT|SELECT|TEXTAREA|CANVAS)$/.test(e.target.tagName) || e.target.closest?.("svg[tabindex]")) return;
    const to = { ArrowLeft: step.at - 1, ArrowRight: step.at + 1, Home: 0, End: events.length - 1 }[e.key];
    if (to !== undefined) { e.preventDefault(); go(to); } else if (e.key === " " && e.target.tagName !== "BUTTON") { e.preventDefault(); toggle(); }
  });
  kit.test("every event can be shown", async ({ assert, frames }) => {
    const stride = Math.max(1, Math.floor(events.length / 1500));
    let slowest = 0, shown = 0;
    for (let i = 0; i < events.length; i += stride) {
      const began = performance.now();
      go(i);
      slowest = Math.max(slowest, performance.now() - began);
      assert(what.textContent.length > 10, `event ${i} has no sentence`);
      shown++;
    }
    document.documentElement.dataset.slowestScrub = slowest.toFixed(1);
    await frames(2);
    return shown;
  });
  return player;
};
