// The graph: operations, parameters and folded modules as boxes.
"use strict";
xray.graph = step => {
  const { h, s, number } = kit;
  const { nodes, events, values, modules, life, operations, placeOf, title, inModule, shape, moduleColor, stateOf, arrivedAt, isBad, choose, watch, ancestors, children } = step;
  const MOST_BOXES = 300;
  const plural = n => `${kit.count(n)} ${n === 1 ? "operation" : "operations"}`;
  const opened = new Set();
  // Without a choice, small graphs are unfolded.
  const usual = modules.length <= 1 || nodes.length <= 24 ? [...modules.keys()] : [0];
  const read = () => { opened.clear(); (kit.get("open")?.split(",").filter(m => m).map(Number) ?? usual).filter(m => modules[m]).forEach(m => opened.add(m)); };
  read();
  const unfolded = m => [...new Set([...opened, ...ancestors(m)])].join(",");
  const setOpen = (m, open) => kit.set({ open: open ? unfolded(m) : [...opened].filter(other => other !== m).join(",") });
  // What is found is unfolded and chosen; of a module, its first operation.
  kit.findable(() => [
    ...nodes.map((one, n) => ({ name: title(n), note: `${one.kind === "leaf" ? "variable" : "operation"}${inModule(n)} ${shape(one.shapes[0])}`,
      state: { node: n, open: unfolded(one.module ?? 0), at: "graph", ...one.kind === "op" && Number.isFinite(life[n].forward) ? { event: life[n].forward } : {} } })),
    ...modules.flatMap((m, i) => m.path ? [{ name: m.path, note: `module ${m.type}`, state: { open: unfolded(i), node: operations.find(n => ancestors(nodes[n].module ?? 0).includes(i)) ?? null, at: "graph" } }] : []),
  ]);
  let drawGraph = () => {}, arrange = () => {}, reveal = () => {}, folds = [];
  const tools = h("span", { class: "tools" });
  const boxName = m => modules[m].path || modules[m].type || "model";
  const BOX_WIDTH = 190, BOX_HEIGHT = 46, NAMES = "14px system-ui, sans-serif", NOTES = "12.5px system-ui, sans-serif";
  // As much of a text as has room; of a path, its end.
  const cut = (text, room, font) => { while (text.length > 3 && kit.textWidth(text, font) > room) text = text.slice(0, -2) + "…"; return text; };
  const cutPath = (text, room, font) => { while (text.length > 3 && kit.textWidth(text, font) > room) text = "…" + text.slice(2); return text; };
  const panel = kit.panel("graph", "Graph", [
    "Boxes are operations, parameters, or modules that are folded; lines lead from what is used to what uses it, downwards. Round boxes are parameters, the tensors that are trained. Click a folded module to unfold it. The tree folds and unfolds modules, too, by their triangles and names. Drag the graph to move it, or press arrow keys with Shift; its size is changed by the buttons, or by the wheel with Ctrl.",
    "A dashed frame: not computed yet. A plain frame: the value is there. An orange frame: gradients are arriving (1/2 is one of two). A filled frame: the gradient is complete. Grey: done, and what it kept for the backward pass is freed. Blue: the current event. The width of a line is the norm of the gradient that went through it, on a logarithmic scale. A dotted line carries no gradient, and its tooltip says why.",
  ], body => {
    body.append(h("p", { class: "soft small lead" }, "What is computed from what, and what exists at the current event."));
    const box = (cls) => s("svg", { width: 22, height: 12, class: "graph" }, s("g", { class: `node ${cls}` }, s("rect", { class: "box-of", x: 1.5, y: 1.5, width: 19, height: 9, rx: 2 })));
    const states = h("div", { class: "states" }, [["waiting", "not computed"], ["value", "value"], ["arriving", "gradient arriving"], ["complete", "gradient complete"], ["done", "freed"]].map(([c, text]) => h("span", {}, box(c), " ", text)));
    const treePlace = h("div", { class: "scroll" }), place = h("div", { class: "scroll drawing", tabindex: "0", "aria-label": "Graph" });
    const tool = (name, title, onclick) => h("button", { title, "aria-label": title, onclick }, name);
    const sized = (how, to) => () => { sizing = how; if (to) zoomTo(to()); else arrange(); };
    tools.append(tool("−", "Smaller", sized("free", () => zoom / 1.25)), tool("+", "Larger", sized("free", () => zoom * 1.25)), tool("1:1", "Usual size", sized("free", () => 1)), tool("Fit", "The whole graph", sized("whole")),
      tool("Fill", "Fill the window", () => kit.set({ fill: kit.get("fill") === "graph" ? null : "graph" }, true)));
    body.append(states, h("div", { class: `graph${modules.length > 1 ? "" : " flat"}` }, modules.length > 1 ? treePlace : null, place));
    const inside = modules.map(() => 0);
    for (const i of operations) for (const m of ancestors(nodes[i].module ?? 0)) inside[m]++;
    // The path from the module around it.
    const relative = m => { const around = modules[modules[m].parent].path; return around ? modules[m].path.slice(around.length + 1) : modules[m].path; };
    const treeOf = m => ({ name: m === 0 ? modules[0].path || modules[0].type || "model" : relative(m), note: `${modules[m].type && m ? modules[m].type + ", " : ""}${kit.count(inside[m])}`, module: m, open: opened.has(m), children: children[m].filter(c => inside[c]).map(treeOf) });
    const roots = [treeOf(0)], flat = list => list.flatMap(node => [node, ...flat(node.children)]);
    folds = flat(roots);
    treePlace.append(kit.tree(roots, node => setOpen(node.module, !opened.has(node.module)), (node, open) => setOpen(node.module, open)));
    let views = [];
    drawGraph = () => {
      for (const node of folds) node.show(opened.has(node.module));
      // The box of a node: that of the outermost module around it that is folded, or its own.
      const boxOf = n => { for (const m of ancestors(nodes[n].module ?? 0)) if (!opened.has(m)) return `m${m}`; return `n${n}`; };
      const members = new Map(), order = new Map();
      const used = new Set(operations.flatMap(o => (nodes[o].inputs ?? []).map(i => i.node)).filter(n => n !== undefined));
      const all = [...nodes.keys()].filter(n => placeOf.has(n) || used.has(n));
      for (const n of all) {
        const b = boxOf(n);
        if (!members.has(b)) members.set(b, []);
        members.get(b).push(n);
        const place = placeOf.get(n) ?? Infinity;
        order.set(b, Math.min(order.get(b) ?? Infinity, place));
      }
      // A leaf comes right before its first use.
      const firstUse = new Map();
      for (const o of operations) for (const i of nodes[o].inputs ?? []) if (i.node !== undefined && !firstUse.has(i.node)) firstUse.set(i.node, placeOf.get(o));
      for (const [b, list] of members) if (order.get(b) === Infinity) order.set(b, Math.min(...list.map(n => firstUse.get(n) ?? 0)) - .5);
      const items = [...members.keys()].sort((a, b) => order.get(a) - order.get(b));
      if (items.length > MOST_BOXES) { place.replaceChildren(h("p", { class: "soft" }, `${kit.count(items.length)} boxes are too many to draw at once. Fold some modules in the tree.`)); views = []; return; }
      const edges = new Map();
      for (const o of operations) for (const [k, input] of (nodes[o].inputs ?? []).entries()) {
        if (input.node === undefined) continue;
        const a = boxOf(input.node), b = boxOf(o);
        if (a === b || order.get(a) > order.get(b)) continue;
        const key = `${a} ${b}`;
        if (!edges.has(key)) edges.set(key, { ends: [a, b], uses: [] });
        edges.get(key).uses.push([o, k, input.node]);
      }
      const list = [...edges.values()];
      const { places, lines, width, height } = xray.layered(items, list.map(e => e.ends), item => item?.[0] === "n" && nodes[Number(item.slice(1))].kind === "leaf", BOX_WIDTH, BOX_HEIGHT);
      const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${items.length} boxes` });
      const drawnEdges = list.map((edge, i) => {
        const line = lines[i];
        let d = `M${line[0].x} ${line[0].y + BOX_HEIGHT / 2}`;
        for (let k = 1; k < line.length; k++) {
          const a = line[k - 1], b = line[k], y0 = a.item !== undefined ? a.y + BOX_HEIGHT / 2 : a.y, y1 = b.item !== undefined ? b.y - BOX_HEIGHT / 2 : b.y, m = (y0 + y1) / 2;
          d += `C${a.x} ${m} ${b.x} ${m} ${b.x} ${y1}`;
        }
        const deliveries = edge.uses.flatMap(([o, , n]) => life[n].arrivals.filter(e => events[e].node === o));
        const element = s("path", { class: "edge", d, "stroke-width": 1.4 });
        kit.tooltip(element, () => {
          const done = deliveries.filter(e => e <= step.at);
          if (done.length) return `gradient norm ${number(Math.hypot(...done.map(e => values[events[e].value]?.norm ?? 0)))}`;
          return deliveries.length ? "no gradient yet" : "no gradient goes through this line";
        });
        svg.append(element);
        return { element, deliveries };
      });
      const boxes = items.map(item => {
        const p = places.get(item), inside = members.get(item), isModule = item[0] === "m", m = Number(item.slice(1));
        const one = isModule ? null : nodes[m];
        const isLeaf = one?.kind === "leaf", left = p.x - BOX_WIDTH / 2 + (isLeaf ? 20 : 14), right = p.x + BOX_WIDTH / 2 - (isLeaf ? 16 : 8), room = right - left;
        const name = isModule ? boxName(m) : isLeaf ? one.name : title(m), note = isModule ? plural(inside.filter(n => placeOf.has(n)).length) : shape(one.shapes[0]);
        // The path of an operation is beside its shape; the name of a parameter contains it.
        const path = isModule || isLeaf ? "" : cutPath(step.path(m), room - kit.textWidth(note, NOTES) - 8, NOTES);
        const state = s("text", { x: right, y: p.y - 4, "text-anchor": "end", class: "soft" });
        const element = s("g", { class: "node", "data-box": "1", tabindex: "0", role: "button", "aria-label": `${name} ${note}` },
          s("rect", { class: "box-of", x: p.x - BOX_WIDTH / 2, y: p.y - BOX_HEIGHT / 2, width: BOX_WIDTH, height: BOX_HEIGHT, rx: isLeaf ? 20 : 6 }),
          s("rect", { x: left - 9, y: p.y - 14, width: 3, height: 28, rx: 1.5, style: { fill: moduleColor(inside[0]), stroke: "none" } }),
          s("text", { x: left, y: p.y - 4 }, (isModule || isLeaf ? cutPath : cut)(name, room - (isLeaf ? 0 : 28), NAMES)),
          path ? s("text", { x: left, y: p.y + 15, class: "soft" }, path) : null,
          s("text", { x: path ? right : left, y: p.y + 15, class: "soft", "text-anchor": path ? "end" : "start" }, cut(note, room, NOTES)), state);
        const act = () => isModule ? setOpen(m, true) : choose(m);
        element.addEventListener("click", act);
        element.addEventListener("keydown", e => { if (e.key === "Enter") act(); });
        kit.tooltip(element, () => isModule ? `${modules[m].path || boxName(m)}: click to unfold` : `${title(m)}${inModule(m)}\n${one.shapes.map(shape).join(" ")}`);
        svg.append(element);
        return { element, state, inside, isModule };
      });
      place.replaceChildren(svg);
      views = { svg, width, height, boxes, edges: drawnEdges };
      zoomTo(zoom);
      arrange();
      show();
    };
    // The point of the graph at a place of its window stays there, as far as it can; without a place, that in the middle.
    let zoom = 1;
    function zoomTo(wanted, at = [place.clientWidth / 2, place.clientHeight / 2]) {
      const { svg, width, height } = views;
      if (!svg) return;
      const window = place.getBoundingClientRect(), [x, y] = [window.left + at[0], window.top + at[1]], before = svg.getBoundingClientRect();
      zoom = Math.min(Math.max(wanted, .1), 4);
      svg.setAttribute("width", width * zoom);
      svg.setAttribute("height", height * zoom);
      const after = svg.getBoundingClientRect();
      if (!before.width) return;
      place.scrollLeft += after.left + (x - before.left) / before.width * after.width - x;
      place.scrollTop += after.top + (y - before.top) / before.height * after.height - y;
    }
    // The size that the user chose; else all of the graph, if its texts can be read then. Only on the stage has the window of
    // the graph a height of its own.
    let sizing = "usual";
    arrange = kit.onFrame(() => {
      if (sizing === "free" || !views.svg) return;
      const width = (place.clientWidth - 4) / views.width, isHigh = getComputedStyle(place).maxHeight === "none";
      const whole = Math.min(2, isHigh ? Math.min(width, (place.clientHeight - 4) / views.height) : width);
      zoomTo(sizing === "whole" ? whole : whole < .9 ? 1 : Math.min(whole, kit.get("fill") === "graph" ? 1.7 : 1));
      if (current) follow();
    });
    new ResizeObserver(arrange).observe(place);
    place.addEventListener("wheel", e => {
      if (!e.ctrlKey) return;
      e.preventDefault();
      const box = place.getBoundingClientRect();
      sizing = "free";
      zoomTo(zoom * Math.exp(-e.deltaY / 400), [e.clientX - box.left, e.clientY - box.top]);
    }, { passive: false });
    // Where a drag began; a click that ends one chooses nothing.
    let drag = null;
    place.addEventListener("pointerdown", e => { if (e.button === 0 && e.pointerType !== "touch") drag = { x: e.clientX, y: e.clientY, left: place.scrollLeft, top: place.scrollTop, moved: false }; });
    const release = () => { if (!drag?.moved) drag = null; place.classList.remove("dragged"); setTimeout(() => { drag = null; }); };
    addEventListener("pointermove", e => {
      if (!drag) return;
      if (!(e.buttons & 1)) return release();
      const [dx, dy] = [e.clientX - drag.x, e.clientY - drag.y];
      drag.moved ||= Math.hypot(dx, dy) > 4;
      if (!drag.moved) return;
      place.classList.add("dragged");
      [place.scrollLeft, place.scrollTop] = [drag.left - dx, drag.top - dy];
    });
    for (const end of ["pointerup", "pointercancel"]) addEventListener(end, release);
    place.addEventListener("click", e => { if (drag?.moved) e.stopPropagation(); }, true);
    place.addEventListener("keydown", e => {
      const way = e.shiftKey && { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[e.key];
      if (way) { e.preventDefault(); place.scrollBy(60 * way[0], 60 * way[1]); }
    });
    reveal = n => {
      const found = views.boxes?.find(box => box.inside.includes(n));
      if (found) { current = found.element; follow(); }
    };
    // Scrolls the graph, not the page, so that a box can be seen.
    let current;
    const follow = kit.onFrame(() => {
      const { x, y, width, height } = current.firstChild;
      const [left, top, w, h] = [x, y, width, height].map(l => l.baseVal.value * zoom);
      if (left < place.scrollLeft || left + w > place.scrollLeft + place.clientWidth) place.scrollLeft = left + w / 2 - place.clientWidth / 2;
      if (top < place.scrollTop || top + h > place.scrollTop + place.clientHeight) place.scrollTop = top + h / 2 - place.clientHeight / 2;
    });
    function show() {
      if (!views.boxes) return;
      const e = events[step.at];
      for (const { element, state, inside, isModule } of views.boxes) {
        const ops = inside.filter(n => placeOf.has(n)), list = ops.length ? ops : inside;
        const states = list.map(n => stateOf(n, step.at)), n = list[0];
        const each = name => states.filter(x => x === name).length;
        const whole = !isModule ? states[0] : each("done") === list.length ? "done" : each("done") || each("complete") || each("arriving") ? "arriving" : each("waiting") === list.length ? "waiting" : "value";
        const isCurrent = inside.includes(e.node) || (e.to !== undefined && inside.includes(e.to));
        const bad = inside.some(n => life[n].forward <= step.at && isBad(nodes[n].value) || life[n].arrivals.some(i => i <= step.at && isBad(events[i].value)));
        if (isCurrent && inside.includes(e.node ?? e.to)) { current = element; follow(); }
        element.setAttribute("class", `node ${whole}${isCurrent ? " current" : ""}${bad ? " bad" : ""}${inside.includes(step.chosen) ? " chosen" : ""}`);
        const done = isModule ? states.filter(x => x === "done").length : 0;
        state.textContent = isModule ? whole === "arriving" ? `${done}/${list.length}` : "" : life[n].arrivals.length > 1 && whole === "arriving" ? `${arrivedAt(n, step.at)}/${life[n].arrivals.length}` : "";
      }
      for (const { element, deliveries } of views.edges) {
        const done = deliveries.filter(i => i <= step.at), norm = Math.hypot(...done.map(i => values[events[i].value]?.norm ?? 0));
        element.setAttribute("class", `edge${done.length ? " carried" : ""}${deliveries.length ? "" : " cut"}`);
        element.setAttribute("stroke-width", done.length ? Math.min(6, Math.max(1.2, 4 + .8 * Math.log10(norm || 1e-6))) : 1.4);
      }
    }
    drawGraph();
    watch(show);
  });
  panel.querySelector("h2").after(tools);
  // The graph alone; what it covers is not reached by keys.
  function fill() {
    const isFilled = kit.get("fill") === "graph";
    panel.classList.toggle("filled", isFilled);
    tools.lastChild.setAttribute("aria-pressed", String(isFilled));
    for (const other of document.querySelectorAll(".page > header, nav.contents, .panel")) other.inert = isFilled && other !== panel;
    arrange();
  }
  setTimeout(fill);
  addEventListener("keydown", e => { if (e.key === "Escape" && !/^(INPUT|SELECT|A)$/.test(e.target.tagName)) kit.set({ fill: null }); });
  kit.on((now, before) => {
    if (now.fill !== before.fill) fill();
    if (now.open !== before.open) { read(); drawGraph(); }
    if (now.node !== before.node && step.chosen !== null) reveal(step.chosen);
  });
  kit.test("the tree and the graph fold the same modules", ({ assert }) => {
    const before = kit.get("open") ?? null, triangles = [...panel.querySelectorAll(".tree .fold")], boxes = () => [...panel.querySelectorAll(".node[role=button]")], labels = () => boxes().map(b => b.getAttribute("aria-label"));
    const inner = folds.map(({ module, children }, i) => ({ m: module, triangle: triangles[i], children })).filter(f => f.children.length && f.m > 0).slice(0, 60);
    for (const { m, triangle } of inner) {
      const check = (open, what) => assert(opened.has(m) === open && triangle.getAttribute("aria-expanded") === String(open), `${modules[m].path}: ${what}`);
      kit.set({ open: ancestors(modules[m].parent).join(",") });
      check(false, "its triangle is not that of a folded module");
      const folded = labels().join(), place = labels().findIndex(l => l.startsWith(`${boxName(m)} `));
      triangle.click();
      check(true, "its triangle does not unfold it");
      assert(labels().join() !== folded, `${modules[m].path}: its triangle does not change the graph`);
      triangle.click();
      assert(labels().join() === folded, `${modules[m].path}: its triangle does not fold it again`);
      if (place < 0) continue;
      boxes()[place].dispatchEvent(new MouseEvent("click"));
      check(true, "unfolding it in the graph does not turn its triangle");
    }
    kit.set({ open: "" });
    assert(boxes().length === 1, "the whole model is not folded");
    kit.set({ open: before });
    return inner.length;
  });
  kit.test("every module can be unfolded", async ({ assert, frames, layoutErrors }) => {
    const before = kit.get("open") ?? null;
    let shown = 0;
    for (let m = 0; m < Math.min(modules.length, 200); m++) {
      kit.set({ open: ancestors(m).join(",") });
      if (m % 7 === 0) { await frames(1); const errors = layoutErrors(panel); assert(!errors.length, `${modules[m].path}: ${errors[0]}`); }
      shown++;
    }
    kit.set({ open: before });
    return shown;
  });
  return panel;
};
