from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DIGITS = Path(__file__).parents[3] / "data/digits/digits.csv.gz"
digits = torch.from_numpy(np.loadtxt(DIGITS, delimiter=",", dtype=np.float32))
images, labels = digits[:, :64].reshape(-1, 1, 8, 8) / 16, digits[:, 64].long()
train_set, held_out = TensorDataset(images[:1438], labels[:1438]), (images[1438:], labels[1438:])
torch.manual_seed(0)
model = nn.Sequential(
    *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 10)),
)
optimizer = torch.optim.RAdam(model.parameters(), lr=3e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5 * 23)
loader = DataLoader(train_set, batch_size=64, shuffle=True)
for epoch in range(5):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    with torch.no_grad():
        model.eval()
        accuracy = (model(held_out[0]).argmax(1) == held_out[1]).float().mean().item()
        print(f"epoch {epoch}: accuracy {accuracy:.4f}")
        model.train()
torch.save(model.state_dict(), "model.pt")
