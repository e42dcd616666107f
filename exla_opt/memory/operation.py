"""One op of the IR as XLA simplifies it, whatever reads it: squares and divisions by one number are multiplications."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from jaxlib.version import __version__ as jaxlib_release

from exla_opt.ir.attributes import integer, integers, is_splat
from exla_opt.ir.types import Types, element_type, float_bits
from exla_opt.ir.values import defining_op, splat_value
from exla_opt.ops.reducers import is_identity, monoid_of
from exla_opt.ops.traits import Trait, traits_of
from exla_opt.ops.views import is_view

from .block import Operation
from .dots import copied_sides, dot_dims, has_kernel, is_by_vector, is_folded, is_outer_product
from .machine import CPU, Machine

# The release of the installed jaxlib, as (0, 10).
JAXLIB = tuple(int(part) for part in jaxlib_release.split(".")[:2])
_MULTIPLY, _REPEATED = traits_of("stablehlo.multiply"), traits_of("stablehlo.broadcast_in_dim")
# For real numbers only: complex ones are expensive.
_CHEAP_IF_REAL = frozenset("cosine sine tan".split())
# The operands of sums and extrema that a library computes for XLA:CPU (its YNN fusions).
_KERNELS = frozenset(("add", "minimum", "maximum"))
# XLA drops these if one operand is their identity.
_DROPPED = frozenset("stablehlo." + name for name in ("add", "and", "multiply", "or"))


def read_operation(
    op: ir.Operation, operands: tuple[int, ...], results: tuple[int, ...], types: Types, machine: Machine = CPU
) -> Operation:
    """One op without control flow, as XLA simplifies it. operands, results: the numbers of its tensors, in order."""
    name, traits = op.name.rpartition(".")[2], traits_of(op.name)
    made = Operation(name, traits, operands, results)
    if name == "constant" and is_splat(op):
        return Operation("splat", traits, operands, results)
    if (name == "power" and splat_value(op.operands[1]) == 2) or (name == "divide" and _is_cheap_divisor(op, types)):
        return replace(made, name="multiply", traits=_MULTIPLY)
    if name == "square":
        return replace(made, name="multiply", traits=_MULTIPLY, operands=operands * 2)
    if name == "concatenate":
        shape = types.of(op.results[0]).shape
        return replace(made, lengths=shape[-1:] if integer(op, "dimension") == len(shape) - 1 > 0 else ())
    if name == "custom_call" and "operand_layouts" in op.attributes:
        layouts = enumerate(ir.ArrayAttr(op.attributes["operand_layouts"]))
        copied = tuple(side for side, layout in layouts if not _is_row_major(layout))
        return replace(
            made, copied=copied, is_library=ir.StringAttr(op.attributes["call_target_name"]).value.startswith("lapack_")
        )
    if name == "sort":
        shape = types.of(op.operands[0]).shape
        return replace(made, lengths=(shape[integer(op, "dimension", -1)],) if shape else ())
    if name == "triangular_solve":
        return replace(made, lengths=types.of(op.operands[0]).shape[-1:])
    if name == "reduce":
        shape = types.of(op.operands[0]).shape
        values = zip(op.operands, operands, strict=True) if _computes(op) else ()
        narrow = (number for value, number in values if _is_bfloat16(value))
        dims = tuple(integers(op, "dimensions", []))
        lengths = tuple(shape[dim] for dim in dims)
        return replace(
            made,
            lengths=lengths,
            together=prod(shape[max(dims, default=-1) + 1 :]),
            narrow=frozenset(narrow),
            is_library=machine.kind == "cpu" and _has_kernel(op, lengths),
        )
    if name == "scatter":
        values = zip(op.operands, operands, strict=True)
        narrow = (number for value, number in values if moved_type(types.of(value).dtype, machine))
        along = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"]).index_vector_dim
        indices = types.of(op.operands[len(op.operands) // 2]).shape
        return replace(made, narrow=frozenset(narrow), lengths=indices[along : along + 1])
    if name == "reduce_window":
        return replace(made, lengths=tuple(integers(op, "window_dimensions", [])))
    if name == "transpose":
        shape, order = types.of(op.operands[0]).shape, integers(op, "permutation", [])
        return replace(made, together=shape[-1] if order and order[-1] == len(order) - 1 else 1)
    if name == "dot_general":
        batches = tuple(range(len(dot_dims(op, 0)[0])))
        if machine.kind == "gpu" and is_outer_product(op, types):
            return replace(made, name="outer_product", traits=_REPEATED)
        copied = copied_sides(op, types, machine)
        return replace(
            made,
            copied=copied,
            narrow=_narrow(op, made),
            shared=batches,
            is_library=machine.kind == "cpu" and has_kernel(op, types, copied),
            by_vector=is_by_vector(op, types),
        )
    if name == "convolution":
        numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
        wide = _narrow(op, made) if machine.widens else frozenset()
        ins = types.of(op.operands[1]).shape[numbers.kernel_input_feature_dimension]
        groups = integer(op, "feature_group_count", 1) * integer(op, "batch_group_count", 1)
        return replace(made, shared=(numbers.output_feature_dimension,), features=(ins, groups), narrow=wide)
    if machine.widens and Trait.POINTWISE in traits:
        return Operation(name, _pointwise_traits(op, traits), operands, results)
    return made


def _pointwise_traits(op: ir.Operation, traits: Trait) -> Trait:
    """XLA:CPU rounds to bfloat16 in software after each op, and computes sines of real numbers cheaply."""
    if op.name.rpartition(".")[2] in _CHEAP_IF_REAL and not isinstance(element_type(op.results[0]), ir.ComplexType):
        traits &= ~Trait.EXPENSIVE
    if _is_bfloat16(op.results[0]) and Trait.BITS not in traits:
        traits |= Trait.EXPENSIVE
    return traits


def _narrow(op: ir.Operation, made: Operation) -> frozenset[int]:
    """The operands and results with numbers of less than 32 bits, except integers that stay narrow."""
    made_of = element_type(op.results[0])
    if isinstance(made_of, ir.IntegerType) and made_of.width < 32:
        return frozenset()
    values = zip((*op.operands, *op.results), (*made.operands, *made.results), strict=True)
    return frozenset(number for value, number in values if 0 < _bits(element_type(value)) < 32)


def widened_type(dtype: str) -> str:
    """The element type that replaces floats for which XLA:CPU has no arithmetic; "" for all others."""
    if dtype == "bf16":
        return "f32"
    return "f16" if dtype.startswith("f8") else ""


def moved_type(dtype: str, machine: Machine) -> str:
    """The element type in which a machine keeps floats that it only moves; "" for those that it moves unchanged."""
    moved = any(dtype == narrow and since <= JAXLIB for narrow, since in machine.moves)
    return "" if moved or not machine.widens else widened_type(dtype)


def _computes(op: ir.Operation) -> bool:
    """Whether a reduce does more than select elements."""
    return any(Trait.SELECTS not in traits_of(inner.operation.name) for inner in list(op.regions[0].blocks[0])[:-1])


def _has_kernel(op: ir.Operation, lengths: Sequence[int]) -> bool:
    """Whether a library's kernel computes a reduce on XLA:CPU, and writes its result."""
    is_float = isinstance(element_type(op.results[0]), ir.FloatType)
    return is_float and prod(lengths) > 1 and monoid_of(op) in _KERNELS


def has_own_buffer(op: ir.Operation, types: Types) -> bool:
    """Whether the op allocates its results, as far as this block knows."""
    return not (is_view(op, types) or is_folded(op, types))


def identity_side(op: ir.Operation) -> int | None:
    """The operand that the result equals: the other is the op's identity everywhere, or the same value."""
    if op.name == "stablehlo.select" and op.operands[1] == op.operands[2]:
        return 1
    if op.name not in _DROPPED:
        return None
    name = op.name.rpartition(".")[2]
    return next((1 - side for side in (1, 0) if is_identity(name, op.operands[side])), None)


def merge_key(op: ir.Operation, name: str, operands: tuple[int, ...], barriers: tuple[int, ...]) -> Hashable:
    """A key for equal ops. The bindings cannot read the value of a complex constant.

    Views of one tensor have its number, but not its type.
    """
    kinds = tuple(value.type for value in (*op.results, *op.operands))
    if name == "constant" and isinstance(ir.RankedTensorType(kinds[0]).element_type, ir.ComplexType):
        return None
    attributes = tuple((op.attributes[place].name, op.attributes[place].attr) for place in range(len(op.attributes)))
    return name, operands, barriers, attributes, kinds


def widened_before(loop: ir.Operation, types: Types, machine: Machine) -> set[ir.Value]:
    """Captures that a loop slices, in a type that XLA:CPU cannot slice: it widens them completely before the loop."""
    narrow = {value for value in types.captured(loop) if moved_type(types.of(value).dtype, machine)}
    read: set[ir.Value] = set()
    stack = [block for region in loop.regions for block in region.blocks] if narrow else []
    while stack:
        for view in stack.pop().operations:
            inner = view.operation
            if inner.name in ("stablehlo.dynamic_slice", "stablehlo.gather"):
                read.add(inner.operands[0])
            stack.extend(block for region in inner.regions for block in region.blocks)
    return narrow & read


def collapses(op: ir.Operation) -> bool:
    """Whether a gather or a scatter moves slices from which some dimensions of one element are dropped.

    Batching dimensions are: XLA writes an iota component for each.
    """
    if op.name == "stablehlo.gather":
        gather = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
        return bool(gather.collapsed_slice_dims or gather.operand_batching_dims)
    scatter = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    return bool(scatter.inserted_window_dims or scatter.input_batching_dims)


def part_sliced(op: ir.Operation) -> ir.Value | None:
    """The only operand of a concatenation from which a slice takes elements."""
    joined = defining_op(op.operands[0], "stablehlo.concatenate")
    if joined is None:
        return None
    dim = integer(joined, "dimension")
    first, limit = integers(op, "start_indices", [])[dim], integers(op, "limit_indices", [])[dim]
    end = 0
    for value in joined.operands:
        start, end = end, end + ir.RankedTensorType(value.type).shape[dim]
        if start <= first and limit <= end:
            return value
    return None


def factor_chosen(op: ir.Operation) -> tuple[ir.Value, ir.Value] | None:
    """The predicate and the other factor of a multiplication by a predicate of the same block.

    XLA selects the factor or zero.
    """
    for side in (0, 1):
        number = defining_op(op.operands[side], "stablehlo.convert")
        if number is not None and number.block == op.block and str(element_type(number.operands[0])) == "i1":
            return number.operands[0], op.operands[1 - side]
    return None


def is_window_padding(op: ir.Operation) -> bool:
    """Whether an op pads with the initial value of the windows over it: then the windows overlap the edge instead."""
    number = splat_value(op.operands[1]) if op.name == "stablehlo.pad" else None
    readers = [use.owner.operation for use in op.results[0].uses] if number is not None else []
    return bool(readers) and all(
        reader.name == "stablehlo.reduce_window"
        and len(reader.results) == 1
        and splat_value(reader.operands[1]) == number
        for reader in readers
    )


def _is_cheap_divisor(op: ir.Operation, types: Types) -> bool:
    """Whether a division is a multiplication by a value computed once: a number, or a smaller tensor broadcast."""
    spread = defining_op(op.operands[1], "stablehlo.broadcast_in_dim")
    if spread is None:
        return splat_value(op.operands[1]) is not None
    repeated = prod(types.of(spread.operands[0]).shape) > 1 and len(list(spread.results[0].uses)) == 1
    return repeated or _is_constant(spread.operands[0])


def is_constant_everywhere(value: ir.Value) -> bool:
    """Whether a tensor is a constant with one value everywhere, or the broadcast of such a number."""
    op = defining_op(value)
    if op is not None and op.name == "stablehlo.broadcast_in_dim":
        op = defining_op(op.operands[0], "stablehlo.constant")
    return op is not None and op.name == "stablehlo.constant" and is_splat(op)


def _is_constant(value: ir.Value, depth: int = 8) -> bool:
    """Whether a number is computed from constants alone, so that XLA folds it."""
    op = defining_op(value)
    if op is None or not depth or len(op.regions):
        return False
    return op.name == "stablehlo.constant" or (
        len(op.operands) > 0 and all(_is_constant(operand, depth - 1) for operand in op.operands)
    )


def _is_row_major(layout: ir.Attribute) -> bool:
    order = ir.DenseIntElementsAttr(layout)
    dims = [int(order[place]) for place in range(len(order))]
    return dims == sorted(dims, reverse=True)


def _bits(kind: ir.Type) -> int:
    """The width of a real number, float or integer; 0 for others and for booleans."""
    if isinstance(kind, ir.IntegerType):
        return kind.width if kind.width > 1 else 0
    return float_bits(kind)


def _is_bfloat16(value: ir.Value) -> bool:
    return isinstance(element_type(value), ir.BF16Type)
