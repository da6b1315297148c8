"""The replay of a profile, on profiles that are made here."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from truecopy.tracing.exact.kinship import Kinship
from truecopy.tracing.exact.recorded import Recorded
from truecopy.tracing.exact.replay import Replay
from truecopy.tracing.exact.tree import ALLOCATION, C_CALL, OPERATION, PYTHON, Node, Told


class Clock:
    """Makes nodes, one moment after the other."""

    def __init__(self) -> None:
        self.now = 0

    def tick(self) -> int:
        self.now += 10
        return self.now

    def moves(self, size: int, pointer: int, number: int = 0, thread: int = 1) -> Node:
        node = Node(ALLOCATION, "[memory]", self.tick(), self.now)
        node.size, node.pointer, node.allocation, node.thread = size, pointer, number, thread
        return node

    def operation(self, name: str, *children: Node, inputs: tuple[Recorded, ...] = ()) -> Node:
        node = Node(OPERATION, name, children[0].start - 5 if children else self.tick())
        node.children, node.inputs, node.thread = list(children), list(inputs), 1
        node.stop = self.tick()
        return node

    def function(self, line: int, *children: Node, file: str = "nowhere.py") -> Node:
        node = Node(
            PYTHON, f"{file}({line}): f", children[0].start - 6 if children else self.tick()
        )
        node.file, node.line, node.function, node.thread = file, line, "f", 1
        node.children = list(children)
        node.stop = self.tick()
        return node

    def c_call(self, name: str, line: int, *children: Node) -> Node:
        node = Node(C_CALL, f"<built-in method {name} of Tensor object at 0x1>")
        node.start = children[0].start - 6 if children else self.tick()
        node.call_line, node.children, node.thread = line, list(children), 1
        node.stop = self.tick()
        return node


def replay(*roots: Node) -> Replay:
    run = Replay(None, Kinship(roots, Told()), lambda _r, _i, cls: cls, lambda _: None)
    run.run(list(roots))
    return run


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(1, 10_000), st.integers(1, 3)), max_size=60)
)
@settings(max_examples=200, deadline=None)
def test_the_peak_is_that_of_a_plain_account(moves: list[tuple[int, int, int]]) -> None:
    """Whatever is given and taken back, by whatever thread: the sum is the sum."""
    clock = Clock()
    held: dict[int, int] = {}
    live = peak = given_bytes = 0
    nodes = []
    for pointer, size, thread in moves:
        if pointer in held:
            moved = -held.pop(pointer)
        else:
            moved = held[pointer] = size
            given_bytes += size
        live += moved
        peak = max(peak, live)
        nodes.append(clock.moves(moved, pointer + 1, len(nodes), thread))
    ledger = replay(*nodes).ledger
    assert ledger.memory.live == live
    assert ledger.memory.peak == peak
    assert ledger.memory.allocated == given_bytes
    assert sum(block.nbytes for block in ledger.memory.at_peak()) == peak


def test_an_address_given_again_without_an_end_is_counted_on() -> None:
    """Its end was on a thread that the profiler does not look at: the allocator's total keeps it too."""
    clock = Clock()
    memory = replay(clock.moves(100, 1, 1), clock.moves(50, 1, 2), clock.moves(-50, 1, 2)).memory
    assert (memory.live, memory.peak) == (100, 150)


def test_an_end_of_what_was_there_before_is_no_debt() -> None:
    """A profiler that was on before knows the size; what is alive here never falls below nothing."""
    clock = Clock()
    memory = replay(clock.moves(-100, 1, 1), clock.moves(50, 2, 2)).memory
    assert (memory.live, memory.peak, memory.freed) == (50, 50, 100)


def test_events_are_calls_and_what_no_call_has_made() -> None:
    """A call in C has all that runs inside; an operator is one by itself."""
    clock = Clock()
    inner = [clock.operation("aten::empty", clock.moves(8, 1, 1)), clock.operation("aten::fill_")]
    ones = clock.c_call("ones", 3, clock.operation("aten::ones", *inner))
    number = clock.moves(8, 2, 2)
    add = clock.operation("aten::add", clock.moves(8, 3, 3))
    end = clock.moves(-8, 2, 2)
    run = replay(clock.function(1, ones, number, add, end))
    calls = [(event[1], event[11], event[12]) for event in run.ledger.first]

    assert calls == [("ones", 3, 8), ("add", 1, 16)]
    assert run.operators == 1  # whose file cannot be read
    assert [event[2].site.line for event in run.ledger.first] == [3, 1]


def test_memory_that_no_operation_came_for_is_an_event() -> None:
    """Something allocated it, on that line."""
    clock = Clock()
    loose = clock.moves(8, 1, 1)
    run = replay(clock.function(1, loose, clock.c_call("t", 4, clock.operation("aten::t"))))
    assert [event[1] for event in run.ledger.first] == ["allocation", "t"]


def test_an_operation_handed_on_by_a_mode_is_one() -> None:
    """It stands in the profile as its own child, below Python."""
    clock = Clock()
    again = clock.operation("aten::mm", clock.moves(8, 1, 1))
    outer = clock.operation("aten::mm", clock.function(9, again))
    assert replay(outer).ledger.operations == 1


def test_a_copy_into_scratch_is_hidden_and_into_a_result_is_not() -> None:
    """What is alive when the kernel ends is what it was called for."""
    size = 4096
    for is_kept in (True, False):
        clock = Clock()
        target = Recorded((1024,), (1,), torch.float32, torch.device("cpu"), 7)
        source = Recorded((1024,), (2,), torch.float32, torch.device("cpu"), 8)
        inside = [
            clock.moves(size, 1, 7),
            clock.operation("aten::copy_", inputs=(target, source)),
            *([] if is_kept else [clock.moves(-size, 1, 7)]),
        ]
        run = replay(clock.c_call("kernel", 2, clock.operation("aten::kernel", *inside)))
        assert run.ledger.copied == size
        assert run.ledger.copying.hidden_count == (not is_kept)


def test_a_deep_profile_needs_no_deep_stack() -> None:
    """Ten thousand nodes inside of each other."""
    clock = Clock()
    node = clock.moves(8, 1, 1)
    for _ in range(10_000):
        node = clock.function(1, node)
    assert replay(node).memory.peak == 8


def test_a_line_that_calls_a_module_and_more_is_one_head_of_a_loop() -> None:
    """Marks are told apart by strength; one line may have left both kinds."""
    clock = Clock()
    frames = []
    for _ in range(4):
        module = clock.function(
            1, clock.operation("aten::ones", clock.moves(8, 1, 1)), file="torch/m.py"
        )
        module.module, module.call_line = (1, "Linear"), 5
        frames += [module, clock.moves(-8, 1, 1)]
    outer = clock.function(1, *frames)
    ledger = replay(outer).ledger
    assert len(ledger.rounds.iterations(ledger.events)) == 4
