"""The public names, which are written down three times: each list must say the same."""

import ast
from pathlib import Path

import pytest

import truecopy

SOURCE = ast.parse(Path(truecopy.__file__).read_text())


def names_for_type_checkers() -> dict[str, str]:
    """Name -> module, as the `if TYPE_CHECKING:` block imports them."""
    (block,) = (node for node in SOURCE.body if isinstance(node, ast.If))
    return {
        name.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }


def test_all_is_the_public_names() -> None:
    """`__all__` is what can be loaded, and the version; sorted, and nothing twice."""
    assert truecopy.__all__ == sorted({*truecopy._HOMES, "__version__"})


def test_type_checkers_see_what_runs() -> None:
    """A type checker finds each name in the module that it is loaded from."""
    assert names_for_type_checkers() == truecopy._HOMES


@pytest.mark.parametrize("name", truecopy.__all__)
def test_every_name_resolves(name: str) -> None:
    """Every public name can be had, and is then an ordinary attribute."""
    value = getattr(truecopy, name)
    assert vars(truecopy)[name] is value


def test_dir_lists_the_public_names() -> None:
    """Completion in a shell offers what is public, loaded or not."""
    assert dir(truecopy) == sorted(truecopy.__all__)


def test_a_name_that_is_not_there() -> None:
    """A wrong name is an AttributeError like that of any module."""
    with pytest.raises(AttributeError, match=r"^module 'truecopy' has no attribute 'clone'$"):
        truecopy.clone  # noqa: B018 - the lookup is the test
