"""Fake-quantized attention logits by NumPy: tests/golden/logit_quant.json.

q and k are small whole numbers and the scale is 1/4, so that logits are exact in
float32 and only the definition is compared: scale = max|x| / (2^(bits-1) - 1) over
allowed entries, codes rounded half to even, masked entries -inf. One sequence.

    python3 tests/golden/make_logit_quant_golden.py > tests/golden/logit_quant.json
"""
import numpy as np

H, M, D, T = 2, 2, 4, 12
LAMBDA = np.float32(0.4)


def quantized(x, allowed, bits, axes):
    limit = np.float32(2 ** (bits - 1) - 1)
    top = np.max(np.abs(np.where(allowed, x, 0)), axis=axes, keepdims=True)
    scale = top / limit
    with np.errstate(invalid="ignore", divide="ignore"):
        codes = np.where(scale == 0, 0, np.clip(np.rint(x / scale), -limit, limit))
    return (codes * scale).astype(np.float32)


def attention(logits, allowed, v):
    x = np.where(allowed, logits, -np.inf).astype(np.float64)
    a = np.exp(x - x.max(axis=-1, keepdims=True))
    a /= a.sum(axis=-1, keepdims=True)
    diff = a[:, 0] - np.float64(LAMBDA) * a[:, 1]          # [H,T,T]
    return np.einsum("hts,shc->thc", diff, v.astype(np.float64))


def listed(name, x):
    return '"%s": [%s]' % (name, ", ".join("%.9g" % n for n in np.ravel(x)))


rng = np.random.default_rng(2410)
q = rng.integers(-3, 4, (T, H, M, D)).astype(np.float32)
q *= np.float32([[1, 2], [3, 5]])[None, :, :, None]        # a scale to each map
k = rng.integers(-3, 4, (T, H, M, D)).astype(np.float32)
v = rng.integers(-8, 9, (T, H, M * D)).astype(np.float32)
q[:3, 1, 1] = 0                                            # rows without a scale
logits = np.einsum("thmd,shmd->hmts", q, k) * np.float32(0.25)
allowed = np.tril(np.ones((T, T), bool))
parts = [listed("q", q), listed("k", k), listed("v", v)]
for bits in (4, 6, 8):
    for name, axes in (("tensor", (0, 1, 2, 3)), ("head", (2, 3)), ("row", (3,))):
        x = quantized(logits, allowed, bits, axes)
        parts.append(listed("out_%d_%s" % (bits, name), attention(x, allowed, v)))
print("{\n" + ",\n".join(parts) + "\n}")
