"""What iterations leave behind, in bytes and in nodes of graphs, and who holds it: asked at the very end."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch

from truecopy import _torch
from truecopy.memory.holders import who_shares
from truecopy.memory.steps import graph_of
from truecopy.structure.naming import name_of
from truecopy.tracing import storages
from truecopy.tracing.ledger import Ledger
from truecopy.tracing.lines import LineOfCode
from truecopy.tracing.nodes import ACCUMULATOR
from truecopy.tracing.rounds import Round, survived
from truecopy.tracing.storages import Block

MOST_SUSPECTS = 3
"""Lines of which the holders are looked for: the look goes through all objects of the process."""

MOST_NODES = 200_000
_NOT_LEAKS = (storages.PARAMETER, storages.BUFFER, storages.GRADIENT, storages.OPTIMIZER_STATE)


@dataclass(frozen=True, slots=True)
class Held:
    """What one line leaves behind."""

    line: LineOfCode
    path: str
    what: str  # "bytes" | "nodes"
    amount: int
    iterations: int
    holders: tuple[str, ...]


def find_survivors(ledger: Ledger, rounds: list[Round]) -> tuple[list[Held], dict[int, int]]:
    """Lines that leave something behind in at least two iterations; and nodes alive, by event."""
    if len(rounds) < FEWEST_ROUNDS:
        return [], {}
    tensors = _living_tensors()
    found = _bytes(ledger, rounds, tensors)
    nodes = _living_nodes(ledger, tensors)
    return [*found, *_nodes(rounds, nodes, tensors)], dict(Counter(event for _, event, _ in nodes))


FEWEST_ROUNDS = 3
"""What is alive after two rounds may be what the second has just made."""


def _living_tensors() -> list[torch.Tensor]:
    return [value for value in gc.get_objects() if issubclass(type(value), torch.Tensor)]


def _bytes(ledger: Ledger, rounds: list[Round], tensors: list[torch.Tensor]) -> list[Held]:
    alive = [block for block in ledger.memory.blocks.values() if block.owner not in _NOT_LEAKS]
    by_line: dict[int, list[tuple[int, Block]]] = {}
    for number, blocks in enumerate(survived(rounds, [*alive, *ledger.memory.long_lived])):
        for block in blocks:
            if block.line is not None and block.nbytes and block.owner not in _NOT_LEAKS:
                by_line.setdefault(id(block.line), []).append((number, block))
    suspects = sorted(by_line.values(), key=lambda rows: -sum(b.nbytes for _, b in rows))
    found = []
    for rank, rows in enumerate(suspects):
        numbers = {number for number, _ in rows}
        if len(numbers) < 2:  # something that is made once is meant to stay
            continue
        block = rows[-1][1]
        holders = _holders(block, ledger, tensors) if rank < MOST_SUSPECTS else ()
        amount = sum(block.nbytes for _, block in rows)
        found.append(Held(block.line, block.path, "bytes", amount, len(numbers), holders))
    return found


def _holders(block: Block, ledger: Ledger, tensors: list[torch.Tensor]) -> tuple[str, ...]:
    for tensor in tensors:
        with _torch.disable_torch_function():
            is_on_it = ledger.memory.find(tensor) is block
        if is_on_it and (names := _names(tensor)):
            return names
    return _holders_of_graphs(block, ledger, tensors)


def _holders_of_graphs(
    block: Block, ledger: Ledger, tensors: list[torch.Tensor]
) -> tuple[str, ...]:
    """Whose graph keeps it: no variable does, but a node behind one. The youngest are asked first."""
    room = MOST_NODES
    for tensor in reversed(tensors):
        with _torch.disable_torch_function():
            if tensor.is_leaf:
                continue
            behind = _nodes_behind(tensor, room)
            is_kept = any(
                ledger.memory.find(one) is block for node in behind for one in _kept_by(node)
            )
        if is_kept and (names := _names(tensor)):
            return tuple(f"{name}.grad_fn" for name in names)
        room -= len(behind)
        if room <= 0:
            break
    return ()


def _nodes_behind(tensor: torch.Tensor, most: int) -> list[Any]:
    """The nodes of the graph that a tensor came out of, at most so many: accumulators have no number."""
    waiting = [graph_of(tensor)]
    seen: dict[Any, None] = {}
    while waiting and len(seen) < most:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen[node] = None
            waiting += [after for after, _ in node.next_functions]
    return list(seen)


def _kept_by(node: Any) -> list[torch.Tensor]:
    """The tensors that a node keeps alive: saved ones, or the leaf whose gradient it adds to."""
    if node.name() == ACCUMULATOR:
        return [node.variable]
    return _torch.saved_tensors(node)


def _names(tensor: torch.Tensor) -> tuple[str, ...]:
    own = name_of(tensor, "")
    others = [holder.path for holder in who_shares(tensor) if _is_of_the_program(holder.path)]
    return tuple(dict.fromkeys([*([own] if own else []), *others]))[:4]


def _is_of_the_program(path: str) -> bool:
    return "truecopy" not in path and not path.startswith("<")


def _living_nodes(ledger: Ledger, tensors: list[torch.Tensor]) -> list[tuple[Any, int, int]]:
    """Line, event, and place of the tensor among all, for every node that the run made and that is alive."""
    seen: set[int] = set()
    found = []
    for place, tensor in enumerate(tensors):
        with _torch.disable_torch_function():
            waiting = [graph_of(tensor)]
        while waiting and len(seen) < MOST_NODES:
            node = waiting.pop()
            if node is None:
                continue
            number = _torch.node_number(node)
            if number in seen:
                continue
            line, event = ledger.nodes.find(number)
            if line is None:
                continue  # older than the run, or an accumulator: no end of a chain that grows
            seen.add(number)
            found.append((line, event, place))
            waiting += [after for after, _ in node.next_functions]
    return found


def _nodes(
    rounds: list[Round], nodes: list[tuple[Any, int, int]], tensors: list[torch.Tensor]
) -> list[Held]:
    by_line: dict[int, list[tuple[int, Any, int]]] = {}
    for line, event, place in nodes:
        for number, one in enumerate(rounds[:-1]):
            if one.first_event <= event <= one.last_event:
                by_line.setdefault(id(line), []).append((number, line, place))
    suspects = sorted(by_line.values(), key=len, reverse=True)
    found = []
    for rank, rows in enumerate(suspects):
        numbers = {number for number, _, _ in rows}
        if len(numbers) < 2:
            continue
        holders: tuple[str, ...] = ()
        if rank < MOST_SUSPECTS:
            holders = tuple(f"{name}.grad_fn" for name in _names(tensors[rows[0][2]]))
        found.append(Held(rows[0][1], "", "nodes", len(rows), len(numbers), holders))
    return found
