// The first difference from another recording.
"use strict";
xray.compare = step => {
  const { h, number } = kit;
  const { events, values, sentence, go, choose } = step;
  function difference(other) {
    if (!other || other.xray === undefined) throw new Error("the file is not the page of a recorded step");
    if (![other.nodes, other.events, other.values].every(Array.isArray)) throw new Error("the file is damaged");
    const mine = events.filter(e => e.value !== undefined && e.value !== null), theirs = (other.events ?? []).filter(e => e.value !== undefined && e.value !== null);
    const same = Math.min(mine.length, theirs.length);
    for (let i = 0; i < same; i++) {
      const a = mine[i], b = theirs[i], name = e => e.d.nodes[e.e.node]?.name;
      if (a.what !== b.what || name({ d: step.data, e: a }) !== name({ d: other, e: b })) return { text: `The recordings contain different operations from event ${events.indexOf(a) + 1} on: ${name({ d: step.data, e: a })} here, ${name({ d: other, e: b })} there.`, event: events.indexOf(a) };
      const va = values[a.value], vb = other.values[b.value];
      if (!va || !vb) throw new Error("the file is damaged, or not the page of a recorded step");
      if (va.digest !== vb.digest) return { text: `The first result whose bits differ: ${sentence(events.indexOf(a))}`, event: events.indexOf(a), va, vb };
    }
    if (mine.length !== theirs.length) return { text: `The first ${same} results have equal bits; one recording has ${Math.abs(mine.length - theirs.length)} more.`, event: null };
    return { text: `All ${same} results have equal bits.`, event: null };
  }
  // The bits of numbers in f32, eight hexadecimal digits each, as integers in the order of the numbers.
  const bitsOf = text => (text.match(/.{8}/g) ?? []).map(digits => parseInt(digits, 16) | 0).map(bits => bits < 0 ? -2147483648 - bits : bits);
  return kit.panel("compare", "Compare with another recording", [
    "Drop the page of another recording here: of another number of threads, instruction set, precision, version, or of yesterday. The panel names the first event whose result has other bits. The histogram counts a sample of its elements by their distance in units in the last place (ULP).",
  ], body => {
    body.append(h("p", { class: "soft small lead" }, "The first result whose bits differ from those of another recording of the same code."));
    const result = h("div", { id: "difference" });
    const read = file => file.text().then(text => {
      const found = /<script type="application\/json" id="data">([\s\S]*?)<\/script>/.exec(text);
      kit.guarded("compare", result, () => {
        let other;
        try { other = JSON.parse(found ? found[1] : text); } catch { throw new Error("the file is damaged, or not the page of a recorded step"); }
        showDifference(other);
      });
    });
    function showDifference(other) {
      const { text, event, va, vb } = difference(other), list = [h("p", {}, h("strong", {}, text))];
      if (event !== null && event !== undefined) list.push(h("button", { onclick() { go(event); choose(events[event].node); } }, "go there"));
      if (va && vb) {
        list.push(kit.table([{ title: "", value: r => r[0] }, { title: "here", num: true, value: r => r[1], text: r => number(r[1], 7) }, { title: "there", num: true, value: r => r[2], text: r => number(r[2], 7) }],
          ["min", "max", "mean", "std", "norm"].map(k => [k, va[k], vb[k]])));
        if (va.sample && vb.sample) {
          const a = bitsOf(va.sample), b = bitsOf(vb.sample), bins = [0, 1, 2, 4, 8, 16, 64, 256, 4096, Infinity], counts = bins.map(() => 0);
          for (let i = 0; i < Math.min(a.length, b.length); i++) counts[bins.findIndex(limit => Math.abs(a[i] - b[i]) <= limit)]++;
          list.push(h("h3", {}, "Distance in ULP"), kit.table([{ title: "at most", value: r => r[0] }, { title: "elements", num: true, value: r => r[1] }], bins.map((limit, i) => [limit === Infinity ? "more" : String(limit), counts[i]]).filter(r => r[1])));
        }
      }
      result.replaceChildren(...list);
    }
    const zone = h("div", { class: "drop", ondragover(e) { e.preventDefault(); zone.classList.add("over"); }, ondragleave() { zone.classList.remove("over"); },
      ondrop(e) { e.preventDefault(); zone.classList.remove("over"); if (e.dataTransfer.files[0]) read(e.dataTransfer.files[0]); } },
      h("label", {}, "Drop a page here, or choose it: ", h("input", { type: "file", accept: ".html,.json", onchange(e) { if (e.target.files[0]) read(e.target.files[0]); } })));
    body.append(zone, result);
    kit.test("a recording has no difference from itself", ({ assert }) => { const { event } = difference(step.data); assert(event === null, "the recording differs from itself"); });
  });
};
