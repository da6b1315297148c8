"""Captures of models of transformers, against oracles that are not ours; all in `make test-models`."""

import json
from pathlib import Path

import pytest
import torch

import truecopy as tc
from model_types.proof import prove
from model_types.tiny import tiny

RESULT = Path(__file__).parents[1] / "model_types" / "result.json"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "vit", "mixtral"])
def test_models(name: str) -> None:
    """The forward is bit-equal, values are those that DebugMode saw, nothing is shared or left behind."""
    made = tiny(name)
    assert made is not None
    assert prove(*made).tensors > 50


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("harm", ["values", "shared", "left"])
def test_the_proof_can_fail(harm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is not the model's, one that shares memory, and a hook that stays are found."""
    model, inputs = tiny("bert")
    close = tc.Capture.__exit__

    def leave(cap, *error):
        done = close(cap, *error)
        held = next(iter(cap._recorder.entries)).kept.leaves[0]
        match harm:
            case "values":
                held._value = held.value + 1
            case "shared":
                held._value = next(model.parameters()).detach()
            case "left":
                model.register_forward_hook(lambda *_: None)
        return done

    monkeypatch.setattr(tc.Capture, "__exit__", leave)
    with pytest.raises(AssertionError):
        prove(model, inputs)


def test_the_full_run_that_is_kept() -> None:
    """The last `make test-models` proved at least sixty types, and failed on none."""
    result = json.loads(RESULT.read_text())
    assert len(result["proven"]) >= 60
    assert result["failed"] == {}
    assert result["torch"] == torch.__version__
