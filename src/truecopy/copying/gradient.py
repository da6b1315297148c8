"""Gradient through copies: each is the identity of its source, on memory of its own.

A copy that is made already is put behind a graph node that hands the gradient on. So values come from
the one transfer that all copies take, bit for bit, and whoever shares memory may get gradient apart.
"""

from __future__ import annotations

from typing import Any

import torch

from truecopy import _torch


class _CopyOf(torch.autograd.Function):
    """The identity. What it returns is handed over in a list, so that torch takes it as it is."""

    @staticmethod
    def forward(
        ctx: Any, source: torch.Tensor, made: list[torch.Tensor], axis: int | None
    ) -> torch.Tensor:
        ctx.home, ctx.axis, ctx.shape = source.device, axis, made[0].shape
        return made[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        gradient = gradients[0].to(ctx.home)
        return gradient if ctx.axis is None else gradient.sum(ctx.axis), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        if ctx.axis is None:
            return tangents[0].clone()
        return tangents[0].unsqueeze(ctx.axis).expand(ctx.shape).clone()


def attach(source: Any, made: Any, *, shared: bool = False, axis: int | None = None) -> Any:
    """`made` as a differentiable copy of `source`, where gradient or a tangent comes from there.

    With `axis`, `made` holds many copies along a new axis, and the source gets the sum of their gradients.
    One that shares memory with other copies cannot be written in place: torch could not tell what
    that does to the gradient of the others, and raises.
    """
    if not isinstance(source, torch.Tensor):
        return made
    has_tangent = _torch.tangent(source) is not None
    if not source.requires_grad and not has_tangent:
        return made
    values = made.detach()
    if shared and not has_tangent:
        values = values.view_as(values)
    with torch.enable_grad():
        copied = _CopyOf.apply(source, [values], axis)  # type: ignore[no-untyped-call]
        is_plain = isinstance(source, torch.nn.Parameter) or type(copied) is type(source)
        return copied if is_plain else copied.as_subclass(type(source))
