"""llama.cpp, in the package xllamacpp."""
import time

import xllamacpp


def load(path, vocab):
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
        found = [-1e9] * vocab
        logprobs = done["choices"][0]["logprobs"]
        if logprobs is None:  # the server hides a token that is a part of a character
            return None
        for token in logprobs["content"][0]["top_logprobs"]:
            found[token["id"]] = token["logprob"]
        return found

    def begin():
        seen = []

        def step(new):
            seen.extend(new)
            return row(seen)

        return step

    def speed(prompt):
        start = time.perf_counter()
        complete(prompt["tokens"], prompt["count"], ignore_eos=True)
        return time.perf_counter() - start

    def agrees(text, tokens):
        return row(text) == row(tokens)

    return f"llama.cpp in xllamacpp {xllamacpp.__version__}", begin, agrees, speed
