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

    def complete(prompt, count, **more):
        return server.handle_completions({
            "prompt": prompt, "n_predict": count, "temperature": 0.0, "samplers": ["temperature"], **more,
        })

    def row(prompt):
        # One token at a time: the server ends a text, or changes its probabilities, if a token ends texts.
        done = complete(prompt, 1, n_probs=vocab)
        if "choices" not in done:
            raise RuntimeError(str(done)[:500])
        found = [None] * vocab
        logprobs = done["choices"][0]["logprobs"]
        if logprobs is None:  # the server hides a token that is a part of a character
            return None
        for token in logprobs["content"][0]["top_logprobs"]:
            found[token["id"]] = token["logprob"]
        return found

    results = []
    for prompt in prompts:
        tokens, rows = [], []
        start = time.perf_counter()
        complete(prompt["tokens"], prompt["count"], ignore_eos=True)
        seconds = time.perf_counter() - start
        while len(rows) < prompt["count"] and (next_row := row(prompt["tokens"] + tokens)):
            rows.append(next_row)
            tokens.append(max(range(vocab), key=lambda i: -1e9 if rows[-1][i] is None else rows[-1][i]))
        agrees = prompt["text"] is None or row(prompt["text"]) == row(prompt["tokens"])
        results.append({
            "tokens": tokens, "logits": rows, "of_text": tokens if agrees else [], "seconds": seconds,
        })
    return f"llama.cpp in xllamacpp {xllamacpp.__version__}", results
