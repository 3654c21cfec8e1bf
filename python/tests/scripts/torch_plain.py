"""A model with shared, frozen and counting tensors; with an argument, a file is loaded into it strictly."""

import sys

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import bellwether.torch as bw


class Model(nn.Module):
    """Predicts the next of twelve words; the words' vectors are those of the output, too."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(12, 8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.words.weight
        self.order: Tensor
        self.register_buffer("order", torch.arange(12))

    def forward(self, words: Tensor) -> Tensor:
        """Logits, `[batch, 12]`, of words `[batch]`."""
        vectors: Tensor = self.norm(self.frozen(self.words(self.order[words])))
        logits: Tensor = self.head(vectors)
        return logits


torch.manual_seed(5)
model = Model()
if len(sys.argv) > 1:
    model.load_state_dict(load_file(sys.argv[1]), strict=True)
    print("loaded")
else:
    words = torch.randint(12, (64,))
    data = TensorDataset(words, (words + 1) % 12)
    run = bw.Run(
        model, torch.optim.Adam(model.parameters(), lr=0.01), data=data, batch_size=16, virtual_nodes=4
    )
    for x, y in run.steps(6):
        run.backward(cross_entropy(model(x), y))
    torch.save(model.state_dict(), "model.pt")
