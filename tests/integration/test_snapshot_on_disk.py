"""A snapshot on disk: one file that others open, restored elsewhere bit for bit, refused whole."""

import enum
import json
import math
import os
import random
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model
from torch import nn

import truecopy as tc
from training import OPTIMIZERS, SCHEDULERS, Tied, train
from truecopy.cli import main
from truecopy.snapshots.disk import writing

ROOT = Path(__file__).parents[2]


def unit(name: str, seed: int) -> dict[str, Any]:
    """A model, its optimizer and a scheduler."""
    torch.manual_seed(seed)
    model = Tied()
    optimizer = OPTIMIZERS[name](model.parameters())
    scheduler = SCHEDULERS["step"](optimizer)
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("order", [("model", "optimizer"), ("optimizer", "model")])
def test_training_goes_on_elsewhere(name: str, order: tuple[str, str], tmp_path: Path) -> None:
    """A fresh model and a fresh optimizer go on bit for bit where the file was written."""
    here, there = unit(name, 0), unit(name, 1)
    train(here["model"], here["optimizer"], 3)
    snap = tc.Snapshot({key: here[key] for key in order}, rng=True)
    snap.save(tmp_path / "run.safetensors")
    losses = train(here["model"], here["optimizer"], 4)
    address = there["model"].embed.weight.data_ptr()
    loaded = tc.Snapshot.load(tmp_path / "run.safetensors")
    for _ in range(2):
        loaded.restore({key: there[key] for key in order})
        assert train(there["model"], there["optimizer"], 4) == losses
    assert there["model"].embed.weight.data_ptr() == address
    assert there["model"].head.weight is there["model"].embed.weight
    before_state = unit(name, 2)
    empty = tc.Snapshot({key: before_state[key] for key in order})
    empty.save(tmp_path / "empty.safetensors")
    tc.Snapshot.load(tmp_path / "empty.safetensors").restore({key: there[key] for key in order})
    sizes = [sorted(map(len, one["optimizer"].state.values())) for one in (there, before_state)]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_go_on_elsewhere(name: str, tmp_path: Path) -> None:
    """Counters and rates of every scheduler, nested ones too."""

    def make() -> tuple[torch.optim.Optimizer, Any]:
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        return optimizer, SCHEDULERS[name](optimizer)

    def rates(optimizer: torch.optim.Optimizer, scheduler: Any) -> list[float]:
        found = []
        for _ in range(6):
            optimizer.step()
            scheduler.step()
            found += scheduler.get_last_lr()
        return found

    here, there = make(), make()
    rates(*here)
    tc.Snapshot(optimizer=here[0], scheduler=here[1]).save(tmp_path / "s")
    tc.Snapshot.load(tmp_path / "s").restore(optimizer=there[0], scheduler=there[1])
    assert rates(*here) == rates(*there)


def test_other_readers_find_the_model_under_its_own_names(tmp_path: Path, capsys: Any) -> None:
    """The readers of safetensors itself, and our command, open it; a tie is there once."""
    model = Tied()
    model.register_buffer("scratch", torch.ones(2), persistent=False)
    path = tmp_path / "m.safetensors"
    tc.Snapshot(model=model, optimizer=torch.optim.SGD(model.parameters())).save(path)
    found = load_file(path)
    assert set(model.state_dict()) - set(found) == {"head.weight"}
    assert all(torch.equal(found[k], v) for k, v in model.state_dict().items() if k in found)
    other = Tied()
    load_model(other, path, strict=False)
    assert torch.equal(other.head.weight, model.head.weight)
    with safe_open(path, framework="pt") as file:
        envelope = json.loads(file.metadata()["truecopy"])
    assert (envelope["kind"], envelope["version"]) == ("snapshot", 1)
    assert envelope["made_with"]["torch"] == torch.__version__
    assert main(["inspect", str(path)]) == 0
    assert "head.weight" in capsys.readouterr().out
    assert main(["compare", str(path), str(path)]) == 0


DTYPES = [
    torch.bool, torch.uint8, torch.int16, torch.uint16, torch.int64, torch.uint64, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e8m0fnu,
]  # fmt: skip


def test_every_dtype_and_layout_comes_back_bit_for_bit(tmp_path: Path) -> None:
    """Dtypes that the format has and has not, odd bytes, views, ties, memory formats, arrays, empty ones."""

    def make(fill: bool) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(0)

        def raw(*shape: int) -> torch.Tensor:
            one = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
            return one if fill else torch.zeros_like(one)

        held: dict[str, Any] = {str(d): raw(3, 16).view(d) for d in DTYPES}
        held["large"] = raw(1 << 20).view(torch.float32)
        base = raw(4000).view(torch.float32).view(10, 100)
        held |= {"base": base, "row": base[3], "turned": base.t(), "ints": base.view(torch.int32)}
        apart = raw(4000).view(torch.float32)
        held |= {"left": apart[:600], "right": apart[400:]}
        held["channels"] = (
            raw(64).view(torch.float32).view(1, 2, 2, 4).to(memory_format=torch.channels_last)
        )
        held["wide"] = raw(1, 8).expand(5, 8)
        held["gaps"] = raw(64).view(torch.float32)[::2]
        held["conj"] = raw(64).view(torch.complex64).conj()
        held["array"] = raw(24).numpy().view(np.float64)[::-1]
        held["none"] = torch.empty(0, 3)
        held["scalar"] = raw(4).view(torch.float32)[0].clone()
        held["bytes"] = bytearray(bytes(raw(9).tolist()))
        return held

    here, there = make(True), make(False)
    tc.Snapshot(held=here).save(tmp_path / "all")
    loaded = tc.Snapshot.load(tmp_path / "all")
    loaded.restore(held=there)
    now = tc.Snapshot(held=there)
    mirror = tc.copy(here)
    for key, value in mirror.items():
        if isinstance(value, torch.Tensor):
            same = torch.equal(
                value.resolve_conj().contiguous().reshape(-1).view(torch.uint8),
                there[key].resolve_conj().contiguous().reshape(-1).view(torch.uint8),
            )
            assert same, key
        else:
            assert bytes(value) == bytes(there[key]), key
    assert now.diff() == ()


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def test_plain_values_come_back_exactly(tmp_path: Path) -> None:
    """What JSON cannot say is tagged: NaN payloads, -0.0, tuples, sets, bytes, enums, numpy scalars."""
    nan = struct.unpack(">d", bytes.fromhex("7ff8000000000123"))[0]
    here: dict[Any, Any] = {
        "nan": nan, "inf": -math.inf, "zero": -0.0, "big": 2**200, "c": complex(0, -0.0),
        "t": (1, (2.0, "x")), "set": {1, 2}, "frozen": frozenset({3}), "b": b"\0\xff", (1, 2): "key",
        3: "int", "3": "str", "e": Color.BLUE, "np": np.float32(1.1), "r": range(3), "d": torch.float8_e5m2,
        "list": [None, True, "\ud800"], "size": torch.Size([2, 3]), "cls": nn.Linear,
    }  # fmt: skip
    there: dict[Any, Any] = {"e": Color.RED, "cls": nn.Linear, "born": 1}
    tc.Snapshot(values=here).save(tmp_path / "v")
    tc.Snapshot.load(tmp_path / "v").restore(values=there)
    assert repr(there) == repr(here)
    assert {k: type(v) for k, v in there.items()} == {k: type(v) for k, v in here.items()}
    assert struct.pack(">d", there["nan"]) == struct.pack(">d", nan)


def test_what_plain_data_cannot_hold_is_refused_by_path(tmp_path: Path) -> None:
    """Refused before a file is touched."""
    path = tmp_path / "v"
    path.write_bytes(b"old")
    with pytest.raises(tc.CannotWrite, match=r"values\['huge'\].*20,001 bits"):
        tc.Snapshot(values={"huge": 1 << 20_000}).save(path)
    assert path.read_bytes() == b"old"
    tc.Snapshot(values={"e": Color.RED}).save(path)
    with pytest.raises(tc.StructureMismatch, match="RED of the enum"):
        tc.Snapshot.load(path).restore(values={"e": 3})


def test_misfits_are_all_named_and_nothing_is_written(tmp_path: Path) -> None:
    """Missing, unexpected and mismatched entries stand in one error."""
    saved = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2), "c": nn.Linear(2, 2)})
    tc.Snapshot(model=saved, optimizer=torch.optim.SGD(saved.parameters())).save(tmp_path / "m")
    loaded = tc.Snapshot.load(tmp_path / "m")
    model = nn.ModuleDict(
        {"a": nn.Linear(2, 3), "b": nn.Linear(2, 2, bias=False), "d": nn.Linear(1, 1)}
    )
    before = tc.copy(model)
    with pytest.raises(tc.StructureMismatch) as caught:
        loaded.restore(model=model, other=[])
    said = str(caught.value)
    weight = "model['a'].weight: float32 (2, 2) in the file, float32 (3, 2) here"
    bias = "model['b'].bias (float32 (2,))"
    for part in (
        weight,
        bias,
        "the source optimizer",
        "the source other",
        "model['d']",
        "nothing was written",
    ):
        assert part in said
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True)
    )


def test_ties_must_be_the_same(tmp_path: Path) -> None:
    """Two names of one tensor in the file are one tensor here, or it is refused."""
    tc.Snapshot(model=Tied()).save(tmp_path / "m")
    model = Tied()
    model.head.weight = nn.Parameter(torch.zeros(12, 8))
    with pytest.raises(tc.StructureMismatch, match=r"the same tensor as model\.embed\.weight"):
        tc.Snapshot.load(tmp_path / "m").restore(model=model)
    base = torch.zeros(10)
    tc.Snapshot(held=[base[:6], base[4:]]).save(tmp_path / "v")
    with pytest.raises(tc.StructureMismatch, match="memory shared with held"):
        tc.Snapshot.load(tmp_path / "v").restore(held=[torch.zeros(6), torch.zeros(6)])


def test_lossy_and_chosen_parts(tmp_path: Path) -> None:
    """What was kept in fewer bits is stored so, and comes back in the dtype of the source."""
    model = Tied()
    tc.Snapshot(model=model, dtype=torch.bfloat16, only=["model.embed", "model.norm"]).save(
        tmp_path / "m"
    )
    assert load_file(tmp_path / "m")["embed.weight"].dtype is torch.bfloat16
    other = Tied()
    tc.Snapshot.load(tmp_path / "m").restore(model=other)
    assert torch.equal(other.embed.weight, model.embed.weight.bfloat16().float())
    assert other.embed.weight.dtype is torch.float32


@pytest.mark.parametrize(
    "damage", ["cut", "flip header", "empty", "json", "pickle", "gone", "directory"]
)
def test_damaged_files_are_refused(damage: str, tmp_path: Path) -> None:
    """Whatever a file lacks, it is refused with a sentence, and never half loaded."""
    path = tmp_path / "m"
    tc.Snapshot(model=Tied()).save(path)
    data = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(data[:-7])
        case "flip header":
            path.write_bytes(data[:40] + b"\0" + data[41:])
        case "empty":
            path.write_bytes(b"")
        case "json":
            path.write_text("{}")
        case "pickle":
            torch.save({"a": 1}, path)
        case "gone":
            path.unlink()
        case "directory":
            path.unlink()
            path.mkdir()
    with pytest.raises(tc.CannotRead):
        tc.Snapshot.load(path)


def test_no_byte_of_a_description_brings_anything_but_a_refusal(tmp_path: Path) -> None:
    """Bytes of the header turned at random: read as something that fits, or refused by name."""
    path, broken = tmp_path / "m", tmp_path / "broken"
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    tc.Snapshot(model=model, optimizer=optimizer, rng=True).save(path)
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    dice = random.Random(0)
    for _ in range(150):
        raw = bytearray(data)
        for _ in range(dice.randint(1, 3)):
            raw[dice.randrange(8 + length)] = dice.choice(b'0123456789"{}[],:ax$-')
        broken.write_bytes(raw)
        try:
            tc.Snapshot.load(broken).restore(model=model, optimizer=optimizer)
        except tc.TruecopyError:
            continue


def test_saves_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The save holds its buffers; updates meanwhile take a second set, and never a third."""
    held = {"x": torch.zeros(300_000)}
    snap = tc.Snapshot(held=held)
    gate = threading.Event()
    real = writing._header

    def slow(*args: Any) -> bytes:
        gate.wait(30)
        return real(*args)

    monkeypatch.setattr(writing, "_header", slow)
    saving = snap.save(tmp_path / "first", background=True)
    assert not saving.done
    for _ in range(3):
        held["x"] += 1
        snap.update()
        assert snap.nbytes == 2_400_000
    held["x"] += 5
    snap.restore()
    assert (held["x"] == 3).all()
    threading.Timer(0.1, gate.set).start()
    second = snap.save(tmp_path / "second", background=True)  # waits for the first
    assert saving.done
    held["x"] += 1
    snap.update()
    assert saving.wait()
    assert second.wait()
    assert snap.nbytes == 2_400_000
    assert load_file(tmp_path / "first")["held['x']"].max() == 0
    assert load_file(tmp_path / "second")["held['x']"].min() == 3


def test_a_failed_save_is_told(tmp_path: Path) -> None:
    """In the foreground at once, in the background by wait(); what stood there stands there."""
    snap = tc.Snapshot(held=[torch.zeros(3)])
    with pytest.raises(tc.CannotWrite):
        snap.save(tmp_path / "no" / "such")
    with pytest.raises(tc.CannotWrite):
        snap.save(tmp_path)
    saving = snap.save(tmp_path / "no" / "such", background=True)
    with pytest.raises(tc.CannotWrite):
        saving.wait()
    assert "failed" in repr(saving)
    snap.save(tmp_path / "no" / "such", background=True)
    with pytest.raises(tc.CannotWrite):
        snap.save(tmp_path / "fine")


def test_a_torn_snapshot_is_not_saved(tmp_path: Path) -> None:
    """Nor is anything put in the place of the file."""
    snap = tc.Snapshot(held=[torch.zeros(3)])
    snap._kept.torn = "a test tore it"
    with pytest.raises(tc.TornSnapshot):
        snap.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_long_files_show_how_far_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """From 1 GiB on, on a terminal; the bound is lowered here."""
    monkeypatch.setattr(writing, "LONG", 1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    snap = tc.Snapshot(held=[torch.zeros(30)])
    snap.save(tmp_path / "m")
    assert "saving m" in capsys.readouterr().err
    tc.Snapshot.load(tmp_path / "m")
    assert "loading m" in capsys.readouterr().err
    snap.save(tmp_path / "m", background=True).wait()
    assert not capsys.readouterr().err


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """Killed while it saves: the old file or the new one is there, whole. `make test-kills` does 200."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "kills.py"), "6", str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["kills"] == 6


def test_a_save_takes_no_second_copy(tmp_path: Path) -> None:
    """Bytes go to the file from the buffers in which they are kept."""
    import tracemalloc

    snap = tc.Snapshot(held=[torch.zeros(4 << 20)])
    tracemalloc.start()
    started = time.perf_counter()
    with torch.profiler.profile(profile_memory=True) as profile:
        snap.save(tmp_path / "m")
    assert time.perf_counter() - started < 60
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20
    assert max((e.self_cpu_memory_usage for e in profile.key_averages()), default=0) < 64 << 10


def test_a_part_of_a_file_is_read_by_name(tmp_path: Path) -> None:
    """The model of a run without its optimizer, and its bytes alone; nothing else is touched."""
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 64)).sum().backward()
    optimizer.step()
    path = tmp_path / "run"
    tc.Snapshot(model=model, optimizer=optimizer, rng=True).save(path)
    other = torch.nn.Linear(64, 64)
    with pytest.raises(tc.StructureMismatch, match=r"the source optimizer.*only='model'"):
        tc.Snapshot.load(path).restore(model=other)
    loaded = tc.Snapshot.load(path, only="model")
    assert loaded.sources == ("model",)
    assert loaded.nbytes == sum(one.nbytes for one in model.parameters())
    state = torch.get_rng_state()
    loaded.restore(model=other)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(other.weight, model.weight)
    assert tc.Snapshot.load(path, only=["optimizer", "model"]).sources == ("model", "optimizer")
    for wrong in ("scheduler", (), ["model", "x"]):
        with pytest.raises(tc.UsageError, match="model, optimizer"):
            tc.Snapshot.load(path, only=wrong)
