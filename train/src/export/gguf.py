"""Continues prompts greedily with llama.cpp (the package xllamacpp)."""
import time

import xllamacpp


def run(path, prompts, vocab):
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 0  # that of the model
    params.n_parallel = 1
    params.warmup = False
    params.fit_params = False
    params.cpuparams.n_threads = 1
    params.cache_type_k = xllamacpp.ggml_type.GGML_TYPE_F32
    params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(params)

    def complete(prompt, count, probabilities):
        done = server.handle_completions({
            "prompt": prompt, "n_predict": count, "temperature": 0.0, "samplers": ["temperature"],
            "n_probs": probabilities, "ignore_eos": True, "cache_prompt": False,
        })
        if "choices" not in done:
            raise RuntimeError(str(done)[:500])
        return done["choices"][0]["logprobs"]["content"]

    results = []
    for prompt in prompts:
        rows, steps = [], complete(prompt["tokens"], prompt["count"], vocab)
        for step in steps:
            row = [None] * vocab
            for token in step["top_logprobs"]:
                row[token["id"]] = token["logprob"]
            rows.append(row)
        start = time.perf_counter()
        of_text = complete(prompt["text"] or prompt["tokens"], prompt["count"], 1)
        seconds = time.perf_counter() - start
        results.append({
            "tokens": [step["id"] for step in steps], "logits": rows,
            "of_text": [step["id"] for step in of_text], "seconds": seconds,
        })
    return f"llama.cpp in xllamacpp {xllamacpp.__version__}", results
