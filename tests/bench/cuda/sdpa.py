"""Times of torch's scaled_dot_product_attention, for the shapes of bench_attention.c.

    python3 sdpa.py [-o sdpa.json]

Causal, one sequence, bfloat16 and float32. A differential head is two softmaxes over values
twice as wide as its keys, which the fused kernels of torch do not take: as in the authors'
code, values are cut in two and attention runs four times. The subtraction is timed, the norm
after it is not. The median of 20 runs after 3. Needs torch with CUDA; without it: SKIP.
"""
import argparse
import json
import statistics
import sys

SHAPES = [  # name, heads, maps, d, dv
    ("diff", 24, 2, 64, 128),
    ("plain d64", 48, 1, 64, 64),
    ("plain d128", 24, 1, 128, 128),
]
LENGTHS = [1024, 2048, 4096, 8192, 16384]
MOST_F32 = 4096
WARM_UP, RUNS = 3, 20


def attention(torch, heads, maps, d, dv, T, dtype):
    """A function of no arguments that does it once."""
    sdpa = torch.nn.functional.scaled_dot_product_attention

    def numbers(width):
        return torch.randn(1, heads, T, width, device="cuda", dtype=dtype)

    if maps == 1:
        q, k, v = numbers(d), numbers(d), numbers(dv)
        return lambda: sdpa(q, k, v, is_causal=True)
    q, k = [numbers(d) for _ in range(2)], [numbers(d) for _ in range(2)]
    v = [numbers(dv // 2) for _ in range(2)]

    def differential():
        halves = [[sdpa(q[m], k[m], v[i], is_causal=True) for i in range(2)] for m in range(2)]
        first, second = (torch.cat(h, dim=-1) for h in halves)
        return first - 0.4 * second

    return differential


def median_ms(torch, run):
    times = []
    for i in range(WARM_UP + RUNS):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        run()
        ended.record()
        torch.cuda.synchronize()
        if i >= WARM_UP:
            times.append(began.elapsed_time(ended))
    return statistics.median(times)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("-o", "--out", help="JSON, for bench_cuda --sdpa")
    args = p.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("SKIP: torch is not installed")
    if not torch.cuda.is_available():
        sys.exit("SKIP: torch sees no CUDA device")
    rows = []
    for name, heads, maps, d, dv in SHAPES:
        for dtype, short in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
            for T in LENGTHS:
                if short == "f32" and T > MOST_F32:
                    continue
                ms = median_ms(torch, attention(torch, heads, maps, d, dv, T, dtype))
                rows.append({"name": f"{name} {short}", "T": T, "ms": ms})
                print(f"{name + ' ' + short:24} {T:6} {ms:9.3f} ms", flush=True)
    if args.out:
        with open(args.out, "w") as f:
            json.dump({"torch": torch.__version__, "device": torch.cuda.get_device_name(),
                       "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
