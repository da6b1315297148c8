"""What a type checker tells a user about each verb. Read by mypy in `make check`, never run."""

from typing import assert_type

import numpy as np
import torch
from torch import nn

import truecopy as tc

model = nn.Linear(2, 2)
optimizer = torch.optim.AdamW(model.parameters())
tensor = torch.zeros(3)

# A copy has the type of its source, whatever the options.
assert_type(tc.copy(model), nn.Linear)
assert_type(tc.copy(tensor, alias="whole", grad="keep", device="cpu", strict=True), torch.Tensor)
assert_type(tc.copy((model, optimizer)), tuple[nn.Linear, torch.optim.AdamW])
assert_type(tc.copy({"weight": tensor}), dict[str, torch.Tensor])
assert_type(tc.copy(np.zeros(3)).dtype, np.dtype[np.float64])
assert_type(tc.copy(model, into=model), nn.Linear)
assert_type(tc.copy(model, share=["model.weight", nn.Embedding]), nn.Linear)
assert_type(tc.deepcopy(model), nn.Linear)
assert_type(tc.deepcopy(model, {}), nn.Linear)

assert_type(tc.plan(model), tc.Plan)
assert_type(tc.relate(tensor, tensor), tc.Relation)
assert_type(tc.relate(tensor, tensor).why, str)
assert_type(tc.aliases(model), tc.Aliases)
assert_type(tc.bench(["clone", torch.clone], sizes=["1KiB", 64], budget=1.0), tc.BenchResult)
assert_type(tc.bench("copies", threads=1, regimes="into").is_clean, bool)
assert_type(tc.who_shares(tensor), list[tc.Holder])
tc.assert_independent(model, tc.copy(model))

# Every error can be caught as one, and as the builtin that a user would think of.
try:
    tc.copy(model)
except tc.CannotCopy as error:
    assert_type(error.where, str | None)
except (tc.NotIndependent, tc.CannotRead, tc.StructureMismatch, tc.UsageError) as failure:
    assert_type(failure.way_out, str | None)
except tc.TruecopyError:
    pass

# A wrong option is seen before the program runs.
tc.copy(model, alias="sometimes")  # type: ignore[arg-type]
tc.copy(model, gradient="keep")  # type: ignore[call-arg]

# Many are a list; one with a new axis has the type of its source.
assert_type(tc.duplicate(model, 3), list[nn.Linear])
assert_type(
    tc.duplicate({"weight": tensor}, 3, how="lazy", live=True), list[dict[str, torch.Tensor]]
)
assert_type(tc.duplicate(model, 3, how="stack"), nn.Linear)
assert_type(tc.duplicate(tensor, 3, how="view", dim=-1, grad="keep"), torch.Tensor)
tc.duplicate(tensor, 3, live=True)  # type: ignore[call-overload]
tc.duplicate(tensor, 3, how="lazy", dim=1)  # type: ignore[call-overload]

# A snapshot takes any source by name; a loaded one takes them when it is restored.
snap = tc.Snapshot(model=model, optimizer=optimizer, rng=True, only="trainable")
assert_type(snap, tc.Snapshot)
assert_type(snap.diff(), tuple[tc.Change, ...])
assert_type(snap.nbytes, int)
assert_type(snap.left_out, tuple[str, ...])
assert_type(snap.save("run.safetensors", background=True).wait(), bool)
tc.Snapshot.load("run.safetensors").restore(model=model)
tc.Snapshot({"a b": model}, only=["a b"], dtype=torch.bfloat16, device="cpu")
assert_type(tc.Best(mode="min", keep=3, model=model).offer(0.5), bool)
assert_type(tc.Best({"model": model}, mode="max").metrics, tuple[float, ...])
tc.Best(mode="least", model=model)  # type: ignore[arg-type]
tc.Snapshot(model)  # type: ignore[arg-type]
# A capture is a mapping; what it holds is as the model made it.
with tc.capture(model, select=["*", nn.Linear], keep="stats", budget="1 GiB", over="lower") as cap:
    assert_type(cap, tc.Capture)
    assert_type(cap.names("*"), list[str])
    assert_type(cap.save("acts.safetensors"), int)
assert_type(tc.Capture.load("acts.safetensors"), tc.SavedCapture)
tc.capture(model, keep="some")  # type: ignore[arg-type]
tc.capture(tensor)  # type: ignore[arg-type]

# What a block may do, and who may write: the block is handed the trace, or the watch.
with tc.expect(hidden_copies=0, allocated="64 MiB") as run:
    assert_type(run, tc.Trace)
with tc.watch(tensor, model, on_write="report", outside=0) as seen:
    assert_type(seen.writes, tuple[tc.Write, ...])
    assert_type(seen.writes[0].nbytes, int | None)


@tc.expect(copies=1)
def taken(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.clone()]


assert_type(taken(tensor), list[torch.Tensor])
tc.watch(tensor, on_write=lambda write: write.count + 1)
tc.watch(tensor, on_write="shout")  # type: ignore[arg-type]
tc.expect(hidden_copies="1 MiB")  # type: ignore[arg-type]
