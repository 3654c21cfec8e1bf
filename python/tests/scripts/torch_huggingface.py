"""A model of Hugging Face made from a configuration, trained in one call on batches that are dictionaries."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import bellwether.torch as bw

torch.manual_seed(3)
config = GPT2Config(
    vocab_size=16, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
)
model = GPT2LMHeadModel(config)
rows = torch.randint(16, (64, 8))
data = [{"input_ids": row, "labels": row, "attention_mask": torch.ones_like(row)} for row in rows]
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
bw.train(model, lambda m, b: m(**b).loss, optimizer, data=data, batch_size=16, virtual_nodes=4, epochs=2)
config.save_pretrained("saved")
torch.save(model.state_dict(), "model.pt")
