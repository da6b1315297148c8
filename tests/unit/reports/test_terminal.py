"""Reports as they are printed: whole texts at a fixed width, without addresses."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import truecopy as tc
from truecopy.files.checkpoint import Checkpoint
from truecopy.files.compaction import Compaction
from truecopy.files.comparison import compare
from truecopy.files.inspection import inspect
from truecopy.memory.aliases import StorageUse
from truecopy.reports.json import dumps
from truecopy.reports.terminal import render, size


def checkpoint(obj: Any, path: str = "model.pt") -> Checkpoint:
    return Checkpoint(Path(path), "torch", obj, 4_197_000)


def example() -> dict[str, Any]:
    base = torch.zeros(1 << 20)
    weight = torch.zeros(256, 16)
    return {
        "model": {"embed.weight": weight, "head.weight": weight, "bias": torch.zeros(16)},
        "sample": base[:3],
        "epoch": 3,
    }


INSPECTION = """\
model.pt (torch, 4.0 MiB): 3 tensors in 4.0 MiB, 4.0 MiB (99.6 %) reached by nobody, 1 alias group.

Storages with bytes that nobody reaches, most first:
  4.0 MiB of 4.0 MiB  kept by  checkpoint['sample']

Shares memory, largest first:
  16.0 KiB  checkpoint['model']['embed.weight'] = checkpoint['model']['head.weight']

At the top:
  checkpoint['model']   dict of 3  2 tensors, 16.1 KiB
  checkpoint['sample']  Tensor     1 tensor, 12 bytes
  checkpoint['epoch']   int 3

Tensors, largest first:
  16.0 KiB  float32  256x16  checkpoint['model']['embed.weight']
  64 bytes  float32      16  checkpoint['model']['bias']
  12 bytes  float32       3  checkpoint['sample']"""


def test_inspection() -> None:
    """First a sentence with the numbers, then what is wasted, then what is there."""
    assert render(inspect(checkpoint(example()))) == INSPECTION


def test_a_clean_inspection() -> None:
    """Where nothing is wasted, that is the first thing said."""
    assert render(inspect(checkpoint({"a": torch.zeros(2)}))) == (
        "model.pt (torch, 4.0 MiB): 1 tensor in 8 bytes, every byte reached, 0 alias groups.\n"
        "\n"
        "Tensors, largest first:\n"
        "  8 bytes  float32  2  checkpoint['a']"
    )


def test_the_widest_and_the_narrowest() -> None:
    """No line is wider than the window but the first, which wraps as any sentence."""
    record = inspect(checkpoint({"x" * 300: torch.zeros(2), "y": torch.zeros(9)[:1]}))
    for width in (60, 100, 200):
        lines = render(record, width=width).splitlines()
        assert max(map(len, lines[1:])) <= width


def test_long_lists_end_in_more() -> None:
    """Twenty rows of each table are shown, and the number of the rest."""
    record = inspect(checkpoint({str(i): torch.zeros(1) for i in range(100)}))
    assert render(record).endswith("\n  ... and 80 more")


def test_colors_only_when_asked() -> None:
    """The first line is bold, and red where something was found; the rest is the same text."""
    plain = render(inspect(checkpoint(example())))
    colored = render(inspect(checkpoint(example())), color=True)
    assert colored.startswith("\x1b[1m\x1b[31mmodel.pt")
    assert colored.replace("\x1b[1m", "").replace("\x1b[31m", "").replace("\x1b[0m", "") == plain
    clean = render(inspect(checkpoint({})), color=True)
    assert "\x1b[31m" not in clean


COMPARISON = """\
a.pt and b.pt: 3 differences in 4 compared, by 2 at most; 1 only in a.pt; 1 only in b.pt; \
1 alias group differs.

Only in a.pt:
  checkpoint['gone']

Only in b.pt:
  checkpoint['new']

Differences, worst first:
  shape   (2,) -> (3,)                      checkpoint['shape']
  value   1 -> 2                            checkpoint['step']
  values  1 of 2, by 2 (relative 0.667)     checkpoint['w']

Share memory only in a.pt:
  checkpoint['w'] = checkpoint['x']  at bytes 0, 0"""


def test_comparison() -> None:
    """First how many differ and by how much, then each, worst first."""
    w = torch.ones(2)
    a = {"w": w, "x": w, "shape": torch.ones(2), "step": 1, "gone": 1}
    b = {"w": torch.tensor([1.0, 3.0]), "x": w, "shape": torch.ones(3), "step": 2, "new": 1}
    record = compare(checkpoint(a, "a.pt"), checkpoint(b, "b.pt"))
    assert collapsed(render(record)) == collapsed(COMPARISON)


def collapsed(text: str) -> list[list[str]]:
    """Words by line: columns are as wide as their widest cell, which other tests look at."""
    return [line.split() for line in text.splitlines()]


def test_an_equal_comparison() -> None:
    """Equal is said with how it was looked at."""
    same = checkpoint({"a": torch.ones(2), "b": torch.arange(6).view(2, 3).t()})
    other = checkpoint({"a": torch.ones(2), "b": torch.arange(6).view(2, 3).t().contiguous()})
    assert render(compare(same, other)) == (
        "model.pt and model.pt: equal bit for bit, 2 compared.\n"
        "\n"
        "Same values in another layout (no finding):\n"
        "  (1, 3) -> (2, 1)  checkpoint['b']"
    )
    within = render(compare(same, same, rtol=1e-3))
    assert within == "model.pt and model.pt: equal within rtol=0.001, atol=0, 2 compared."


def test_compaction() -> None:
    """What was saved, what was kept, that it was verified, and what remains."""
    record = Compaction(
        "in.pt", "out.pt", "torch", 4_197_000, 3_000, 2, 1, 4_194_000, 64,
        (StorageUse(("checkpoint['a']",), 4_194_304, 12),), True,
    )  # fmt: skip
    assert render(record) == (
        "out.pt: 2.9 KiB from 4.0 MiB (4.0 MiB less), 2 tensors and 1 alias group kept, "
        "verified bit for bit.\n"
        "\n"
        "Left out, most first:\n"
        "  4.0 MiB of 4.0 MiB  kept by  checkpoint['a']\n"
        "\n"
        "64 bytes that nobody reaches stay: gaps between views that share memory."
    )


def test_aliases() -> None:
    """`print(tc.aliases(obj))` is a report too."""
    x = torch.zeros(4)
    obj = {"x": x, "head": x[:2], "row": torch.zeros(100)[:1]}
    assert render(tc.aliases(obj)) == (
        "3 values in 416 bytes: 1 alias group, 396 bytes (95.2 %) reached by nobody.\n"
        "\n"
        "Storages with bytes that nobody reaches, most first:\n"
        "  396 bytes of 400 bytes  kept by  obj['row']\n"
        "\n"
        "Shares memory, largest first:\n"
        "  16 bytes  obj['x'] = obj['head']"
    )


def test_plan() -> None:
    """`print(tc.plan(obj))` tells what a copy takes, and what it could not do, first."""
    obj = {"x": torch.zeros(4), "y": torch.zeros(2)}
    assert render(tc.plan(obj)) == (
        "A copy of obj takes 24 bytes in 2 blocks, 0 objects kept by reference.\n"
        "\n"
        "Blocks, largest first:\n"
        "  16 bytes  obj['x']\n"
        "   8 bytes  obj['y']"
    )


def test_relation() -> None:
    """A relation is its own sentence; of structures, the pairs that touch follow."""
    x = torch.zeros(4)
    assert render(tc.relate(x, x.clone())).startswith("disjoint: no byte of ")
    a, b = {"p": x, "q": x[1:]}, [x]
    text = render(tc.relate(a, b))
    assert text.startswith("overlapping: ")
    assert "Pairs that touch:" in text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1,023 bytes"),
        (1024, "1.0 KiB"),
        (4 << 20, "4.0 MiB"),
        ((1 << 30) - 1, "1.0 GiB"),
        (5 << 60, "5,120.0 PiB"),
    ],
)
def test_sizes(nbytes: int, text: str) -> None:
    """Bytes have one decimal from 1 KiB on, and never read 1024.0 of a unit."""
    assert size(nbytes) == text


@given(st.text(max_size=30), st.text(max_size=30))
@settings(deadline=None)
def test_names_are_never_obeyed(name: str, value: str) -> None:
    """Whatever a name holds, what is printed is printable, one line for each line."""
    record = inspect(checkpoint({name: torch.zeros(1), "v": value}, path=f"dir\x1b[2J{name[:3]}"))
    other = checkpoint({name + "x": torch.zeros(2), "v": value + "x"})
    for text in (render(record), render(compare(checkpoint({name: 1, "v": value}), other))):
        assert all(line.isprintable() for line in text.split("\n"))
    assert dumps(record).isascii()


def test_json_is_in_an_envelope() -> None:
    """Every record says what it is, its version and what it was made with, in this order."""
    text = dumps(inspect(checkpoint(example())))
    assert text.startswith('{\n  "kind": "inspection",\n  "version": 1,\n  "made_with": {\n')
    assert dumps(inspect(checkpoint(example()))) == text
