"""GPTQModel on the CPU: 4 bits in groups of 64, on the windows that `diffquant quantize --method
gptq` takes of the same text. Prints seconds and peak memory as JSON, imports left out.

    python gptq_peer.py MODEL TEXT WINDOWS CONTEXT OUT THREADS
"""
import json
import os
import resource
import sys
import time

os.environ["GPTQMODEL_CPU_WORKERS"] = sys.argv[6]   # on two cores it refuses its own choice, 1

import torch
import transformers
from gptqmodel import GPTQModel, QuantizeConfig


def main():
    model, text, windows, context, out, threads = sys.argv[1:7]
    windows, context = int(windows), int(context)
    torch.set_num_threads(int(threads))
    begin = time.monotonic()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    ids = tokenizer(open(text, encoding="utf-8").read(), add_special_tokens=False)["input_ids"]
    rows = []
    for i in range(windows):
        row = [tokenizer.bos_token_id] + ids[i * (context - 1):(i + 1) * (context - 1)]
        rows.append({"input_ids": row, "attention_mask": [1] * len(row)})
    config = QuantizeConfig(bits=4, group_size=64, sym=True, desc_act=True, device="cpu")
    peer = GPTQModel.load(model, config)
    peer.quantize(rows, batch_size=8)
    peer.save(out)
    print()
    print(json.dumps({"seconds": time.monotonic() - begin, "windows": len(rows),
                      "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


if __name__ == "__main__":
    main()
