"""Which values are captured: told from their names, the types of their modules, or by a function of yours.

In: what the user passed as `select=`. Out: a yes or no for each value, before anything of it is kept. A
selection remembers which of its patterns were met, so that one that never was can be told of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from torch import nn

from truecopy.capturing.names import Name, Pattern
from truecopy.errors import UsageError

Predicate: TypeAlias = Callable[[Name], bool]
Select: TypeAlias = str | type[nn.Module] | Predicate

_ALL = (Pattern.parse("*"), Pattern.parse("*/*"), Pattern.parse("*:attr.*"))
_WITH_INPUTS = (Pattern.parse("*:in"), Pattern.parse("*/scaled_dot_product_attention:in"))
_WITH_SAVED = (Pattern.parse("*/*:saved.*"),)


class Selection:
    """What the user asked for; None asks for everything."""

    def __init__(
        self,
        select: Select | Iterable[Select] | None,
        *,
        inputs: bool,
        saved: bool,
        until: str | None,
    ) -> None:
        chosen = _listed(select)
        if until is not None:
            chosen.append(until)
        self.patterns = [Pattern.parse(one) for one in chosen if isinstance(one, str)]
        self.types = tuple(one for one in chosen if isinstance(one, type))
        self.predicates = [one for one in chosen if not isinstance(one, str | type)]
        self.everything = select is None
        self.met: set[Pattern] = set()
        self.types_met: set[type[nn.Module]] = set()
        self.inputs = inputs or any(p.port == "in" for p in self.patterns)
        self.saved = saved or any((p.port or "").startswith("saved") for p in self.patterns)
        self.wants_functions = (
            self.everything
            or saved
            or bool(self.predicates)
            or any(p.function is not None for p in self.patterns)
        )
        self._flags = (_WITH_INPUTS if inputs else ()) + (_WITH_SAVED if saved else ())
        self._known: dict[tuple[str, str, str], bool | None] = {}

    def takes(
        self,
        kind: type[nn.Module],
        module: str,
        call: int,
        function: str = "",
        number: int = 0,
        port: str = "",
    ) -> bool:
        """Whether to capture the value with this name, in a module of this kind."""
        key = (module, function, port)
        known = self._known.get(key, 0)
        if known == 0:
            known = self._known[key] = self._decide(kind, module, function, port)
        if known is not None:
            return bool(known)
        return self._ask(Name(module, call, function, number, port))

    def _decide(self, kind: type[nn.Module], module: str, function: str, port: str) -> bool | None:
        """What holds whatever the numbers are; None where they matter."""
        if self.everything and any(p.meets(module, function, port) for p in _ALL):
            return True
        for one in self.types:
            if issubclass(kind, one) and not function and not port:
                self.types_met.add(one)
                return True
        if port and any(p.meets(module, function, port) for p in self._flags):
            # Of whatever is selected, its inputs or what was saved for it.
            return self.everything or self._decide(kind, module, function, "")
        met = [p for p in self.patterns if p.meets(module, function, port)]
        self.met.update(p for p in met if not p.has_numbers)
        if any(not p.has_numbers for p in met):
            return True
        return None if met or self.predicates else False

    def _ask(self, name: Name) -> bool:
        met = [p for p in self.patterns if p.matches(name)]
        self.met.update(met)
        if not met and name.port and any(p.matches(name) for p in self._flags):
            return self._ask(Name(name.module, name.call, name.function, name.number))
        return bool(met) or any(predicate(name) for predicate in self.predicates)

    def asks_inside(self, module: str, inner: Iterable[tuple[str, type[nn.Module]]]) -> bool:
        """Whether names inside of a module are asked for, more exactly than by asking for all.

        `inner` has the names and types of the modules in it.
        """
        exact = [p for p in self.patterns if p.module not in ("", "*") or p.function]
        for p in exact:
            if p.function is not None and p.meets(module, p.function, p.port or ""):
                return True
            if any(p.meets(name, p.function or "", p.port or "") for name, _ in inner):
                return True
        return any(issubclass(kind, self.types) for _, kind in inner) if self.types else False

    def never_met(self) -> list[Pattern]:
        """Patterns for which no value came."""
        return [p for p in self.patterns if p not in self.met]


def _listed(select: Select | Iterable[Select] | None) -> list[Select]:
    if select is None:
        return []
    if isinstance(select, str | type) or callable(select):
        chosen: list[Select] = [select]
    else:
        chosen = list(select) if isinstance(select, Iterable) else [select]
    for one in chosen:
        is_module = isinstance(one, type) and issubclass(one, nn.Module)
        is_predicate = callable(one) and not isinstance(one, type | nn.Module)
        if not isinstance(one, str) and not is_module and not is_predicate:
            raise UsageError(
                "select= takes names, patterns, classes of modules, and functions of a name",
                expected='"layers.0.attn", "*/softmax", nn.Linear, lambda name: name.call == 0',
                got=repr(one),
            )
    return chosen
