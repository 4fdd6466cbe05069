// The tape: all operations in a row, forward and back.
"use strict";
xray.tape = step => {
  const { h } = kit;
  const { nodes, events, life, operations, placeOf, title, groupName, inModule, shape, moduleColor, stateOf, isBad, go, choose, watch, NEVER } = step;
  // The colours of variables, which a canvas does not know. They are found again when the page is light or dark.
  const colors = new Map();
  function resolved(color) {
    if (!colors.has(color)) {
      resolved.probe ??= document.body.appendChild(h("span", { hidden: true }));
      resolved.probe.style.color = color;
      colors.set(color, getComputedStyle(resolved.probe).color);
    }
    return colors.get(color);
  }
  return kit.panel("tape", "Tape", [
    "The forward pass computes the loss, a single number that training makes smaller. Each column is an operation, in the order in which it ran; the upper row is this pass, from left to right. The backward pass computes the gradient of every result: how much the loss changes with it. It is the lower row, from right to left, because the gradient of a result is known only after those of everything computed from it.",
    "A cell is pale until it is computed, and again when its operation is done. Where the lower row has no cell, no gradient goes. A red bar marks a value that is not finite: NaN or infinite. Arcs lead to the operations that computed the inputs of the current one: in the backward pass, its gradients go there. The colour is that of the module, a part of the model. matmul #3 is the operation number 3, counted from 0.",
    "Click a column to choose its operation and to go to the moment it is computed (upper row) or differentiated (lower row). Arrow keys, Home, End and space move through the events.",
  ], body => {
    body.append(h("p", { class: "soft small lead" }, "All operations of the step, in the order in which they run: forward to the right, then backward to the left."));
    const canvas = h("canvas", { height: 150, role: "img", "aria-label": "The events of the step" });
    const place = h("div", { class: "tape" }, canvas);
    body.append(place);
    const n = operations.length, ROW = 26, TOP = 20, ARCS = 40;
    const geometry = width => ({ cell: width / n, forward: TOP, backward: TOP + ROW + ARCS });
    let width = 0;
    function draw(w) {
      if (w !== undefined) { width = w; colors.clear(); }
      if (!width) return;
      const density = Math.min(devicePixelRatio || 1, 2), height = TOP + 2 * ROW + ARCS + 16;
      canvas.width = width * density; canvas.height = height * density; canvas.style.height = `${height}px`;
      const c = canvas.getContext("2d");
      c.scale(density, density);
      const { cell, forward, backward } = geometry(width), gap = cell > 5 ? 1 : 0;
      const color = i => resolved(moduleColor(i));
      c.font = "13px system-ui, sans-serif"; c.textBaseline = "middle";
      // Names of modules over their operations, where there is room.
      let free = 0;
      for (let i = 0; i < n;) {
        let j = i;
        const top = moduleColor(operations[i]);
        while (j < n && moduleColor(operations[j]) === top) j++;
        const text = groupName(operations[i]);
        const x = i * cell, wide = c.measureText(text).width;
        if (text && wide < (j - i) * cell - 4 && x >= free && x + wide < width - 70) { c.fillStyle = color(operations[i]); c.fillText(text, x + 1, TOP / 2); free = x + wide + 6; }
        i = j;
      }
      operations.forEach((node, i) => {
        const x = i * cell, w = Math.max(.75, cell - gap);
        const state = stateOf(node, step.at), computed = state !== "waiting";
        c.fillStyle = color(node);
        c.globalAlpha = computed ? state === "done" ? .45 : 1 : .14;
        c.fillRect(x, forward, w, ROW);
        c.globalAlpha = life[node].rule <= step.at ? 1 : life[node].rule === NEVER ? 0 : .14;
        c.fillRect(x, backward, w, ROW);
        c.globalAlpha = 1;
        // Its name, where there is room.
        const name = nodes[node].name, room = (cell - c.measureText(name).width) / 2;
        if (room > 2) {
          c.fillStyle = resolved(state === "waiting" ? "var(--soft)" : state === "done" ? "var(--ink)" : "var(--panel)");
          c.fillText(name, x + room, forward + ROW / 2);
          c.fillStyle = resolved(life[node].rule <= step.at ? "var(--panel)" : "var(--soft)");
          if (life[node].rule !== NEVER) c.fillText(name, x + room, backward + ROW / 2);
        }
        if (isBad(nodes[node].value)) { c.fillStyle = resolved("var(--bad)"); c.fillRect(x, forward + ROW - 5, Math.max(2, w), 5); }
      });
      const e = events[step.at], current = placeOf.get(e.node);
      if (current !== undefined) {
        const x = (current + .5) * cell, isBackward = e.what !== "forward";
        c.strokeStyle = resolved("var(--mark)");
        const arc = (to, lit) => {
          const p = placeOf.get(to);
          if (p === undefined) return;
          const tx = (p + .5) * cell, base = forward + ROW + 2, low = backward - 2;
          c.globalAlpha = lit ? 1 : .45; c.lineWidth = lit ? 2.2 : 1.2;
          c.beginPath(); c.moveTo(x, isBackward ? low : base);
          const bend = isBackward ? base + 2 : low - 2;
          c.bezierCurveTo(x, bend, tx, bend, tx, isBackward ? low : base);
          c.stroke(); c.globalAlpha = 1;
        };
        for (const input of nodes[e.node].inputs ?? []) if (input.node !== undefined) arc(input.node, e.to === input.node);
        c.lineWidth = 2; c.strokeStyle = resolved("var(--ink)");
        c.strokeRect(current * cell - 1, (isBackward ? backward : forward) - 1, Math.max(4, cell - gap) + 2, ROW + 2);
      }
      if (step.chosen !== null && placeOf.has(step.chosen)) {
        c.fillStyle = resolved("var(--accent)");
        const x = (placeOf.get(step.chosen) + .5) * cell;
        c.beginPath(); c.moveTo(x - 5, backward + ROW + 12); c.lineTo(x + 5, backward + ROW + 12); c.lineTo(x, backward + ROW + 4); c.fill();
      }
      c.fillStyle = resolved("var(--soft)");
      const label = (text, y) => { if (width > 500) { c.textAlign = "right"; c.fillText(text, width - 2, y); c.textAlign = "left"; } };
      label("forward →", TOP / 2);
      if (current === undefined || events[step.at].what === "forward") label("← backward", backward - 10);
    }
    kit.drawn(place, draw);
    watch(() => draw());
    const find = event => {
      const box = canvas.getBoundingClientRect(), i = Math.floor((event.clientX - box.left) / box.width * n);
      return { node: operations[Math.min(Math.max(i, 0), n - 1)], isBackward: event.clientY - box.top > TOP + ROW + ARCS / 2 };
    };
    kit.tooltip(canvas, event => {
      if (event.clientX === undefined) return "";
      const { node, isBackward } = find(event), one = nodes[node];
      return `${title(node)}${inModule(node)}\n${shape(one.shapes[0])}${isBackward ? one.backward_seconds ? `\nbackward ${step.time(one.backward_seconds, one.medians?.[1])}` : "" : one.seconds ? `\nforward ${step.time(one.seconds, one.medians?.[0])}` : ""}`;
    });
    canvas.addEventListener("click", event => {
      const { node, isBackward } = find(event);
      choose(node);
      const to = isBackward ? life[node].rule : life[node].forward;
      if (to !== NEVER) go(to);
    });
  });
};
