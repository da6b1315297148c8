"""`truecopy.integrations.transformers` against the real package."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import truecopy as tc
from truecopy.integrations.transformers import FILE, BestWeights

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
)  # of the packages

METRICS = [0.5, 0.2, 0.9, 0.4]


class Given(Trainer):  # type: ignore[misc]
    """A Trainer whose evaluations say what they are told, and note the weights."""

    metrics = METRICS
    seen: list[dict[str, torch.Tensor]]

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:  # noqa: ARG002
        self.seen.append({name: kept.clone() for name, kept in self.model.state_dict().items()})
        found = {"eval_score": self.metrics[round(self.state.epoch or 1) - 1]}
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found


class Stop(TrainerCallback):  # type: ignore[misc]
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:  # noqa: ARG002
        if state.global_step == 3:
            raise self.error


def model() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(GPT2Config(vocab_size=11, n_positions=4, n_embd=8, n_layer=1, n_head=1))


def run(folder: Path, *callbacks: TrainerCallback, epochs: int = 4) -> Given:
    tokens = torch.arange(4)
    made = Given(
        model(),
        TrainingArguments(
            str(folder), num_train_epochs=epochs, eval_strategy="epoch", save_strategy="epoch",
            logging_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, learning_rate=0.1,
            per_device_train_batch_size=2,
        ),
        train_dataset=[{"input_ids": tokens, "labels": tokens}] * 2,
        eval_dataset=[{"input_ids": tokens, "labels": tokens}],
        callbacks=list(callbacks),
    )  # fmt: skip
    made.seen = []
    return made


def same(now: torch.nn.Module, then: dict[str, torch.Tensor]) -> bool:
    state = now.state_dict()
    return all(torch.equal(state[name], kept) for name, kept in then.items())


def test_the_best_weights_are_there_at_the_end(tmp_path: Path) -> None:
    """After train the model has the weights of its best evaluation; its tied weights are still tied."""
    keep = BestWeights("eval_score", mode="min", optimizer=True)
    trainer = run(tmp_path, keep)
    trainer.train()
    assert keep.metric == 0.2
    assert same(trainer.model, trainer.seen[1])
    assert not same(trainer.model, trainer.seen[3])
    assert trainer.model.lm_head.weight is trainer.model.transformer.wte.weight
    states = trainer.optimizer.optimizer.state.values()
    assert {float(state["step"]) for state in states} == {2.0}


def test_a_metric_that_is_not_there(tmp_path: Path) -> None:
    """A wrong name ends the first evaluation, and names what there is."""
    with pytest.raises(tc.UsageError, match=r"'eval_los'.*eval_score"):
        run(tmp_path, BestWeights("eval_los", mode="min")).train()


@pytest.mark.parametrize(
    "error", [ValueError("stopped"), KeyboardInterrupt()], ids=["raised", "ctrl-c"]
)
def test_interrupted_and_resumed(tmp_path: Path, error: BaseException) -> None:
    """An interrupted run is left as it was; one that goes on from its checkpoint knows the best before it."""
    keep = BestWeights("eval_score", mode="min")
    first = run(tmp_path, keep, Stop(error))
    with pytest.raises(type(error)):
        first.train()
    assert same(first.model, first.seen[2])
    assert keep.restore()
    assert same(first.model, first.seen[1])

    keep = BestWeights("eval_score", mode="min")
    second = run(tmp_path, keep)
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert keep.metric == 0.2
    assert same(second.model, first.seen[1])


def test_a_checkpoint_without_it(tmp_path: Path) -> None:
    """Going on from a checkpoint that others made warns, and keeps the best from there on."""
    with pytest.raises(ValueError, match="stopped"):
        run(tmp_path, Stop(ValueError("stopped"))).train()
    assert not (tmp_path / "checkpoint-3" / FILE).exists()
    keep = BestWeights("eval_score", mode="min")
    with pytest.warns(tc.TruecopyWarning, match="from before step 3 are not known"):
        run(tmp_path, keep).train(resume_from_checkpoint=True)
    assert keep.metric == 0.4
