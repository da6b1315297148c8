"""Plain values as JSON that says exactly what they were. What JSON cannot say is tagged, or refused.

A tagged value is an object with one key that begins with "$". Objects never stand for dicts: those are
lists of pairs, so keys may be anything.
"""

from __future__ import annotations

import base64
import enum
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from truecopy import _torch

_MOST_BITS = 10_000
_TORCH_NAMES: tuple[type, ...] = (
    torch.dtype, torch.layout, torch.memory_format, torch.qscheme,
)  # fmt: skip


class Unwritable(Exception):
    """A value that plain data cannot hold; the message says why."""


class Mismatch(Exception):
    """A value that is only known by name, and is not what it is here."""


def encode(value: Any) -> Any:
    """One plain value as JSON. Raises Unwritable."""
    cls = type(value)
    if value is None or cls in (bool, str):
        return value
    if cls is int:
        if value.bit_length() > _MOST_BITS:
            raise Unwritable(f"an int of {value.bit_length():,} bits")
        return value
    if cls is float:
        return value if math.isfinite(value) else {"$float": struct.pack(">d", value).hex()}
    encoder = _ENCODERS.get(cls)
    if encoder is not None:
        name, encoded = encoder
        return {name: encoded(value)}
    if isinstance(value, enum.Enum):
        return {"$enum": [type_name(cls), value.name]}
    if isinstance(value, np.generic):
        array = np.asarray(value)
        return {"$numpy": [array.dtype.str, _text(array.tobytes())]}
    if isinstance(value, type):
        return {"$type": type_name(value)}
    raise Unwritable(f"a {cls.__name__}")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def type_name(cls: type) -> str:
    """A class by module and name, which is all that a file says of one; sharded modules by their own."""
    cls = _torch.class_before_sharding(cls)
    return f"{cls.__module__}:{cls.__qualname__}"


_ENCODERS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    complex: ("$complex", lambda value: [encode(value.real), encode(value.imag)]),
    bytes: ("$bytes", _text),
    range: ("$range", lambda value: [value.start, value.stop, value.step]),
    type(...): ("$ellipsis", lambda _: True),
    torch.Size: ("$size", list),
    torch.device: ("$device", str),
    **{cls: ("$torch", lambda value: str(value).removeprefix("torch.")) for cls in _TORCH_NAMES},
}


def decode(data: Any, live: Any) -> Any:
    """The value that `encode` wrote. What is known by name alone must be what `live` is.

    Raises Mismatch where it is not, ValueError where the data is not as `encode` writes it.
    """
    if data is None or type(data) in (bool, int, float, str):
        return data
    if not isinstance(data, dict) or len(data) != 1:
        raise ValueError(f"{data!r:.80} is no plain value")
    ((tag, inner),) = data.items()
    match tag:
        case "$float":
            return struct.unpack(">d", bytes.fromhex(inner))[0]
        case "$complex":
            return complex(*(decode(part, None) for part in inner))
        case "$bytes":
            return base64.b64decode(inner, validate=True)
        case "$range":
            return range(*inner)
        case "$ellipsis":
            return ...
        case "$size":
            return torch.Size(inner)
        case "$device":
            return torch.device(inner)
        case "$torch":
            found = vars(torch).get(inner)  # not getattr: the name comes from a file
            if isinstance(found, _TORCH_NAMES):
                return found
            raise ValueError(f"torch has no {inner!r:.40}")
        case "$numpy":
            dtype, text = inner
            return _numpy_scalar(dtype, text)
        case "$enum":
            return _member(inner, live)
        case "$type":
            if isinstance(live, type) and type_name(live) == inner:
                return live
            raise Mismatch(f"the class {inner}")
    raise ValueError(f"{tag!r:.40} is no tag")


def _numpy_scalar(dtype: str, text: str) -> Any:
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise ValueError("objects are no plain data")
    return np.frombuffer(base64.b64decode(text, validate=True), kind, 1)[0]


def _member(inner: Any, live: Any) -> enum.Enum:
    name, member = inner
    if isinstance(live, enum.Enum) and type_name(type(live)) == name:
        found = type(live).__members__.get(member)
        if found is not None:
            return found
    raise Mismatch(f"{member} of the enum {name}")


# --- state of generators: small arrays and containers ----------------------------------------------


def encode_state(state: Any) -> Any:
    """What a generator hands out as its state. Raises Unwritable."""
    if isinstance(state, torch.Tensor):
        return {"$bytes-tensor": _text(state.detach().cpu().numpy().tobytes())}
    if isinstance(state, np.ndarray):
        return {"$array": [state.dtype.str, list(state.shape), _text(state.tobytes())]}
    if isinstance(state, dict):
        return {"$dict": [[encode_state(k), encode_state(v)] for k, v in state.items()]}
    if type(state) is tuple:
        return {"$tuple": [encode_state(one) for one in state]}
    return encode(state)


def decode_state(data: Any) -> Any:
    """The state that `encode_state` wrote. Raises ValueError."""
    match data:
        case {"$bytes-tensor": str(text)}:
            raw = bytearray(base64.b64decode(text, validate=True))
            return torch.frombuffer(raw, dtype=torch.uint8).clone()
        case {"$array": [str(dtype), list(shape), str(text)]}:
            kind = np.dtype(dtype)
            if kind.hasobject:
                raise ValueError("objects are no plain data")
            raw = bytearray(base64.b64decode(text, validate=True))
            return np.frombuffer(raw, kind).reshape(shape)
        case {"$dict": list(pairs)}:
            return {decode_state(k): decode_state(v) for k, v in pairs}
        case {"$tuple": list(items)}:
            return tuple(map(decode_state, items))
    return decode(data, None)
