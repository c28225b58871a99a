"""Write a tiny random Llama and a byte-level BPE tokenizer: `python tiny_model.py FOLDER` (0.3 MB, CPU, 2 layers)."""

import sys
from pathlib import Path

TEXT = ["one two three four five six seven eight nine ten"] * 20


def main(folder: Path) -> None:
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    folder.mkdir(parents=True)
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(TEXT, vocab_size=300, special_tokens=["<s>", "</s>"])
    bpe.save(str(folder / "bpe.json"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "bpe.json"), bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=512,
        bos_token_id=0,
        # A random model would end some answers before their first letter.
        eos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
