"""Copies of what people hold in real programs: models, optimizers, states, odd objects, cycles."""

import collections
import copy
import datetime as dt
import decimal
import enum
import fractions
import functools
import pathlib
import re
import types
import uuid
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.nn.utils import parametrizations, prune, rnn

import truecopy as tc
from oracles import apart, same_bits


def copied_apart(value: Any) -> Any:
    """A copy that is not the value, of its type, and shares nothing."""
    copied = tc.copy(value)
    assert copied is not value
    assert type(copied) is type(value)
    tc.assert_independent(value, copied)
    return copied


# --- optimizers -----------------------------------------------------------------------------------

OPTIMIZERS = [
    (cls, {})
    for name in sorted(dir(optim))
    if isinstance(cls := getattr(optim, name), type)
    and issubclass(cls, optim.Optimizer)
    and cls is not optim.Optimizer
]
OPTIMIZERS += [
    (cls, {how: True})
    for cls in (optim.Adam, optim.AdamW, optim.SGD, optim.Adagrad)
    for how in ("foreach", "fused")
]
OPTIMIZERS += [
    (optim.AdamW, {"lr": torch.tensor(0.1)}),
    (optim.SGD, {"momentum": 0.9, "nesterov": True, "lr": 0.1}),
    (optim.AdamW, {"amsgrad": True, "capturable": False}),
]


def network(cls: type[optim.Optimizer]) -> nn.Module:
    torch.manual_seed(1)
    if cls is optim.SparseAdam:
        return nn.Sequential(nn.Embedding(5, 3, sparse=True))
    if cls is optim.Muon:  # takes matrices alone
        return nn.Sequential(nn.Linear(3, 5, bias=False), nn.Tanh(), nn.Linear(5, 2, bias=False))
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def train(model: nn.Module, optimizer: optim.Optimizer) -> None:
    """One step that depends on nothing but the two."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 3, generator=generator)
    if isinstance(model[0], nn.Embedding):
        x = torch.tensor([1, 2, 2])

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)


@pytest.mark.parametrize(
    ("cls", "options"),
    OPTIMIZERS,
    ids=[f"{c.__name__} {''.join(o)}".strip() for c, o in OPTIMIZERS],
)
@pytest.mark.parametrize("steps", [0, 2], ids=["before its first step", "with state"])
def test_a_model_and_its_optimizer_go_on_as_the_originals_would(
    cls: type[optim.Optimizer], options: dict, steps: int
) -> None:
    """One step of the copy equals one of the original bit for bit, and moves nothing of it."""
    model = network(cls)
    optimizer = cls(model.parameters(), **options)
    for _ in range(steps):
        train(model, optimizer)
    state = {"model": model, "optimizer": optimizer}
    before = tc.copy(optimizer.state_dict()), [p.detach().clone() for p in model.parameters()]

    other = copied_apart(state)
    train(other["model"], other["optimizer"])

    assert all(map(same_bits, model.parameters(), before[1]))
    assert str(optimizer.state_dict()) == str(before[0])
    owned = [p for group in other["optimizer"].param_groups for p in group["params"]]
    assert all(a is b for a, b in zip(owned, other["model"].parameters(), strict=True))
    train(model, optimizer)
    assert all(map(same_bits, model.parameters(), other["model"].parameters()))


@pytest.mark.parametrize(
    "make",
    [
        lambda o: optim.lr_scheduler.OneCycleLR(o, 0.1, 10),
        lambda o: optim.lr_scheduler.LambdaLR(o, lambda epoch: 0.5**epoch),
        lambda o: optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
        lambda o: optim.lr_scheduler.SequentialLR(
            o,
            [optim.lr_scheduler.ConstantLR(o), optim.lr_scheduler.ExponentialLR(o, 0.9)],
            [2],
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Seems like `optimizer.step..` has been overridden")
def test_schedulers_drive_the_copied_optimizer(make: Any) -> None:
    """Model, optimizer and scheduler together: the copy's rate moves, the original's does not."""
    model = network(optim.SGD)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    scheduler = make(optimizer)
    other_model, other, other_scheduler = tc.copy((model, optimizer, scheduler))
    assert other_scheduler.optimizer is other
    before = optimizer.param_groups[0]["lr"]
    rates = []
    for _ in range(4):
        train(other_model, other)
        other_scheduler.step()
        rates.append(other.param_groups[0]["lr"])

    assert optimizer.param_groups[0]["lr"] == before
    for rate in rates:
        train(model, optimizer)
        scheduler.step()
        assert optimizer.param_groups[0]["lr"] == rate


def test_scalers_and_averages() -> None:
    """GradScaler and an averaged model, whose averaging function is a closure over numbers alone."""
    model = network(optim.SGD)
    optimizer = optim.SGD(model.parameters())
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(torch.randn(2, 3)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    average = optim.swa_utils.AveragedModel(
        model, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.5)
    )
    average.update_parameters(model)

    copied = copied_apart((model, optimizer, scaler, average))

    assert copied[2].get_scale() == scaler.get_scale()
    with torch.no_grad():
        copied[0][0].weight.zero_()
    copied[3].update_parameters(copied[0])
    assert torch.equal(copied[3].module[0].weight, average.module[0].weight / 2)


# --- modules --------------------------------------------------------------------------------------


def weight_norm_old() -> nn.Module:
    return nn.utils.weight_norm(nn.Linear(4, 4))


def spectral_norm_old() -> nn.Module:
    return nn.utils.spectral_norm(nn.Linear(4, 4))


def pruned() -> nn.Module:
    return prune.l1_unstructured(nn.Linear(4, 4), "weight", 0.5)


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    model[1].bias.data = model[0].bias.data
    return model


class Listed(nn.Module):
    """Parameters and modules in every container that torch has, and in some that it does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.ParameterList([nn.Parameter(torch.randn(4))] * 2)
        self.two = nn.ParameterDict({"x": nn.Parameter(torch.randn(4))})
        self.three = nn.ModuleDict({"a b": nn.Linear(4, 4)})
        self.register_buffer("four", self.one[0].detach()[:2])
        self.five = nn.Buffer(torch.randn(4))
        self.unregistered = {"linear": self.three["a b"], "own": [nn.Linear(4, 4)]}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = self.unregistered["own"][0]
        return own(self.unregistered["linear"](x * self.one[1] + self.two["x"])) + self.five


MODULES: dict[str, Any] = {
    "weight_norm": lambda: parametrizations.weight_norm(nn.Linear(4, 4)),
    "weight_norm, old": weight_norm_old,
    "spectral_norm": lambda: parametrizations.spectral_norm(nn.Linear(4, 4)),
    "spectral_norm, old": spectral_norm_old,
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(4, 4)),
    "pruned": pruned,
    "tied": tied,
    "lazy, shaped": lambda: nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d()),
    "attention": lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0),
    "convolution": lambda: nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 3), nn.Flatten()),
    "batch norm": lambda: nn.BatchNorm1d(4),
    "lists": Listed,
    "scripted": lambda: torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU())),
    "traced by fx": lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU())),
    "compiled": lambda: torch.compile(nn.Linear(4, 4), backend="eager"),
    "data parallel": lambda: nn.DataParallel(nn.Linear(4, 4)),
    "quantized": lambda: torch.ao.quantization.quantize_dynamic(
        nn.Sequential(nn.Linear(4, 4)), {nn.Linear}
    ),
}


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
@pytest.mark.filterwarnings(
    "ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning",
    "ignore:`torch.jit.:DeprecationWarning",
    "ignore:torch.ao.quantization is deprecated:DeprecationWarning",
    "ignore:.*TypedStorage is deprecated:UserWarning",
)
def test_modules_compute_what_their_source_computes(make: Any) -> None:
    """Outputs bit for bit; and training the copy leaves the source alone."""
    model = make()
    x = torch.randn(3, 4)
    model(x)  # lazy ones take their shape, normalizing ones their statistics
    before = {
        name: value.clone() for name, value in model.state_dict().items() if _is_tensor(value)
    }

    copied = tc.copy(model)

    tc.assert_independent(model, copied)
    state = copied.state_dict()
    assert all(same_bits(state[name], value) for name, value in before.items())
    assert torch.equal(copied.eval()(x), model.eval()(x))
    copied.train()
    optimizer = optim.SGD([*copied.parameters(), torch.zeros(1, requires_grad=True)], lr=0.1)
    loss = copied(x).square().sum()
    if loss.requires_grad:
        loss.backward()
    optimizer.step()
    after = model.state_dict()
    assert all(same_bits(after[name], value) for name, value in before.items())


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def test_graph_modules_own_their_graph() -> None:
    """A traced module and its graph point to each other, in the copy too."""
    model = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4)))
    copied = tc.copy(model)
    assert copied.graph.owning_module is copied
    assert copied.graph is not model.graph
    copied.graph.lint()


# --- Hugging Face ---------------------------------------------------------------------------------

IDS = {"input_ids": torch.arange(8).view(2, 4) + 3}
PIXELS = {"pixel_values": torch.linspace(-1, 1, 2 * 3 * 16 * 16).view(2, 3, 16, 16)}
ONE = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SMALL = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
         "num_attention_heads": 2, "max_position_embeddings": 32} | ONE  # fmt: skip
SEQ2SEQ = {"vocab_size": 32, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
           "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32,
           "decoder_ffn_dim": 32} | ONE  # fmt: skip
VISION = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
          "num_attention_heads": 2, "image_size": 16, "patch_size": 8}  # fmt: skip
GROUPED = SMALL | {"num_key_value_heads": 1}

# Model class -> what its configuration takes, and what it is called with.
HUGGING_FACE: dict[str, tuple[str, dict, dict]] = {
    "GPT2LMHeadModel": ("GPT2Config", {"vocab_size": 32, "n_embd": 16, "n_layer": 2, "n_head": 2,
                                       "n_positions": 32} | ONE, IDS),
    "LlamaForCausalLM": ("LlamaConfig", GROUPED | {"tie_word_embeddings": True}, IDS),
    "MistralForCausalLM": ("MistralConfig", GROUPED, IDS),
    "Qwen2ForCausalLM": ("Qwen2Config", GROUPED, IDS),
    "GemmaForCausalLM": ("GemmaConfig", GROUPED | {"head_dim": 8}, IDS),
    "MixtralForCausalLM": ("MixtralConfig", GROUPED | {"num_local_experts": 2}, IDS),
    "MambaForCausalLM": ("MambaConfig", {"vocab_size": 32, "hidden_size": 16, "state_size": 4,
                                         "num_hidden_layers": 2} | ONE, IDS),
    "BertForMaskedLM": ("BertConfig", SMALL, IDS),
    "RobertaForMaskedLM": ("RobertaConfig", SMALL, IDS),
    "DistilBertForMaskedLM": ("DistilBertConfig", {"vocab_size": 32, "dim": 16, "hidden_dim": 32,
                                                   "n_layers": 1, "n_heads": 2} | ONE, IDS),
    "T5ForConditionalGeneration": ("T5Config", {"vocab_size": 32, "d_model": 16, "d_ff": 32,
                                                "num_layers": 1, "num_heads": 2, "d_kv": 8},
                                   IDS | {"decoder_input_ids": IDS["input_ids"]}),
    "BartForConditionalGeneration": ("BartConfig", SEQ2SEQ | {"max_position_embeddings": 32}, IDS),
    "WhisperForConditionalGeneration": ("WhisperConfig", SEQ2SEQ | {"num_mel_bins": 8,
                                        "max_source_positions": 16, "max_target_positions": 32,
                                        "decoder_start_token_id": 1},
                                        {"input_features": torch.ones(2, 8, 32),
                                         "decoder_input_ids": IDS["input_ids"]}),
    "ViTModel": ("ViTConfig", VISION, PIXELS),
    "CLIPModel": ("CLIPConfig", {"text_config": SMALL, "vision_config": VISION,
                                 "projection_dim": 8}, IDS | PIXELS),
    "ResNetModel": ("ResNetConfig", {"embedding_size": 4, "hidden_sizes": [4, 8],
                                     "depths": [1, 1]}, PIXELS),
}  # fmt: skip


@pytest.fixture(scope="module")
def transformers() -> types.ModuleType:
    found = pytest.importorskip("transformers")
    found.logging.set_verbosity_error()
    return found


@pytest.mark.parametrize("name", HUGGING_FACE)
def test_hugging_face_models_and_outputs(name: str, transformers: types.ModuleType) -> None:
    """A dozen architectures: outputs bit for bit, ties kept, outputs copied with their class."""
    config, options, inputs = HUGGING_FACE[name]
    torch.manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, config)(**options)).eval()
    with torch.no_grad():
        expected = model(**inputs)

    copied = copied_apart(model)
    with torch.no_grad():
        got = copied(**inputs)

    assert torch.equal(got[0], expected[0])
    assert [len(g.paths) for g in tc.aliases(copied).groups] == [
        len(g.paths) for g in tc.aliases(model).groups
    ]
    output = copied_apart(expected)
    assert list(output.keys()) == list(expected.keys())
    assert torch.equal(output[0], expected[0])


@pytest.mark.parametrize("kind", ["DynamicCache", "StaticCache"])
def test_hugging_face_caches(kind: str, transformers: types.ModuleType) -> None:
    """A copied cache goes on from where it was, on its own."""
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**GROUPED)).eval()
    options = {"max_cache_len": 16} if kind == "StaticCache" else {}
    cache = getattr(transformers, kind)(config=model.config, **options)
    following = torch.tensor([[1], [2]])
    with torch.no_grad():
        model(**IDS, past_key_values=cache)
        copied = copied_apart(cache)
        expected = model(following, past_key_values=cache).logits
        got = model(following, past_key_values=copied).logits
        again = model(following, past_key_values=copied).logits

    assert torch.equal(got, expected)
    assert not torch.equal(again, expected)


# --- objects of every kind ------------------------------------------------------------------------


@attrs.define(frozen=True)
class FrozenAttrs:
    x: torch.Tensor
    n: int = attrs.field(init=False, default=3)


@attrs.define(slots=False)
class OpenAttrs:
    x: torch.Tensor
    _y: Any = None


class Color(enum.Enum):
    RED = 1
    LIST = [1]  # noqa: RUF012


class Slotted:
    __slots__ = ("__dict__", "__weakref__", "filled", "never")


class BareFrozen:
    """Frozen by hand: its slots can be set by `object.__setattr__` alone."""

    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        object.__setattr__(self, "x", x)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("frozen")


class TupleState:
    def __init__(self, x: Any) -> None:
        self.x, self.restored = x, False

    def __getstate__(self) -> tuple:
        return (self.x,)

    def __setstate__(self, state: tuple) -> None:
        (self.x,) = state
        self.restored = True


class Keyword:
    def __new__(cls, *, x: Any) -> "Keyword":
        made = object.__new__(cls)
        made.x = x
        return made

    def __getnewargs_ex__(self) -> tuple:
        return (), {"x": self.x}


def test_attrs_enums_slots_and_protocols() -> None:
    """Each kind of class keeps what it is; enum members stay the members that they are."""
    x = torch.ones(2)
    slotted = Slotted()
    slotted.filled, slotted.extra = x, x
    values = [FrozenAttrs(x), OpenAttrs(x, x), slotted, BareFrozen(x), TupleState(x), Keyword(x=x)]

    copied = copied_apart(values)

    assert copied[0].n == 3
    assert len({id(c.x) for c in (copied[0], copied[1], *copied[3:])} | {id(copied[2].filled)}) == 1
    assert copied[2].extra is copied[2].filled
    assert not hasattr(copied[2], "never")
    assert copied[4].restored
    assert tc.copy([Color.RED, Color.LIST]) == [Color.RED, Color.LIST]


@pytest.mark.parametrize(
    "value",
    [
        dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        decimal.Decimal("1.50"),
        fractions.Fraction(1, 3),
        uuid.UUID(int=5),
        re.compile("a+"),
        pathlib.PurePosixPath("a/b"),
        slice(1, 2),
        range(3),
        b"bytes",
        1j,
    ],
    ids=lambda value: type(value).__name__,
)
def test_plain_values_come_out_equal(value: Any) -> None:
    """Of the standard library's own types, in containers and alone."""
    assert tc.copy(value) == tc.copy([value])[0] == tc.copy({"a": (value,)})["a"][0] == value


def test_records_of_numpy_that_hold_objects() -> None:
    """Arrays of objects, records with object fields, an array that holds itself."""
    x = torch.ones(2)
    records = np.zeros(2, dtype=[("n", "f4"), ("held", "O")])
    records["held"] = [x, None]
    own = np.empty(1, object)
    own[0] = own
    copied = tc.copy([records, own, x])
    assert copied[0]["held"][0] is copied[2]
    assert copied[1][0] is copied[1]


def test_hostile_classes_are_asked_as_little_as_can_be() -> None:
    """Attribute access that raises, a class that lies about itself."""

    class Raises:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    class Lies:
        __class__ = property(lambda _: dict)  # type: ignore[assignment]

    for cls in (Raises, Lies):
        value = cls()
        value.x = torch.ones(2)
        copied = tc.copy([value])[0]
        assert type(copied) is cls
        assert apart([copied.x], [value.x])


class Ring:
    """Made from a list that holds it: a cycle through constructor arguments."""

    def __init__(self, held: list) -> None:
        self.held = held

    def __reduce__(self) -> tuple:
        return Ring, (self.held,)


class Named:
    """Hashes by value, so it has to be whole before it can be a key."""

    def __init__(self, name: str) -> None:
        self.name, self.peers, self.table = name, set(), {}

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name == other.name


class Itself:
    def __init__(self) -> None:
        self.items: list = []

    def __deepcopy__(self, memo: dict) -> "Itself":
        made = Itself()
        memo[id(self)] = made
        made.items = copy.deepcopy(self.items, memo)
        return made


class Attributed(dict):
    """A dict with attributes."""


class TupleWithAttributes(tuple):
    """A tuple with attributes."""


def test_cycles_through_constructor_arguments() -> None:
    """Where deepcopy makes two of one."""
    held: list = []
    ring = Ring(held)
    held.append(ring)
    copied = tc.copy(ring)
    assert copied.held[0] is copied


def test_cycles_through_what_hashes_by_value() -> None:
    """Members of sets and keys of dicts, whose hash needs what they hold; deepcopy raises."""
    a, b = Named("a"), Named("b")
    for one in (a, b):
        one.peers |= {a, b}
        one.table[a] = one.table[b] = one
    copied = tc.copy(a)
    assert copied in copied.peers
    assert {peer.name for peer in copied.peers} == {"a", "b"}
    other = next(peer for peer in copied.peers if peer.name == "b")
    assert copied.table[Named("b")] is copied
    assert other.table[copied] is other
    assert a not in [id(peer) for peer in copied.peers]


def test_cycles_through_methods_partials_and_subclasses() -> None:
    """Each thing that holds its holder comes out holding its copy."""
    space = types.SimpleNamespace()
    space.method = types.MethodType(lambda self: self, space)
    space.partial = functools.partial(list, space)
    table = Attributed(me=None)
    table["me"] = table.me = table
    inner: list = []
    row = TupleWithAttributes((inner,))
    row.me = row
    inner.append(row)
    queue = collections.deque(maxlen=2)
    queue.append(queue)
    factory = collections.defaultdict(lambda: 3)
    factory["me"] = factory
    itself = Itself()
    itself.items += [itself, {"again": itself}]

    copied = tc.copy([space, table, row, queue, factory, itself])

    assert copied[0].method() is copied[0].partial.args[0] is copied[0]
    assert copied[1]["me"] is copied[1].me is copied[1]
    assert copied[2].me is copied[2][0][0] is copied[2]
    assert (copied[3][0] is copied[3], copied[3].maxlen) == (True, 2)
    assert (copied[4]["me"] is copied[4], copied[4]["new"]) == (True, 3)
    assert copied[5].items[0] is copied[5].items[1]["again"] is copied[5]


def test_cycles_through_tensors() -> None:
    """Attributes and gradients that hold the tensor or the module that they belong to."""
    model = nn.Linear(2, 2)
    model.weight.owner = [model]
    x = torch.ones(2, requires_grad=True)
    x.grad = torch.ones(2)
    x.grad.owner = x
    model, x = tc.copy((model, x))
    assert model.weight.owner[0] is model
    assert x.grad.owner is x


def test_modules_in_cycles() -> None:
    """A child that knows its parent, in a list that torch does not look into."""
    model = nn.Sequential(nn.Linear(2, 2))
    model[0].parent = [model]
    copied = tc.copy(model)
    assert copied[0].parent[0] is copied


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's own, in its own copying
def test_packed_sequences_distributions_and_exported_programs() -> None:
    """Objects of torch that hold tensors."""
    packed = rnn.pack_sequence([torch.randn(3), torch.randn(2)])
    normal = torch.distributions.Normal(torch.zeros(2), torch.ones(2))
    exported = torch.export.export(nn.Linear(3, 3), (torch.randn(1, 3),))

    copies = [copied_apart(value) for value in (packed, normal, exported)]

    assert torch.equal(copies[0].batch_sizes, packed.batch_sizes)
    assert torch.equal(copies[1].loc, normal.loc)
    assert apart([copies[1].loc], [normal.loc])
    x = torch.randn(1, 3)
    assert torch.equal(copies[2].module()(x), exported.module()(x))


def test_lazy_batch_norm_copies() -> None:
    """Its uninitialized buffers stay so, and each copy shapes its own; deepcopy raises."""
    model = nn.LazyBatchNorm1d()
    copied = tc.copy(model)
    copied(torch.randn(3, 5))
    assert copied.running_mean.shape == (5,)
    assert isinstance(model.running_mean, nn.UninitializedBuffer)
