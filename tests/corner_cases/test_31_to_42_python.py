"""Corner cases 31 to 42: Python's own structure around the tensors."""

import collections
import copy
import dataclasses
import functools
import io
import random
import threading
import types
import weakref
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, rnn

import truecopy as tc
from oracles import apart, same_bits
from truecopy.errors import PointsBack, TieLost


def test_31_attributes_of_dict_subclasses_are_kept() -> None:
    """`state_dict()._metadata` decides how a checkpoint is read; `.copy()` and tree_map lose it."""
    state = nn.BatchNorm1d(3).state_dict()
    copied = tc.copy(state)

    assert type(copied) is collections.OrderedDict
    assert copied._metadata == state._metadata
    assert copied._metadata is not state._metadata
    assert apart(copied.values(), state.values())


def test_31_a_copied_state_dict_is_still_refused_where_it_should_be() -> None:
    """Without the version, a missing `num_batches_tracked` is accepted without a word."""
    state = nn.BatchNorm1d(3).state_dict()
    del state["num_batches_tracked"]
    with pytest.raises(RuntimeError, match="num_batches_tracked"):
        nn.BatchNorm1d(3).load_state_dict(tc.copy(state))


class Pair(NamedTuple):
    first: torch.Tensor
    second: int = 3


class Trio(tuple):
    """A tuple subclass with an attribute."""


def test_32_tuples_keep_their_type() -> None:
    """namedtuple, torch.return_types, PackedSequence, torch.Size, subclasses with attributes."""
    x = torch.randn(3, 4)
    trio = Trio((x, x[0], 1))
    trio.name = "trio"
    packed = rnn.pack_sequence([torch.randn(3), torch.randn(2)])
    values = [Pair(x), torch.max(x, dim=1), torch.linalg.svd(x), trio, packed, x.shape]

    copied = tc.copy(values)

    assert list(map(type, copied)) == list(map(type, values))
    assert copied[0].second == 3
    assert torch.equal(copied[1].indices, values[1].indices)
    assert torch.equal(copied[2].S, values[2].S)
    assert copied[3].name == "trio"
    assert copied[3][1].untyped_storage().data_ptr() == copied[0].first.untyped_storage().data_ptr()
    assert torch.equal(copied[4].data, packed.data)
    assert copied[5] == (3, 4)
    tc.assert_independent(values, copied)


def test_33_containers_keep_what_makes_them_special() -> None:
    """The factory of a defaultdict, the length of a deque, the dict behind a read-only view."""
    x = torch.ones(2)
    values = [
        collections.defaultdict(list, {"x": x}),
        collections.deque([x, 1], maxlen=2),
        collections.Counter({"x": 3}),
        collections.UserDict({"x": x}),
        collections.ChainMap({"x": x}, {"y": 1}),
        types.MappingProxyType({"x": x}),
        types.SimpleNamespace(x=x),
    ]

    copied = tc.copy(values)

    assert list(map(type, copied)) == list(map(type, values))
    assert copied[0].default_factory is list
    assert copied[1].maxlen == 2
    assert copied[2] == {"x": 3}
    tensors = [
        copied[0]["x"],
        copied[1][0],
        copied[3]["x"],
        copied[4]["x"],
        copied[5]["x"],
        copied[6].x,
    ]
    assert len({id(tensor) for tensor in tensors}) == 1
    assert apart(tensors, [x])


def test_33_a_read_only_view_shows_the_copied_dict() -> None:
    """A mappingproxy beside the dict that it shows."""
    shown = {"x": torch.ones(2)}
    state = {"shown": shown, "view": types.MappingProxyType(shown)}
    copied = tc.copy(state)
    copied["shown"]["y"] = 1

    assert copied["view"]["y"] == 1
    assert tc.copy(state["view"])["x"] is not shown["x"]
    view = state["view"]
    assert tc.plan(view).groups[0].paths == ("view['x']",)


def test_33_sets_and_keys_hold_the_copies() -> None:
    """Tensors hash by identity: the members and keys of the copy are its own tensors."""
    x, y = torch.ones(2), torch.ones(2)
    state = {"x": x, "set": {x, y}, "frozen": frozenset([x]), "keys": {x: "x", (1, y): y}}

    copied = tc.copy(state)

    assert copied["x"] in copied["set"]
    assert copied["frozen"] == {copied["x"]}
    assert copied["keys"][copied["x"]] == "x"
    [(_, key)] = [key for key in copied["keys"] if isinstance(key, tuple)]
    assert key is copied["keys"][1, key]
    assert x not in copied["set"]


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: torch.Tensor
    n: int = dataclasses.field(init=False, default=0)


@dataclasses.dataclass
class Counting:
    x: torch.Tensor
    scale: dataclasses.InitVar[float] = 1.0
    n: int = dataclasses.field(init=False)

    def __post_init__(self, scale: float) -> None:
        self.n = 0
        self.x = self.x * scale


def test_34_dataclasses_are_not_initialized_again() -> None:
    """Frozen, slots, `init=False`, InitVar; `__post_init__` does not run for a copy."""
    frozen = Frozen(torch.ones(2))
    object.__setattr__(frozen, "n", 7)
    counting = Counting(torch.ones(2), 3.0)
    counting.n = 7

    for copied, value in ((tc.copy(frozen), frozen), (tc.copy(counting), counting)):
        assert type(copied) is type(value)
        assert copied.n == 7
        assert same_bits(copied.x, value.x)
        assert apart([copied.x], [value.x])


def test_35_cycles_come_out_as_cycles() -> None:
    """A list in itself, a tuple in a cycle, an instance that holds itself, through dict keys and sets."""
    x = torch.ones(2)
    loop: list[object] = [x]
    loop.append(loop)
    copied = tc.copy(loop)
    assert copied[1] is copied
    assert copied is not loop

    inner: list[object] = []
    ring = (x, inner)
    inner.append(ring)
    copied = tc.copy(ring)
    assert copied[1][0] is copied

    node = types.SimpleNamespace(x=x)
    node.table = {node.__class__: node, "set": [node]}
    copied = tc.copy(node)
    assert copied.table["set"][0] is copied.table[types.SimpleNamespace] is copied


class Node:
    """An object that hashes by identity, so can be the key of what it holds."""

    def __init__(self) -> None:
        self.x = torch.ones(1)
        self.keys = {self: "me"}
        self.members = {self}


def test_35_cycles_through_keys_and_members() -> None:
    """An instance that is the key of its own dict and the member of its own set."""
    node = Node()
    copied = tc.copy(node)
    assert copied is not node
    assert copied.keys[copied] == "me"
    assert copied in copied.members


DEPTH = 100_000


def _deep(wrap: object) -> object:
    value: object = torch.ones(1)
    for _ in range(DEPTH):
        value = wrap(value)  # type: ignore[operator]
    return value


@pytest.mark.parametrize(
    ("wrap", "unwrap"),
    [
        (lambda v: [v], lambda v: v[0]),
        (lambda v: (v,), lambda v: v[0]),
        (lambda v: {"k": v}, lambda v: v["k"]),
        (lambda v: types.SimpleNamespace(v=v), lambda v: v.v),
    ],
    ids=["list", "tuple", "dict", "linked instances"],
)
def test_35_nesting_deeper_than_the_stack(wrap: object, unwrap: object) -> None:
    """A hundred thousand levels, where deepcopy ends at two thousand."""
    value = _deep(wrap)
    copied = tc.copy(value)
    levels = 0
    inner = copied
    while not isinstance(inner, torch.Tensor):
        inner = unwrap(inner)  # type: ignore[operator]
        levels += 1
    assert levels == DEPTH
    _take_down(copied, unwrap)
    _take_down(value, unwrap)


def test_35_a_long_way_round_a_cycle() -> None:
    """Tuples in tuples down to a list that holds the outermost: made early, and without recursion."""
    inner: list[object] = [torch.ones(1)]
    outer: tuple = (inner,)
    for _ in range(20_000):
        outer = (outer,)
    inner.append(outer)
    copied = tc.copy(outer)
    held: object = copied
    while isinstance(held, tuple):
        held = held[0]
    assert held[1] is copied
    held.clear()
    inner.clear()


def test_35_an_object_that_is_made_from_itself_is_refused() -> None:
    """Its class hands out an object that is needed before it can be; deepcopy ends in RecursionError."""

    class Impossible:
        def __reduce__(self) -> tuple:
            return Impossible, (self,)

    state = {"x": [Impossible()]}
    with pytest.raises(tc.CannotCopy, match="Impossible is made from itself") as caught:
        tc.copy(state)
    assert caught.value.where == "state['x'][0]"


def test_35_a_path_as_long_as_the_nesting_is_deep() -> None:
    """What cannot be copied is named, however far down it lies."""
    value: object = threading.Lock()
    for _ in range(10_000):
        value = [value]
    with pytest.raises(tc.CannotCopy) as caught:
        tc.copy(value)
    assert caught.value.where == "value" + "[0]" * 10_000


def test_35_modules_nested_deeper_than_the_stack() -> None:
    """Five thousand Sequentials, one in the other; each is a dozen objects."""
    model = nn.Linear(1, 1)
    for _ in range(5_000):
        model = nn.Sequential(model)
    copied = tc.copy(model)
    inner = copied
    while isinstance(inner, nn.Sequential):
        inner = inner[0]
    assert isinstance(inner, nn.Linear)
    _take_down(copied, lambda module: module[0] if list(module.children()) else torch.ones(1))
    _take_down(model, lambda module: module[0] if list(module.children()) else torch.ones(1))


def _take_down(value: object, unwrap: object) -> None:
    """Free level by level: Python's own deallocation of such values may need more stack than there is."""
    while not isinstance(value, torch.Tensor):
        value = unwrap(value)  # type: ignore[operator]


def test_36_bound_methods_and_partials_of_them_are_rebound() -> None:
    """They hold their object openly, so the copy's hold the copy."""
    model = nn.Linear(2, 2)
    model.method = model.extra_repr
    model.partial = functools.partial(model._apply, recurse=False)

    copied = tc.copy(model, strict=True)

    assert copied.method.__self__ is copied
    assert copied.partial.func.__self__ is copied


def test_36_functions_that_close_over_the_original_are_told_of() -> None:
    """A lambda as forward: a warning with the path, an error if strict, a row in the plan."""
    model = nn.Sequential(nn.Linear(2, 2))
    model[0].forward = lambda x: x @ model[0].weight.t()
    with pytest.warns(PointsBack, match="forward") as caught:
        tc.copy(model)
    assert str(caught[0].message) == (
        "model[0].forward of the copy still means the original: function "
        "test_36_functions_that_close_over_the_original_are_told_of.<locals>.<lambda> "
        "refers to the original through model"
    )
    assert caught[0].filename == __file__
    with pytest.raises(tc.CannotCopy) as refused:
        tc.copy(model, strict=True)
    assert refused.value.where == "model[0].forward"
    assert [note.path for note in tc.plan(model).points_back] == ["model[0].forward"]


def test_36_functions_that_hold_nothing_of_the_original_are_silent() -> None:
    """A function of the module's own file, a closure over a number, a lambda without closure."""
    factor = 2.0
    model = nn.Linear(2, 2)
    model.scale = lambda x: x * factor
    model.plain = _take_down
    tc.copy(model, strict=True)


def test_37_weak_references_follow_their_target() -> None:
    """DESIGN has no word on it; ours: to the copy, if the target is copied too and nobody set a callback."""
    model = nn.Linear(2, 2)
    model.me = weakref.ref(model)
    model.proxy = weakref.proxy(model)
    assert copy.deepcopy(model).me() is model  # today

    copied = tc.copy(model, strict=True)

    assert copied.me() is copied
    assert copied.proxy.weight is copied.weight
    assert (
        tc.copy([model.me], strict=True)[0]() is model
    )  # the target is not part of that structure


def test_37_weak_references_with_a_callback_are_listed() -> None:
    """The callback belongs to whoever set it: kept, warned of, an error if strict."""
    model = nn.Linear(2, 2)
    model.me = weakref.ref(model, lambda _: None)
    with pytest.warns(UserWarning, match=r"model\.me of the copy still means the original: a weak"):
        copied = tc.copy(model)
    assert copied.me() is model
    assert [note.path for note in tc.plan(model).points_back] == ["model.me"]


def test_37_recurrent_layers_have_their_own_flat_weights() -> None:
    """`_flat_weight_refs` are weak references to the weights."""
    for kind in (nn.RNN, nn.LSTM, nn.GRU):
        model = kind(3, 4, num_layers=2)
        copied = tc.copy(model)
        refs = [reference() for reference in copied._flat_weight_refs]
        assert all(a is b for a, b in zip(refs, copied._flat_weights, strict=True))
        assert all(a is b for a, b in zip(copied.parameters(), copied._flat_weights, strict=True))
        x = torch.randn(5, 2, 3)
        assert torch.equal(copied(x)[0], model(x)[0])


class Named:
    """Equal and hashed by a name that it has only once it was filled."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name == other.name


@pytest.mark.parametrize("weak_first", [False, True])
def test_37_weak_containers_follow_what_is_copied(weak_first: bool) -> None:
    """Members, keys and values that are copied too are the copies; others stay, as with references."""
    inside, elsewhere = Named("inside"), Named("elsewhere")
    weak = [
        weakref.WeakSet([inside, elsewhere]),
        weakref.WeakValueDictionary({"in": inside, ("a", 1): elsewhere}),
        weakref.WeakKeyDictionary({inside: [inside], elsewhere: torch.ones(2)}),
    ]
    source = [weak, inside] if weak_first else [inside, weak]

    copied = tc.copy(source, strict=True)

    (members, values, keys), new = copied if weak_first else copied[::-1]
    assert set(map(id, members)) == {id(new), id(elsewhere)}
    assert (values["in"], values["a", 1]) == (new, elsewhere)
    assert values["in"] is new
    assert values["a", 1] is elsewhere
    assert set(map(id, keys)) == {id(new), id(elsewhere)}
    assert keys[new][0] is new
    assert not tc.relate(copied, source).shares_memory


def test_37_modules_that_know_themselves_weakly() -> None:
    """Tensors as keys too, which compare element by element."""
    model = nn.Linear(2, 2)
    model.seen = weakref.WeakSet([model])
    model.names = weakref.WeakKeyDictionary({model.weight: "w"})
    model.by_name = weakref.WeakValueDictionary({"w": model.weight})
    assert copy.deepcopy(model).by_name["w"] is model.weight  # today
    copied = tc.copy(model, strict=True)
    assert [*copied.seen] == [copied]
    assert [id(key) for key in copied.names] == [id(copied.weight)]
    assert copied.by_name["w"] is copied.weight


@pytest.mark.parametrize(
    "handle",
    [threading.Lock(), threading.RLock(), (i for i in range(3)), threading.local()],
    ids=lambda handle: type(handle).__name__,
)
def test_38_what_a_copy_cannot_mean_is_an_error_with_its_path(handle: object) -> None:
    """Locks, generators: the plan says so, the copy raises, `share=` is the way out."""
    model = nn.Linear(2, 2)
    model.handle = handle
    with pytest.raises(tc.CannotCopy) as caught:
        tc.copy(model)
    assert caught.value.where == "model.handle"
    assert [note.path for note in tc.plan(model).fails] == ["model.handle"]
    assert tc.copy(model, share="model.handle").handle is handle
    assert tc.copy(model, share=type(handle)).handle is handle


def test_38_open_files_are_an_error_with_their_path(tmp_path: Path) -> None:
    """A file in memory is a value, and is copied; a file of the system is not."""
    state = {"f": (tmp_path / "x").open("w")}
    with state["f"], pytest.raises(tc.CannotCopy, match=r"`state\['f'\]`: a TextIOWrapper cannot"):
        tc.copy(state)
    buffer = io.BytesIO(b"abc")
    assert tc.copy([buffer])[0].getvalue() == b"abc"


def test_38_streams_and_modules_are_shared_and_the_plan_says_so() -> None:
    """They stand for something that a copy has in common with its source."""
    state = {"stream": torch.Stream(), "module": np}
    copied = tc.copy(state)
    assert copied["stream"] is state["stream"]
    assert copied["module"] is np
    assert [note.path for note in tc.plan(state).kept] == ["state['stream']", "state['module']"]


def test_38_iterators_of_data_loaders_are_refused_by_their_class() -> None:
    """With torch's own error, and a note that names the path."""
    loader = torch.utils.data.DataLoader([1, 2])
    state = {"loader": loader, "iterator": iter(loader)}
    with pytest.raises(NotImplementedError) as caught:
        tc.copy(state)
    assert caught.value.__notes__ == ["while truecopy was copying state['iterator']"]


def test_38_users_can_register_their_kinds() -> None:
    """For a class that the standard protocol cannot copy."""

    class Guarded:
        def __init__(self, x: torch.Tensor) -> None:
            self.x, self.lock = x, threading.Lock()

    tc.register(Guarded, lambda value: {"x": value.x}, lambda _, copies: Guarded(copies["x"]))
    value = Guarded(torch.ones(2))
    copied = tc.copy([value, value.x])
    assert copied[0].x is copied[1]
    assert copied[0].lock is not value.lock
    assert tc.plan(value).groups[0].paths == ("value.x",)


def test_39_generators_of_random_numbers_are_copied_with_their_state() -> None:
    """torch's, numpy's and Python's: the copy goes on as the source would, on its own."""
    state = {
        "torch": torch.Generator().manual_seed(3),
        "numpy": np.random.default_rng(3),
        "old numpy": np.random.RandomState(3),
        "python": random.Random(3),
    }
    torch.rand(3, generator=state["torch"])

    def draw(of: dict) -> list:
        return [
            torch.rand(1, generator=of["torch"]).item(),
            of["numpy"].random(),
            of["old numpy"].rand(),
            of["python"].random(),
        ]

    copied = tc.copy(state)
    first = draw(copied)

    assert draw(state) == first
    assert draw(copied) == draw(state)


def test_39_into_restores_the_state_of_the_same_generators() -> None:
    """The objects that others hold go back, not new ones."""
    state = {
        "torch": torch.Generator(),
        "numpy": np.random.default_rng(1),
        "old numpy": np.random.RandomState(1),
        "python": random.Random(1),
    }
    saved = tc.copy(state)

    def draw() -> list:
        return [
            torch.rand(1, generator=state["torch"]).item(),
            state["numpy"].random(),
            state["old numpy"].rand(),
            state["python"].random(),
        ]

    first = draw()
    again = tc.copy(saved, into=state)
    assert again is state
    assert draw() == first


class Caching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.hidden = [self.inner]  # not registered

    @functools.cached_property
    def norm(self) -> torch.Tensor:
        return self.inner.weight.detach().norm()


def test_40_unregistered_references_and_cached_properties_keep_identity() -> None:
    """What lies in `__dict__` is part of the object."""
    model = Caching()
    cached = model.norm
    copied = tc.copy(model)

    assert copied.hidden[0] is copied.inner
    assert torch.equal(copied.norm, cached)
    assert copied.norm is not cached


class Own:
    """Copies itself, and hands on the memo."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x
        self.copies = 0

    def __deepcopy__(self, memo: dict) -> "Own":
        made = Own(copy.deepcopy(self.x, memo))
        made.copies = self.copies + 1
        return made


class Reduces:
    def __init__(self, x: torch.Tensor, y: int) -> None:
        self.x, self.y = x, y

    def __reduce_ex__(self, protocol: int) -> tuple:
        return Reduces, (self.x, self.y + 1)


def test_41_own_protocols_are_honored_with_the_same_memo() -> None:
    """What is met by us and by an object's own copying is copied once."""
    x = torch.ones(3)
    own, reduces = Own(x), Reduces(x, 1)
    copied = tc.copy({"own": own, "again": own, "x": x, "view": x[1:], "reduces": reduces})

    assert copied["own"] is copied["again"]
    assert copied["own"].copies == 1
    assert copied["own"].x is copied["x"] is copied["reduces"].x
    assert copied["reduces"].y == 2
    copied["x"].zero_()
    assert (copied["view"] == 0).all()
    assert (x == 1).all()


def test_41_a_foreign_memo_is_joined() -> None:
    """`deepcopy(x, memo)` finds what others have put there, and leaves what it made."""
    x = torch.ones(3)
    memo: dict = {}
    first = tc.deepcopy([x], memo)
    assert tc.deepcopy({"x": x}, memo)["x"] is first[0]
    assert copy.deepcopy(x, memo) is first[0]
    replaced = torch.zeros(3)
    assert tc.deepcopy([x], {id(x): replaced})[0] is replaced


def test_41_tensordicts_keep_identity_and_sharing() -> None:
    """Their `__deepcopy__` forgets the memo: met twice they became two, and lost every tie beside."""
    from tensordict import TensorDict, tensorclass

    x = torch.ones(3)
    inner = TensorDict({"x": x, "nested": {"y": x[1:]}}, batch_size=[])
    state = {"a": inner, "b": inner, "x": x, "locked": TensorDict({"x": x}).lock_()}

    copied = tc.copy(state)

    assert copied["a"] is copied["b"]
    assert copied["a"]["x"] is copied["x"] is copied["locked"]["x"]
    assert copied["locked"].is_locked
    copied["x"].zero_()
    assert (copied["a"]["nested", "y"] == 0).all()
    assert (x == 1).all()
    kept = tensorclass(type("Kept", (), {"__annotations__": {"x": torch.Tensor, "name": str}}))
    held, tied = tc.copy([kept(x=x, name="n", batch_size=[3]), x])
    assert held.x is tied
    assert held.name == "n"


def test_41_whoever_keeps_memory_of_the_original_is_an_error() -> None:
    """Law 1: never a quiet alias. deepcopy, a drop-in, honors it and warns."""

    class Keeps:
        def __init__(self) -> None:
            self.x = torch.ones(2)

        def __deepcopy__(self, memo: dict) -> "Keeps":
            return self

    state = {"keeps": Keeps()}
    with pytest.raises(tc.CannotCopy, match=r"`state\['keeps'\]`: Keeps.__deepcopy__ returned"):
        tc.copy(state)
    with pytest.warns(UserWarning, match=r"state\['keeps'\]: Keeps.__deepcopy__ keeps memory"):
        tc.deepcopy(state)
    assert tc.copy(state, share=Keeps)["keeps"] is state["keeps"]


@pytest.mark.parametrize("object_first", [False, True])
def test_41_a_tie_that_an_own_deepcopy_loses_is_told(object_first: bool) -> None:
    """The copy is independent, as its class wants it; that it is tied to nothing beside it is said."""

    class Forgets:
        def __init__(self, weight: torch.Tensor) -> None:
            self.weight = weight

        def __deepcopy__(self, memo: dict) -> "Forgets":
            return Forgets(self.weight.clone())

    weight = torch.ones(4)
    pairs = [("it", Forgets(weight[:2])), ("weight", weight)]
    state = dict(pairs if object_first else pairs[::-1])
    with pytest.warns(TieLost) as told:
        copied = tc.copy(state)
    (one,) = told
    assert str(one.message) == (
        "state['it'].weight of the copy is not tied to state['weight']: Forgets.__deepcopy__ made it "
        "anew, past its memo"
    )
    assert one.filename == __file__
    assert not tc.relate(copied, state).shares_memory
    tc.copy(Forgets(weight))  # tied to nothing
    tc.copy([Forgets(weight)] * 2)  # one object, and one copy


def test_42_parametrized_modules_copy_with_their_class() -> None:
    """Their class is made for each, and guards itself against deepcopy of instances."""
    model = parametrizations.weight_norm(nn.Linear(3, 4))
    copied = tc.copy(nn.Sequential(model, model))

    assert copied[0] is copied[1]
    x = torch.randn(2, 3)
    assert torch.equal(copied[0](x), model(x))
    with torch.no_grad():
        copied[0].parametrizations.weight.original0.fill_(0.0)
    assert not torch.equal(copied[0](x), model(x))


def test_42_compiled_modules_copy() -> None:
    """The copy runs its own weights."""
    model = nn.Linear(3, 3)
    compiled = torch.compile(model, backend="eager")
    x = torch.randn(2, 3)
    compiled(x)
    copied = tc.copy(compiled)
    with torch.no_grad():
        copied._orig_mod.weight.zero_()
        copied._orig_mod.bias.zero_()

    assert (copied(x) == 0).all()
    assert torch.equal(compiled(x), model(x))


def test_42_what_no_state_dict_holds_is_copied() -> None:
    """The training flag, requires_grad, non-persistent buffers."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    model[1].eval()
    model[0].weight.requires_grad_(False)
    model.register_buffer("scratch", torch.ones(2), persistent=False)

    copied = tc.copy(model)

    assert (copied.training, copied[1].training) == (True, False)
    assert not copied[0].weight.requires_grad
    assert same_bits(copied.scratch, model.scratch)
    assert "scratch" not in copied.state_dict()


def test_42_modules_that_refuse_say_so_with_their_path() -> None:
    """`fully_shard` forbids copies: its own error, and a note with the path."""

    class Refuses(nn.Linear):
        def __deepcopy__(self, memo: dict) -> None:
            raise AssertionError("does not support deepcopy")

    model = nn.Sequential(Refuses(2, 2))
    with pytest.raises(AssertionError, match="does not support") as caught:
        tc.copy(model)
    assert caught.value.__notes__ == ["while truecopy was copying model[0]"]
