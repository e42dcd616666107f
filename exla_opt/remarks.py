"""The remarks of passes about the module, as values; `report` prints them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """PASSED: a change was made. MISSED: something was left alone, and why."""

    PASSED = "passed"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is left unchanged. code: as in EX201, which `explanations` describes. text: the sentence.

    stopped_by, stopped_at: the op inside of control flow that prevents the change, and its location.
    """

    code: str
    text: str
    stopped_by: str = ""
    stopped_at: str = ""


@dataclass(frozen=True, slots=True)
class Remark:
    """One sentence about one tensor.

    kind: whether something was done or left alone.
    code: as in EX201; `explanations` describes it at length.
    pass_name: the command-line name of the pass.
    tensor: the tensor's type, as in `2x3xf32`.
    bytes: the tensor's size.
    location: the location of the op, as in `model.py:12:3`, or the op's own name.
    message: the sentence.
    stopped_by, stopped_at: the op that prevents the change and its location, if it is another op.
    devices: how many devices hold a shard of this type, if the module is sharded over several.
    may_separate: whether parts of some tensor could also be computed separately (`Options.separates_parts`).
    may_nest: for a split, whether its tiles may be cut again (`--nested-tiles`).
    Remarks that differ in the last two are equal.
    """

    kind: Kind
    code: str
    pass_name: str
    tensor: str
    bytes: int
    location: str
    message: str
    stopped_by: str = ""
    stopped_at: str = ""
    devices: int = 1
    may_separate: bool = field(default=False, compare=False)
    may_nest: bool = field(default=False, compare=False)

    @property
    def where(self) -> str:
        """The devices that hold the tensor; "" if there is only one."""
        return f" on each of {self.devices} devices" if self.devices > 1 else ""

    @property
    def text(self) -> str:
        """The sentence, with the op that prevents the change."""
        return f"{self.message} ({self.stopped_by} at {self.stopped_at})" if self.stopped_by else self.message
