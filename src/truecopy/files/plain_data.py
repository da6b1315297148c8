"""What plain data is: the globals that a checkpoint of tensors and containers may refer to."""

from __future__ import annotations

from truecopy.files.text import printable, shorten

# Written as torch.save writes them, and split, since they name what is in files, not what we call.
_FUNCTIONS: dict[tuple[str, ...], frozenset[str]] = {
    ("collections",): frozenset(("OrderedDict", "Counter")),
    ("builtins",): frozenset(("set", "bytearray", "complex")),
    ("_codecs",): frozenset(("encode",)),
    ("torch",): frozenset(("Size", "Tensor", "device")),
    ("torch", "nn", "parameter"): frozenset(("Parameter",)),
    ("torch", "serialization"): frozenset(("_get_layout",)),
    ("torch", "_tensor"): frozenset(("_rebuild_from_type_v2",)),
    ("torch", "storage"): frozenset(("UntypedStorage",)),
    ("torch", "_utils"): frozenset((
        "_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter",
        "_rebuild_parameter_with_state", "_rebuild_qtensor", "_rebuild_sparse_tensor",
        "_rebuild_meta_tensor_no_storage", "_rebuild_nested_tensor",
    )),
}  # fmt: skip
ITEM_BYTES = {
    "DoubleStorage": 8, "FloatStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2,
    "LongStorage": 8, "IntStorage": 4, "ShortStorage": 2, "CharStorage": 1, "ByteStorage": 1,
    "BoolStorage": 1, "ComplexDoubleStorage": 16, "ComplexFloatStorage": 8, "QInt8Storage": 1,
    "QUInt8Storage": 1, "QInt32Storage": 4, "QUInt4x2Storage": 1, "QUInt2x4Storage": 1,
    "UntypedStorage": 1,
}  # fmt: skip
STRIDED = frozenset(
    ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor")
)
_QUANTIZER_SCHEMES = frozenset((
    "per_tensor_affine", "per_tensor_symmetric", "per_channel_affine", "per_channel_symmetric",
    "per_channel_affine_float_qparams",
))  # fmt: skip


class Refused(Exception):
    """Why a pickle is not read, as the predicate of a sentence about the file, and the way out."""

    def __init__(self, what: str, got: str | None = None, way_out: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.got = got
        self.way_out = way_out


def is_dtype_name(name: str) -> bool:
    """Whether torch has a dtype of this name."""
    import torch

    # Not getattr: the name comes from a file, and torch imports modules when asked for theirs.
    return isinstance(vars(torch).get(name), torch.dtype)


def is_allowed(module: tuple[str, ...], name: str) -> bool:
    """Whether plain data may refer to this global."""
    if name in _FUNCTIONS.get(module, ()):
        return True
    if module != ("torch",):
        return False
    return name in ITEM_BYTES or name in _QUANTIZER_SCHEMES or is_dtype_name(name)


def needs_code(name: str) -> Refused:
    """A pickle that wants something imported and called."""
    name = shorten(printable(name), 200)
    return Refused(
        f"needs code to be read: it asks for {name}",
        way_out="Load it where you trust it with torch.load(..., weights_only=False), "
        "and save only tensors, numbers, strings and containers of them",
    )
