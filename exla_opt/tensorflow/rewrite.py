"""Rewrites modules exported by TensorFlow for TensorFlow's own XLA."""

from __future__ import annotations

from dataclasses import replace

from exla_opt.api import Wishes, options_of
from exla_opt.findings import summary_of, warn_of
from exla_opt.ir.context import new_context
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.parse_errors import DYNAMIC
from exla_opt.ir.read import parse_module
from exla_opt.memory.machine import TENSORFLOW_CPU, machine_of
from exla_opt.remarks import Remark
from exla_opt.rewriting import Rewriting, rewrite
from exla_opt.tensorflow.call import Module, as_module
from exla_opt.tensorflow.platform import platform

_DYNAMIC_HELP = (
    "tf.boolean_mask, tf.unique and tf.where(x) have results whose size is not known; tf.where(x, y, 0) keeps all sizes"
)


class Rewriter:
    """Rewrites modules with the given wishes. Raises ValueError for sizes that contradict each other."""

    def __init__(self, name: str, wishes: Wishes) -> None:
        self.name, self.target = name, wishes.get("target")
        self.options, self.limit = options_of(wishes)

    def __call__(self, module: bytes) -> Module:
        """Return the rewritten module for TensorFlow; warn about what stays in memory."""
        found = self._rewritten(module)
        warn_of(found, self.limit)
        return as_module(found.module)

    def explain(self, module: bytes) -> tuple[Remark, ...]:
        """Print the summary of the module, and return the remarks on the module."""
        found = self._rewritten(module)
        print(summary_of(found))
        return found.remarks

    def _rewritten(self, module: bytes) -> Rewriting:
        target = self.target
        if target is None and platform() != "CPU":
            target = "gpu"
        machine = TENSORFLOW_CPU if target in (None, "cpu") else machine_of(target)
        try:
            source = parse_module(f"<{self.name}>", module, new_context())
        except InputError as error:  # its location is always a line of TensorFlow
            help = _DYNAMIC_HELP if error.message.startswith(DYNAMIC.partition("{")[0]) else error.help
            raise InputError(error.message, file=f"<{self.name}>", help=help) from None
        return rewrite(source.module, replace(self.options, machine=machine), self.limit, target)
