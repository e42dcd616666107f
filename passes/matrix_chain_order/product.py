"""Writes a product in its new order."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.values import Number, defining_op
from exla_opt.passes.algebra.contract import Tensor, repeated, squeezed, take_step

from .order import Order
from .tree import Tree, letters_of


@dataclass(slots=True)
class Writer:
    """Writes the products of one block, first to last. written: replacements of the results of roots."""

    written: dict[ir.Value, ir.Value] = field(default_factory=dict)

    def write(self, order: Order) -> None:
        """Replace the product's root, which becomes dead code."""
        tree = order.tree
        with ir.InsertionPoint(tree.root), tree.root.location:
            value = self._product(order)
        old = tree.root.results[0]
        old.replace_all_uses_with(value)
        self.written[old] = value

    def _product(self, order: Order) -> ir.Value:
        tree = order.tree
        precision = build.precision(tree.precision)
        tensors = [squeezed(self.written.get(value, value), place) for value, place in tree.leaves]
        scaled = _place_of_factor(tree)
        if scaled is not None:
            tensors[scaled] = _scaled(tensors[scaled], tree.coefficient)
        for step in order.steps:
            made = take_step(step, [tensors[number] for number in step.operands], tree.sizes, precision)
            dot = defining_op(made.value) if step.kind == "dot" else None
            if dot is not None and tree.algorithm is not None:
                dot.attributes["algorithm"] = tree.algorithm
            tensors.append(made)
        last = tensors[-1] if scaled is not None else _scaled(tensors[-1], tree.coefficient)
        value = repeated(last, [letter for letter in tree.place if letter is not None], tree.sizes)
        kind = tree.root.results[0].type
        return value if value.type == kind else stablehlo.reshape(kind, value)


def _place_of_factor(tree: Tree) -> int | None:
    """The leaf that is cheapest to multiply by a scalar factor; None for the result."""
    elements = [prod(tree.sizes[letter] for letter in letters_of(place)) for _, place in tree.leaves]
    smallest = min(range(len(elements)), key=elements.__getitem__)
    return smallest if elements[smallest] < prod(tree.sizes[letter] for letter in tree.output) else None


def _scaled(tensor: Tensor, coefficient: Number) -> Tensor:
    if coefficient == 1:
        return tensor
    return Tensor(stablehlo.multiply(tensor.value, build.splat(tensor.value.type, coefficient)), tensor.dims)
