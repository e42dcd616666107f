"""Computes the rows of a big tensor that a gather reads, instead of gathering them from the complete tensor.

    %f = f(%x); gather(%f, %rows)   ->   f(gather(%x, %rows))

The gather needs all of %f, and a loop over what it returns begins only after it. If each row of %f depends on the same
row of %x alone, a loop over the gathered rows computes f as well. This takes no more arithmetic if no more rows are
gathered than there are, and nothing else reads %f. An index that is out of range is moved into it as before, as %x has
as many rows.

NOTE [Not compared]: a row may be gathered twice, or be read elsewhere too, and then is computed twice: both may round
differently, though they are the same number. So nothing is done if an op tests numbers computed from gathered rows for
equality, or asks which of two is larger, or at which position the largest is, where elementwise ops and moves compute
both from gathered rows or one of them from the same tensor read elsewhere. Nor is a test for equality made twice.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.types import element_type
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import all_blocks, operands_of, walk, walk_functions
from exla_opt.ops.alike import is_by_row
from exla_opt.ops.comparisons import asks_about, asks_inside, orders_among, orders_by_element
from exla_opt.ops.effects import has_order
from exla_opt.ops.factor import LaidFactor, lay_factor
from exla_opt.ops.gathered_rows import RowReader, Rows, is_counted, number_of_rows, rows_read
from exla_opt.ops.index_numbers import GATHER
from exla_opt.ops.rules import OpRule, read_rules
from exla_opt.ops.shardy import RULE, resize_rule
from exla_opt.ops.tiling import build_tile
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.options import Options

from .copies import BlockOps, may_be_copied

# Up to this many gathers of a module are replaced.
_MOST = 8


@dataclass(frozen=True, slots=True)
class _Gather:
    """A gather of rows, and the rows that compute its result, in order of the block."""

    op: ir.Operation
    needed: list[Rows]


def reads_rows(module: ir.Module, options: Options) -> bool:
    """Whether a gather reads rows of a tensor over the threshold that can be computed alone."""
    return _find(module, options) is not None


def compute_rows(module: ir.Module, options: Options) -> bool:
    """Compute such rows alone; return whether there were any."""
    for number in range(_MOST):
        found = _find(module, options)  # what one gather reads may be rows of a big tensor again
        if found is None:
            return number > 0
        block, gather = found
        block.write(gather)
    return True


def _find(module: ir.Module, options: Options) -> tuple[_Gathers, _Gather] | None:
    """The last such gather of a block."""
    if all(op.name != GATHER for op in walk_functions(module.operation)):
        return None
    blocks = [_Gathers(block, options.size_threshold) for block in all_blocks(module)]
    blocks = [block for block in blocks if block.candidates]
    if not blocks:
        return None
    rules = read_rules(module, options.op_rules)
    numbers = {op: number for number, op in enumerate(walk_functions(module.operation))}
    for block in blocks:
        block.rules, block.numbers = rules, numbers
        gather = block.find()
        if gather is not None:
            return block, gather
    return None


class _Gathers(BlockOps):
    """Finds such gathers in a block, and replaces them. rules, numbers: of all ops of the module, the numbers by op."""

    rules: Sequence[OpRule] = ()
    numbers: Mapping[ir.Operation, int] = {}

    @cached_property
    def candidates(self) -> list[ir.Operation]:
        """The gathers of no more rows than there are, of a big tensor that is computed here."""
        return [
            op
            for op in self.ops
            if op.name == GATHER
            and op.operands[0] in self.place
            and self.is_big(op.operands[:1])
            and (rows := rows_read(op)) is not None
            and 0 < number_of_rows(op) <= rows[1].length
        ]

    @cached_property
    def deep(self) -> set[ir.Value]:
        """The big tensors that are computed here, and what depends on them."""
        found: set[ir.Value] = set()
        for op in self.ops:
            if self.is_big(op.results) or not found.isdisjoint(operands_of(op)):
                found.update(op.results)
        return found

    def find(self) -> _Gather | None:
        """The last gather that can and should be replaced."""
        for op in reversed(self.candidates):
            needed = self.worthwhile(op)
            if needed and self.is_legal(op, needed):
                return _Gather(op, needed)
        return None

    def worthwhile(self, op: ir.Operation) -> list[Rows]:
        """The rows to compute for a gather; empty if its operand stays. What takes long is not computed twice."""
        kept: set[ir.Operation] = set()
        while needed := self.needed(op, kept):
            slow = {each for each in self.repeated(needed, self.together(op)) if not _may_be_repeated(each)}
            if not slow:
                break
            kept |= slow
        return needed

    def needed(self, gather: ir.Operation, kept: Container[ir.Operation]) -> list[Rows]:
        """The rows that compute those of a gather, if any op computes. kept: ops whose results are read instead."""
        rows = rows_read(gather)
        assert rows is not None
        found: set[Rows] = set()
        stack = [rows]
        while stack:
            rows = stack.pop()
            op = self.op_of(rows)
            if op is None or rows in found or op in kept:
                continue
            if is_counted(rows):
                found.add(rows)
            elif (laid := self.laid(rows)) is not None:
                found.add(rows)
                operands = zip(operands_of(op), laid.operands, strict=True)
                stack += [(value, mapping) for value, mapping in operands if mapping is not None]
        places = {self.place[value] for value, _ in found}
        if all(has_trait(self.ops[place], Trait.REARRANGES) for place in places):
            return []
        return sorted(found, key=lambda each: self.place[each[0]])

    def op_of(self, rows: Rows) -> ir.Operation | None:
        place = self.place.get(rows[0])
        return None if place is None else self.ops[place]

    def laid(self, rows: Rows) -> LaidFactor | None:
        """How an op computes these rows from those of its operands; None if they are read from its complete result.

        A small tensor is read, unless a big one, which may vanish, is needed for it.
        """
        value, wanted = rows
        op = self.op_of(rows)
        if op is None or not (value in self.deep or has_trait(op, Trait.FREE)) or has_order(op):
            return None
        index = ir.OpResult(value).result_number
        factor = self.rules[self.numbers[op]].at_result(index, wanted.dim, wanted.inner)
        own = None if factor is None else factor.results[index]
        if factor is None or own is None or not is_by_row(op, factor):
            return None
        laid = lay_factor(factor, own, wanted)
        return None if laid is None or laid.offset else laid

    def together(self, op: ir.Operation) -> set[ir.Operation]:
        """A gather, and the others of the same tensor, if all of them read no more rows than there are."""
        others = [each for each in self.candidates if each.operands[0] == op.operands[0]]
        rows = rows_read(op)
        is_all = rows is not None and sum(map(number_of_rows, others)) <= rows[1].length
        return set(others) if is_all and not any(map(_is_compared, others)) else {op}

    def repeated(self, needed: list[Rows], gone: set[ir.Operation]) -> list[ir.Operation]:
        """The ops that are computed twice: those whose results something else reads, or in another form of rows.

        gone: gathers that no longer read them.
        """
        found: list[ir.Operation] = []
        gone = set(gone)
        for each in dict.fromkeys(self.ops[self.place[value]] for value, _ in reversed(needed)):
            readers = {self.holder(use.owner.operation) for result in each.results for use in result.uses}
            forms = [mapping for value, mapping in needed if value in list(each.results)]
            if readers <= gone:
                gone.add(each)
            if (each not in gone or len(forms) > len(each.results)) and not has_trait(each, Trait.FREE):
                found.append(each)
        return found

    def holder(self, op: ir.Operation) -> ir.Operation:
        """The op of this block that an op is, or is a part of."""
        while op.block != self.ops[0].block:
            op = op.block.owner.operation
        return op

    def is_legal(self, op: ir.Operation, needed: list[Rows]) -> bool:
        """Whether nothing compares what is computed twice; see NOTE [Not compared]."""
        if _is_compared(op):
            return False
        twice = [result for each in self.repeated(needed, {op}) for result in each.results]
        if not twice:
            return True
        if any(asks_inside(self.ops[self.place[value]]) for value, _ in needed):
            return False
        return not orders_by_element(op.results, twice, [op])

    def write(self, gather: _Gather) -> None:
        """Replace a gather by the rows that it reads, and erase what nothing reads any longer."""
        op, rows = gather.op, rows_read(gather.op)
        assert rows is not None
        with ir.InsertionPoint(op), op.location:
            reader = RowReader(op)
            for needed in gather.needed:
                if needed not in reader.made and not is_counted(needed):
                    self.compute(needed, reader)
            made = build.reshaped(reader.rows(rows), build.shape_of(op.results[0]))
        op.results[0].replace_all_uses_with(made)
        places = {self.place[value] for value, _ in gather.needed}
        for each in [op, *(self.ops[place] for place in sorted(places, reverse=True))]:
            if not any(True for result in each.results for _ in result.uses):
                each.erase()

    def compute(self, rows: Rows, reader: RowReader) -> None:
        """Compute these rows of all results of an op."""
        op, laid = self.ops[self.place[rows[0]]], self.laid(rows)
        assert laid is not None
        place = (0, reader.number * laid.scale)
        with op.location:
            operands = [
                value if mapping is None else reader.rows((value, mapping))
                for value, mapping in zip(operands_of(op), laid.operands, strict=True)
            ]
            results = build_tile(
                op,
                laid.factor,
                operands,
                build.scalar_i32(0),
                [None if mapping is None else place for mapping in laid.operands],
                [None if mapping is None else place for mapping in laid.results],
            )
        copy = defining_op(results[0])
        if RULE in op.attributes and copy is not None:  # a loop cannot cut a call without it
            copy.attributes[RULE] = op.attributes[RULE]
            resize_rule(copy)
        if copy is not None and copy.name == GATHER and laid.operands[1] is not None:  # its indices are in this order
            copy.attributes["indices_are_sorted"] = ir.BoolAttr.get(False)
        for value, mapping, made in zip(op.results, laid.results, results, strict=True):
            if mapping is not None:
                reader.made.setdefault((value, mapping), made)


def _is_compared(op: ir.Operation) -> bool:
    """Whether the program compares rows that a gather reads with each other, or tests them for equality."""
    block = op.block
    while (around := block.owner.operation).name != "func.func":
        block = around.block
    return asks_about(op.results[0], block) or orders_among(op.results)


def _may_be_repeated(op: ir.Operation) -> bool:
    """Whether an op may be computed twice, at low cost: a loop only if it draws random bits."""
    if not has_trait(op, Trait.CONTROL_FLOW):
        return may_be_copied(op)
    if not all(isinstance(element_type(result), ir.IntegerType) for result in op.results):
        return False
    return all(may_be_copied(inner) for region in op.regions for block in region.blocks for inner in walk(block))
