"""The ways in which the first tensor of a sample may lie in memory, with the same values where it can be."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def layout_of(tensor: Tensor) -> str:
    """The word for how a tensor lies in memory."""
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        return "other"
    pairs = [(n, s) for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n != 1]
    if not tensor.numel() or tensor.is_contiguous():
        return "contiguous"
    if any(step == 0 for _, step in pairs):
        return "expanded"
    dense = 1
    for n, step in sorted(pairs, key=lambda pair: pair[1]):
        if step != dense:
            return "strided"
        dense *= n
    return "transposed"


def laid_out(tensor: Tensor) -> Iterator[Tensor]:
    """The tensor itself, and others of its shape that lie in memory in other ways. Allocates."""
    yield tensor
    if layout_of(tensor) == "other" or not tensor.numel() or tensor.dim() == 0:
        return
    seen = {layout_of(tensor)}
    for make in (_contiguous, _transposed, _strided, _expanded):
        made = make(tensor.detach())
        word = layout_of(made)
        if word not in seen:
            seen.add(word)
            yield made


def _contiguous(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _transposed(tensor: Tensor) -> Tensor:
    backwards = tuple(reversed(range(tensor.dim())))
    return tensor.permute(backwards).clone(memory_format=torch.contiguous_format).permute(backwards)


def _strided(tensor: Tensor) -> Tensor:
    wide = tensor.new_zeros((*tensor.shape[:-1], 2 * tensor.shape[-1]))
    wide[..., ::2] = tensor
    return wide[..., ::2]


def _expanded(tensor: Tensor) -> Tensor:
    # Other values than the sample's. An operation that refuses them has shown nothing.
    return tensor[:1].clone().expand(tensor.shape)
