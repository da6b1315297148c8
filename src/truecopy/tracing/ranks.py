"""Traces of several processes that ran one program together: one record, with a row for each rank.

Each rank writes its own record beside the common one, and whoever finds that all are there joins them. No
process waits for another, and none needs torch.distributed: a rank that ends early or never costs no other
its record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truecopy.errors import CannotRead, UsageError
from truecopy.records import SCHEMA_VERSION, Record
from truecopy.tracing.record import TraceRecord


@dataclass(frozen=True, slots=True)
class TracesRecord(Record):
    """The traces of all ranks of one run, in the order of their ranks."""

    name: str  # of what was traced
    records: tuple[TraceRecord, ...]

    kind = "traces"

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found on any rank."""
        return all(record.is_clean for record in self.records)

    def body(self) -> dict[str, Any]:
        return {
            "clean": self.is_clean,
            "name": self.name,
            "rows": [_row(rank, record) for rank, record in enumerate(self.records)],
            "records": [record.to_json() for record in self.records],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], where: str | None = None) -> TracesRecord:
        """The record that `to_json` wrote. Raises CannotRead for anything else."""
        name, records = data.get("name"), data.get("records")
        if (data.get("kind"), data.get("version")) != (cls.kind, SCHEMA_VERSION) or (
            type(name) is not str or not isinstance(records, list) or not records
            or not all(isinstance(one, dict) for one in records)
        ):  # fmt: skip
            raise CannotRead(
                "is no record of traces that this truecopy knows", where=where,
                expected=f"kind {cls.kind}, version {SCHEMA_VERSION}, with the records of all ranks",
                got=f"kind {data.get('kind')!r:.80}, version {data.get('version')!r:.80}",
                way_out="Make the record again with this version",
            )  # fmt: skip
        return cls(name, tuple(TraceRecord.from_json(one, where) for one in records))

    def of_rank(self, rank: int) -> TraceRecord:
        """The trace of one rank."""
        if not 0 <= rank < len(self.records):
            raise UsageError(
                f"there is no rank {rank}",
                expected=f"a number below {len(self.records)}",
                got=str(rank),
            )
        return self.records[rank]


def _row(rank: int, record: TraceRecord) -> dict[str, Any]:
    """The numbers of one rank, for whoever reads the JSON and wants no more."""
    totals = record.totals
    return {
        "rank": rank, "ended": record.ended, "peak_bytes": record.peak.nbytes,
        "hidden_copies": totals.hidden_copies, "hidden_bytes": totals.hidden_bytes,
        "copied_bytes": totals.copied_bytes, "allocated_bytes": totals.allocated_bytes,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of a run of several, as torchrun tells it in the environment."""

    rank: int
    count: int
    run: str

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Rank | None:
        """This process's, or None where it is alone."""
        rank, count = environment.get("RANK", ""), environment.get("WORLD_SIZE", "")
        if not (rank.isdecimal() and count.isdecimal()) or int(count) < 2:
            return None
        names = ("TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
        run = "-".join(environment.get(name, "") for name in names)
        return cls(int(rank), int(count), "".join(c if c.isalnum() else "-" for c in run))

    def begin(self, out: Path) -> None:
        """Remove what an earlier run may have left in this rank's name."""
        self._part(out, self.rank).unlink(missing_ok=True)

    def join(self, record: TraceRecord, out: Path) -> TracesRecord | None:
        """Write this rank's record; and all of them as one, if this was the last. None if it was not."""
        record.save(self._part(out, self.rank))
        parts = [self._part(out, rank) for rank in range(self.count)]
        try:
            records = [TraceRecord.from_json(json.loads(part.read_text())) for part in parts]
        except FileNotFoundError:  # one is not there yet, or another process has joined them
            return None
        joined = TracesRecord(record.name, tuple(records))
        joined.save(out)
        try:
            parts[0].unlink()  # two that end at once write the same; one of them takes this away
        except FileNotFoundError:
            return None
        for part in parts:
            part.unlink(missing_ok=True)
        return joined

    def _part(self, out: Path, rank: int) -> Path:
        return out.with_name(f"{out.name}.{self.run}.rank{rank}")
