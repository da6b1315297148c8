"""`tc.plan`: what a copy will do, compared with what it does; and that looking changes nothing."""

import json
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import truecopy as tc
from oracles import payload


def allocated(task: Any) -> tuple[Any, int, int]:
    """The result, bytes allocated in sum, and the most that were held at once, counted by torch."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as observed:
        result = task()
    found = observed.profiler.kineto_results.events()  # the public table adds them up by operator
    amounts = [event.nbytes() for event in found if event.name() == "[memory]"]
    held = peak = 0
    for amount in amounts:
        held += amount
        peak = max(peak, held)
    return result, sum(amount for amount in amounts if amount > 0), peak


def structures() -> dict[str, Any]:
    big = torch.randn(300_000)
    tied = nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 300))
    tied[1].weight.data = tied[0].weight.data.t()
    return {
        "a small view of a large tensor": {"view": big[5:1000]},
        "overlapping parts": [big[:200_000], big[100_000:]],
        "one tensor": [big],
        "tied layers": tied,
        "expanded": [big[:1000].expand(500, 1000)],
        "gaps": [big.view(300, 1000)[:, ::2]],
        "many": [torch.randn(1000) for _ in range(500)],
        "bools": [torch.zeros(400_000, dtype=torch.bool)],
    }


@pytest.mark.parametrize("name", structures())
def test_a_copy_allocates_what_the_plan_says(name: str) -> None:
    """In sum and at the peak: the spans of the groups, and at most 2 percent more."""
    value = structures()[name]
    planned = tc.plan(value).nbytes
    tc.copy(value)  # whatever torch keeps from a first use is there

    _, total, peak = allocated(lambda: tc.copy(value))

    assert planned <= total <= planned * 1.02 + 64 * 600
    assert peak <= planned * 1.02 + 64 * 600


def test_the_groups_of_a_plan() -> None:
    """Largest first, each with all its paths and its bytes."""
    x = torch.zeros(100)
    state = {"x": x[:10], "tail": x[5:20], "own": torch.zeros(50), "again": x[:10]}
    state["again"] = state["x"]
    plan = tc.plan(state)

    assert [(group.paths, group.nbytes) for group in plan.groups] == [
        (("state['own']",), 200),
        (("state['x']", "state['again']", "state['tail']"), 80),
    ]
    assert plan.nbytes == 280
    assert tc.plan(state, alias="whole").nbytes == 600
    assert tc.plan(state, alias="break").nbytes == 200 + 40 + 60
    assert tc.plan(state, share="['own']").nbytes == 80


def test_a_plan_of_what_would_fail() -> None:
    """Every refusal of `copy` is a row of the plan, with the same path."""
    y = torch.ones(2, requires_grad=True) * 2
    x = torch.ones(3)
    shared = [x, x[1:]]
    assert [(n.path, n.why) for n in tc.plan([y], grad="error").fails] == [
        ("obj[0]", "was computed by autograd (MulBackward0)")
    ]
    assert [n.path for n in tc.plan(shared, alias="error").fails] == ["shared[0]"]
    generator = list(range(2)), (i for i in range(2))
    assert [n.path for n in tc.plan(generator).fails] == ["generator[1]"]
    assert tc.plan(shared).fails == ()


def test_a_plan_tells_what_is_dropped() -> None:
    """Hooks of tensors, and attributes that an object's own state leaves out."""

    class Forgets:
        def __init__(self) -> None:
            self.kept, self.cache, self.empty, self.nothing = 1, torch.ones(2), [], None

        def __getstate__(self) -> dict:
            return {"kept": self.kept}

    state = {"x": torch.ones(2, requires_grad=True), "o": Forgets()}
    state["x"].register_hook(lambda grad: grad)
    assert [(n.path, n.why) for n in tc.plan(state).dropped] == [
        ("state['x']", "backward hooks of tensors belong to their graph and are not copied"),
        ("state['o'].cache", "Forgets leaves it out of its own state"),
    ]


def test_looking_changes_nothing() -> None:
    """No hook fires, no version moves, nothing is materialized, nothing is made."""
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model.register_forward_hook(lambda *_: pytest.fail("a hook was called"))
    model.lazy = torch._lazy_clone(torch.ones(3))
    state = torch.get_rng_state()
    before = [payload(p) for p in model.parameters()], [p._version for p in model.parameters()]
    attributes = set(vars(model))

    _, total, _ = allocated(lambda: tc.plan(model))

    assert total == 0
    assert before == (
        [payload(p) for p in model.parameters()],
        [p._version for p in model.parameters()],
    )
    assert set(vars(model)) == attributes
    assert torch._C._is_cow_tensor(model.lazy)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_plan_is_a_record() -> None:
    """Plain data in the common envelope, and a text to be printed."""
    x = torch.zeros(4)
    state = {"x": x, "head": x[:2]}
    plan = tc.plan(state)
    data = json.loads(json.dumps(plan.to_json()))

    assert data["kind"] == "plan"
    assert data["nbytes"] == 16
    assert data["groups"] == [{"paths": ["state['x']", "state['head']"], "nbytes": 16}]
    assert {"kept", "dropped", "points_back", "fails", "undecided", "version"} <= data.keys()
    assert "state['x']" in str(plan)
