"""Chooses the order of every product of a block: analysis only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.options import ChainCost, Options
from exla_opt.passes.algebra.contraction import Step, flops, largest, plan_steps
from exla_opt.remarks import Reason

from .cost import CLEARLY, Cost, is_better
from .legal import refusal
from .tree import FREE, Tree, is_absorbed, is_root, letters_of, read_tree

# A product that others read is not merged into one that would then have more leaves than this.
_MOST_LEAVES = 64


@dataclass(frozen=True, slots=True)
class Order:
    """A product and cheaper steps for it."""

    tree: Tree
    steps: tuple[Step, ...]
    old: Cost
    new: Cost


@dataclass(frozen=True, slots=True)
class Kept:
    """A product with a cheaper order, and why it is not used."""

    order: Order
    reason: Reason


def choose_orders(block: ir.Block, options: Options, types: Types) -> tuple[list[Order], list[Kept]]:
    """The products of a block that another order makes clearly cheaper, in program order; and those refused."""
    legal: list[Tree] = []
    kept: list[Kept] = []
    for tree in _trees(block):
        reason = refusal(tree, options)
        if reason is None:
            legal.append(tree)
        elif (order := best_order(tree, options, types)) is not None:
            kept.append(Kept(order, reason))
    trees = _absorb_shared(legal, options, types)
    orders = [order for tree in trees if (order := best_order(tree, options, types)) is not None]
    return orders[::-1], kept[::-1]


def _trees(block: ir.Block) -> list[Tree]:
    """Every maximal product, last first; also sums and diagonals, which shared products may be merged into."""
    inside: set[ir.Value] = set()
    trees = []
    for view in reversed(list(block.operations)):
        op = view.operation
        if not is_root(op) or op.results[0] in inside:
            continue
        tree = read_tree(op)
        inside.update(tree.absorbed)
        trees.append(tree)
    return trees


def cost_of(tree: Tree, types: Types) -> Cost:
    """The cost of the product in its current order."""
    return Cost(tree.flops, tree.largest * types.of(tree.root.results[0]).element_bytes)


def best_order(tree: Tree, options: Options, types: Types) -> Order | None:
    """The cheapest order found, if it is clearly better than the current one."""
    if not tree.dots or tree.has_diagonal_leaf:
        return None
    if 0 in tree.sizes.values():
        return None  # it costs nothing, and empty sums are not zeros times an infinity
    if tree.dots == 1 and len(tree.leaves) == 2 and tree.root.name == "stablehlo.dot_general":
        return None  # one product of two has one order
    size = max(types.of(tree.root.results[0]).element_bytes, 1)
    old = cost_of(tree, types)
    dims = [letters_of(place) for _, place in tree.leaves]
    best: Order | None = None
    for limit in _limits(tree, options.size_threshold // size, options.chain_cost):
        steps = plan_steps(dims, tree.output, tree.sizes, limit)
        new = Cost(flops(steps, dims, tree.sizes), largest(steps[:-1], tree.sizes) * size)
        if is_better(new, old if best is None else best.new, options.size_threshold, options.chain_cost):
            best = Order(tree, tuple(steps), old, new)
    return best


def _limits(tree: Tree, fits: int, cost: ChainCost) -> list[int]:
    """Limits for the elements of intermediate tensors, one search each. fits: of a tensor that is not big."""
    if cost != "bytes":
        return sorted({max(tree.largest, fits), fits})
    return [tree.largest >> halvings for halvings in range(tree.largest.bit_length())]


def _absorb_shared(trees: list[Tree], options: Options, types: Types) -> list[Tree]:
    """Merge a product that others also read into its readers, if recomputing it costs less.

    Either it pays for a single reader, and the product is kept for the others; or it pays only for all together, as
    then nothing needs the product any more.
    """
    current = dict(enumerate(trees))
    readers: dict[ir.Value, list[int]] = {}

    def read(number: int) -> None:
        for leaf, _ in current[number].leaves:
            readers.setdefault(leaf, []).append(number)

    for number in current:
        read(number)
    for number, shared in enumerate(trees):
        value = shared.root.results[0]
        users = [user for user in sorted(set(readers.get(value, ()))) if _may_read(current.get(user), value)]
        if not users:
            continue
        wider = {user: _read_through(current[user], shared) for user in users}
        wider = {user: tree for user, tree in wider.items() if tree.dots and len(tree.leaves) <= _MOST_LEAVES}
        paying = [user for user in wider if _pays([wider[user]], [current[user]], options, types)]
        together = False
        if len(paying) < len(users) == len(wider) and _only_leaf_of(value, users, current):
            narrow = [current[number], *(current[user] for user in users)]
            together = _pays(list(wider.values()), narrow, options, types)
        for user in users if together else paying:
            if not together:  # the narrow one is kept: the shared product is computed anyway
                wider[user].flops, wider[user].largest = current[user].flops, current[user].largest
            current[user] = wider[user]
            read(user)
        if together or (len(paying) == len(users) and _only_leaf_of(value, users, current)):
            del current[number]
    return list(current.values())


def _may_read(tree: Tree | None, value: ir.Value) -> bool:
    """Whether a leaf that is a product may be merged.

    Not if it is squared, element by element: in another order the sum of squares would have terms that cancel, and
    might even be negative.
    """
    if tree is None or len(tree.leaves) >= _MOST_LEAVES:
        return False
    places = [place for leaf, place in tree.leaves if leaf == value]
    return bool(places) and len(set(places)) == len(places)


def _only_leaf_of(value: ir.Value, users: Sequence[int], trees: dict[int, Tree]) -> bool:
    """Whether all readers of the value belong to these products, so that it is removed with them."""
    inside = {made for user in users for made in trees[user].absorbed}
    stack = [value]
    while stack:
        for use in stack.pop().uses:
            op = use.owner.operation
            if len(op.results) != 1 or op.results[0] not in inside:
                return False
            if op.name in FREE:
                stack.append(op.results[0])
    return True


def _read_through(tree: Tree, shared: Tree) -> Tree:
    inside = {shared.root.results[0], *tree.absorbed}

    def absorbs(op: ir.Operation, read_by_others: bool) -> bool:
        return is_absorbed(op, read_by_others) or (len(op.results) == 1 and op.results[0] in inside)

    return read_tree(tree.root, absorbs)


def _pays(new: Sequence[Tree], old: Sequence[Tree], options: Options, types: Types) -> bool:
    after, before = _flops(new, options, types), _flops(old, options, types)
    return after < before and after * CLEARLY <= before


def _flops(trees: Sequence[Tree], options: Options, types: Types) -> int:
    return sum(order.new.flops if (order := best_order(tree, options, types)) else tree.flops for tree in trees)
