"""A small language model, trained on a text file, and fine-tuned on your own from the weights of the first.

    bellwether run examples/python/finetune_text.py -- examples/data/harbour.txt
    bellwether export finetune_text -o harbour.safetensors
    bellwether run examples/python/finetune_text.py -- YOUR.txt --weights harbour.safetensors --epochs 3

It reads bytes, so any language and any alphabet will do. What it prints is how many bits a byte of the last tenth of
the text costs, which is never trained, and what the model writes by itself.
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

import bellwether.torch as bw

CONTEXT, WIDTH, STRIDE = 64, 96, 4


class Model(nn.Module):
    """A transformer that predicts the next byte; the vectors of the bytes are shared by its two ends."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, 0.1, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 256, bias=False)
        nn.init.normal_(self.bytes.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)
        self.head.weight = self.bytes.weight

    def forward(self, text: Tensor) -> Tensor:
        """Logits, `[batch, length, 256]`, of the bytes that follow those in `text`, `[batch, length]`."""
        length = text.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        vectors = self.bytes(text) + self.places(torch.arange(length))
        logits: Tensor = self.head(self.layers(vectors, mask, is_causal=True))
        return logits


class Windows(torch.utils.data.Dataset[Tensor]):
    """Parts of a text, one byte longer than the context."""

    def __init__(self, text: Tensor) -> None:
        self.text = text

    def __len__(self) -> int:
        return max(0, len(self.text) - CONTEXT - 1) // STRIDE

    def __getitem__(self, index: int) -> Tensor:
        return self.text[index * STRIDE :][: CONTEXT + 1]


def loss_of(model: nn.Module, windows: Tensor) -> Tensor:
    """The mean loss of the bytes of a batch, in nats."""
    return F.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


@torch.no_grad()
def bits(model: nn.Module, text: Tensor) -> float:
    """Bits per byte of a text."""
    windows = Windows(text)
    every = torch.stack([windows[index] for index in range(0, len(windows), CONTEXT // STRIDE)])
    return loss_of(model.eval(), every).item() / 0.6931


@torch.no_grad()
def written(model: nn.Module, start: Tensor, count: int) -> str:
    """What the model writes after `start`, `[length]`."""
    torch.manual_seed(0)
    text = start
    for _ in range(count):
        chances = F.softmax(model.eval()(text[None, -CONTEXT:])[0, -1] / 0.7, 0)
        text = torch.cat([text, torch.multinomial(chances, 1)])
    return bytes(text[len(start) :].tolist()).decode(errors="replace")


arguments = argparse.ArgumentParser(description="Trains a small language model on a text file.")
arguments.add_argument("text", type=Path, help="the file")
arguments.add_argument("--weights", type=Path, help="weights to begin from, written by `bellwether export`")
arguments.add_argument("--epochs", type=int, default=6)
asked = arguments.parse_args()

text = torch.tensor(list(asked.text.read_bytes()))
train_text, held_out = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
torch.manual_seed(0)
model = Model()
if asked.weights is not None:
    model.load_state_dict(load_file(asked.weights))
if bw.is_lead():
    print(f"before: {bits(model, held_out):.3f} bits per byte")
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3 if asked.weights is None else 1e-3)
run = bw.Run(model, optimizer, data=Windows(train_text), batch_size=32, virtual_nodes=4, clip_norm=1.0)
for epoch, batches in enumerate(run.epochs(asked.epochs)):
    for windows in batches:
        run.backward(loss_of(model, windows))
    print(f"epoch {epoch}: {bits(model, held_out):.3f} bits per byte")
    model.train()
print("it writes:", repr(written(model, held_out[:CONTEXT], 60)))
