"""Fixed models for the benchmarks: their configurations are here, their weights are random."""

from __future__ import annotations

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
