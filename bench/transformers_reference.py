#!/usr/bin/env python3
"""Times the transformers class on a small model: the number the CPU backend is compared with (design §13).

  python3 bench/transformers_reference.py --model models/tiny-glm5next [--dtype float32] [--threads 2]

Needs torch and transformers (5.17) in the Python that runs it; not part of CI. Prints one JSON object: seconds of a
2,048-token prefill and milliseconds a decoded token (batch 1, cached, greedy), each the median and minimum of its runs.
"""
import argparse, json, os, platform, statistics, time

import torch
import transformers
from transformers import Glm5NextForConditionalGeneration


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--model", default="models/tiny-glm5next")
    ap.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    ap.add_argument("--threads", type=int, default=os.cpu_count())
    ap.add_argument("--prompt", type=int, default=2048)
    ap.add_argument("--tokens", type=int, default=64)
    ap.add_argument("--runs", type=int, default=5)
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    model = Glm5NextForConditionalGeneration.from_pretrained(a.model, dtype=getattr(torch, a.dtype)).eval()
    vocabulary = 2500 if model.config.text_config.vocab_size > 2500 else model.config.text_config.vocab_size
    ids = torch.randint(0, vocabulary, (1, a.prompt))
    prefill, decode = [], []
    with torch.inference_mode():
        for run in range(a.runs + 1):
            start = time.perf_counter()
            out = model(input_ids=ids, use_cache=True, logits_to_keep=1)
            middle = time.perf_counter()
            token = out.logits[:, -1:].argmax(-1)
            for _ in range(a.tokens):
                out = model(input_ids=token, past_key_values=out.past_key_values, use_cache=True)
                token = out.logits[:, -1:].argmax(-1)
            end = time.perf_counter()
            if run == 0:
                continue  # warm-up
            prefill.append(middle - start)
            decode.append((end - middle) / a.tokens * 1e3)
    print(json.dumps({
        "what": "transformers Glm5NextForConditionalGeneration", "model": os.path.basename(a.model.rstrip("/")),
        "transformers": transformers.__version__, "torch": torch.__version__, "dtype": a.dtype, "threads": a.threads,
        "machine": platform.machine(), "prompt_tokens": a.prompt, "decoded_tokens": a.tokens, "runs": a.runs,
        "prefill_s": {"median": round(statistics.median(prefill), 4), "min": round(min(prefill), 4)},
        "decode_ms_per_token": {"median": round(statistics.median(decode), 3), "min": round(min(decode), 3)},
    }))


if __name__ == "__main__":
    main()
