"""More samples of ours: what the database leaves out and a line can say, a spelling and its calls."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from truecopy.explaining.samples import Subject
from truecopy.explaining.watching import Sample

Call = tuple[Any, ...]
"""The arguments of one call; a dictionary at its end holds the named ones."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One operation by all its spellings, which take the same arguments."""

    spellings: str
    calls: Callable[[], list[Call]]

    def subject(self) -> Subject:
        """Its samples, by every spelling."""
        spellings = tuple(self.spellings.split())
        samples = tuple(_sample(spelling, call) for spelling in spellings for call in self.calls())
        return Subject(_name(spellings[0]), spellings, samples)


def _sample(spelling: str, call: Call) -> Sample:
    function = attrgetter(spelling.removeprefix("torch."))(torch)
    args, kwargs = (call[:-1], call[-1]) if call and isinstance(call[-1], dict) else (call, {})
    return Sample(spelling, function if callable(function) else function.__get__, args, kwargs)


def _name(spelling: str) -> str:
    return spelling.removeprefix("torch.").removeprefix("Tensor.")


def listed() -> Iterator[Subject]:
    """One subject for each line. Allocates the samples, all small."""
    for one in _LISTED:
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # of sparse tensors, that their invariants are not checked
            subject = one.subject()
        yield subject


def _x(*shape: int) -> Tensor:
    count = 1
    for length in shape:
        count *= length
    return torch.arange(count, dtype=torch.float32).div(8).reshape(shape)


def _one() -> list[Call]:
    return [(_x(2, 3),), (_x(2, 3, 4),)]


def _sparse(*shape: int) -> Tensor:
    made: Tensor = _x(*shape).to_sparse_coo()
    return made


def _quantized() -> list[Call]:
    return [(torch.quantize_per_tensor(_x(2, 3), 0.1, 0, torch.quint8),)]


def _complex() -> Tensor:
    return torch.complex(_x(2, 3), _x(2, 3))


_DTYPES = {
    "half": torch.float16, "bfloat16": torch.bfloat16, "float": torch.float32, "double": torch.float64,
    "byte": torch.uint8, "char": torch.int8, "short": torch.int16, "int": torch.int32, "long": torch.int64,
    "bool": torch.bool, "chalf": torch.complex32, "cfloat": torch.complex64, "cdouble": torch.complex128,
}  # fmt: skip


def _to_dtype(dtype: torch.dtype) -> list[Call]:
    return [(_x(2, 3),), (_x(2, 3).to(dtype),)]


_COO = torch.tensor([[0, 1], [1, 2]])
_ROWS, _COLUMNS = torch.tensor([0, 1, 2]), torch.tensor([1, 2])

_LISTED = (
    # in place
    Listed("torch.relu_ torch.Tensor.relu_ torch.nn.functional.relu_", _one),
    Listed("torch.selu_ torch.nn.functional.selu_", _one),
    Listed("torch.celu_ torch.nn.functional.celu_", _one),
    Listed("torch.rrelu_ torch.nn.functional.rrelu_", _one),
    Listed("torch.nn.functional.elu_", _one),
    Listed("torch.nn.functional.leaky_relu_", _one),
    Listed("torch.nn.functional.hardtanh_", _one),
    Listed("torch.threshold_ torch.nn.functional.threshold_", lambda: [(_x(2, 3), 0.2, 0.0)]),
    Listed("torch.dropout_", lambda: [(_x(2, 3), 0.5, True), (_x(2, 3), 0.5, False)]),
    Listed("torch.alpha_dropout_", lambda: [(_x(2, 3), 0.5, True), (_x(2, 3), 0.5, False)]),
    Listed("torch.feature_dropout_", lambda: [(_x(2, 3, 4), 0.5, True), (_x(2, 3, 4), 0.5, False)]),
    Listed("torch.feature_alpha_dropout_", lambda: [(_x(2, 3, 4), 0.5, True)]),
    Listed("torch.embedding_renorm_", lambda: [(_x(4, 3), torch.tensor([0, 1]), 0.5, 2.0)]),
    Listed("torch.Tensor.bernoulli_", lambda: [(_x(2, 3),), (_x(2, 3), 0.3)]),
    Listed("torch.Tensor.random_", lambda: [(_x(2, 3),), (_x(2, 3), 0, 5)]),
    Listed("torch.Tensor.fill_diagonal_", lambda: [(_x(3, 3), 7.0), (_x(4, 3), 7.0)]),
    Listed("torch.Tensor.apply_", lambda: [(_x(2, 3), abs)]),
    Listed("torch.Tensor.map_", lambda: [(_x(2, 3), _x(2, 3), lambda a, b: a + b)]),
    Listed("torch.Tensor.map2_", lambda: [(_x(2, 3), _x(2, 3), _x(2, 3), max)]),
    # to a dtype, from another and from the same
    *(
        Listed(f"torch.Tensor.{name}", functools.partial(_to_dtype, dtype))
        for name, dtype in _DTYPES.items()
    ),
    # of complex numbers
    Listed("torch.conj torch.Tensor.conj", lambda: [(_complex(),), (_x(2, 3),)]),
    Listed("torch.real torch.Tensor.real", lambda: [(_complex(),), (_x(2, 3),)]),
    Listed("torch.resolve_conj torch.Tensor.resolve_conj", lambda: [(_complex(),), (_complex().conj(),)]),
    Listed("torch.resolve_neg torch.Tensor.resolve_neg", lambda: [(_x(2, 3),), (_complex().conj().imag,)]),
    # new tensors of numbers
    Listed("torch.rand", lambda: [(2, 3), ((2, 3), {"dtype": torch.float64})]),
    Listed("torch.randperm", lambda: [(5,)]),
    Listed("torch.range", lambda: [(0, 5)]),
    Listed("torch.poisson", _one),
    Listed("torch.binomial", lambda: [(_x(2, 3) * 8, _x(2, 3) / 2)]),
    Listed("torch.hann_window", lambda: [(5,)]),
    Listed("torch.hamming_window", lambda: [(5,)]),
    Listed("torch.bartlett_window", lambda: [(5,)]),
    Listed("torch.blackman_window", lambda: [(5,)]),
    Listed("torch.kaiser_window", lambda: [(5,)]),
    Listed("torch.fft.fftfreq", lambda: [(5,)]),
    Listed("torch.fft.rfftfreq", lambda: [(5,)]),
    Listed("torch.get_rng_state", lambda: [()]),
    # copies by name: what a view does, written into memory of its own
    Listed("torch.detach_copy", _one),
    Listed("torch.slice_copy", lambda: [(_x(4, 3), 0, 1, 3)]),
    Listed("torch.select_copy", lambda: [(_x(4, 3), 0, 1)]),
    Listed("torch.split_copy", lambda: [(_x(4, 3), 2)]),
    Listed("torch.view_as_real_copy", lambda: [(torch.ones(2, 3, dtype=torch.complex64),)]),
    Listed("torch.view_as_complex_copy", lambda: [(_x(3, 2),)]),
    Listed("torch.slice_inverse torch.Tensor.slice_inverse", lambda: [(_x(2, 3), _x(4, 3), 0, 1, 3)]),
    Listed(
        "torch.unsafe_split_with_sizes torch.Tensor.unsafe_split_with_sizes",
        lambda: [(_x(4, 3), [1, 3])],
    ),
    # the tensor under another name
    Listed("torch.Tensor.as_subclass", lambda: [(_x(2, 3), Tensor)]),
    Listed("torch.Tensor.resize", lambda: [(_x(2, 3), 3, 2), (_x(2, 3), 6)]),
    Listed("torch.Tensor.new", lambda: [(_x(2, 3), 2, 3), (_x(2, 3), [1.0, 2.0])]),
    # layouts of other kinds
    Listed("torch.sparse_coo_tensor", lambda: [(_COO, _x(2), (2, 3))]),
    Listed("torch.sparse_csr_tensor", lambda: [(_ROWS, _COLUMNS, _x(2), (2, 3))]),
    Listed("torch.sparse_csc_tensor", lambda: [(_ROWS, torch.tensor([0, 1]), _x(2), (3, 2))]),
    Listed("torch.Tensor.coalesce", lambda: [(_sparse(2, 3),), (torch.sparse_coo_tensor(_COO, _x(2)),)]),
    Listed("torch.Tensor.indices", lambda: [(_sparse(2, 3).coalesce(),)]),
    Listed("torch.Tensor.values", lambda: [(_sparse(2, 3).coalesce(),), (_x(2, 3).to_sparse_csr(),)]),
    Listed("torch.Tensor.crow_indices", lambda: [(_x(2, 3).to_sparse_csr(),)]),
    Listed("torch.Tensor.col_indices", lambda: [(_x(2, 3).to_sparse_csr(),)]),
    Listed("torch.Tensor.to_dense", lambda: [(_x(2, 3),), (_sparse(2, 3),)]),
    Listed("torch.Tensor.to_sparse_coo", _one),
    Listed("torch.Tensor.to_sparse_csr", lambda: [(_x(2, 3),)]),
    Listed("torch.Tensor.to_sparse_csc", lambda: [(_x(2, 3),)]),
    Listed("torch.Tensor.sparse_mask", lambda: [(_x(2, 3), _sparse(2, 3).coalesce())]),
    Listed("torch.Tensor.to_mkldnn", _one),
    Listed("torch.quantize_per_tensor", lambda: [(_x(2, 3), 0.1, 0, torch.quint8)]),
    Listed("torch.dequantize torch.Tensor.dequantize", lambda: [*_quantized(), (_x(2, 3),)]),
    Listed("torch.int_repr torch.Tensor.int_repr", _quantized),
    # computed
    Listed("torch.chain_matmul", lambda: [(_x(2, 3), _x(3, 4), _x(4, 2))]),
    Listed("torch.convolution", lambda: [
        (_x(1, 2, 4, 4), _x(3, 2, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    ]),
    Listed("torch.conv_tbc torch.nn.functional.conv_tbc", lambda: [(_x(5, 2, 3), _x(2, 3, 4), _x(4))]),
    Listed("torch.segment_reduce", lambda: [(_x(4, 3), "sum", {"lengths": torch.tensor([1, 3])})]),
    Listed("torch.norm_except_dim", lambda: [(_x(2, 3), 2, 0)]),
    Listed("torch.frobenius_norm", lambda: [(_x(2, 3), [0, 1])]),
    Listed("torch.nuclear_norm", lambda: [(_x(2, 3),)]),
    Listed("torch.rnn_tanh_cell", lambda: [(_x(2, 3), _x(2, 4), _x(4, 3), _x(4, 4))]),
    Listed("torch.rnn_relu_cell", lambda: [(_x(2, 3), _x(2, 4), _x(4, 3), _x(4, 4))]),
    Listed("torch.gru_cell", lambda: [(_x(2, 3), _x(2, 4), _x(12, 3), _x(12, 4))]),
    Listed("torch.lstm_cell", lambda: [(_x(2, 3), (_x(2, 4), _x(2, 4)), _x(16, 3), _x(16, 4))]),
    Listed("torch.feature_dropout", lambda: [(_x(2, 3, 4), 0.5, True), (_x(2, 3, 4), 0.5, False)]),
    Listed("torch.native_dropout", lambda: [(_x(2, 3), 0.5, True), (_x(2, 3), 0.5, False)]),
    Listed("torch.nn.functional.dropout1d", lambda: [(_x(2, 3, 4),), (_x(2, 3, 4), {"training": False})]),
    Listed("torch.nn.functional.fold", lambda: [(_x(1, 8, 4), (3, 3), (2, 2))]),
    Listed("torch.nn.functional.affine_grid torch.affine_grid_generator", lambda: [
        (_x(1, 2, 3), [1, 1, 4, 4], False),
    ]),
    Listed("torch.grid_sampler", lambda: [(_x(1, 1, 4, 4), _x(1, 2, 2, 2), 0, 0, False)]),
    Listed("torch.nn.functional.gumbel_softmax", lambda: [(_x(2, 3),), (_x(2, 3), {"hard": True})]),
    Listed("torch.nn.functional.lp_pool1d", lambda: [(_x(2, 3, 4), 2.0, 2)]),
    Listed("torch.nn.functional.lp_pool2d", lambda: [(_x(2, 3, 4, 4), 2.0, 2)]),
    Listed("torch.nn.functional.lp_pool3d", lambda: [(_x(1, 2, 4, 4, 4), 2.0, 2)]),
    Listed("torch.nn.functional.upsample", lambda: [(_x(1, 2, 3, 3), {"scale_factor": 2})]),
    Listed(
        "torch.nn.functional.native_channel_shuffle torch.native_channel_shuffle",
        lambda: [(_x(1, 4, 2, 2), 2)],
    ),
    Listed(
        "torch.nn.functional.max_pool1d_with_indices torch.max_pool1d_with_indices",
        lambda: [(_x(2, 3, 4), 2)],
    ),
    Listed("torch.nn.functional.max_pool2d_with_indices", lambda: [(_x(2, 3, 4, 4), 2)]),
    Listed("torch.nn.functional.max_pool3d_with_indices", lambda: [(_x(1, 2, 4, 4, 4), 2)]),
    Listed("torch.fake_quantize_per_tensor_affine", lambda: [(_x(2, 3), 0.1, 0, 0, 255)]),
)  # fmt: skip
