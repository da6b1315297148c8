"""A small training program whose copies are watched: see docs/ci.md."""

import torch
from torch import nn


class Attention(nn.Module):
    """One head; heads are split by views."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention over the sequence."""
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        weights = (query @ key.mT / key.shape[-1] ** 0.5).softmax(-1)
        return self.out((weights @ value).transpose(1, 2).flatten(2))


def main() -> None:
    """Three steps."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Attention(32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(2, 8, 32)).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
