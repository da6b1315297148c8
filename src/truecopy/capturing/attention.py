"""Scores of fused attention, computed again from what it was given: the kernel itself never has them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from truecopy.errors import UsageError


def scores_of(inputs: Any, name: str) -> Tensor:
    """softmax(query @ key.T * scale + mask), as `scaled_dot_product_attention` documents it, in its dtype."""
    if "scaled_dot_product_attention" not in name:
        raise UsageError(
            "has no scores", where=name, expected="a call of scaled_dot_product_attention"
        )
    given = dict(zip(_ORDER, inputs.args, strict=False)) | inputs.kwargs
    query, key = given["query"], given["key"]
    if given.get("enable_gqa"):
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
    scale = given.get("scale") or 1 / math.sqrt(query.size(-1))
    scores: Tensor = query @ key.transpose(-2, -1) * scale
    mask = given.get("attn_mask")
    if given.get("is_causal"):
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else scores + mask
    return scores.softmax(-1)


_ORDER = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
