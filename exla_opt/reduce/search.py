"""The search: chunks of chances, halved each time, are taken as long as the module stays interesting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from jaxlib.mlir import ir

from exla_opt.ir.write import serialise

# Called for each chance to make the module smaller, in an order that depends only on the module: whether to take it.
Take = Callable[[], bool]
Step = Callable[[ir.Module, Take], None]
Interesting = Callable[[bytes], bool]


@dataclass(slots=True)
class _Chances:
    """Takes the chances with these numbers, and counts all."""

    chosen: range = range(0)
    asked: int = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.asked - 1 in self.chosen


@dataclass(slots=True)
class Search:
    """The smallest interesting module so far, and the cost of finding it.

    text: the module. interesting: the check. progress: called after a change and before a check, with the name of the
    step. tidy: applied to each candidate after a step. checks: the number of calls of `interesting`.
    """

    text: bytes
    context: ir.Context
    interesting: Interesting
    progress: Callable[[str, Search], None] = lambda step, search: None
    tidy: Callable[[ir.Module], None] = lambda module: None
    checks: int = 0
    _known: dict[bytes, bool] = field(default_factory=dict)

    def read(self) -> ir.Module:
        """A fresh copy of the module, to be changed."""
        return ir.Module.parse(self.text, self.context)

    def accept(self, candidate: ir.Module, name: str) -> bool:
        """Accept the candidate if it is another valid module and an interesting one."""
        try:
            candidate.operation.verify()
        except ir.MLIRError:
            return False
        text = serialise(candidate, "text")
        if text == self.text or not self._ask(text, name):
            return False
        self.text = text
        self.progress(name, self)
        return True

    def _ask(self, text: bytes, name: str) -> bool:
        if text not in self._known:
            self.progress(name, self)
            self.checks += 1
            self._known[text] = self.interesting(text)
        return self._known[text]

    def minimise(self, step: Step, name: str) -> None:
        """Take as many chances of the step as possible."""
        count = self.count(step)
        chunk = count
        while chunk:
            start = 0
            while start < count:
                candidate = self.read()
                step(candidate, _Chances(range(start, start + chunk)))
                self.tidy(candidate)
                if not self.accept(candidate, name):
                    start += chunk
                    continue
                left = self.count(step)
                start += 0 if left < count else chunk
                count = left
            chunk = min(chunk, count) // 2

    def count(self, step: Step) -> int:
        """The number of chances of the step."""
        chances = _Chances()
        step(self.read(), chances)
        return chances.asked
