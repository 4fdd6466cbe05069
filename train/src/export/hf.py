"""Hugging Face's transformers."""
import torch
import transformers


def load(path, vocab):
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype="auto").float().eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)

    def begin():
        cache = None

        def step(new):
            nonlocal cache
            with torch.inference_mode():
                output = model(torch.tensor([new]), past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            return output.logits[0, -1].tolist()

        return step

    def agrees(text, tokens):
        read = tokenizer(text, add_special_tokens=False)["input_ids"]
        return read == tokens and tokenizer.decode(tokens) == text

    return f"transformers {transformers.__version__}", begin, agrees, None
