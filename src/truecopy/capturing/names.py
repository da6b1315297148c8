"""Names of captured values: where in the model, by which call, and which of its values.

    layers.0.attn                 what the module returned at its first call
    rnn.cell#3                    at its fourth call
    layers.0.attn/softmax         what the first softmax in the module's own code returned
    rnn.cell#3/relu#1             the second relu, in the fourth call
    layers.0.attn:in              what the module was given
    layers.0.attn:attr.scores     a tensor that the module put into its attribute
    layers.0/exp:saved.ExpBackward0.result      what autograd saved for the backward pass

The model itself is `(model)`, and functions in its own code are `/relu`. Calls are counted from 0 and 0 is
not written. A name says nothing of addresses, ids or times: equal runs have equal names, on any machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

from truecopy.errors import UsageError

ROOT = "(model)"


@dataclass(frozen=True, slots=True)
class Name:
    """The name of one value. `str(name)` is how it is written, `Name.parse` reads it."""

    module: str = ""  # "layers.0.attn"; "" is the model itself
    call: int = 0
    function: str = ""  # "softmax"; "" is the module as a whole
    number: int = 0  # of the function's calls in this call of the module
    port: str = ""  # "in", "attr.scores", "saved.ExpBackward0.result"; "" is what was returned

    def __str__(self) -> str:
        text = label(self.module, self.call)
        text = f"{text}/{numbered(self.function, self.number)}" if self.function else text or ROOT
        if text.startswith("#") and not self.function:
            text = ROOT + text
        return f"{text}:{self.port}" if self.port else text

    @classmethod
    def parse(cls, text: str) -> Name:
        """The name that is written so."""
        pattern = Pattern.parse(text)
        return cls(
            pattern.module,
            pattern.call or 0,
            pattern.function or "",
            pattern.number or 0,
            pattern.port or "",
        )


def label(module: str, call: int) -> str:
    """A module's part of a name: `rnn.cell#3`."""
    return numbered(module, call)


def numbered(text: str, number: int) -> str:
    """`relu`, and `relu#1` for the second."""
    return f"{text}#{number}" if number else text


_WRITTEN = re.compile(
    r"(?P<module>[^/#:]*)(?:#(?P<call>\d+))?"
    r"(?:/(?P<function>[^/#:]+)(?:#(?P<number>\d+))?)?"
    r"(?::(?P<port>.+))?"
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which names are meant: a name in which `*`, `?` and `[...]` stand for anything, as in file names.

    `*` crosses dots. A number that is not written means every call. Without `/` modules are meant,
    without `:` what was returned: `*` is every module's output, `*/*` every function's.
    """

    text: str
    module: str
    call: int | None
    function: str | None
    number: int | None
    port: str | None

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """The pattern that is written so. Raises UsageError where it can be no name's."""
        found = _WRITTEN.fullmatch(text)
        if found is None or not text:
            raise UsageError(
                f"{text!r} is not a name",
                expected="names such as layers.0.attn, rnn.cell#3, */softmax, layers.0:in",
            )
        module, call, function, number, port = found.groups()
        return cls(
            text,
            "" if module == ROOT else module,
            None if call is None else int(call),
            function,
            None if number is None else int(number),
            port,
        )

    @property
    def has_numbers(self) -> bool:
        """Whether only some calls are meant."""
        return self.call is not None or self.number is not None

    def meets(self, module: str, function: str, port: str) -> bool:
        """Whether names with these parts are meant, whatever their numbers."""
        return (
            (self.function is None) == (not function)
            and (self.port is None) == (not port)
            and _matches(self.module, module)
            and (self.function is None or _matches(self.function, function))
            and (self.port is None or _matches(self.port, port))
        )

    def counts(self, call: int, number: int) -> bool:
        """Whether a call with these numbers is meant."""
        return self.call in (None, call) and self.number in (None, number)

    def matches(self, name: Name) -> bool:
        """Whether a name is meant."""
        return self.meets(name.module, name.function, name.port) and self.counts(
            name.call, name.number
        )


@lru_cache(maxsize=1024)
def _compiled(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))


def _matches(glob: str, text: str) -> bool:
    return glob == text or _compiled(glob).match(text) is not None
