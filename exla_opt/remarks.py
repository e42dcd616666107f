"""What a pass has to say about the module: values, printed by the report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """PASSED: a change was made. MISSED: something was left alone, and why."""

    PASSED = "passed"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something stays as it is. code: as in EX201, which `explanations` describes at length. text: the sentence.

    stopped_by, stopped_at: the op inside of control flow that stands in the way, and its location.
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
    location: where the op stands, as in `model.py:12:3`, or the op's own name.
    message: the sentence.
    stopped_by, stopped_at: the op that stands in the way and its location, where that is another op.
    devices: how many have such a tensor, each a part of one of the program, where the module is spread over several.
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

    @property
    def where(self) -> str:
        """Which devices have the tensor; "" where there is one."""
        return f" on each of {self.devices} devices" if self.devices > 1 else ""

    @property
    def text(self) -> str:
        """The sentence, with the op that stands in the way."""
        return f"{self.message} ({self.stopped_by} at {self.stopped_at})" if self.stopped_by else self.message
