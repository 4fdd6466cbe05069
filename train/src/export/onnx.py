"""Continues prompts greedily with ONNX Runtime."""
import time

import numpy
import onnxruntime


def run(path, prompts, vocab):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]
    caches = {
        name.name: numpy.zeros((1, name.shape[1], 0, name.shape[3]), numpy.float32)
        for name in session.get_inputs() if name.name != "input_ids"
    }
    results = []
    for prompt in prompts:
        feed, rows, tokens = dict(caches), [], []
        new = prompt["tokens"]
        start = time.perf_counter()
        for _ in range(prompt["count"]):
            feed["input_ids"] = numpy.array([new], numpy.int64)
            logits, *present = session.run(outputs, feed)
            feed |= {n.replace("present", "past_key_values"): x for n, x in zip(outputs[1:], present)}
            rows.append(logits[0, -1])
            new = [int(rows[-1].argmax())]
            tokens += new
        seconds = time.perf_counter() - start
        results.append({
            "tokens": tokens, "logits": [row.tolist() for row in rows], "seconds": seconds,
        })
    return f"ONNX Runtime {onnxruntime.__version__}", results
