"""Tensor types as plain values: shape, element type and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir

from .walk import captured_values

_FLOAT_BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}
_ELEMENT_BITS = {**_FLOAT_BITS, "tf32": 32, "index": 64}


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape, element type as text, and size in bytes (0 for tokens, tuples and other non-tensors)."""

    shape: tuple[int, ...]
    dtype: str
    bytes: int

    def __str__(self) -> str:
        return "x".join([*map(str, self.shape), self.dtype])

    @property
    def element_bytes(self) -> int:
        """Bytes of one element, as XLA stores it on a CPU."""
        return self.bytes // max(prod(self.shape), 1)


class Types:
    """Tensor types by MLIR type, each read once; and captures of ops' regions, valid while no op changes."""

    def __init__(self) -> None:
        self._known: dict[ir.Type, TensorType] = {}
        self._captured: dict[ir.Block, list[ir.Value]] = {}

    def of(self, value: ir.Value) -> TensorType:
        """The tensor type of a value; a shape of () and 0 bytes for anything but a static tensor."""
        key = value.type
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _read_type(key)
        return found

    def captured(self, op: ir.Operation) -> list[ir.Value]:
        """As `captured_values` of an op with regions; cached, as all readers of a block and of outer blocks ask."""
        key = op.regions[0].blocks[0]
        found = self._captured.get(key)
        if found is None:
            found = self._captured[key] = captured_values(op)
        return found


def element_type(value: ir.Value) -> ir.Type:
    """The element type of a tensor."""
    return ir.RankedTensorType(value.type).element_type


def float_bits(kind: ir.Type) -> int:
    """The width of a real floating type; 0 for every other type."""
    text = str(kind)
    return _FLOAT_BITS.get(text, 8 if text.startswith("f8") else 0)


def _element_bytes(text: str) -> int:
    if text.startswith("complex<"):
        return 2 * _element_bytes(text[len("complex<") : -1])
    if text in _ELEMENT_BITS:
        return _ELEMENT_BITS[text] // 8
    if text.startswith("f"):
        return 1
    digits = text.lstrip("usi")
    return max(int(digits) // 8, 1) if digits.isdigit() else 0


def _read_type(key: ir.Type) -> TensorType:
    if not isinstance(key, ir.RankedTensorType):
        return TensorType((), "token", 0)
    dtype = str(key.element_type)
    if not key.has_static_shape:
        return TensorType((), dtype, 0)
    shape = tuple(key.shape)
    return TensorType(shape, dtype, prod(shape) * _element_bytes(dtype))
