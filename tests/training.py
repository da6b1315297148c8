"""What trains in the tests: a model with ties, and every optimizer and scheduler."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Tied(nn.Module):
    """An encoder with tied weights, dropout and batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.head(self.drop(self.norm(self.embed(tokens))))


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw-fused": lambda p: torch.optim.AdamW(p, fused=True),
    "adamw-foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "adamw-single": lambda p: torch.optim.AdamW(p, foreach=False),
    "adamw-tensor-lr": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01)),
    "adam-amsgrad": lambda p: torch.optim.Adam(p, amsgrad=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.5, centered=True),
    "adagrad": torch.optim.Adagrad,
    "lbfgs": lambda p: torch.optim.LBFGS(p, max_iter=3, history_size=4),
}


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
    """Losses of so many steps on random tokens."""

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        tokens = torch.randint(0, 12, (16,))
        value = nn.functional.cross_entropy(model(tokens), tokens)
        value.backward()
        return value

    return [float(optimizer.step(loss).detach()) for _ in range(steps)]


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 2),
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda n: 1 / (n + 1)),
    "one-cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=50),
    "cosine-restarts": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "sequential": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [
            torch.optim.lr_scheduler.LinearLR(o, total_iters=3),
            torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
        ],
        milestones=[3],
    ),
}
