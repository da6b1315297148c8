"""The pickle in a checkpoint, read without doing anything that it says.

torch's own reader (weights_only=True) runs no code of a file, but does what the file asks of the few
functions it allows: make a bytearray of any length, hash a tuple nested a hundred times in itself,
put a tensor past the end of its storage. So the opcodes are followed here first, on stand-ins, and
what a checkpoint has no need of is refused before torch sees it.

In: the bytes. Out: a `Contents`: the storages that the pickle asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import IO, Any

from truecopy.files.opcodes import opcodes_of
from truecopy.files.plain_data import (
    ITEM_BYTES,
    STRIDED,
    Refused,
    is_allowed,
    is_dtype_name,
    needs_code,
)
from truecopy.files.text import printable, shorten

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
"""With which a file of torch.save in the format before 1.6 begins."""

_MOST_DEPTH = 200
_LONGEST_KEY = 1_000
_MOST_HASHING = 50_000_000
_LARGEST_INTEGER_KEY = 2**64


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage that a pickle refers to by key."""

    key: str
    nbytes: int
    item_bytes: int
    typed: bool = True


@dataclass(slots=True)
class Contents:
    """What a pickle holds, as far as it matters before it is loaded."""

    value: Any = None
    storages: dict[str, Storage] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Global:
    module: tuple[str, ...]
    name: str
    depth: int = 0
    hashing: int = 1


@dataclass(slots=True, eq=False)
class _Tuple:
    items: list[Any]
    depth: int
    hashing: (
        int  # steps that hashing it takes: it hashes what it holds, however often it is the same
    )


@dataclass(slots=True, eq=False)
class _Box:
    """A list, dict, set or object that the pickle makes and fills."""

    kind: str
    depth: int = 1
    filled: int = 0  # steps that hashing its members takes, for a set that is made from a list
    hashing: int = 1


_MARK: Any = object()


def _depth(value: Any) -> int:
    return getattr(value, "depth", 0)


def _hashing(value: Any) -> int:
    return getattr(value, "hashing", 1)


def scan(file: IO[bytes]) -> Contents:
    """Follow one pickle from the file's position to its end; the file is left behind it."""
    machine = _Machine()
    try:
        for opcode, argument in opcodes_of(file):
            handler = _HANDLERS.get(opcode)
            if handler is None:
                raise Refused(
                    f"holds a pickle in a form that plain checkpoints do not have (opcode {opcode})",
                    way_out="Load it where you trust it, and save it with torch.save and its "
                    "default protocol",
                )
            handler(machine, argument)
    except Refused:
        raise
    except (ValueError, IndexError, TypeError, AttributeError, KeyError, Warning) as error:
        # A stack that runs empty, a memo that was never put, an opcode cut in two.
        raise Refused("holds a damaged pickle", printable(str(error)) or None) from error
    return machine.found


class _Machine:
    """The pickle machine, with stand-ins on its stack."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.found = Contents()
        self.work = 0

    def since_mark(self) -> list[Any]:
        items: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            items.append(value)
        return items[::-1]

    def push_tuple(self, items: list[Any]) -> None:
        depth = 1 + max(map(_depth, items), default=0)
        _bound_depth(depth)
        hashing = min(1 + sum(map(_hashing, items)), _MOST_HASHING + 1)
        self.stack.append(_Tuple(items, depth, hashing))

    def put_into(self, box: Any, value: Any) -> None:
        if not isinstance(box, _Box):
            raise Refused("holds a damaged pickle", "something put into what holds nothing")
        box.depth = max(box.depth, 1 + _depth(value))
        inside = value.filled if isinstance(value, _Box) else 0  # lists of pairs, for OrderedDict
        box.filled = min(box.filled + _hashing(value) + inside, _MOST_HASHING + 1)
        _bound_depth(box.depth)

    def set_item(self, box: Any, key: Any, value: Any) -> None:
        self.put_into(box, value)
        if type(key) is str and len(key) > _LONGEST_KEY:
            raise Refused(
                "has a key too long for a name",
                f"{len(key):,} characters, beginning {key[:40]!r}",
            )
        if type(key) is int and abs(key) > _LARGEST_INTEGER_KEY:
            raise Refused("has an integer key beyond 64 bits")  # such keys can be made to collide
        self.hash(_hashing(key))

    def hash(self, steps: int) -> None:
        self.work += steps
        if self.work > _MOST_HASHING:
            raise Refused("has keys that would take too long to hash", "tuples of tuples of tuples")

    def call(self, function: Any, arguments: Any) -> Any:
        """What a call would make, where a checkpoint has need of it."""
        if not isinstance(function, _Global) or not isinstance(arguments, _Tuple):
            raise Refused("holds a damaged pickle", "a call of what cannot be called")
        args = arguments.items
        _bound_depth(arguments.depth)
        name = function.name
        if name == "_rebuild_from_type_v2":
            inner, _, inner_arguments = args[:3]
            return self.call(inner, inner_arguments)
        if name in STRIDED:
            _check_strided(*args[:4], item_bytes=_item_bytes(args[6]) if name[-2:] == "v3" else 0)
        if name == "_rebuild_qtensor":
            _check_quantized(args[0], args[2])
        if name in ("set", "OrderedDict", "Counter") and args:
            self.check_members(args[0])
        if name == "bytearray" and args:
            _check_bytes(args[0])
        if name == "encode" and args[1:] != ["latin1"]:
            raise Refused("holds a damaged pickle", "bytes that are not written as torch.save does")
        if name in ("Tensor", "UntypedStorage") and args:
            raise Refused("asks for memory that is not in the file")
        if function.module == ("torch",) and name not in ("Size", "Tensor", "device"):
            raise Refused("holds a damaged pickle", f"a call of torch.{printable(name)}")
        hashing = arguments.hashing if name == "Size" else 1
        return _Box(name, arguments.depth, hashing=hashing)

    def check_members(self, members: Any) -> None:
        """What a set or a dict is made from: it hashes each."""
        if not isinstance(members, _Box):
            raise Refused("holds a damaged pickle", "a set or dict of what is no list")
        self.hash(members.filled)

    def build(self, target: Any, state: Any) -> None:
        """`__setstate__`, which plain data has for OrderedDict and for tensors of old files."""
        if isinstance(target, _Box) and target.kind == "OrderedDict":
            self.put_into(target, state)
        elif isinstance(target, _Box) and target.kind == "Tensor" and isinstance(state, _Tuple):
            _check_strided(*state.items)
        else:
            raise Refused("holds a damaged pickle", "a state for what has none")

    def storage(self, saved: Any) -> Storage:
        """The storage that a persistent id stands for."""
        match saved:
            case _Tuple(items=["storage", _Global(name=kind), str(key), str(), int(count), *view]):
                pass
            case _:
                raise Refused("holds a damaged pickle", "a reference to what is no storage")
        if kind not in ITEM_BYTES or count < 0:
            raise Refused("holds a damaged pickle", f"{count} items of {printable(kind)}")
        item_bytes = ITEM_BYTES[kind]
        storage = Storage(key, count * item_bytes, item_bytes, kind != "UntypedStorage")
        known = self.found.storages.setdefault(key, storage)
        if known.nbytes != storage.nbytes:
            raise Refused(
                f"gives storage {key!r} two sizes",
                f"{known.nbytes:,} and {storage.nbytes:,} bytes",
            )
        if view and view[0] is not None:  # files of torch 0.3: a storage inside of another
            _, offset, length = view[0].items
            if offset < 0 or length < 0 or offset + length > count:
                raise Refused("has a view that lies outside of its storage")
            return Storage(key, length * item_bytes, item_bytes)
        return storage


def _bound_depth(depth: int) -> None:
    if depth > _MOST_DEPTH:
        raise Refused(
            "is nested too deeply", f"more than {_MOST_DEPTH} containers inside each other"
        )


def _check_bytes(value: Any) -> None:
    """A bytearray is made from bytes that are in the file, not of a length that somebody names."""
    if not isinstance(value, _Box) or value.kind != "encode":
        raise Refused("asks for a bytearray that is not in the file")


def _item_bytes(dtype: Any) -> int:
    import torch

    if not isinstance(dtype, _Global) or not is_dtype_name(dtype.name):
        raise Refused("holds a damaged pickle", "a tensor without a dtype")
    return int(getattr(torch, dtype.name).itemsize)


def _check_quantized(storage: Any, size: Any) -> None:
    """Refuse what torch would allocate unseen: it takes the whole shape of a quantized tensor."""
    if prod(_numbers(size)) > storage.nbytes:
        raise Refused("has a quantized tensor larger than its storage")


def _check_strided(
    storage: Any, offset: Any, size: Any, stride: Any, *, item_bytes: int = 0
) -> None:
    """Refuse a tensor that reaches beyond its storage, before torch makes room for it."""
    lengths, strides = _numbers(size), _numbers(stride)
    if not isinstance(storage, Storage) or type(offset) is not int or len(lengths) != len(strides):
        raise Refused("holds a damaged pickle", "a tensor that is not made as torch.save makes it")
    if offset < 0 or any(n < 0 for n in (*lengths, *strides)):
        raise Refused("has a tensor of negative size, stride or offset")
    last = offset + sum((n - 1) * s for n, s in zip(lengths, strides, strict=True))
    needed = (last + 1) * (item_bytes or storage.item_bytes) if prod(lengths) else 0
    if needed > storage.nbytes:
        raise Refused(
            f"has a tensor that reaches beyond its storage {storage.key!r}",
            f"a tensor of shape {_shown(lengths)} and stride {_shown(strides)} that needs "
            f"{needed:,} bytes of {storage.nbytes:,}",
        )


def _numbers(value: Any) -> tuple[int, ...]:
    if isinstance(value, _Tuple) and all(type(n) is int for n in value.items):
        return tuple(value.items)
    raise Refused("holds a damaged pickle", "a shape that is not made of numbers")


def _shown(numbers: tuple[int, ...]) -> str:
    return shorten(str(numbers), 80)


# --- one function for each opcode ----------------------------------------------------------------


def _push(machine: _Machine, argument: Any) -> None:
    machine.stack.append(argument)


def _global(machine: _Machine, argument: Any) -> None:
    module, _, name = argument.partition(" ")
    if module == "__builtin__":  # Python 2's name, which protocol 2 writes
        module = "builtins"
    parts = tuple(module.split("."))
    if not is_allowed(parts, name):
        raise needs_code(f"{module}.{name}")
    machine.stack.append(_Global(parts, name))


def _call(machine: _Machine, _: Any) -> None:
    arguments = machine.stack.pop()
    function = machine.stack.pop()
    machine.stack.append(machine.call(function, arguments))


def _build(machine: _Machine, _: Any) -> None:
    state = machine.stack.pop()
    machine.build(machine.stack[-1], state)


def _append(machine: _Machine, _: Any) -> None:
    value = machine.stack.pop()
    machine.put_into(machine.stack[-1], value)


def _appends(machine: _Machine, _: Any) -> None:
    for value in machine.since_mark():
        machine.put_into(machine.stack[-1], value)


def _set_item(machine: _Machine, _: Any) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.set_item(machine.stack[-1], key, value)


def _set_items(machine: _Machine, _: Any) -> None:
    items = machine.since_mark()
    for key, value in zip(items[::2], items[1::2], strict=True):
        machine.set_item(machine.stack[-1], key, value)


def _tuple(machine: _Machine, _: Any) -> None:
    machine.push_tuple(machine.since_mark())


def _short_tuple(length: int) -> Callable[[_Machine, Any], None]:
    def make(machine: _Machine, _: Any) -> None:
        items = machine.stack[-length:]
        if len(items) < length:
            raise IndexError("the stack is empty")
        del machine.stack[-length:]
        machine.push_tuple(items)

    return make


def _box(kind: str) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.stack.append(_Box(kind))


def _constant(value: Any) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.stack.append(value)


def _get(machine: _Machine, argument: Any) -> None:
    machine.stack.append(machine.memo[argument])


def _put(machine: _Machine, argument: Any) -> None:
    machine.memo[argument] = machine.stack[-1]


def _persistent(machine: _Machine, _: Any) -> None:
    machine.stack.append(machine.storage(machine.stack.pop()))


def _stop(machine: _Machine, _: Any) -> None:
    machine.found.value = machine.stack.pop()


def _nothing(machine: _Machine, argument: Any) -> None:
    del machine, argument


_HANDLERS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": _nothing, "STOP": _stop, "MARK": _constant(_MARK),
    "NONE": _constant(None), "NEWFALSE": _constant(False), "NEWTRUE": _constant(True),
    "BININT": _push, "BININT1": _push, "BININT2": _push, "LONG1": _push, "BINFLOAT": _push,
    "BINUNICODE": _push, "SHORT_BINSTRING": _push,
    "EMPTY_TUPLE": lambda machine, _: machine.push_tuple([]),
    "TUPLE": _tuple, "TUPLE1": _short_tuple(1), "TUPLE2": _short_tuple(2),
    "TUPLE3": _short_tuple(3),
    "EMPTY_LIST": _box("list"), "EMPTY_DICT": _box("dict"), "EMPTY_SET": _box("set"),
    "APPEND": _append, "APPENDS": _appends, "SETITEM": _set_item, "SETITEMS": _set_items,
    "GLOBAL": _global, "REDUCE": _call, "NEWOBJ": _call, "BUILD": _build,
    "BINGET": _get, "LONG_BINGET": _get, "BINPUT": _put, "LONG_BINPUT": _put,
    "BINPERSID": _persistent,
}  # fmt: skip
