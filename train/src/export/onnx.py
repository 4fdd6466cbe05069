"""ONNX Runtime."""
import numpy
import onnxruntime


def load(path, vocab):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]

    def begin():
        feed = {
            name.name: numpy.zeros((1, name.shape[1], 0, name.shape[3]), numpy.float32)
            for name in session.get_inputs() if name.name != "input_ids"
        }

        def step(new):
            feed["input_ids"] = numpy.array([new], numpy.int64)
            logits, *present = session.run(outputs, feed)
            feed.update((n.replace("present", "past_key_values"), x) for n, x in zip(outputs[1:], present))
            return logits[0, -1].tolist()

        return step

    return f"ONNX Runtime {onnxruntime.__version__}", begin, None, None
