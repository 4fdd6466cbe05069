// The engine, in a worker: the module computes, so that the page never waits. The page sends {id, request}; `train`
// requests of its own keep training between others.
"use strict";
function engine() {
  const decoder = new TextDecoder(), encoder = new TextEncoder();
  let module, exports, said = "", training = false;
  // The functions of WASI that the engine calls. Others answer that they are not supported (52).
  function imports() {
    const view = () => new DataView(exports.memory.buffer);
    const known = {
      clock_time_get(_, __, at) { view().setBigUint64(at >>> 0, BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e6)), true); return 0; },
      random_get(at, length) { crypto.getRandomValues(new Uint8Array(exports.memory.buffer, at >>> 0, length)); return 0; },
      // What is printed is the message of a panic.
      fd_write(_, parts, count, written) {
        let sum = 0;
        for (let i = 0; i < count; i++) {
          const place = (parts >>> 0) + 8 * i, at = view().getUint32(place, true), length = view().getUint32(place + 4, true);
          said += decoder.decode(new Uint8Array(exports.memory.buffer, at, length));
          sum += length;
        }
        view().setUint32(written >>> 0, sum, true);
        return 0;
      },
      ...Object.fromEntries(["environ_sizes_get", "args_sizes_get"].map(name => [name, (a, b) => { view().setUint32(a >>> 0, 0, true); view().setUint32(b >>> 0, 0, true); return 0; }])),
      environ_get: () => 0, args_get: () => 0, sched_yield: () => 0,
      fd_prestat_get: () => 8, // no folders
      proc_exit(code) { throw new Error(`the engine ended with the code ${code}`); },
    };
    const named = WebAssembly.Module.imports(module).filter(one => one.kind === "function");
    return { wasi_snapshot_preview1: Object.fromEntries(named.map(({ name }) => [name, known[name] ?? (() => 52)])) };
  }
  // An answer of the module: {kind, value}. Addresses are signed numbers in JavaScript.
  function ask(request) {
    const bytes = encoder.encode(JSON.stringify(request));
    const at = exports.request(bytes.length) >>> 0;
    new Uint8Array(exports.memory.buffer, at, bytes.length).set(bytes);
    const length = exports.respond() >>> 0, from = exports.response() >>> 0;
    const answer = new Uint8Array(exports.memory.buffer, from, length), kind = String.fromCharCode(answer[0]);
    if (kind === "b") return { kind, value: answer.slice(1) };
    const text = decoder.decode(answer.subarray(1));
    return { kind, value: kind === "j" ? JSON.parse(text) : text };
  }
  // The message of a panic, without the place where it happened; else what stopped the module, such as too little memory.
  const reason = error => said.split("\n").filter(line => line.trim() && !/^note: |^thread |^stack/.test(line)).join(" ") || error.message;
  // What fails ends the engine, because nobody knows what is left in its memory.
  function guarded(id, f) {
    try { f(); } catch (error) {
      training = false;
      postMessage({ id, kind: "e", value: reason(error), ended: true });
      close();
    }
  }
  // Steps for about a fortieth of a second, then whatever the page asked for.
  const channel = new MessageChannel();
  let scheduled = false;
  function later() {
    if (scheduled) return;
    scheduled = true;
    channel.port2.postMessage(null);
  }
  channel.port1.onmessage = () => {
    scheduled = false;
    if (training) guarded(null, () => {
      const losses = [], began = performance.now();
      let step, failed = null;
      do {
        const { kind, value } = ask({ train: { steps: 1 } });
        if (kind === "e") { failed = value; break; }
        losses.push(...value.losses);
        step = value.step;
      } while (performance.now() - began < 25);
      if (losses.length) postMessage({ id: null, kind: "train", value: { step, losses, milliseconds: performance.now() - began, bytes: exports.memory.buffer.byteLength } });
      if (failed === null) return later();
      training = false;
      postMessage({ id: null, kind: "e", value: failed });
    });
  };
  onmessage = ({ data: { id, request } }) => guarded(id, () => {
    if (request.module) {
      module = request.module;
      exports = new WebAssembly.Instance(module, imports()).exports;
      exports._initialize?.();
      return postMessage({ id, kind: "j", value: null });
    }
    if (request.training !== undefined) {
      training = request.training;
      if (training) later();
      return postMessage({ id, kind: "j", value: training });
    }
    postMessage({ id, ...ask(request) });
  });
}
