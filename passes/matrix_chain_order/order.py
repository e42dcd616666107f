"""Chooses the order of every product of a block: analysis only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.analysis.contraction import Step, flops, largest, plan_steps
from exla_opt.analysis.graph import Types
from exla_opt.analysis.op_rules.bodies import element_type, float_bits
from exla_opt.options import Options

from .cost import CLEARLY, Cost, is_better
from .tree import Tree, is_root, letters_of, read_tree

# Ops that cost next to nothing: a product reads through them even where others read them too.
_FREE = frozenset({"stablehlo.transpose", "stablehlo.reshape", "stablehlo.negate"})


@dataclass(frozen=True, slots=True)
class Order:
    """A product and the steps that make it for less."""

    tree: Tree
    steps: tuple[Step, ...]
    old: Cost
    new: Cost


def choose_orders(block: ir.Block, options: Options, types: Types) -> list[Order]:
    """The products of a block that another order makes clearly cheaper, in program order."""
    trees = _absorb_shared(_trees(block), options, types)
    orders = [order for tree in trees if (order := best_order(tree, options, types)) is not None]
    return orders[::-1]


def _trees(block: ir.Block) -> list[Tree]:
    """Every maximal product, last first."""
    inside: set[ir.Value] = set()
    trees = []
    for view in reversed(list(block.operations)):
        op = view.operation
        if not is_root(op) or op.results[0] in inside:
            continue
        tree = read_tree(op, _is_absorbed)
        inside.update(tree.absorbed)
        if tree.dots:
            trees.append(tree)
    return trees


def _is_absorbed(op: ir.Operation) -> bool:
    if op.name in _FREE:
        return True
    return len(op.results) == 1 and len(list(op.results[0].uses)) == 1


def cost_of(tree: Tree, types: Types) -> Cost:
    """What the product costs as it stands."""
    return Cost(tree.flops, tree.largest * types.of(tree.root.results[0]).element_bytes)


def best_order(tree: Tree, options: Options, types: Types) -> Order | None:
    """The cheapest order found, if it is clearly better than the one that stands."""
    if any(len(letters_of(place)) < sum(letter is not None for letter in place) for _, place in tree.leaves):
        return None  # the diagonal of a matrix that is there already
    if not options.reassociate and float_bits(element_type(tree.root.results[0])):
        return None
    size = max(types.of(tree.root.results[0]).element_bytes, 1)
    old = cost_of(tree, types)
    dims = [letters_of(place) for _, place in tree.leaves]
    best: Order | None = None
    for limit in {max(tree.largest, options.size_threshold // size), options.size_threshold // size}:
        steps = plan_steps(dims, tree.output, tree.sizes, limit)
        new = Cost(flops(steps, dims, tree.sizes), largest(steps[:-1], tree.sizes) * size)
        if is_better(new, old if best is None else best.new, options.size_threshold):
            best = Order(tree, tuple(steps), old, new)
    return best


def _absorb_shared(trees: list[Tree], options: Options, types: Types) -> list[Tree]:
    """Take a product that several others read into them, where making it again for each costs less than keeping it."""
    current = dict(enumerate(trees))
    readers: dict[ir.Value, list[int]] = {}
    for number, tree in current.items():
        for leaf, _ in tree.leaves:
            readers.setdefault(leaf, []).append(number)
    for number, shared in enumerate(trees):
        value = shared.root.results[0]
        users = sorted(set(readers.get(value, ())))
        if len(users) < 2 or len(readers[value]) != len(list(value.uses)):
            continue
        wider = [_read_through(current[user], shared) for user in users]
        before = _flops([current[number], *(current[user] for user in users)], options, types)
        if _flops(wider, options, types) * CLEARLY > before:
            continue
        for user, tree in zip(users, wider, strict=True):
            current[user] = tree
            for leaf, _ in shared.leaves:
                readers.setdefault(leaf, []).append(user)
        del current[number]
    return list(current.values())


def _read_through(tree: Tree, shared: Tree) -> Tree:
    inside = {shared.root.results[0], *tree.absorbed}
    return read_tree(tree.root, lambda op: _is_absorbed(op) or op.results[0] in inside)


def _flops(trees: Sequence[Tree], options: Options, types: Types) -> int:
    return sum(order.new.flops if (order := best_order(tree, options, types)) else tree.flops for tree in trees)
