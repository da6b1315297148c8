"""Modules that go another way when they are watched, with other results in the last bits.

`nn.TransformerEncoderLayer` and its kin run as one fused kernel in evaluation, unless a function mode or a
hook is there. Who watches steps aside for them, or says that what was seen is not what would have run.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_ENCODERS = (nn.TransformerEncoder, nn.TransformerEncoderLayer)


def may_be_fast(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a module may take a fused path unwatched: what is necessary for it, not all it asks."""
    if not isinstance(module, (*_ENCODERS, nn.MultiheadAttention)) or module.training:
        return False
    if not torch.backends.mha.get_fastpath_enabled() or torch.is_autocast_enabled():
        return False
    if isinstance(module, nn.MultiheadAttention) and not (
        module.batch_first and module._qkv_same_embed_dim and not module.num_heads % 2
    ):
        return False
    given = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
    wants_grad = any(one.requires_grad for one in (*given, *module.parameters()))
    return not (torch.is_grad_enabled() and wants_grad)


def takes_slow_path_now(module: nn.Module) -> bool:
    """Whether a module that was left alone turns out to call others: it has decided for the slow path."""
    return isinstance(module, _ENCODERS)
