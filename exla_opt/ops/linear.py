"""Reductions, contractions, order and linear algebra."""

from __future__ import annotations

from collections.abc import Hashable

from jaxlib.mlir import ir

from exla_opt.ir.attributes import boolean, integer, integers, string

from .factor import DimMapping, Einsum, Factor, Kind, Letters, Shapes, factors_of, numbered
from .reducers import body_of, chooses, componentwise, starts_at_the_end


def reduce(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """`([i,j],[])->([i])`: i for any body, j when the body is a monoid or picks one of its two elements.

    What picks must start from the end of its type: each slice starts anew, and a tie with any other start may be lost.
    """
    dims = integers(op, "dimensions", [])
    letters = numbered(shapes.operands[0])
    kept = [letter for dim, letter in enumerate(letters) if dim not in dims]
    body = body_of(op)
    inits = list(op.operands)[len(op.results) :]
    summed = dims if componentwise(body) is not None or (chooses(body) and starts_at_the_end(body, inits)) else []
    count = len(shapes.results)
    return factors_of(Einsum([*[letters] * count, *[[]] * count], [kept] * count, summed=summed), shapes)


def einsum(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """The op's own letters; what is not in the result is summed over."""
    config = string(op, "einsum_config").replace(" ", "")
    before, arrow, after = config.partition("->")
    if not arrow or "." in config:
        return ()
    operands: list[Letters] = [[[letter] for letter in part] for part in before.split(",")]
    summed = set(before) - set(after)
    return factors_of(Einsum(operands, [[[letter] for letter in after]], summed=summed), shapes)


def _batch(rank: int) -> list[list[Hashable]]:
    return [[("batch", dim)] for dim in range(rank - 2)]


def _solve(left: bool, shapes: Shapes) -> tuple[Factor, ...]:
    """Left `([b,k,l],[b,k,i])->([b,k,i])`, right `([b,k,l],[b,i,k])->([b,i,k])`: one right-hand side needs no other."""
    if tuple(map(len, shapes.operands)) != (len(shapes.results[0]),) * 2:
        return ()
    batch = _batch(len(shapes.results[0]))
    free: Letters = [*batch, ["k"], ["i"]] if left else [*batch, ["i"], ["k"]]
    return factors_of(Einsum([[*batch, ["k"], ["l"]], free], [free], whole=("k", "l")), shapes)


def triangular_solve(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """Batches and right-hand sides."""
    return _solve(boolean(op, "left_side"), shapes)


def lapack_trsm(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """Batches and right-hand sides of LAPACK's triangular solve, whose side is the letter L or R."""
    config = op.attributes.get("mhlo.backend_config")
    if not isinstance(config, ir.DictAttr) or "side" not in config:
        return ()
    side = ir.IntegerAttr(config["side"]).value
    return _solve(side == ord("L"), shapes) if side in (ord("L"), ord("R")) else ()


def lapack_gtsv(shapes: Shapes) -> tuple[Factor, ...]:
    """Batches and right-hand sides of LAPACK's tridiagonal solve, `([b,k],[b,k],[b,k],[b,k,i])`.

    Its results are the factored diagonals, the solution and what went wrong. The diagonals are factored again for each
    slice of the right-hand sides, with the same results.
    """
    ranks = tuple(map(len, shapes.all))
    rank = ranks[3] if len(ranks) == 9 else 0
    if rank < 2 or ranks != (rank - 1,) * 3 + (rank,) + (rank - 1,) * 3 + (rank, rank - 2):
        return ()
    batch = _batch(rank)
    diagonal: Letters = [*batch, ["k"]]
    sides: Letters = [*batch, ["k"], ["other"]]
    einsum = Einsum([diagonal] * 3 + [sides], [diagonal] * 3 + [sides, batch], whole=("k", "other"))
    free = DimMapping(rank - 1, shapes.operands[3][-1])
    nothing = (None, None, None)
    if free.length < 2 or any(0 in shape for shape in shapes.all):
        return factors_of(einsum, shapes)
    return (
        *factors_of(einsum, shapes),
        Factor(Kind.INDEPENDENT, free.length, (*nothing, free), (*nothing, free, None)),
    )


def chlo_top_k(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """Rows by themselves; along a row the best of the tile and of those before it, once the first tile has k."""
    row, count = shapes.operands[0], shapes.results[0][-1]
    factors = top_k(op, shapes)
    if count < 1 or row[-1] <= 2 * count:  # two times k is what two tiles are joined to
        return factors
    along = DimMapping(len(row) - 1, row[-1])
    return (*factors, Factor(Kind.REDUCING, row[-1], (along,), (None, None), least=count))


def top_k(_: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """`([i,k])->([i,l],[i,l])`: every row by itself."""
    rows: list[list[Hashable]] = [[dim] for dim in range(len(shapes.operands[0]) - 1)]
    result: Letters = [*rows, ["l"]]
    return factors_of(Einsum([[*rows, ["k"]]], [result] * len(shapes.results), whole=("k", "l")), shapes)


def batch_norm(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """batch_norm_training and batch_norm_grad: every feature by itself, `([i,c,k],[c],[c])->([i,c,k],[c],[c])`."""
    feature = integer(op, "feature_index")

    def letters(rank: int) -> Letters:
        return [["c"]] if rank == 1 else [["c"] if dim == feature else [("whole", dim)] for dim in range(rank)]

    if len(shapes.operands[0]) < 2:
        return ()
    einsum = Einsum(
        [letters(len(shape)) for shape in shapes.operands],
        [letters(len(shape)) for shape in shapes.results],
        whole={("whole", dim) for dim in range(len(shapes.operands[0]))},
    )
    return factors_of(einsum, shapes)
