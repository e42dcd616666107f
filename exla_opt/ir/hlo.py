"""XLA's HLO, as in its dumps, and StableHLO: conversion both ways, and refined shapes, by jaxlib's own converters.

`jaxlib._hlo` and `jaxlib._jax` have no stability guarantee; only this file uses them. They do not load jax.
"""

from __future__ import annotations

import re

from exla_opt.ir.diagnostics import InputError

_TEXT = b"HloModule"
_FIRST_FIELD, _SECOND_FIELD = 0x0A, 0x12
AFTER_HELP = (
    "take the file called *before_optimizations*: XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_text' writes both"
)
# In the first line of a text. A proto does not contain them.
_PARTITIONS = re.compile(rb"\bnum_partitions=(\d+)")
_REPLICAS = re.compile(rb"\breplica_count=(\d+)")
_FORBIDDEN = re.compile(r"error: ([^\n]*)(?=.*\bshape_assertion\b)", re.DOTALL)
_SYNTAX = re.compile(r"was parsing (\d+):(\d+): error: (?:expects \w+ but sees: \w+, error: )?([^\n]*)")


def is_hlo(data: bytes) -> bool:
    """Whether this is HLO: text, an HloModuleProto, or the HloProto of a dump."""
    return data[:200].lstrip().startswith(_TEXT) or _proto(data) is not None


def partitions_of(data: bytes) -> int:
    """The number of devices that the HLO is partitioned for; 1 by default."""
    return _number(_PARTITIONS, data)


def replicas_of(data: bytes) -> int:
    """The number of devices, or of groups of `partitions_of`, that each run the HLO; 1 by default."""
    return _number(_REPLICAS, data)


def _number(name: re.Pattern[bytes], data: bytes) -> int:
    found = name.search(data.split(b"\n", 1)[0])
    return int(found[1]) if found and _proto(data) is None else 1


def stablehlo_of(data: bytes) -> bytes:
    """HLO as StableHLO in MLIR bytecode, with the lines of the user's program.

    Raises InputError for damaged HLO and for HLO that XLA has optimised.
    """
    from jaxlib import _hlo, _jax  # type: ignore[attr-defined]  # which take a third of a second to load

    proto = _proto(data)
    try:
        if proto is None:
            module = _hlo.hlo_module_from_text(data.decode())
            proto = module.as_serialized_hlo_module_proto()
        else:
            module = _hlo.HloModule.from_serialized_hlo_module_proto(proto)
        if module.schedule() is not None:
            raise InputError("this HLO has been optimised: it is XLA's output, not its input", help=AFTER_HELP)
        converted: bytes = _jax.mlir.hlo_to_stablehlo(proto)
    except UnicodeDecodeError:
        raise InputError("this HLO is not text: it is damaged") from None
    except (RuntimeError, ValueError) as error:  # jaxlib's JaxRuntimeError is one of the former
        raise _explained(str(error)) from None
    return converted


def hlo_of(bytecode: bytes) -> bytes:
    """StableHLO, given as MLIR bytecode, as an HloModuleProto. Raises InputError if HLO lacks an op."""
    from jaxlib import _jax

    try:
        found = _jax.mlir.mlir_module_to_xla_computation(bytecode, use_tuple_args=False, return_tuple=False)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"XLA cannot write this module as HLO: {_first_line(str(error))}") from None
    written: bytes = found.as_serialized_hlo_module_proto()
    return written


def refined(bytecode: bytes, *, is_sharded: bool) -> bytes | None:
    """StableHLO as MLIR bytecode, with the shapes that follow from those of the main function's arguments.

    None if some of them do not. is_sharded: whether the module has Shardy's ops. Raises InputError for sizes that the
    module forbids.
    """
    from jaxlib import _jax

    try:
        found: bytes = _jax.mlir.refine_polymorphic_shapes(bytecode, enable_shardy=is_sharded)
    except (RuntimeError, ValueError) as error:
        forbidden = _FORBIDDEN.search(str(error))
        if forbidden is None:
            return None
        raise InputError(f"the module forbids its own sizes: {forbidden[1]}") from None
    return found


def _proto(data: bytes) -> bytes | None:
    """The HloModuleProto in the data, possibly inside an HloProto; None if there is none.

    A module's first field is its name, and its second the name of a computation; an HloProto's first field is a module.
    """
    field = _field(data)
    if field is None:
        return None
    inner, rest = field
    if rest[:1] == bytes([_SECOND_FIELD]) and inner.isascii():
        return data
    return inner if _field(inner) is not None and _proto(inner) is not None else None


def _field(data: bytes) -> tuple[bytes, bytes] | None:
    """The first field of a proto, and the rest; None unless it is field number one, with bytes."""
    if len(data) < 3 or data[0] != _FIRST_FIELD:
        return None
    length, shift, start = 0, 0, 1
    while start < min(len(data), 11):
        byte = data[start]
        length, shift, start = length | (byte & 127) << shift, shift + 7, start + 1
        if byte < 128:
            return (data[start : start + length], data[start + length :]) if start + length <= len(data) else None
    return None


def _explained(message: str) -> InputError:
    found = _SYNTAX.search(message)
    if found is None:
        return InputError(f"XLA cannot read this HLO: {_first_line(message)}")
    return InputError(f"this HLO is damaged: {found[3]}", line=int(found[1]), col=int(found[2]))


def _first_line(message: str) -> str:
    return message.strip().split("\n", 1)[0]
