"""What a pass has to say about the module: values, printed by the report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """PASSED: a change was made. MISSED: something was left alone, and why."""

    PASSED = "passed"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class Remark:
    """One sentence about one tensor.

    kind: whether something was done or left alone.
    pass_name: the command-line name of the pass.
    tensor: the tensor's type, as in `2x3xf32`.
    bytes: the tensor's size.
    location: where the op stands, as in `model.py:12:3`, or the op's own name.
    message: the sentence.
    """

    kind: Kind
    pass_name: str
    tensor: str
    bytes: int
    location: str
    message: str
