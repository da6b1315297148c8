"""The profile as plain nodes, read once: torch makes a new object for every look at its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from truecopy import _torch
from truecopy.tracing.exact.recorded import Recorded

OPERATION, ALLOCATION, PYTHON, C_CALL, OTHER = range(5)
"""Kinds of nodes: what torch runs, memory given or taken back, a Python function, one written in C."""

_KINDS = {
    _torch.EventKind.TorchOp: OPERATION,
    _torch.EventKind.Allocation: ALLOCATION,
    _torch.EventKind.PyCall: PYTHON,
    _torch.EventKind.PyCCall: C_CALL,
}


class Node:
    """One event of a profile, and those inside of it, in order."""

    __slots__ = (
        "allocation", "call_line", "children", "device", "file", "function", "inputs", "is_backward",
        "kind", "line", "module", "name", "number", "pointer", "sequence", "size", "start", "stop",
        "thread", "total",
    )  # fmt: skip

    def __init__(self, kind: int, name: str = "", start: int = 0, stop: int = 0) -> None:
        self.kind = kind
        self.name = name
        self.start = start
        self.stop = stop
        self.thread = 0
        self.children: list[Node] = []
        # of operations
        self.inputs: list[Any] = []  # Recorded, lists of them, numbers, None
        self.sequence = -1  # of the node of a graph that it may make, or that it is
        self.number = 0  # by which its other arguments are found
        self.is_backward = False
        # of allocations
        self.size = 0  # less than 0 where memory is taken back
        self.pointer = 0
        self.allocation = -1  # its number
        self.total = 0  # of the allocator, after it
        self.device = "cpu"
        # of functions
        self.call_line = 0  # of the Python function that called it
        self.file = ""  # of a Python function: as the profile has it
        self.line = 0
        self.function = ""
        self.module: tuple[int, str] | None = None  # identity and class, of a call of a module


@dataclass(slots=True)
class Told:
    """What calls of modules and optimizers tell beside: by number of the allocation, by identity."""

    owners: dict[int, str] = field(default_factory=dict)  # "parameter", "gradient" and so on
    modules: dict[int, str] = field(default_factory=dict)  # their classes


def read(roots: Iterable[Any]) -> tuple[list[Node], Told]:
    """The events of a profile as nodes, and what modules and optimizers in it tell."""
    found: list[Node] = []
    told = Told()
    waiting: list[tuple[Any, list[Node]]] = [(root, found) for root in reversed(list(roots))]
    while waiting:
        event, into = waiting.pop()
        node = _node(event, told)
        into.append(node)
        children = event.children
        if children:
            place = node.children
            waiting += [(child, place) for child in reversed(children)]
    return found, told


def _node(event: Any, told: Told) -> Node:
    tag, fields = event.typed
    kind = _KINDS.get(tag, OTHER)
    start = event.start_time_ns
    node = Node(kind, _text(event, "name"), start, start + max(0, event.duration_time_ns))
    node.thread = event.start_tid
    if kind == OPERATION:
        node.inputs = [_input(given) for given in fields.inputs]
        node.sequence = fields.sequence_number
        node.number = event.correlation_id
        node.is_backward = fields.scope == _torch.EventScope.BACKWARD_FUNCTION
    elif kind == ALLOCATION:
        node.size = fields.alloc_size
        node.pointer = fields.ptr
        node.allocation = -1 if fields.allocation_id is None else fields.allocation_id
        node.total = fields.total_allocated
        node.device = fields.device.type
    elif kind in (PYTHON, C_CALL):
        node.call_line = fields.caller.line_number
        if kind == PYTHON:
            _python(node, fields, told)
    return node


def _python(node: Node, fields: Any, told: Told) -> None:
    place = fields.callsite
    node.file, node.function = _text(place, "file_name"), _text(place, "function_name")
    node.line = place.line_number
    if fields.module is not None:
        module = fields.module
        node.module = module.self_ptr, module.cls_name
        told.modules[module.self_ptr] = module.cls_name
        for _, parameter, gradient in module.parameters:
            _note(told, "parameter", parameter)
            _note(told, "gradient", gradient)
    elif fields.optimizer is not None:
        for parameter, gradient, state in fields.optimizer.parameters:
            _note(told, "parameter", parameter)
            _note(told, "gradient", gradient)
            for _, tensor in state:
                _note(told, "optimizer state", tensor)


def _text(event: Any, name: str) -> str:
    """A text of the profile. That of a function in C is what its object says of itself: any bytes."""
    try:
        return str(getattr(event, name))
    except UnicodeDecodeError:
        return ""


def _note(told: Told, owner: str, tensor: Any) -> None:
    if tensor is not None and tensor.allocation_id is not None:
        told.owners[tensor.allocation_id] = owner


def _input(given: Any) -> Any:
    if type(given) is list:
        return [_input(one) for one in given]
    return Recorded.of(given) if hasattr(given, "storage_data_ptr") else given
