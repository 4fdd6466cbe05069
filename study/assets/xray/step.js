// The recorded step: what happens to each node, the current event and the chosen node.
//
// Nodes are leaves and operations. All panels show the values and gradients that exist at the current event.
"use strict";
const xray = {};
xray.step = data => {
  const { bytes } = kit;
  const SCHEMA = 1, NEVER = Infinity;
  if (data === null || typeof data !== "object" || !("xray" in data)) throw new Error("its data is not that of a recorded step");
  if (data.xray > SCHEMA) throw new Error(`it was made by a newer version (schema ${data.xray}, this page knows ${SCHEMA})`);
  const { nodes = [], events = [], values = [], modules = [] } = data;
  const lists = [nodes, events, values, modules, data.left_out ?? [], data.formulas ?? []];
  if (!lists.every(list => Array.isArray(list))) throw new Error("its data is damaged");
  if (nodes.length === 0 || events.length === 0) throw new Error("nothing was recorded, because no operation had a tracked input");
  // Whatever is named by its number must be there.
  const isIn = list => i => i === undefined || i === null || Number.isInteger(i) && i >= 0 && i < list.length;
  const [isNode, isValue, isModule, isFormula] = [nodes, values, modules, data.formulas ?? []].map(isIn), isList = x => x === undefined || Array.isArray(x);
  const isWhole = lists.slice(0, 4).flat().every(x => x !== null && typeof x === "object") && modules.length > 0
    && modules.every((m, i) => typeof m.path === "string" && Number.isInteger(m.parent) && m.parent >= -1 && m.parent < i)
    && nodes.every(n => typeof n.name === "string" && isModule(n.module) && isValue(n.value) && isFormula(n.formula) && Array.isArray(n.shapes) && n.shapes.every(Array.isArray) && n.shapes.length > 0
      && [n.inputs, n.saved, n.elements, n.rule].every(isList) && (n.inputs ?? []).every(i => isNode(i?.node)) && (n.elements ?? []).every(e => typeof e?.forward === "string" && (e.parts ?? []).every(p => isNode(p?.[0]))))
    && events.every(e => isNode(e.node) && isNode(e.to) && isValue(e.value) && (e.node ?? e.to) !== undefined)
    && values.every(v => Number.isInteger(v.count));
  if (!isWhole) throw new Error("its data is damaged");

  // The numbers of the events in which a node is computed, receives gradients, and is differentiated.
  const life = nodes.map(node => ({ forward: node.kind === "leaf" ? -1 : NEVER, arrivals: [], rule: NEVER, end: NEVER }));
  events.forEach((e, i) => {
    if (e.what === "forward") life[e.node].forward = i;
    else if (e.what === "rule") life[e.node].rule = i;
    else if (e.what === "seed" || e.what === "moved" || e.what === "added") life[e.to].arrivals.push(i);
    else if (e.what === "end") life[e.node].end = i;
  });
  const firstRule = events.findIndex(e => e.what === "rule" || e.what === "seed");
  const half = firstRule < 0 ? events.length - 1 : firstRule;
  const operations = nodes.map((n, i) => i).filter(i => nodes[i].kind === "op").sort((a, b) => life[a].forward - life[b].forward);
  const placeOf = new Map(operations.map((n, place) => [n, place]));
  const arrivedAt = (n, at) => life[n].arrivals.filter(i => i <= at).length;
  function stateOf(n, at) {
    const l = life[n];
    if (l.forward > at) return "waiting";
    if (l.end <= at) return "done";
    const arrived = arrivedAt(n, at);
    if (arrived === 0) return "value";
    return arrived < l.arrivals.length ? "arriving" : "complete";
  }
  const isBad = v => v !== undefined && v !== null && (values[v].nan > 0 || values[v].inf > 0);
  const firstBad = events.findIndex(e => isBad(e.value));

  const update = n => nodes[n].update === undefined ? null : Number(nodes[n].update);
  const checks = nodes.reduce((sum, n) => sum + (n.elements ?? []).filter(one => one.check).length, 0);

  // Names.
  // A name in a script that is written from right to left does not turn the rest of a sentence around.
  const isolated = name => /[\u0590-\u08ff\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufefc]/.test(name) ? `\u2068${name}\u2069` : name;
  const title = n => nodes[n].kind === "leaf" ? isolated(nodes[n].name) : `${isolated(nodes[n].name)} #${placeOf.get(n)}`;
  const path = n => modules[nodes[n].module]?.path ?? "";
  const inModule = n => path(n) ? ` in ${isolated(path(n))}` : "";
  const shape = dims => dims.length ? `[${dims.join(",\u00a0")}]` : "scalar";
  // The module by which nodes are coloured: h.0 of h.0.attn.c_attn, and ln_f of ln_f.
  const group = n => {
    const parts = path(n).split("."), block = parts.findIndex(part => /^\d+$/.test(part));
    return block < 0 ? parts.join(".") : parts.slice(0, block + 1).join(".");
  };
  // Its last part, from the name of the list that it is in.
  const groupName = n => group(n).split(".").slice(/\d$/.test(group(n)) ? -2 : -1).join(".");
  const groups = [...new Set(nodes.map((_, n) => group(n)))].filter(g => g);
  const moduleColors = nodes.map((_, n) => group(n) ? kit.color(groups.indexOf(group(n))) : "var(--c7)"), moduleColor = n => moduleColors[n];
  const children = modules.map(() => []);
  modules.forEach((m, i) => { if (m.parent >= 0) children[m.parent].push(i); });
  // A module and those around it, from the outside in.
  const ancestors = m => { const all = []; for (let i = m; i >= 0; i = modules[i].parent) all.unshift(i); return all; };

  function sentence(i) {
    const e = events[i], where = n => `${title(n)}${inModule(n)}`;
    switch (e.what) {
      case "forward": return `Forward: ${where(e.node)} computes ${shape(nodes[e.node].shapes[0])}.`;
      case "seed": return `Backward begins at ${where(e.to)}, whose gradient is given: 1, the derivative of the loss by itself, unless the caller chose another.`;
      case "rule": return `Backward: the rule of ${where(e.node)} computes the gradients of its inputs from that of its result.`;
      case "moved": return `${title(e.node)} delivers ${life[e.to].arrivals.length > 1 ? `a gradient to ${where(e.to)}: the first of ${life[e.to].arrivals.length}, which is stored` : `its only gradient to ${where(e.to)}`}.`;
      case "added": return `${title(e.node)} delivers a gradient to ${where(e.to)}: number ${arrivedAt(e.to, i)} of ${life[e.to].arrivals.length}, which is added to the sum.`;
      case "end": return `${title(e.node)} is done; what it saved (${bytes((nodes[e.node].saved ?? []).reduce((sum, x) => sum + x.bytes, 0))}) is freed.`;
      default: return `${e.what}`;
    }
  }

  // The least time of several runs, and how far the median is above it.
  const time = (least, median) => kit.seconds(least ?? 0) + (least > 0 && median !== undefined ? ` (spread ${kit.percent(median / least - 1)})` : "");

  // Text with names between backquotes.
  const coded = text => text.split("`").map((part, i) => i % 2 ? kit.h("code", {}, part) : part);

  // The current event and the chosen node, which are in the address of the page.
  const watchers = [];
  const step = { data, nodes, events, values, modules, life, operations, placeOf, firstBad, checks, update, half, NEVER, title, path, inModule, shape, group, groupName, moduleColor,
    children, ancestors, stateOf, arrivedAt, isBad, sentence, coded, time, at: 0, chosen: null, element: 0 };
  const within = event => Math.min(Math.max(Number.isFinite(event) ? event : half, 0), events.length - 1);
  const node = text => text !== undefined && nodes[Number(text)] ? Number(text) : null;
  function read() {
    step.at = within(Number(kit.get("event", half)));
    step.chosen = node(kit.get("node"));
  }
  const changed = () => watchers.forEach(f => f());
  // Calls f now and whenever the event or the choice changes.
  step.watch = f => { watchers.push(f); f(); };
  step.go = event => kit.set({ event: within(event) });
  // A node that is chosen again may be shown with another element.
  step.choose = (n, remember = true) => { if (n === step.chosen) changed(); else kit.set({ node: n }, remember); };
  // The node that is shown if none is chosen.
  step.subject = () => step.chosen ?? events[step.at].node ?? events[step.at].to ?? operations[0];
  kit.on((now, before) => { if (now.event !== before.event || now.node !== before.node) { read(); changed(); } });
  read();
  return step;
};
