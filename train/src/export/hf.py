"""Continues prompts greedily with Hugging Face's transformers."""
import time

import torch
import transformers


def run(path, prompts, vocab):
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype="auto").float().eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    results = []
    for prompt in prompts:
        new, cache, rows, tokens = prompt["tokens"], None, [], []
        text = prompt["text"]
        agrees = text is None or (
            tokenizer(text, add_special_tokens=False)["input_ids"] == new and tokenizer.decode(new) == text
        )
        start = time.perf_counter()
        with torch.inference_mode():
            for _ in range(prompt["count"]):
                output = model(torch.tensor([new]), past_key_values=cache, use_cache=True)
                cache = output.past_key_values
                rows.append(output.logits[0, -1])
                new = [int(rows[-1].argmax())]
                tokens += new
        seconds = time.perf_counter() - start
        results.append({
            "tokens": tokens, "logits": [row.tolist() for row in rows], "seconds": seconds,
            "of_text": tokens if agrees else [],
        })
    return f"transformers {transformers.__version__}", results
