"""Random checkpoints of models people have: right names, shapes and config.json, for tests
of memory and speed where the weights themselves cannot be had.

    python random_checkpoint.py --list
    python random_checkpoint.py NAME [--layers N] -o FOLDER

bfloat16, sharded safetensors, written in pieces: memory does not grow with the model, and a
gigabyte takes a few seconds. Values are normal, but stretches of one table: good for tests
of memory, speed and arithmetic, not for statistics of independent numbers. A tensor depends
on its name and shape alone, so fewer layers are the first of the whole. Needs torch.
"""
import argparse
import functools
import json
import math
import pathlib
import shutil
import struct
import sys
import zlib

import torch

import random_models

PIECE = 1 << 22          # numbers written at a time
TABLE = (1 << 24) + 12345
DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32}


def size(shape, dtype):
    return math.prod(shape) * DTYPES[dtype].itemsize


@functools.cache
def table():
    return torch.randn(TABLE, generator=torch.Generator().manual_seed(1))


def pieces(name, shape):
    """The values in order, float32, some millions at a time: of a scale that neither grows
    nor vanishes from layer to layer."""
    gen = torch.Generator().manual_seed(zlib.crc32(f"{name} {shape}".encode()))
    n, stem = math.prod(shape), name.rsplit(".", 1)[-1]
    if stem == "A_log":
        yield torch.log(torch.arange(1.0, shape[1] + 1)).repeat(shape[0])
        return
    for start in range(0, n, PIECE):
        first = torch.randint(TABLE - PIECE, (), generator=gen).item()
        x = table()[first:first + min(PIECE, n - start)]
        if name.endswith("act_fn.weight"):
            yield 1 / 3 + 0.05 * x
        elif name.endswith("dt_proj.bias"):   # softplus gives 0.001 to 0.1
            delta = torch.exp(-4.6 + 0.8 * x.clamp(-2.5, 2.5))
            yield torch.log(torch.expm1(delta))
        elif stem == "bias":
            yield 0.02 * x
        elif stem == "D" or len(shape) == 1 and "lambda" not in stem:
            yield 1 + 0.1 * x
        elif stem.startswith("lambda_"):
            yield 0.1 * x
        elif "embed" in name or name.startswith(("wte", "wpe")):
            yield 0.02 * x
        else:
            yield x / math.sqrt(math.prod(shape[1:]))


def plan(tensors, shard_bytes):
    """Tensors of each file, in order."""
    files, filled = [[]], 0
    for t in tensors:
        if files[-1] and filled + size(*t[1:]) > shard_bytes:
            files.append([])
            filled = 0
        files[-1].append(t)
        filled += size(*t[1:])
    return files


def write_file(path, tensors):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape, dtype in tensors:
        start, end = end, end + size(shape, dtype)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, shape, dtype in tensors:
            for x in pieces(name, shape):
                f.write(x.to(DTYPES[dtype]).view(torch.uint8).numpy())
        if f.tell() != 8 + len(text) + end:
            sys.exit(f"{path}: {f.tell()} bytes written, not {8 + len(text) + end}")


def write(folder, config, tensors, shard_bytes):
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        sys.exit(f"{folder}: not empty")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    files = plan(tensors, shard_bytes)
    if len(files) == 1:
        write_file(folder / "model.safetensors", files[0])
        return
    where = {}
    for i, part in enumerate(files, 1):
        name = f"model-{i:05}-of-{len(files):05}.safetensors"
        write_file(folder / name, part)
        where.update({t[0]: name for t in part})
    index = {"metadata": {"total_size": sum(size(*t[1:]) for t in tensors)},
             "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def model(name, layers=None):
    """(config, tensors) of a row of the table, counted where it is whole."""
    make, config, n_params = random_models.MODELS[name]
    count = random_models.layers_key(config)
    if layers and layers > config[count]:
        sys.exit(f"{name}: has {config[count]} layers, {layers} asked for")
    whole = list(make(config))
    got = sum(math.prod(t[1]) for t in whole)
    if got != n_params:
        sys.exit(f"{name}: {got} parameters, not {n_params}")
    config = {**config, count: layers or config[count]}
    return config, list(make(config))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("name", nargs="?", choices=list(random_models.MODELS), metavar="NAME")
    p.add_argument("--list", action="store_true", help="names and sizes")
    p.add_argument("--layers", type=int, help="the first so many")
    p.add_argument("--shard-gb", type=float, default=4.0, help="bytes of a file at most")
    p.add_argument("--tokenizer", type=pathlib.Path, help="folder to copy tokenizer*.json from")
    p.add_argument("-o", "--out", type=pathlib.Path)
    args = p.parse_args()
    if args.list:
        for name in random_models.MODELS:
            config, tensors = model(name)
            n_params = sum(math.prod(t[1]) for t in tensors)
            total = sum(size(*t[1:]) for t in tensors) / 1e9
            print(f"{name:22} {config[random_models.layers_key(config)]:3} layers "
                  f"{n_params:14,} parameters {total:6.2f} GB")
        return
    if not args.name or not args.out or args.layers is not None and args.layers < 1:
        p.error("a NAME and -o FOLDER, and at least one layer")
    config, tensors = model(args.name, args.layers)
    write(args.out, config, tensors, int(args.shard_gb * 1e9))
    if args.tokenizer:
        for file in args.tokenizer.glob("tokenizer*.json"):
            shutil.copy(file, args.out)


if __name__ == "__main__":
    main()
