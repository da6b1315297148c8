"""The contract: what each method returned, looked at before any time is taken."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from truecopy.measuring import kept
from truecopy.measuring.cells import Cell, in_mode
from truecopy.measuring.contract import Watch, check, same_bits
from truecopy.measuring.finding import every_method
from truecopy.measuring.methods import COPIES, DUPLICATIONS, FILLS, Method
from truecopy.measuring.opening import make_source
from truecopy.measuring.works import LEAST, SHAPES, leaves

VIEWS = {
    "contiguous", "copy.copy", "from_numpy(numpy())", "from_dlpack", "[x] * n", "expand",
    'tc.duplicate(how="view")',
    "np.asarray", "np.ascontiguousarray", "ndarray.view", "np.broadcast_to",
    "jnp.asarray", "jax.device_put",
    "tf.identity", "tf.tile by 1", "tf.convert_to_tensor", "copy.deepcopy (TensorFlow)",
}  # fmt: skip
"""Of a contiguous input."""


def cell(
    shape: str = "contiguous", mode: str = "plain", library: str = "torch", n: int = 1024
) -> Cell:
    return Cell(library, "copy", shape, n, "float32", "recycled", 1, mode, "cpu")


def checked(method: Method, source: Any) -> Any:
    return check(method, source, Watch(source).is_unchanged)


@pytest.mark.parametrize("method", [*COPIES, *FILLS, *DUPLICATIONS], ids=lambda method: method.name)
def test_who_copies_a_contiguous_tensor(method: Method) -> None:
    """Of a contiguous tensor, each method is known to copy or not to."""
    found = checked(method, make_source(cell()))
    assert not found.raised
    assert bool(found.broken) == (method.name in VIEWS)
    assert found.source_unchanged
    assert found.shape == (1024,)
    assert found.dtype == "float32"


@pytest.mark.parametrize("library", ["numpy", "jax", "tensorflow"])
def test_who_copies_in_other_libraries(library: str) -> None:
    """The same for NumPy, JAX and TensorFlow, where they are installed."""
    pytest.importorskip(library)
    source = make_source(cell(library=library))
    for method in every_method(library):
        found = checked(method, source)
        assert not found.raised, found
        assert bool(found.broken) == (method.name in VIEWS), found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", [*COPIES, *FILLS, *DUPLICATIONS], ids=lambda method: method.name)
def test_every_shape_can_be_checked(method: Method, shape: str) -> None:
    """On every shape of work, no method raises; a view stays one, and `contiguous` copies what is none."""
    found = checked(method, make_source(cell(shape)))
    assert not found.raised
    dense = shape in ("contiguous", "one_big", "many_small")
    if method.name == "contiguous" and not dense:
        assert not found.broken
        assert "other strides" in found.notes
    else:
        assert bool(found.broken) == (method.name in VIEWS)


def test_contiguous_is_named() -> None:
    """`contiguous()` returns the same tensor, and that is what is said."""
    (method,) = (one for one in COPIES if one.name == "contiguous")
    assert checked(method, torch.zeros(4)).broken == ("returns the same tensor",)


def writes(x: Tensor) -> Tensor:
    made = x.clone()
    with torch.no_grad():
        x[-1] = 5
    return made


def overlaps(x: Tensor) -> Tensor:
    return x[1:]


def other_dtype(x: Tensor) -> Tensor:
    return x.double()


def other_values(x: Tensor) -> Tensor:
    return x + 1


def fails(x: Tensor) -> Tensor:
    raise OSError(f"no copy of {x.numel()}\nand more")


def warns(x: Tensor) -> Tensor:
    warnings.warn("old", FutureWarning, stacklevel=2)
    return x.clone()


@pytest.mark.parametrize(
    ("function", "broken"),
    [
        (writes, ("writes into the source",)),
        (overlaps, ("returns a view of the source", "another shape: (3,), not (4,)")),
        (other_dtype, ("another dtype: float64, not float32",)),
        (other_values, ("other values",)),
        (lambda x: x.numpy().copy(), ("returns ndarray, not Tensor",)),
        (warns, ()),
    ],
)
def test_each_broken_promise_is_named(function: Any, broken: tuple[str, ...]) -> None:
    """What a method of the user's breaks is said in words."""
    assert checked(Method("mine", function), torch.zeros(4)).broken == broken


def test_an_error_is_a_finding() -> None:
    """A method that raises is shown with its error, in one line."""
    found = checked(Method("mine", fails), torch.zeros(4))
    assert found.raised == "OSError: no copy of 4"
    assert not found.holds


def test_warnings_and_gradient_are_noted() -> None:
    """What holds and may surprise is noted: a warning, a graph that is kept, gradient that is lost."""
    assert checked(Method("mine", warns), torch.zeros(4)).notes == ("warns (FutureWarning)",)
    source = make_source(cell(mode="requires_grad"))
    notes = {one.name: checked(one, source).notes for one in COPIES}
    assert notes["clone"] == ("stays in the graph (CloneBackward0)",)
    assert notes["detach().clone()"] == ("requires no gradient",)
    assert notes["copy.deepcopy"] == ()
    stays = "torch::autograd::CopyBackwards"
    assert notes["empty_like().copy_()"] == (f"stays in the graph ({stays})",)


def test_duplicates_must_not_share_with_each_other() -> None:
    """A list of one copy four times is caught, though it shares nothing with the source."""
    method = Method("mine", lambda x: [x.clone()] * 4, "duplicate")
    assert checked(method, torch.zeros(4)).broken == ("its duplicates share memory",)


def test_a_destination_must_stay_where_it_is() -> None:
    """Filling means filling: a destination that got other memory is named."""

    def refill(kept: Tensor, x: Tensor) -> None:
        kept.set_(x.clone().untyped_storage(), 0, x.shape)

    found = checked(Method("mine", refill, fills=True), torch.zeros(4))
    assert found.broken == ("moves the destination to other memory",)


@pytest.mark.parametrize("mode", ["plain", "requires_grad", "no_grad", "inference"])
def test_modes(mode: str) -> None:
    """Each mode is what its name says: gradient is recorded only with `requires_grad`."""
    source = make_source(cell(mode=mode))
    with in_mode(mode):
        found = checked(COPIES[0], source)
        assert torch.is_inference_mode_enabled() == (mode == "inference")
    assert bool(found.grad_fn) == (mode == "requires_grad")
    assert source.requires_grad == (mode in ("requires_grad", "no_grad"))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("more", [0, 1, 1000])
def test_works_are_what_they_are_called(shape: str, more: int) -> None:
    """Strides are those of the shape, and no work has more elements than were asked for."""
    elements = LEAST[shape] + more
    made = SHAPES[shape](elements, torch.float32, "cpu")
    assert 0.5 * elements <= sum(leaf.numel() for leaf in leaves(made)) <= elements
    first = leaves(made)[0]
    match shape:
        case "contiguous" | "one_big" | "many_small":
            assert first.is_contiguous()
        case "transposed":
            assert first.t().is_contiguous()
            assert not first.is_contiguous()
        case "strided":
            assert first.stride(-1) == 2
        case "expanded":
            assert first.stride(0) == 0
        case "channels_last":
            assert first.is_contiguous(memory_format=torch.channels_last)
            assert not first.is_contiguous()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_watch_sees_any_write_and_undoes_it(shape: str) -> None:
    """A write anywhere is found by looking at all, one that is spread by looking at a few; both undone."""
    source = SHAPES[shape](2000, torch.float32, "cpu")
    watch = Watch(source)
    assert watch.is_unchanged()
    assert watch.seems_unchanged()
    leaf = leaves(source)[-1]
    leaf[(-1,) * leaf.ndim] = 1e9
    assert not watch.is_unchanged()
    watch.restore()
    assert watch.is_unchanged()
    first = leaves(source)[0]
    first[(slice(0, 1),) * first.ndim] += 1
    assert not watch.seems_unchanged()


@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.bfloat16, torch.bool, torch.complex64]
)
def test_bits_of_any_dtype(dtype: torch.dtype) -> None:
    """Bits are compared, so every dtype can be, and -0.0 is not 0.0."""
    made = SHAPES["transposed"](64, dtype, "cpu")
    assert same_bits(made, made.clone())
    assert not same_bits(torch.zeros(2), -torch.zeros(2))


class Sham:
    """A snapshot that keeps nothing: what it would put back is what the source holds by then."""

    def __init__(self, sources: dict[str, Any]) -> None:
        self.sources = sources

    def update(self) -> None:
        """Keep a view, and no byte."""

    def restore(self) -> None:
        """Put the source into itself."""


def test_a_snapshot_that_shares_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is read when the source has been overwritten, and the source is then as it was."""
    monkeypatch.setattr(kept, "Snapshot", Sham)
    (method,) = (one for one in FILLS if one.name == "Snapshot.update")
    source = torch.arange(6.0).view(2, 3).t()
    found = checked(method, source)

    assert found.broken == ("other values",)
    assert source.flatten().tolist() == [0, 3, 1, 4, 2, 5]
