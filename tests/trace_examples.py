"""Traces of every size and temper: the largest that a record holds, an empty one, a hostile one."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from traces import example
from truecopy.tracing.facts import (
    OWNERS,
    Churn,
    Copy,
    Event,
    Habit,
    Iteration,
    Line,
    Moment,
    Owner,
    Peak,
    Site,
    StorageLife,
    Survivor,
    Totals,
    Unseen,
)
from truecopy.tracing.record import MOST_EVENTS, MOST_MOMENTS, MOST_STORAGES, TraceRecord

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "<!--<script>",
    "\u2028\u2029\x00\x1b[2J\u202e\udcff",
    "javascript:alert(3)",
    "`|` **bold** <b>x</b> \\| @all",
    "https://example.invalid/x.png",
    "'\"`${alert(4)}`{{7*7}}",
)
"""Texts that do something wherever they are taken for more than text."""


def empty() -> TraceRecord:
    """A program that did nothing with tensors."""
    return TraceRecord(
        name="nothing.py", tier="modes", ended="completed",
        totals=Totals(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.001, 0),
        peak=Peak(0, -1, None, "", "", -1, 0, ()), lines=(), copies=(), churn=(), habits=(),
        iterations=(), survivors=(), events=(), memory=(), storages=(), unseen=(),
    )  # fmt: skip


def hostile() -> TraceRecord:
    """The small example with hostile text wherever a record has text that a program chose."""
    rng = random.Random(0)

    def spoil(value: Any) -> Any:
        match value:
            case Site():
                text = rng.choice(HOSTILE)
                return replace(
                    value,
                    file=f"{text}/{rng.choice(HOSTILE)}",
                    function=text,
                    text=rng.choice(HOSTILE),
                )
            case str() if value not in (*OWNERS, "bytes", "nodes", "forward", "backward"):
                return rng.choice(HOSTILE)
            case tuple():
                return tuple(map(spoil, value))
        if hasattr(value, "__dataclass_fields__"):
            return replace(
                value, **{n: spoil(getattr(value, n)) for n in value.__dataclass_fields__}
            )
        return value

    plain = example()
    return replace(spoil(plain), tier=plain.tier)


MIB = 1 << 20
_SOURCES = (
    "h = self.attn(self.norm1(x), mask=mask)",
    "q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).unbind(2)",
    "scores = (q.transpose(1, 2) @ k.transpose(1, 2).mT) / self.scale",
    "out = (weights @ v.transpose(1, 2)).transpose(1, 2).reshape(b, t, -1)",
    "x = x + self.drop(self.mlp(h))",
    "loss = F.cross_entropy(logits.view(-1, vocab), target.view(-1))",
    "self.cache.append(x.detach().float().cpu())",
    "batch = {k: v.to(device) for k, v in batch.items()}",
)


def large(
    *,
    iterations: int = 40,
    lines: int = 3_000,
    events: int = MOST_EVENTS,
    storages: int = MOST_STORAGES,
    moments: int = MOST_MOMENTS,
    wide: bool = False,
    seed: int = 0,
) -> TraceRecord:
    """A training run of a transformer that fills its record; `wide` makes all of its texts long."""
    rng = random.Random(seed)
    long = "x" * 900 if wide else ""
    folder = f"/data/me/project/model/{'deep/' * (20 if wide else 0)}"
    sites = [
        Site(
            f"{folder}/layer_{i % 7}.py{long}",
            10 + i,
            10 + i,
            8,
            60,
            f"Block{i % 12}.forward{long}",
            f"{rng.choice(_SOURCES)}{long}",
        )
        for i in range(lines)
    ]
    per = max(1, events // max(1, iterations))
    shape = [_wave(i / moments * iterations, i / moments) for i in range(moments)]
    stretch = max(1, events // moments)
    memory = tuple(
        Moment(
            i * stretch,
            (i + 1) * stretch - 1,
            int(sum(by) * 0.8),
            sum(by),
            i * 3 * MIB,
            i * 10**6,
            tuple(by),
        )
        for i, by in enumerate(shape)
    )
    top = max(memory, key=lambda moment: moment.high_bytes)
    births = sorted(rng.randrange(events) for _ in range(storages))
    lives = tuple(
        StorageLife(
            n,
            rng.choice((4 * MIB, 12 * MIB, 48 * MIB, 262_144)),
            "cpu",
            owner := rng.choice(OWNERS),
            rng.choice(sites),
            f"blocks.{n % 12}.attn{long}",
            -1 if owner == "parameter" else birth,
            -1 if owner == "parameter" else min(birth + rng.randint(1, per), events - 1),
            f"MulBackward0{long}" if owner == "saved for backward" else "",
        )
        for n, birth in enumerate(births)
    )
    copies = tuple(
        Copy(
            sites[i],
            f"blocks.{i % 12}.attn{long}",
            "forward",
            "reshape",
            "aten::clone",
            "",
            f"strides (393216, 64, {i + 1}, 1) cannot be viewed as (8, 512, 768){long}",
            f"use .flatten(-2) before the transpose, or keep (b, t, h, d) until here{long}",
            iterations,
            max(1, (lines - i)) * MIB // 64,
            MIB,
            1.0 if i % 5 else 1000.0,
            None,
            i,
        )
        for i in range(min(lines, 400))
    )
    hidden = {copy.site: copy for copy in copies}
    rows = tuple(
        Line(
            site,
            (f"blocks.{i % 12}.attn",),
            ("forward",),
            (("reshape", iterations), ("transpose", iterations)),
            (("new", iterations), ("view", 3 * iterations)),
            (),
            4 * iterations,
            6 * iterations,
            (lines - i) * MIB // 8,
            2 * hidden[site].nbytes if site in hidden else 0,
            MIB,
            iterations if site in hidden else 0,
            hidden[site].nbytes if site in hidden else 0,
            (lines - i) * 4096,
            0,
        )
        for i, site in enumerate(sites)
    )
    owners = tuple(
        Owner(
            sites[i % lines],
            f"blocks.{i % 12}.mlp{long}",
            OWNERS[i % len(OWNERS)],
            top.high_bytes // 2 ** min(i + 1, 30),
            12,
        )
        for i in range(60)
    )
    hidden_bytes = sum(copy.nbytes for copy in copies)
    return TraceRecord(
        name=f"train.py{long}",
        tier="modes",
        ended="completed",
        totals=Totals(
            events,
            3 * events,
            812,
            900 * 1024 * MIB,
            880 * 1024 * MIB,
            3 * hidden_bytes,
            2 * hidden_bytes,
            iterations * len(copies),
            hidden_bytes,
            480 * MIB,
            512 * MIB,
            0,
            0,
            84.2,
            6 * MIB,
        ),
        peak=Peak(
            top.high_bytes,
            top.first_event,
            sites[0],
            "blocks.3.attn",
            "forward",
            2,
            96 * MIB,
            owners,
        ),
        lines=rows,
        copies=copies,
        churn=tuple(
            Churn(
                sites[i % lines],
                f"blocks.{i}",
                "add",
                12 * MIB,
                iterations,
                1.0,
                f"x.add_(1){long}",
                "" if i % 2 else "needed for backward",
                12 * MIB * iterations,
            )
            for i in range(30)
        ),
        habits=tuple(
            Habit(
                sites[i % lines],
                "",
                f"torch.tensor(t){long}",
                "copies through the host",
                "t.detach().clone()",
                3,
                MIB,
            )
            for i in range(9)
        ),
        iterations=tuple(
            Iteration(
                i,
                i * per,
                (i + 1) * per - 1,
                2 * 1024 * MIB,
                300 * MIB,
                1900 * MIB,
                500 * MIB,
                16_384,
                8,
            )
            for i in range(iterations)
        ),
        survivors=(
            Survivor(
                sites[6 % lines],
                "",
                "bytes",
                16_384 * iterations,
                16_384.0,
                iterations,
                (f"trainer.history[-1]{long}",),
            ),
            Survivor(
                sites[5 % lines], "", "nodes", 8 * iterations, 8.0, iterations, ("total.grad_fn",)
            ),
        ),
        events=tuple(
            Event(
                i,
                rng.choice(("reshape", "matmul", "Tensor.add_", "softmax")),
                sites[i % lines],
                f"blocks.{i % 12}{long if i % 9 else ''}",
                "forward" if i % per < per // 2 else "backward",
                -1,
                "",
                None,
                ("view",) if i % 3 else ("new",),
                (("self", "mutated"),) if i % 7 == 0 else (),
                "",
                2,
                4 * MIB,
                0,
                0,
                0,
                memory[min(i // stretch, moments - 1)].high_bytes,
                rng.randrange(storages) if i % 2 else i % 5,
                i * 4000,
                i * 4000 + 3500,
            )
            for i in range(events)
        ),
        memory=memory,
        storages=lives,
        unseen=(
            Unseen("other threads", 2, "modes are of one thread"),
            Unseen("DataLoader workers", 4, "they are other processes"),
        ),
    )


def _wave(iteration: float, part: float) -> list[int]:
    """Bytes of each class: activations rise in the forward pass, gradients in the backward one."""
    phase = iteration % 1
    saved = phase if phase < 0.5 else 1 - phase
    gradient = 0.0 if phase < 0.5 else min(1.0, (phase - 0.5) * 3)
    state = 0 if iteration < 1 else 320
    mib = (
        160,
        6,
        160 * gradient,
        state,
        1400 * saved,
        240 * saved,
        24,
        40 * (phase * 37 % 1),
        10 + 120 * part,
    )
    return [int(amount * MIB) for amount in mib]
