"""Four copy bugs that reach published results: each made, found by truecopy, and mended.

Run by `make demo`. Everything printed is computed here; nothing is a recording.
"""

from __future__ import annotations

import copy
import io

import torch
from torch import nn

import truecopy as tc


def main() -> None:
    """Show the bugs one after another."""
    torch.manual_seed(0)
    for number, show in enumerate((best_model, resume, activation, saved_view, tied_head), 1):
        print(f"{number}. {show.__doc__}")
        show()
        print()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """A few steps on random data."""
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()


def tell(label: str, text: object) -> None:
    """One line of the demonstration."""
    print(f"   {label:<10}{text}")


def best_model() -> None:
    """My best model is my last model."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    best = model.state_dict()
    kept = tc.copy(model.state_dict())
    before = model.weight.detach().clone()
    train(model, optimizer, 5)
    tell("the bug", "best = model.state_dict()")
    tell("", f"five steps later, best is unchanged: {torch.equal(best['weight'], before)}")
    tell("found by", f"tc.relate(best, model) -> {tc.relate(best, model)}")
    tell("mended by", "best = tc.copy(model.state_dict())")
    tell("", f"five steps later, best is unchanged: {torch.equal(kept['weight'], before)}")


def resume() -> None:
    """My in-memory checkpoint changed after I restored it."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    train(model, optimizer, 1)
    checkpoint = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(checkpoint)
    train(model, optimizer, 1)
    tell("the bug", "optimizer.load_state_dict(checkpoint)")
    tell(
        "", f"the checkpoint was taken at step 1, now it says {checkpoint['state'][0]['step']:.0f}"
    )
    try:
        tc.assert_independent(checkpoint, optimizer)
    except tc.NotIndependent as error:
        tell("found by", "tc.assert_independent(checkpoint, optimizer)")
        tell("", f"{error}")
    checkpoint = tc.copy(optimizer.state_dict())
    optimizer.load_state_dict(tc.copy(checkpoint))
    train(model, optimizer, 1)
    tell("mended by", "optimizer.load_state_dict(tc.copy(checkpoint))")
    tell(
        "", f"the checkpoint was taken at step 2, now it says {checkpoint['state'][0]['step']:.0f}"
    )


def activation() -> None:
    """My captured activation has no negative numbers."""
    captured: dict[str, torch.Tensor] = {}
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True))
    model[0].register_forward_hook(lambda _m, _i, out: captured.update(hidden=out.detach()))
    output = model(torch.randn(64, 4))
    tell("the bug", "captured['hidden'] = out.detach()")
    tell("", f"smallest of 192 values before the ReLU: {captured['hidden'].min():.2f}")
    tell("found by", f"tc.relate(captured, output) -> {tc.relate(captured, output).kind}")
    model[0].register_forward_hook(lambda _m, _i, out: captured.update(hidden=tc.copy(out)))
    model(torch.randn(64, 4))
    tell("mended by", "captured['hidden'] = tc.copy(out)")
    tell("", f"smallest of 192 values before the ReLU: {captured['hidden'].min():.2f}")


def saved_view() -> None:
    """My file of twelve bytes has four megabytes."""
    features = torch.randn(1024, 1024)
    head = {"first": features[0, :3]}

    def size(value: object) -> int:
        file = io.BytesIO()
        torch.save(value, file)
        return len(file.getvalue())

    tell("the bug", f"torch.save(head) writes {size(head):,} bytes")
    found = tc.aliases(head)
    tell("found by", f"tc.aliases(head) -> {found.unreached_bytes:,} bytes that nobody reaches")
    tell("mended by", f"torch.save(tc.copy(head)) writes {size(tc.copy(head)):,} bytes")


def tied_head() -> None:
    """My tied weights came apart in the copy."""
    embed, lm_head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
    lm_head.weight = nn.Parameter(embed.weight.detach())  # tied through one storage
    model = nn.ModuleDict({"embed": embed, "lm_head": lm_head})

    def tied(m: nn.ModuleDict) -> bool | None:
        return tc.relate(m["embed"].weight, m["lm_head"].weight).shares_memory

    group = tc.aliases(model).groups[0]
    tell("the bug", f"copy.deepcopy(model) keeps the tie: {tied(copy.deepcopy(model))}")
    tell(
        "found by",
        f"tc.aliases(model) -> {' and '.join(group.paths)} share {group.reached_bytes} bytes",
    )
    tell("mended by", f"tc.copy(model) keeps the tie: {tied(tc.copy(model))}")


if __name__ == "__main__":
    main()
