"""make_gptq_golden.py - GPTQ as its authors' code does it, in NumPy and double.

Writes gptq/inputs.bin and one file of expected codes a scheme for
tests/quant/test_gptq.c. Needs NumPy alone:
    python tests/golden/make_gptq_golden.py

inputs.bin       weights [N,K] i16 (times 2^-12), inputs [T,K] i8 (times 2^-4)
<scheme>.bin     codes [N,K] i8, scales [N,groups] f32, zeros [N,groups] i8,
                 error f64: sum over rows of d G d^T, d = w - w', G = X^T X
Scales are those of plain rounding, found before anything is rounded, in the
columns' own order (static groups), and stored as f16.

The inputs are the first for which no weight comes within MARGIN of the middle
between two codes: there f32 and double may part, and every column after it with
them.
"""
import pathlib

import numpy as np

N, K, T = 64, 256, 320
DEAD = (17, 200)
SCHEMES = {  # bits, group, asymmetric
    "w4_g32": (4, 32, False), "w4_g32_asym": (4, 32, True),
    "w4_g64": (4, 64, False), "w4_g64_asym": (4, 64, True),
    "w4": (4, K, False), "w4_asym": (4, K, True),
    "w6_g64": (6, 64, False),
}
PERCENT, BLOCK, MARGIN = 0.01, 128, 4e-6


def make_inputs(rng):
    """Channels that go together and differ in size, two that are always 0."""
    mix = rng.standard_normal((24, K)) * rng.lognormal(0, 1, (24, 1))
    x = rng.standard_normal((T, 24)) @ mix * 0.12 + rng.standard_normal((T, K)) * 0.2
    x *= rng.lognormal(0, 0.4, K)
    x = np.clip(np.rint(x * 16), -127, 127).astype(np.int8)
    x[:, DEAD] = 0
    w = np.rint(rng.standard_normal((N, K)) * 0.03 * 4096)
    w[3, 40] = 4096  # outlier of a row
    w[5] = 0         # row of zeros
    w[6] = 77        # constant row
    return w.astype(np.int16), x


def find_scales(w, bits, group, asym):
    lo, hi = -2.0 ** (bits - 1), 2.0 ** (bits - 1) - 1
    parts = w.reshape(N, K // group, group)
    low, high = np.minimum(parts.min(2), 0), np.maximum(parts.max(2), 0)
    scale = (high - low) / (hi - lo) if asym else np.maximum(-low, high) / hi
    scale = scale.astype(np.float32).astype(np.float16).astype(np.float64)
    scale[(low == 0) & (high == 0)] = 1
    zero = np.clip(np.rint(lo - low / scale), lo, hi) if asym else np.zeros_like(scale)
    zero[(low == 0) & (high == 0)] = 0
    return scale, zero, lo, hi


def gptq(w, x, bits, group, asym):
    """Every step in its plainest form. One thing differs: the authors put a 1 on the
    diagonal for a dead input, whatever unit H is in, and it enters the mean that
    damping is a share of. Here it is the mean of the others."""
    w, x = w.astype(np.float64), x.astype(np.float64)
    h = 2 / T * (x.T @ x)
    dead = np.diag(h) == 0
    h[dead, dead] = np.mean(np.diag(h)[~dead])
    w[:, dead] = 0
    scale, zero, lo, hi = find_scales(w, bits, group, asym)
    order = np.argsort(-np.diag(h), kind="stable")
    w, h = w[:, order], h[order][:, order]
    h[np.arange(K), np.arange(K)] += PERCENT * np.mean(np.diag(h))
    u = np.linalg.cholesky(np.linalg.inv(h)).T
    codes, back, margin = np.zeros((N, K)), np.zeros((N, K)), 1.0
    for start in range(0, K, BLOCK):
        end = min(start + BLOCK, K)
        err = np.zeros((N, end - start))
        for i in range(start, end):
            s, z = scale[:, order[i] // group], zero[:, order[i] // group]
            place = w[:, i] / s + z
            margin = min(margin, np.min(np.abs(place - np.floor(place) - 0.5)))
            codes[:, i] = np.clip(np.rint(place), lo, hi)
            back[:, i] = s * (codes[:, i] - z)
            err[:, i - start] = (w[:, i] - back[:, i]) / u[i, i]
            w[:, i:end] -= np.outer(err[:, i - start], u[i, i:end])
        w[:, end:] -= err @ u[start:end, end:]
    undo = np.argsort(order)
    return codes[:, undo], back[:, undo], scale, zero, margin


def main():
    folder = pathlib.Path(__file__).parent / "gptq"
    folder.mkdir(exist_ok=True)
    for seed in range(1000):
        stored_w, stored_x = make_inputs(np.random.default_rng(seed))
        w, x = stored_w / 4096, stored_x / 16
        results = {name: gptq(w, x, *scheme) for name, scheme in SCHEMES.items()}
        if min(r[4] for r in results.values()) > MARGIN:
            break
    print("seed", seed)
    (folder / "inputs.bin").write_bytes(stored_w.tobytes() + stored_x.tobytes())
    for name, (codes, back, scale, zero, _) in results.items():
        error = float(np.sum((x @ (w - back).T) ** 2))
        (folder / f"{name}.bin").write_bytes(
            codes.astype(np.int8).tobytes() + scale.astype(np.float32).tobytes()
            + zero.astype(np.int8).tobytes() + np.float64(error).tobytes())
        print(f"{name}: relative error {(error / np.sum((x @ w.T) ** 2)) ** 0.5:.5f}")


if __name__ == "__main__":
    main()
