"""Helpers of the rules that resize an op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from .factor import Shape


def shapes_of(op: ir.Operation) -> list[Shape]:
    """The shapes of the op's operands, then its results; () for anything but a tensor."""
    return [
        tuple(value.type.shape) if isinstance(value.type, ir.RankedTensorType) else ()
        for value in (*op.operands, *op.results)
    ]


def set_integers(op: ir.Operation, name: str, numbers: Sequence[int]) -> None:
    """Replace the integers of an attribute."""
    op.attributes[name] = ir.DenseI64ArrayAttr.get(list(numbers), op.context)


def elements(array: Any, kind: ir.RankedTensorType) -> ir.Attribute:
    """A NumPy array as the attribute of a tensor of this type."""
    data: Any = np.ascontiguousarray(array)  # a buffer, which its stubs do not say before Python 3.12
    made: ir.Attribute = ir.DenseElementsAttr.get(
        data, type=kind.element_type, shape=list(kind.shape), context=kind.context
    )
    return made
