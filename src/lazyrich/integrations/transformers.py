"""A Hugging Face Trainer callback around a Recorder."""

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .._recorder import Recorder


class RecorderCallback(TrainerCallback):
    """Records at the steps that the recorder wants, counted in updates as the Trainer counts them.

    With gradient accumulation several batches make one update: it is recorded once, after it. Step
    0 is the model before any update. Give the recorder a writer to log elsewhere: the Trainer's own
    logging would show values one evaluation late.

    Args:
        recorder: of the model that is trained.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._recorder.step(state.global_step)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._recorder.step(state.global_step)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._recorder.close()
