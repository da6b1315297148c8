"""Run the tests marked `gpu`, and print what a reader elsewhere needs to know about the run."""

import platform
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch

import truecopy

TESTS = Path(__file__).parent


class Outcomes:
    """Gathers, as a pytest plugin, the name of each test under what became of it."""

    def __init__(self) -> None:
        self.tests: dict[str, list[str]] = defaultdict(list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            outcome = (
                report.outcome if report.when == "call" else f"{report.outcome} in {report.when}"
            )
            self.tests[outcome].append(report.nodeid)


def main() -> int:
    print(f"truecopy {truecopy.__version__}, torch {torch.__version__}, Python {sys.version}")
    print(f"{platform.platform()}, CUDA {torch.version.cuda}, HIP {torch.version.hip}")
    if not torch.accelerator.is_available():
        print("No accelerator that torch can use: nothing was run, and nothing is known.")
        return 0
    kind = torch.accelerator.current_accelerator()
    for index in range(torch.accelerator.device_count()):
        name = torch.cuda.get_device_properties(index) if kind == torch.device("cuda") else ""
        print(f"device {kind}:{index} {name}")

    outcomes = Outcomes()
    code = pytest.main(["-m", "gpu", "--color=no", "--tb=long", str(TESTS)], plugins=[outcomes])
    for outcome, names in sorted(outcomes.tests.items()):
        print(f"\n{outcome}: {len(names)}", *names, sep="\n  ")
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        print("\nNo test is marked gpu.")
        return 0
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
