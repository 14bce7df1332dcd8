#!/usr/bin/env python3
"""A random Llama with a given tokenizer: make_llama.py TOKENIZER.json FOLDER [BOS EOS]

BOS and EOS are the spelling of tokens; without BOS the tokenizer puts none in front.
"""
import json
import pathlib
import shutil
import sys

import tokenizers
import torch
import transformers


def main():
    source, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    bos, eos = (sys.argv[3:] + [None, None])[:2]
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, folder / "tokenizer.json")
    tok = tokenizers.Tokenizer.from_file(source)
    names = {k: v for k, v in (("bos_token", bos), ("eos_token", eos)) if v}
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512,
        "clean_up_tokenization_spaces": False, **names}))
    torch.manual_seed(4)
    config = transformers.LlamaConfig(
        vocab_size=tok.get_vocab_size(), hidden_size=128, intermediate_size=352,
        num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=512, tie_word_embeddings=False, initializer_range=0.08,
        bos_token_id=tok.token_to_id(bos) if bos else None,
        eos_token_id=tok.token_to_id(eos) if eos else None)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


if __name__ == "__main__":
    main()
