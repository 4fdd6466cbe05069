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
      clock_time_get(_, __, at) { view().setBigUint64(at, BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e6)), true); return 0; },
      random_get(at, length) { crypto.getRandomValues(new Uint8Array(exports.memory.buffer, at, length)); return 0; },
      // What is printed is the message of a panic.
      fd_write(_, parts, count, written) {
        let sum = 0;
        for (let i = 0; i < count; i++) {
          const at = view().getUint32(parts + 8 * i, true), length = view().getUint32(parts + 8 * i + 4, true);
          said += decoder.decode(new Uint8Array(exports.memory.buffer, at, length));
          sum += length;
        }
        view().setUint32(written, sum, true);
        return 0;
      },
      ...Object.fromEntries(["environ_sizes_get", "args_sizes_get"].map(name => [name, (a, b) => { view().setUint32(a, 0, true); view().setUint32(b, 0, true); return 0; }])),
      environ_get: () => 0, args_get: () => 0, sched_yield: () => 0,
      fd_prestat_get: () => 8, // no folders
      proc_exit(code) { throw new Error(`the engine ended with the code ${code}`); },
    };
    const named = WebAssembly.Module.imports(module).filter(one => one.kind === "function");
    return { wasi_snapshot_preview1: Object.fromEntries(named.map(({ name }) => [name, known[name] ?? (() => 52)])) };
  }
  // An answer of the module: {kind, value}.
  function ask(request) {
    const bytes = encoder.encode(JSON.stringify(request));
    const at = exports.request(bytes.length);
    new Uint8Array(exports.memory.buffer, at, bytes.length).set(bytes);
    const length = exports.respond(), from = exports.response();
    const answer = new Uint8Array(exports.memory.buffer, from, length), kind = String.fromCharCode(answer[0]);
    if (kind === "b") return { kind, value: answer.slice(1) };
    const text = decoder.decode(answer.subarray(1));
    return { kind, value: kind === "j" ? JSON.parse(text) : text };
  }
  // The sentence of a panic: what follows the place where it happened.
  const reason = error => said.trim().split("\n").filter(line => !/^note: |^thread |^stack/.test(line)).pop() ?? error.message;
  function guarded(id, f) {
    try { return f(); } catch (error) {
      training = false;
      postMessage({ id, kind: "e", value: reason(error), ended: true });
      close();
    }
  }
  // Steps for about a fortieth of a second, then whatever the page asked for.
  const channel = new MessageChannel();
  function more() {
    if (!training) return;
    guarded(null, () => {
      const losses = [], began = performance.now();
      let step;
      do {
        const { kind, value } = ask({ train: { steps: 1 } });
        if (kind === "e") { training = false; postMessage({ id: null, kind, value }); return; }
        losses.push(...value.losses);
        step = value.step;
      } while (performance.now() - began < 25);
      postMessage({ id: null, kind: "train", value: { step, losses, milliseconds: performance.now() - began } });
      channel.port2.postMessage(null);
    });
  }
  channel.port1.onmessage = more;
  onmessage = ({ data: { id, request } }) => {
    if (request.module) {
      module = request.module;
      exports = new WebAssembly.Instance(module, imports()).exports;
      exports._initialize?.();
      return postMessage({ id, kind: "j", value: null });
    }
    if (request.training !== undefined) {
      const before = training;
      training = request.training;
      if (training && !before) channel.port2.postMessage(null);
      return postMessage({ id, kind: "j", value: training });
    }
    guarded(id, () => postMessage({ id, ...ask(request) }));
  };
}
