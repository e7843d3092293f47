"""A Lightning callback around a Recorder."""

from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from .._recorder import Recorder


class RecorderCallback(Callback):
    """Records at the steps that the recorder wants, counted in updates as Lightning counts them.

    With gradient accumulation several batches make one update: it is recorded once, after it. Step
    0 is the model before any update. The numbers also go to the trainer's logger, at that step.

    Args:
        recorder: of the LightningModule or of a part of it.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._record(trainer)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._record(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._recorder.close()

    def _record(self, trainer: Trainer) -> None:
        found = self._recorder.step(trainer.global_step)
        if found and trainer.logger is not None:
            trainer.logger.log_metrics(found.numbers(), step=trainer.global_step)
