"""What the figures were measured on: what must be equal for two runs to be compared, and what may differ."""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_PROC_BIND", "KMP_AFFINITY", "LD_PRELOAD",
    "MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine, and what ran on it."""

    cpu: str
    cores: int  # that this process may use
    architecture: str
    memory: int  # bytes
    page: int  # bytes
    quota: str  # of the control group, "max" where there is none
    device: str
    huge_pages: str
    governor: str
    system: str
    libc: str
    python: str
    torch: str
    threads: int
    environment: tuple[str, ...]  # variables that change threads or the allocator, as NAME=value
    load: float  # of the last minute, before anything was measured

    def differs(self, other: Machine) -> tuple[str, ...]:
        """In what hardware two machines differ, as `cpu: a, b`. None: times may be compared."""
        return _differences(
            self, other, ("cpu", "cores", "architecture", "page", "quota", "device")
        )

    def ran_otherwise(self, other: Machine) -> tuple[str, ...]:
        """In what else two runs differ: software and settings, which one may want to compare."""
        names = (
            "huge_pages",
            "governor",
            "system",
            "libc",
            "python",
            "torch",
            "threads",
            "environment",
        )
        return _differences(self, other, names)


def _differences(a: Machine, b: Machine, names: tuple[str, ...]) -> tuple[str, ...]:
    pairs = ((name, getattr(a, name), getattr(b, name)) for name in names)
    return tuple(f"{name}: {_shown(x)}, {_shown(y)}" for name, x, y in pairs if x != y)


def _shown(value: object) -> str:
    return " ".join(value) or "none" if isinstance(value, tuple) else str(value) or "unknown"


def this_machine(device: str = "cpu") -> Machine:
    """Where this process runs, as far as the system tells."""
    return Machine(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1,
        architecture=platform.machine(),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        page=os.sysconf("SC_PAGE_SIZE"),
        quota=_text("/sys/fs/cgroup/cpu.max").split(" ")[0] or "max",
        device=_device(device),
        huge_pages="".join(
            re.findall(r"\[(\w+)\]", _text("/sys/kernel/mm/transparent_hugepage/enabled"))
        ),
        governor=_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        system=platform.platform(),
        libc=" ".join(platform.libc_ver()),
        python=platform.python_version(),
        torch=str(torch.__version__),
        threads=torch.get_num_threads(),
        environment=tuple(f"{n}={os.environ[n]}" for n in _THREAD_VARIABLES if n in os.environ),
        load=round(os.getloadavg()[0], 2),
    )


def _device(device: str) -> str:
    found = torch.device(device)
    if found.type != "cuda":
        return found.type
    return torch.cuda.get_device_name(found)  # pragma: no cover - needs a device


def _cpu() -> str:
    named = re.search(r"^model name\s*: (.+)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return named[1] if named else platform.processor()


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
