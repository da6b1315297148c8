"""How much memory there is, asked before it is taken: a kernel may kill who asks for too much.

Only what is known counts. Where the system does not tell (not Linux, a device without a reader), nothing
is refused, and torch's own allocator has the last word.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from truecopy.copying.leaves import Layout
from truecopy.errors import NotEnoughMemory
from truecopy.memory.region import CPU, Space
from truecopy.structure.walk import Walk

_WORTH_ASKING = 64 << 20  # bytes; below, an answer costs more than it is worth
OBJECT_BYTES = 200
"""A tensor or a container takes more, so that what is refused would not have fit."""


def bytes_of_one(walked: Walk, layout: Layout) -> dict[Space, int]:
    """What one copy allocates in each space: its blocks. Reads numbers alone."""
    needed: dict[Space, int] = {}
    for row in layout.plain:
        needed[CPU] = needed.get(CPU, 0) + walked.leaves[row].nbytes
    for block in layout.blocks:
        if block.space[0] not in ("meta", "freed"):
            needed[block.space] = needed.get(block.space, 0) + block.nbytes
    for row in layout.closed:
        leaf = walked.leaves[row]
        space = (leaf.device.type, leaf.device.index or 0)
        needed[space] = needed.get(space, 0) + leaf.numel() * leaf.itemsize
    return needed


def bytes_of_objects(walked: Walk) -> int:
    """The least that Python and torch need for one more structure around its bytes."""
    return OBJECT_BYTES * (len(walked.leaves) + len(walked.nodes) + len(walked.empty) + 1)


def refuse_more_than_there_is(needed: Mapping[Space, int], what: str, way_out: str) -> None:
    """Raise NotEnoughMemory where a device has not got what would be allocated. Allocates nothing."""
    for space, nbytes in needed.items():
        if nbytes < _WORTH_ASKING:
            continue
        there = available_bytes(space)
        if there is not None and nbytes > there:
            where = "" if space == CPU else f" on {space[0]}:{space[1]}"
            raise NotEnoughMemory(
                f"{what} need {nbytes:,} bytes{where}; nothing was allocated",
                expected=f"at most {there:,} bytes, which is what can be had now",
                got=f"{nbytes:,} bytes",
                way_out=way_out,
            )


def available_bytes(space: Space) -> int | None:
    """Bytes that can be allocated now without pushing anything out; None where nobody tells."""
    if space[0] == "cuda":
        free = torch.cuda.mem_get_info(space[1])[0]
        cached = torch.cuda.memory_reserved(space[1]) - torch.cuda.memory_allocated(space[1])
        return int(free + cached)
    if space != CPU:
        return None
    known = [limit for limit in (_of_machine(), *_of_groups(), _of_process()) if limit is not None]
    return max(min(known), 0) if known else None


def _of_machine() -> int | None:
    """What the kernel can hand out, swap included."""
    found = dict(re.findall(r"^(\w+): +(\d+) kB$", _text("/proc/meminfo"), re.MULTILINE))
    if "MemAvailable" not in found:
        return None
    return (int(found["MemAvailable"]) + int(found.get("SwapFree", 0))) << 10


def _of_groups() -> Iterator[int]:
    """What is left in this process's control group, of either version."""
    for line in _text("/proc/self/cgroup").splitlines():
        _, controllers, own = line.split(":", 2)
        if controllers == "":
            root, most, used, cache = "", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            root, most, used, cache = (
                "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
            )  # fmt: skip
        else:
            continue
        for place in {Path("/sys/fs/cgroup", root, own.lstrip("/")), Path("/sys/fs/cgroup", root)}:
            limit, current = _text(place / most).strip(), _text(place / used).strip()
            if limit.isdigit() and current.isdigit():
                files = re.search(rf"^{cache} (\d+)$", _text(place / "memory.stat"), re.MULTILINE)
                yield int(limit) - int(current) + (int(files[1]) if files else 0)


def _of_process() -> int | None:
    """What `ulimit -v` leaves."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    pages = _text("/proc/self/statm").split()
    if limit == resource.RLIM_INFINITY or not pages:
        return None
    return limit - int(pages[0]) * resource.getpagesize()


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
