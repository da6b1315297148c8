"""Kill a program that saves, again and again, at any moment; look at what it leaves: `make test-kills`.

python tests/kills.py KILLS DIRECTORY [RESULT.json]
"""

import json
import os
import platform
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

import truecopy as tc

# Each tensor of a generation has the generation as every value: one that is torn has two.
VICTIM = """
import sys, torch, truecopy as tc
path, held = sys.argv[1], {str(i): torch.zeros(100_000) for i in range(8)}
snap = tc.Snapshot(held=held, counter={"n": [0]})
generation = int(sys.argv[2])
while True:
    generation += 1
    for tensor in held.values():
        tensor.fill_(generation)
    snap.update()
    saving = snap.save(path, background=bool(generation % 2))
    if generation == int(sys.argv[2]) + 1:
        saving.wait()
        print("saving", flush=True)
"""


def generation_of(path: Path) -> int:
    """The generation of a file, which must be whole."""
    held = {str(i): torch.full((100_000,), -1.0) for i in range(8)}
    tc.Snapshot.load(path).restore(held=held, counter={"n": [0]})
    values = {float(value) for tensor in held.values() for value in (tensor.min(), tensor.max())}
    assert len(values) == 1, f"torn: {sorted(values)}"
    return int(values.pop())


def main(kills: int, directory: Path, result: Path | None) -> None:
    """Kill so many times, and tell what was found."""
    path = directory / "run.safetensors"
    dice = random.Random(time.time_ns())
    generation, advanced, strays = 0, 0, 0
    for _ in range(kills):
        victim = subprocess.Popen(
            [sys.executable, "-c", VICTIM, str(path), str(generation)],
            stdout=subprocess.PIPE,
        )
        assert victim.stdout is not None
        victim.stdout.readline()
        time.sleep(dice.random() * 0.2)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
        now = generation_of(path)
        assert now > generation
        advanced += now - generation
        generation = now
        strays += sum(one != path for one in directory.iterdir())
        for stray in directory.iterdir():
            if stray != path:
                stray.unlink()
    record = {
        "kills": kills, "whole": kills, "saves": advanced, "strays": strays,
        "torch": torch.__version__, "system": platform.platform(),
    }  # fmt: skip
    print(json.dumps(record))
    if result is not None:
        result.write_text(json.dumps(record, indent=1) + os.linesep)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None)
