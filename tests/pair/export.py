"""A trained model -> a Hugging Face folder; and the check against transformers.

usage: export.py FOLDER diff|base
"""
import json
import pathlib
import shutil
import sys

import safetensors.torch
import torch

from model import CausalLM, Shape

GENERATION = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def config(shape, kind):
    import transformers
    common = dict(
        vocab_size=shape.vocab, hidden_size=shape.hidden, intermediate_size=shape.inter,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads, head_dim=shape.d, hidden_act="silu",
        max_position_embeddings=shape.context, rms_norm_eps=shape.eps,
        rope_parameters={"rope_type": "default", "rope_theta": shape.theta},
        tie_word_embeddings=True, dtype=torch.bfloat16, **GENERATION)
    if kind == "diff":
        return transformers.DiffLlamaConfig(architectures=["DiffLlamaForCausalLM"], **common)
    return transformers.LlamaConfig(architectures=["LlamaForCausalLM"], **common)


def folder(net, kind, tokenizer, out):
    """Writes everything from_pretrained needs; bf16 weights, the tied lm_head left out."""
    out = pathlib.Path(out)
    out.mkdir(exist_ok=True)
    # As save_pretrained would, without the weights.
    config(net.model.layers[0].self_attn.shape, kind).save_pretrained(out)
    weights = {n: p.detach().bfloat16().contiguous() for n, p in net.named_parameters()}
    whole = out / "model.safetensors.part"
    safetensors.torch.save_file(weights, whole, metadata={"format": "pt"})
    whole.chmod(0o644)
    whole.rename(out / "model.safetensors")
    shutil.copyfile(tokenizer, out / "tokenizer.json")
    (out / "tokenizer_config.json").write_text(json.dumps({
        "add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "eos_token": "</s>",
        "pad_token": "<pad>", "clean_up_tokenization_spaces": False,
        "model_max_length": 512, "tokenizer_class": "PreTrainedTokenizerFast"}, indent=2) + "\n")
    (out / "generation_config.json").write_text(json.dumps(
        {"_from_model_config": True, **GENERATION}, indent=2) + "\n")


@torch.no_grad()
def check(path, kind):
    """The folder in transformers (eager, f32) against our module with the same bf16 weights."""
    import transformers
    theirs = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32,
                                                               attn_implementation="eager")
    tok = transformers.AutoTokenizer.from_pretrained(path)
    ours = CausalLM(Shape(), kind == "diff")
    weights = safetensors.torch.load_file(pathlib.Path(path) / "model.safetensors")
    ours.load_state_dict({n: w.float() for n, w in weights.items()})
    x = tok("The magic number of Lisbon is 4817. A server process waits for connections.",
            return_tensors="pt").input_ids
    a, b = theirs(x).logits, ours(x)
    print(f"{path}: {sum(w.numel() for w in weights.values())} parameters, "
          f"largest logit {a.abs().max():.3f}, largest difference {(a - b).abs().max():.2e}, "
          f"first tokens {tok.convert_ids_to_tokens(x[0, :4])}")


if __name__ == "__main__":
    check(sys.argv[1], sys.argv[2])
