"""Finds the batch: the dimension of a module's inputs whose elements are examples. Analysis only.

A dimension is called the batch only if every op treats its elements independently or sums over them, so that the module
with fewer of them is the program that its author would get from a smaller batch. What is not the batch:

- a dimension that an op slices, joins, sorts or scans, or that its windows move along;
- a dimension that one tensor has twice: the tokens of attention, the points of a kernel matrix;
- a dimension over which a product sums with another argument, `x[b,d] * w[d,h]`: d is a feature. The gradient
  `x[b,d] * dy[b,h]` sums over examples, which dy has from x;
- a dimension only of arguments that the program returns anew (parameters, moments), unless all results have it as well;
- a dimension of an argument, and not of another one of the same type: those of queries, of which keys have as many.

Of several such dimensions, the one that most tensors have is the batch: in `x @ w` the columns of w are as independent
as the rows of x, but only the last layer's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir.attributes import integers
from exla_opt.ir.types import Types
from exla_opt.ir.walk import main_function, terminator, walk_functions
from exla_opt.ops.rules import read_rules
from exla_opt.resize.alike import treats_alike
from exla_opt.resize.dimensions import Dimensions, Sizes, consistent, read_dimensions

# A batch is in at least this part of the tensors that any other outermost dimension of the inputs is in.
_DOMINANT = 0.9
_FLOATS = frozenset("bf16 f16 f32 f64".split())


@dataclass(frozen=True, slots=True)
class Batch:
    """The batch of a module.

    number: of its class. places: the arguments of the main function that have it, with the dimension, in order.
    """

    dimensions: Dimensions
    number: int
    places: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """The number of examples."""
        return self.dimensions.sizes[self.number]

    @property
    def carried(self) -> dict[ir.Value, int]:
        """The tensors that have the batch, each with its dimension."""
        return _carried(self, dict(self.dimensions.values))

    def sizes_for(self, size: int) -> Sizes:
        """The sizes of all classes of dimensions for a batch of `size`, a divisor of the current one.

        Raises ValueError if the module has no consistent sizes for it.
        """
        sizes = _shrunk(self.dimensions, self.number, size)
        if sizes is None:
            raise ValueError(f"the module cannot have a batch of {size}")
        return sizes


def find_batch(module: ir.Module, op_rules: tuple[tuple[str, str], ...] = ()) -> Batch | None:
    """The batch of a module without calls, or None if no dimension is certain to be it. The module is not changed.

    op_rules: (call target, rule text) pairs for custom calls. Raises what `read_rules` raises.
    """
    dimensions = read_dimensions(module, op_rules)
    pairs = list(zip(walk_functions(module.operation), read_rules(module, op_rules), strict=True))
    block, classes = main_function(module).regions[0].blocks[0], dict(dimensions.values)
    counts = Counter(number for value in classes if not _is_given(value, block) for number in set(classes[value]))
    walked = _walked([op for op, _ in pairs], classes)
    candidates = [
        batch
        for batch in _candidates(dimensions, block, classes)
        if all(_is_outermost(classes[block.arguments[place]], dim, walked) for place, dim in batch.places)
    ]
    returned = [classes.get(value, ()) for value in terminator(block).operands]
    for states in (False, True):  # a state only if no input has a batch
        rivals = [
            counts[one.number]
            for one in candidates
            if states or not _is_state(block, one) or all(one.number in of_result for of_result in returned)
        ]
        found: list[tuple[int, int, Batch]] = []
        for batch in candidates:
            if _is_state(block, batch) is not states or batch.number not in dimensions.free or _has_twin(block, batch):
                continue
            carried = _carried(batch, classes)
            count = sum(not _is_given(value, block) for value in carried)
            if not carried or count < _DOMINANT * max(rivals) or not _is_of_inputs(block, states, carried):
                continue
            if treats_alike(pairs, carried, states):
                found.append((count, -min(dim for _, dim in batch.places), batch))
        if found:
            return max(found, key=lambda one: one[:2])[2]
    return None


def _candidates(dimensions: Dimensions, block: ir.Block, classes: Mapping[ir.Value, tuple[int, ...]]) -> list[Batch]:
    """All dimensions of arguments that can have another size, in order."""
    places: dict[int, dict[int, int]] = {}
    for place, argument in enumerate(block.arguments):
        for dim, number in enumerate(classes.get(argument, ())):
            places.setdefault(number, {}).setdefault(place, dim)
    return [Batch(dimensions, number, tuple(found.items())) for number, found in places.items()]


def _is_given(value: ir.Value, block: ir.Block) -> bool:
    return isinstance(value.owner, ir.Block) and value.owner == block


def _walked(ops: Sequence[ir.Operation], classes: Mapping[ir.Value, tuple[int, ...]]) -> set[int]:
    """The outermost dimensions of tensors of which ops read one index at a time: the steps of scans."""
    slices = (op for op in ops if op.name == "stablehlo.dynamic_slice")
    return {classes[op.operands[0]][0] for op in slices if integers(op, "slice_sizes", [0])[:1] == [1]}


def _is_outermost(of_value: Sequence[int], dim: int, walked: Container[int]) -> bool:
    """Whether the dimension is the first, or the second after one that a scan walks along."""
    return dim == 0 or (dim == 1 and of_value[0] in walked)


def _carried(batch: Batch, classes: Mapping[ir.Value, tuple[int, ...]]) -> dict[ir.Value, int]:
    """The tensors that have the batch, each with its dimension; {} if one has it twice or it cannot be cut in half.

    A dimension of batch x tokens counts as the batch.
    """
    dimensions, size = batch.dimensions, batch.size
    divisor = next((each for each in range(2, size + 1) if size % each == 0), size)
    sizes = _shrunk(dimensions, batch.number, size // divisor)
    if sizes is None:
        return {}
    changed = {number for number, before in dimensions.sizes.items() if sizes[number] != before}
    carried = {}
    for value, of_value in classes.items():
        dims = [dim for dim, number in enumerate(of_value) if number in changed]
        if len(dims) > 1:
            return {}
        if dims:
            carried[value] = dims[0]
    return carried


def _shrunk(dimensions: Dimensions, number: int, size: int) -> Sizes | None:
    """The sizes when the class has `size`, if all sizes that change do so in proportion."""
    before = dimensions.sizes
    sizes = consistent(dimensions, {number: size})
    changed = [one for one, old in before.items() if sizes[one] != old]
    if any(sizes[one] * before[number] != before[one] * size for one in (number, *changed)):
        return None
    return sizes


def _is_state(block: ir.Block, batch: Batch) -> bool:
    """Whether a result has the type of each argument with the batch: it may be a parameter, or the state of a step."""
    results = {value.type for value in terminator(block).operands}
    return all(block.arguments[place].type in results for place, _ in batch.places)


def _has_twin(block: ir.Block, batch: Batch) -> bool:
    """Whether an argument without the batch has the type of one with it."""
    types = [argument.type for argument in block.arguments]
    having = {place for place, _ in batch.places}
    alike = {types[place] for place in having}
    return any(kind in alike for place, kind in enumerate(types) if place not in having)


def _is_of_inputs(block: ir.Block, is_state: bool, carried: Mapping[ir.Value, int]) -> bool:
    """Whether the results have the batch, or are sums over it. Counters and passed arguments may do without it."""
    types = Types()
    results = [value for value in terminator(block).operands if value in carried or not _is_given(value, block)]
    results = [value for value in results if types.of(value).shape and types.of(value).dtype in _FLOATS]
    if is_state:
        return bool(results) and all(carried.get(value) == 0 for value in results)
    reached = _reached(block, carried)
    return all(value in reached for value in results)


def _reached(block: ir.Block, carried: Mapping[ir.Value, int]) -> set[ir.Value]:
    """The values of the block that are computed from tensors with the batch."""
    reached = set(carried)
    for view in block.operations:
        op = view.operation
        if any(value in reached for value in _read(op)):
            reached.update(op.results)
    return reached


def _read(op: ir.Operation) -> Iterable[ir.Value]:
    """The operands of an op, and of all ops in its regions."""
    yield from op.operands
    for region in op.regions:
        for block in region.blocks:
            for view in block.operations:
                yield from _read(view.operation)
