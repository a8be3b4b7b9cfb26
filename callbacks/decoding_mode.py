"""A safe place to decode inside a training run."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from lightning import Trainer
from torch import nn


@contextmanager
def decoding_mode(trainer: Trainer, *nets: nn.Module) -> Iterator[None]:
    """Eval mode, no gradients, the trainer's autocast; every module's own mode is back afterwards, errors included.

    Hooks are not run under autocast by Lightning, so its precision plugin is entered here.
    """
    modes = [(module, module.training) for net in nets for module in net.modules()]
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode())
        stack.enter_context(trainer.precision_plugin.forward_context())
        for net in nets:
            net.eval()
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training
