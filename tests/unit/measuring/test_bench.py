"""`tc.bench` by a clock of our own: what is measured, kept, resumed, and what a budget is worth."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import truecopy as tc
from clocks import SteadyClock
from truecopy.comparing.beside import set_beside
from truecopy.errors import CannotRead, CannotWrite, NotEnoughMemory, UsageError
from truecopy.measuring.advice import advise
from truecopy.measuring.comparison import compare_benches
from truecopy.measuring.journal import read_journal
from truecopy.measuring.machine import this_machine
from truecopy.measuring.record import CEILING, TWIN
from truecopy.measuring.sizes import elements_of
from truecopy.measuring.uses import CONTIGUOUS, MAKING, break_even
from truecopy.measuring.verdict import LEAST_ROUNDS, Verdict
from truecopy.records import Record
from truecopy.reports.benches.page import data_of, html
from truecopy.reports.terminal import render

pytestmark = pytest.mark.usefixtures("objects_frozen")

FEW = ("clone", "contiguous", "torch.tensor")


def bench(methods: Any = FEW, **options: Any) -> tc.BenchResult:
    options = {"sizes": 64, "threads": 1, "clock": SteadyClock(), **options}
    return tc.bench(methods, **options)


def test_a_result_says_what_was_measured() -> None:
    """Entries are the reference, its twin, what was asked for and the ceiling; promises are checked."""
    found = bench()
    (cell,) = found.cells
    assert cell.opened.entries == ("clone", TWIN, "contiguous", "torch.tensor", CEILING)
    assert len(cell.rounds) >= LEAST_ROUNDS
    assert cell.opened.payload_bytes == 256
    assert cell.row("clone").verdict is None
    assert cell.row("contiguous").check.broken == ("returns the same tensor",)  # type: ignore[union-attr]
    assert cell.row("contiguous").verdict is None
    assert cell.row("torch.tensor").verdict is not None
    assert cell.ended == "decided"
    assert isinstance(found, Record)


def test_a_reference_need_not_be_asked_for() -> None:
    """What is asked for is set beside the reference all the same, and beside nothing else."""
    (cell,) = bench("copy.deepcopy").cells
    assert cell.opened.entries == ("clone", TWIN, "copy.deepcopy", CEILING)


def test_every_axis_is_in_the_title() -> None:
    """No axis is hidden: the title of a cell changes with each."""
    asked = {
        "sizes": [64, 128], "shapes": ["contiguous", "strided"], "dtypes": ["float32", "float64"],
        "regimes": ["recycled", "fresh", "into"], "threads": [1, 2], "modes": ["plain", "no_grad"],
    }  # fmt: skip
    found = tc.bench(["clone", "copy_()"], **asked, budget=0.01, clock=SteadyClock())  # type: ignore[arg-type]
    titles = {cell.title for cell in found.request.cells}
    assert len(titles) == len(found.request.cells) == 2 * 2 * 2 * 3 * 2 * 2


def test_threads_are_two_by_default() -> None:
    """By default one thread and torch's own number are both measured, and shown."""
    found = tc.bench("clone", sizes=64, budget=0.5, clock=SteadyClock())
    assert {cell.threads for cell in found.request.cells} == {1, torch.get_num_threads()}


@pytest.mark.parametrize("budget", [1.0, 3.0, 10.0])
@pytest.mark.parametrize("sizes", [[64], ["2^0..2^9"]])
def test_a_budget_is_kept(budget: float, sizes: Any) -> None:
    """Never a tenth more than the budget, by the clock, and what found no time is listed."""
    clock = SteadyClock()
    found = tc.bench(("clone", "tc.copy"), sizes=sizes, threads=1, budget=budget, clock=clock)
    assert clock.seconds - 100 <= 1.1 * budget
    assert len(found.cells) + len(found.cut) == len(found.request.cells)
    assert found.spent == pytest.approx(clock.seconds - 100)


def test_cells_are_measured_well_or_not_at_all() -> None:
    """A budget for a part gives some cells of which one can tell, and names the others."""
    found = tc.bench(FEW, sizes="2^0..2^9", threads=1, budget=1.5, clock=SteadyClock())
    assert found.cut
    assert not found.is_clean
    assert all(len(cell.rounds) >= LEAST_ROUNDS for cell in found.cells[:-1])
    assert "Not measured:" in str(found)


def test_a_result_is_read_as_it_was(tmp_path: Path) -> None:
    """The file, the JSON of the record and the record itself say the same; raw samples included."""
    path = tmp_path / "a.json"
    found = bench(save=path)
    assert read_journal(path) == found
    assert tc.BenchResult.from_json(json.loads(json.dumps(found.to_json()))) == found
    kept = json.loads(path.read_text())
    assert kept["kind"] == "bench"
    assert kept["results"] == found.results()
    assert sum("round" in entry for entry in kept["log"]) == len(found.cells[0].rounds)


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    """Interrupted and called again, a run ends as if nothing had been: no round is made twice."""
    path = tmp_path / "a.json"
    with pytest.raises(KeyboardInterrupt):
        bench(save=path, sizes=[64, 128], clock=SteadyClock(stops_after=0.3))
    left = read_journal(path)
    assert left.cells[-1].ended == "cut short"
    rounds = left.cells[-1].rounds
    found = bench(save=path, sizes=[64, 128])
    assert len(found.cells) == 2
    assert found.cells[len(left.cells) - 1].rounds[: len(rounds)] == rounds
    assert {cell.ended for cell in found.cells} == {"decided"}
    order = [cell.rounds[0].order for cell in bench(sizes=[64, 128]).cells]
    assert [cell.rounds[0].order for cell in found.cells] == order


def test_every_torn_file_is_mended(tmp_path: Path) -> None:
    """Wherever a write was cut off, what is whole before it is read, and nothing else."""
    path, torn = tmp_path / "a.json", tmp_path / "torn.json"
    found = bench(save=path)
    text = path.read_text()
    start = text.index('"log": [') + len('"log": [\n')
    seen = set()
    for end in range(start, len(text), max(1, (len(text) - start) // 60)):
        torn.write_text(text[:end])
        left = read_journal(torn)
        rounds = left.cells[0].rounds if left.cells else ()
        assert rounds == found.cells[0].rounds[: len(rounds)]
        seen.add(len(rounds))
    assert len(seen) > 10


def test_only_the_same_request_goes_on(tmp_path: Path) -> None:
    """A file of another request, or of anything else, is not touched without force."""
    path = tmp_path / "a.json"
    bench(save=path)
    before = path.read_text()
    with pytest.raises(CannotWrite, match="another request"):
        bench(save=path, seed=1)
    assert path.read_text() == before
    bench(save=path, seed=1, force=True)
    path.write_text("[]")
    with pytest.raises(CannotRead):
        bench(save=path)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda d: d.update(version=99), "version 99"),
        (lambda d: d.update(kind="trace"), "kind"),
        (lambda d: d["log"].append({"x": 1}), "no entry of a log"),
        (lambda d: d["log"][1]["round"]["seconds"].pop(), "one sample for each"),
        (lambda d: d["log"][1]["round"]["seconds"].__setitem__(0, -1.0), "no time"),
        (lambda d: d["machine"].pop("cpu"), "fields"),
        (lambda d: d["log"][0]["opened"].update(cell=9), "as it was asked for"),
    ],
)
def test_damaged_records_are_refused(change: Any, what: str) -> None:
    """Reading is strict: what does not fit is an error that says where."""
    data = json.loads(json.dumps(bench().to_json()))
    change(data)
    with pytest.raises(CannotRead, match=what):
        tc.BenchResult.from_json(data, "a.json")


# --- what is asked for ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "elements"),
    [
        (7, [7]), ("7", [7]), ("2^10", [1024]), ("1KiB", [256]), ("1 MiB", [1 << 18]),
        ("2^0..2^3", [1, 2, 4, 8]), ("1KiB..4KiB", [256, 512, 1024]), ("2^2..", [4, 8, 16]),
    ],
)  # fmt: skip
def test_sizes(size: Any, elements: list[int]) -> None:
    """Elements, bytes, powers and ranges; a range without an end goes on to what fits."""
    assert elements_of(size, 4, lambda: 16) == elements


@pytest.mark.parametrize(
    "size", [0, -1, True, 1.5, "", "x", "2^", "1TB", "2^99", "8..4", "1B", "..4"]
)
def test_bad_sizes(size: Any) -> None:
    """Everything else is refused, and nothing is measured."""
    with pytest.raises(UsageError, match="is no size"):
        bench(sizes=[size])


@pytest.mark.parametrize(
    ("options", "near"),
    [
        ({"methods": "clon"}, "'clone'"),
        ({"methods": "tc.cpy"}, "'tc.copy'"),
        ({"methods": "np.cpy"}, "'np.copy'"),
        ({"methods": "duplicate"}, "'duplicates'"),
        ({"shapes": "transpose"}, "'transposed'"),
        ({"regimes": "recycle"}, "'recycled'"),
        ({"modes": "nograd"}, "'no_grad'"),
        ({"dtypes": "flot32"}, "'float32'"),
    ],
)
def test_the_nearest_name_is_offered(options: dict[str, Any], near: str) -> None:
    """An unknown name is answered with the one that was meant."""
    with pytest.raises(UsageError, match=f"Did you mean {near}"):
        bench(**options)


def test_what_has_no_meaning_is_left_out_and_said() -> None:
    """Combinations without a meaning are listed with the reason, and are an error where nothing is left."""
    found = bench(
        ("clone", "copy_()"), regimes=["recycled", "into"], modes=["plain", "requires_grad"]
    )
    assert len(found.request.cells) == 3
    assert found.request.left_out == (
        "into with requires_grad: each copy would add to a graph that grows without end; use no_grad",
    )
    with pytest.raises(UsageError, match="int64 has no gradient"):
        bench(dtypes="int64", modes="no_grad")
    with pytest.raises(UsageError, match="channels_last needs 8 elements"):
        bench(shapes="channels_last", sizes=4)


@pytest.mark.parametrize("threads", [0, -1, True, 1.5])
def test_threads_are_whole_numbers(threads: Any) -> None:
    """Anything else is refused."""
    with pytest.raises(UsageError, match="no number of threads"):
        bench(threads=[threads])


def test_too_little_memory_is_said_before() -> None:
    """More than there is is refused at once, with what there is, and not by being killed."""
    with pytest.raises(NotEnoughMemory, match=r"nothing was allocated.*2\^0\.\."):
        bench(sizes=1 << 45)


def test_methods_of_the_users(tmp_path: Path) -> None:
    """A function, or one in a file, is measured and checked like any other."""
    file = tmp_path / "mine.py"
    file.write_text("def mine(x):\n    y = x.clone()\n    x[0] = 7\n    return y\n")
    name = f"{file}:mine"
    (cell,) = bench([name, lambda x: x + 0]).cells
    assert cell.row("mine.py:mine").check.broken == ("writes into the source",)  # type: ignore[union-attr]
    assert cell.row("<lambda>").check.holds  # type: ignore[union-attr]
    assert cell.is_sound("clone")
    with pytest.raises(UsageError, match="Did you mean 'mine'"):
        bench(f"{file}:min")
    with pytest.raises(UsageError, match="there is no file"):
        bench("nowhere.py:f")


def test_who_writes_later_is_caught_in_the_act() -> None:
    """A method that behaves in its check and writes in the rounds is named, and poisons nobody."""
    calls = 0

    def sly(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        made = x.clone()
        if calls > 40:
            x.zero_()
        return made

    found = bench(["clone", "tc.copy", sly])
    (cell,) = found.cells
    assert cell.changed == ("sly",)
    assert not cell.is_sound("sly")
    assert cell.row("tc.copy").verdict is not None
    assert "writes into the source, later than in its first call: sly" in str(found)


@pytest.mark.parametrize("library", ["numpy", "jax", "tensorflow"])
def test_other_libraries(library: str) -> None:
    """Each library has tables of its own with its own reference."""
    pytest.importorskip(library)
    found = bench(library, budget=0.2)
    assert {cell.library for cell in found.request.cells} == {library}
    assert {cell.task for cell in found.request.cells} == {"copy", "duplicate"}
    assert found.cells[0].rounds


def test_uses() -> None:
    """Each use is measured as it is, on a contiguous copy, and with the making of that copy."""
    found = bench("uses", sizes=1024)
    assert {cell.cell.task for cell in found.cells} == {"sum", "matmul", "convolution", "indexing"}
    assert {cell.cell.shape for cell in found.cells} == {"strided", "transposed", "expanded"}
    assert {cell.opened.entries[2:4] for cell in found.cells} == {(CONTIGUOUS, MAKING)}
    assert all(cell.break_even is not None for cell in found.cells)
    assert "contiguous() never pays for itself: the use takes as long on the copy" in str(found)


def verdict(word: Any, ratio: float = 1.0, low: float = 1.0, high: float = 1.0) -> Verdict:
    reason: Any = "wide-interval" if word == "cannot tell" else ""
    return Verdict(word, ratio, low, high, 1.01, 30, reason)


def test_break_even() -> None:
    """Uses are those after which what was saved exceeds the price; none where nothing is saved."""
    found = break_even(10.0, 2.0, verdict("faster", 0.5, 0.4, 0.6))
    assert (found.uses, found.least, found.most) == (10, 9, 13)
    for word in ("slower", "same", "cannot tell"):
        assert break_even(10.0, 2.0, verdict(word)).uses is None


# --- reports --------------------------------------------------------------------------------------


def test_a_broken_promise_is_struck_out_and_named() -> None:
    """The table shows the time of what is no copy struck out, last, and the promise that it broke."""
    lines = str(bench()).splitlines()
    (row,) = (line for line in lines if line.lstrip().startswith("contiguous  "))
    assert "~~" in row
    assert "no copy" in row
    assert "  - returns the same tensor: contiguous" in lines


@pytest.mark.parametrize("kind", ["ratio", "time"])
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_plots(tmp_path: Path, kind: str, suffix: str) -> None:
    """Both plots are written as what their names say."""
    pytest.importorskip("matplotlib")
    from truecopy.reports.benches.plots import save_plot

    found = bench(sizes=[64, 128])
    path = tmp_path / f"a{suffix}"
    save_plot(found, path, kind=kind)
    assert path.read_bytes().startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    with pytest.raises(CannotWrite, match="--force"):
        save_plot(found, path)
    with pytest.raises(CannotWrite, match=r"\.png or \.svg"):
        save_plot(found, tmp_path / "a.txt")


def test_the_page_has_every_method_and_no_markup_of_theirs() -> None:
    """The page's data has each method with its verdict, and no name becomes markup."""

    def sly(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    sly.__name__ = "<script>alert(1)</script>"
    found = bench(["clone", "contiguous", sly])
    (cell,) = data_of(found)["cells"]
    rows = [
        dict(zip(cell["methods"]["columns"], row, strict=True)) for row in cell["methods"]["rows"]
    ]
    by_name = {row["method"]: row for row in rows}

    assert by_name["clone"]["verdict"] == "reference"
    assert by_name["contiguous"]["struck"]
    assert ["breaks", "returns the same tensor"] in by_name["contiguous"]["facts"]
    assert len(by_name[sly.__name__]["drawn"]) == 3
    assert "<script>alert" not in html(found)


def test_advice_is_of_what_was_measured() -> None:
    """One paragraph that names the fastest, and says nothing of what was not measured."""
    text = advise(bench(sizes=[64]))
    assert "\n" not in text
    assert "contiguous 64 x float32 (recycled, 1 thread)" in text
    assert "No copies: contiguous." in text
    assert "deepcopy" not in text


def test_sizes_that_say_the_same_are_one_case() -> None:
    """Advice on a range of sizes of which the same was found is one sentence, not one for each."""
    text = advise(bench(["clone", "copy.deepcopy"], sizes="2^4..2^6"))
    assert "For contiguous 16 to 64 x float32" in text
    assert text.count("For ") == 1


# --- two results ----------------------------------------------------------------------------------


class Slowed(SteadyClock):
    """A clock by which some calls of a block's method take longer."""

    slow = 1.0

    def time(self, body: Any) -> float:
        Slowed.slow = 1.0
        took = super().time(body)
        self.seconds += took * (Slowed.slow - 1)
        return took * Slowed.slow


def mine(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def mine_slowed(x: torch.Tensor) -> torch.Tensor:
    Slowed.slow = 1.3
    return x.clone()


mine_slowed.__name__ = "mine"


def test_a_regression_is_found_and_nothing_else() -> None:
    """30 % on one method is a regression, though the machine is three times as slow; noise is none."""
    before = bench(["clone", "tc.copy", mine], clock=Slowed())
    after = bench(["clone", "tc.copy", mine_slowed], clock=Slowed(factor=3.0))
    found = compare_benches(before, after, ("a", "b"))
    assert [(change.method, change.what) for change in found.changes] == [("mine", "slower")]
    assert found.changes[0].verdict.ratio == pytest.approx(1.3, rel=0.02)  # type: ignore[union-attr]
    assert found.drift == pytest.approx((3, 3), rel=0.02)
    assert not found.is_clean
    assert "1 regression" in render(found)
    back = compare_benches(after, before, ("b", "a"))
    assert [change.what for change in back.changes] == ["faster"]
    assert back.is_clean


def test_a_promise_that_broke_is_a_regression() -> None:
    """A method that was a copy and is none any more is found, whatever its time."""

    def views(x: torch.Tensor) -> torch.Tensor:
        return x[:]

    views.__name__ = "mine"
    found = compare_benches(bench(["clone", mine]), bench(["clone", views]), ("a", "b"))
    (change,) = found.changes
    assert change.what == "broke its promise"
    assert change.promise == "returns a view of the source"
    assert not found.is_clean


def test_other_machines_are_refused() -> None:
    """Times of two machines are never compared; other versions on one machine are, and flagged."""
    from dataclasses import replace

    found = bench()
    machine = this_machine()
    other = replace(found, machine=replace(machine, cpu="another"))
    with pytest.raises(UsageError, match=r"different machines.*cpu: .*another"):
        compare_benches(found, other, ("a", "b"))
    newer = replace(found, machine=replace(found.machine, torch="9.9"))
    flagged = compare_benches(found, newer, ("a", "b"))
    assert flagged.flags == (f"torch: {torch.__version__}, 9.9",)
    assert flagged.is_clean


def test_compare_reads_the_kind_from_the_file(tmp_path: Path) -> None:
    """`truecopy compare` sets two benches side by side, however the files are called."""
    for name in "ab":
        bench(save=tmp_path / name)
    found = set_beside(tmp_path / "a", tmp_path / "b")
    assert found.kind == "bench comparison"
    assert found.is_clean
