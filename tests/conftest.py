"""What holds for every test: one that needs a device is skipped, with the reason, without one."""

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.accelerator.is_available():
        return
    no_device = pytest.mark.skip(reason="no accelerator here; make test-gpu runs this where one is")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(no_device)
