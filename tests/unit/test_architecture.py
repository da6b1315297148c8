"""The house rules that can be read off the text of the sources."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "truecopy"

# Law 9: private names, at any depth, and the private attributes of tensors and storages.
TORCH_INTERNALS = re.compile(
    r"\btorch(\.\w+)*\._[A-Za-z]|from torch(\.\w+)* import _|\._version\b|\._cdata\b"
)

# Room -> the rooms it may import. A new room is a new row.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "_torch": set(),
    "encoding": set(),  # facts as JSON and back, for the records of every room
    "records": {"reports", "files"},  # how it is printed and kept: loaded when that is asked for
    "structure": set(),
    "memory": {"structure"},
    "copying": {"structure", "memory"},
    "tracing": {"structure", "memory"},
    "explaining": {"structure", "memory", "tracing"},
    "files": {"structure", "memory", "copying"},
    "snapshots": {"structure", "memory", "copying", "files"},  # files: the one on disk
    "measuring": {"structure", "memory", "copying", "snapshots"},
    "capturing": {"structure", "memory", "copying", "tracing", "files"},
    "comparing": {"files", "tracing", "measuring"},
    "answers": {"structure", "memory", "copying", "tracing", "files", "measuring", "truecopy"},
    "reports": {
        "structure", "memory", "copying", "tracing", "explaining", "measuring", "files", "comparing",
        "answers",  # records that were kept are read into the types that wrote them
    },
    "integrations": {"structure", "memory", "snapshots", "tracing", "truecopy"},
    "cli": {
        "structure", "memory", "copying", "tracing", "explaining", "measuring", "capturing", "files",
        "comparing", "reports", "answers", "truecopy",
    },
}  # fmt: skip
FOR_ALL = {"errors", "_torch", "encoding", "records"}
# The package itself names every room, so only its front doors may import from it.
FRONT_DOORS = {"__init__", "__main__"}

HOSTS_AND_PLACES = re.compile(
    r"pypi\.org|pythonhosted\.org|download\.pytorch\.org|conda\.anaconda\.org"
    r"|(?<![\w.~/-])/(?:work|root|opt|home|Users)/[\w.]"
)
SAYS_NOTHING = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def project_files() -> list[Path]:
    """Everything that is in git or would be, so that a new file is looked at before its commit."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]


def matches(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    """`line number: line` for each line in which the pattern occurs."""
    for number, line in enumerate(text.splitlines(), start=1):
        if pattern.search(line):
            yield f"{number}: {line.strip()}"


def found_in(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    """`file:line number: line` for each occurrence; files that are not text have none."""
    return [
        f"{path.relative_to(ROOT)}:{match}"
        for path in paths
        for match in matches(pattern, path.read_text(errors="replace"))
    ]


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def rooms_imported(source: str) -> Iterator[tuple[int, str]]:
    """Line and room of each import of ours; `truecopy` for a verb taken from the package itself."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                modules = [name.name for name in names]
            case ast.ImportFrom(module="truecopy", names=names):
                modules = [f"truecopy.{name.name}" for name in names if name.name != "__version__"]
            case ast.ImportFrom(module=str(module)):
                modules = [module]
            case _:
                continue
        for module in modules:
            package, _, inside = module.partition(".")
            if package == "truecopy":
                room = inside.partition(".")[0]
                yield node.lineno, room if room in MAY_IMPORT else "truecopy"


def wrong_way(room: str, source: str) -> list[str]:
    """`line number: room` for each import that the room may not make."""
    allowed = MAY_IMPORT[room] | FOR_ALL | {room}
    return [f"{line}: {other}" for line, other in rooms_imported(source) if other not in allowed]


def test_torch_internals_stay_in_one_module() -> None:
    """Law 9: only `_torch.py` names what torch keeps to itself."""
    assert not found_in(TORCH_INTERNALS, [p for p in sources() if p.name != "_torch.py"])


@pytest.mark.parametrize(
    "line",
    [
        "torch._lazy_clone(x)",
        "torch._C._functions",
        "import torch._C",
        "from torch._subclasses import FakeTensor",
        "from torch.utils._pytree import tree_map",
        "from torch import _C",
        "torch.utils._python_dispatch",
        "tensor._version",
        "storage._cdata",
    ],
)
def test_torch_internals_are_seen(line: str) -> None:
    """The check above can fail, and says where."""
    assert list(matches(TORCH_INTERNALS, f"\n{line}\n")) == [f"2: {line}"]


@pytest.mark.parametrize(
    "line", ["torch.__version__", "truecopy._torch.is_cow(x)", "from truecopy._torch import f"]
)
def test_public_names_are_not_internals(line: str) -> None:
    """What is public, or ours, may be named anywhere."""
    assert not list(matches(TORCH_INTERNALS, line))


def test_imports_point_one_way() -> None:
    """Structure knows nothing of memory, memory nothing of copying, and so on up the house."""
    assert not [
        f"{path.relative_to(ROOT)}:{wrong}"
        for path in sources()
        if (room := room_of(path)) not in FRONT_DOORS
        for wrong in wrong_way(room, path.read_text())
    ]


@pytest.mark.parametrize(
    ("room", "line", "wrong"),
    [
        ("structure", "from truecopy.memory.relation import relate", ["1: memory"]),
        ("structure", "import truecopy.memory", ["1: memory"]),
        ("structure", "def f():\n    from truecopy import memory", ["2: memory"]),
        ("memory", "from truecopy import copy", ["1: truecopy"]),
        ("copying", "from truecopy.cli.command import CommandError", ["1: cli"]),
        ("reports", "from truecopy.cli import main", ["1: cli"]),
        ("memory", "from truecopy.structure.paths import Path", []),
        ("memory", "from truecopy.memory.regions import Region", []),
        ("structure", "from truecopy import _torch, errors", []),
        ("cli", "from truecopy import __version__, relate", []),
        ("files", "from truecopy import __version__", []),
    ],
)
def test_imports_that_go_up_are_seen(room: str, line: str, wrong: list[str]) -> None:
    """The check above sees every form of import, wherever it stands, and can fail."""
    assert wrong_way(room, line) == wrong


def test_no_file_names_a_registry_or_a_place_of_one_machine() -> None:
    """A clone works anywhere: nothing points to a package registry or a path of one computer."""
    assert not found_in(HOSTS_AND_PLACES, project_files())


@pytest.mark.parametrize(
    "line",
    [
        "see https://{}.org/simple".format("py" + "pi"),
        "cd /{}/main".format("work"),
        "'/{}/.cache'".format("root"),
    ],
)
def test_registries_and_places_are_seen(line: str) -> None:
    """The check above can fail."""
    assert list(matches(HOSTS_AND_PLACES, line))


def test_modules_are_named_for_what_they_hold() -> None:
    """No module is a drawer for things without a home."""
    assert not [path for path in sources() if {path.stem, path.parent.name} & SAYS_NOTHING]
