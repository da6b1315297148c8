"""What holds for every test, and what many need."""

import gc
from collections.abc import Iterator

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.accelerator.is_available():
        return
    no_device = pytest.mark.skip(reason="no accelerator here; make test-gpu runs this where one is")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(no_device)


@pytest.fixture
def objects_frozen() -> Iterator[None]:
    """What lives before a test is left out of collections: a bench collects in every round."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """A test that passes once passes again: random inputs are those of one seed."""
    torch.manual_seed(0)
