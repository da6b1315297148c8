import pytest
from hypothesis import given
from hypothesis import strategies as st

import truecopy as tc
from truecopy.capturing.names import Name, Pattern

PARTS = st.text("abcXYZ019_", min_size=1, max_size=5)
NAMES = st.builds(
    lambda path, call, function, number, port: Name(
        ".".join(path), call, function, number if function else 0, port
    ),
    st.lists(PARTS, max_size=3),
    st.integers(0, 12),
    st.just("") | PARTS,
    st.integers(0, 3),
    st.sampled_from(["", "in", "attr.scores", "saved.MulBackward0.self"]),
)


@given(NAMES)
def test_names_are_read_as_they_are_written(name: Name) -> None:
    """Every name comes back, and its text as a pattern means it."""
    assert Name.parse(str(name)) == name
    assert Pattern.parse(str(name)).matches(name)


@given(NAMES, NAMES)
def test_two_names_are_written_alike_only_if_they_are_one(a: Name, b: Name) -> None:
    """No two values can have one name."""
    assert (str(a) == str(b)) == (a == b)


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("*", ["layers.0", "layers.0#1", "(model)"]),
        ("*/*", ["layers.0/softmax", "layers.0/softmax#1", "/relu"]),
        ("layers.0", ["layers.0", "layers.0#1"]),
        ("layers.0#1", ["layers.0#1"]),
        ("layers.0#0", ["layers.0"]),
        ("*/soft*", ["layers.0/softmax", "layers.0/softmax#1"]),
        ("*/softmax#1", ["layers.0/softmax#1"]),
        ("(model)", ["(model)"]),
        ("/relu", ["/relu"]),
        ("*:in", ["layers.0:in"]),
        ("layers.[1-9]", []),
    ],
)
def test_patterns(pattern: str, meant: list[str]) -> None:
    """What `*`, numbers and ports pick out of a handful of names."""
    names = [
        "layers.0", "layers.0#1", "layers.0/softmax", "layers.0/softmax#1", "(model)", "/relu",
        "layers.0:in",
    ]  # fmt: skip
    assert [n for n in names if Pattern.parse(pattern).matches(Name.parse(n))] == meant


@pytest.mark.parametrize("text", ["", "a#b", "a/b/c", "a#1#2"])
def test_what_is_no_name(text: str) -> None:
    """Text that cannot be a name is refused with an example of one."""
    with pytest.raises(tc.UsageError, match="is not a name"):
        Pattern.parse(text)
