"""Fixed models for the benchmarks: their configurations are here, their weights are random."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn


class Block(nn.Module):
    """One transformer block, as GPT-2 has it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention and feed-forward, each with its residual."""
        h = self.norm1(x)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        x = x + self.attention(h, h, h, attn_mask=mask, is_causal=True, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class GPT2Like(nn.Module):
    """A decoder whose head is tied to its embedding through one storage, as two Parameters."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, context: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = nn.Parameter(self.embed.weight.detach())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits for every position."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.embed(tokens) + self.position(places))))


def gpt2_like() -> tuple[GPT2Like, torch.optim.Optimizer]:
    """12 layers of 384, vocabulary of 16,384; one step taken, so that the optimizer has its state."""
    torch.manual_seed(0)
    model = GPT2Like(vocabulary=16384, width=384, heads=6, layers=12, context=128)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randint(0, 16384, (1, 16))).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


class PlainBlock(nn.Module):
    """One transformer block whose attention is written out, as GPT-2 was first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention and feed-forward, each with its residual."""
        x = x + self.project(self.attend(self.qkv(self.norm1(x))))
        return x + self.mlp(self.norm2(x))

    def attend(self, qkv: torch.Tensor) -> torch.Tensor:
        """Causal attention, operation by operation."""
        batch, length, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
        split = (part.view(batch, length, self.heads, -1) for part in qkv.split(width, dim=2))
        q, k, v = (part.transpose(1, 2) for part in split)
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool, device=qkv.device).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(batch, length, width)


def small_gpt2(
    width: int = 512, tokens: tuple[int, int] = (4, 128)
) -> tuple[nn.Module, torch.Tensor]:
    """6 layers in plain torch, and the tokens for it."""
    torch.manual_seed(0)
    model = GPT2Like(vocabulary=8192, width=width, heads=8, layers=6, context=128)
    model.blocks = nn.Sequential(*(PlainBlock(width, 8) for _ in range(6)))
    return model, torch.randint(0, 8192, tokens)


class Residual(nn.Module):
    """Two convolutions and a shortcut, rectified in place."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.down: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.down = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As ResNet has it."""
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += self.down(x)
        return self.relu(y)


def resnet18() -> tuple[nn.Module, torch.Tensor]:
    """ResNet-18 in plain torch, and 4 images of 128 x 128."""
    torch.manual_seed(0)
    widths = (64, 64, 128, 256, 512)
    blocks = [
        Residual(inside if not second else outside, outside, 1 if second or outside == 64 else 2)
        for inside, outside in pairwise(widths)
        for second in (False, True)
    ]
    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000),
    )  # fmt: skip
    return model.eval(), torch.randn(4, 3, 128, 128)
