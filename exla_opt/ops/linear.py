"""Contractions and linear algebra: dots, factorisations, solves, Fourier transforms, normalisations."""

from __future__ import annotations

from collections.abc import Hashable

from jaxlib.mlir import ir

from exla_opt.ir.attributes import boolean, integer, string

from .definition import BY_FACTORS, NONE, SAME_OP, ByShardy, OpDefinition
from .factor import Einsum, Factor, Letters, Shapes, factors_of
from .sums import NARROW_SUM, SUM
from .tie import Site, Spoken, all_same, tie, tie_all

OPS: dict[str, OpDefinition] = {}

_DOT = OpDefinition(factors=ByShardy(sums=True), tile=SAME_OP, ties=BY_FACTORS, resize=NONE, combination=SUM, reason="")
OPS["stablehlo.dot"] = _DOT
OPS["stablehlo.dot_general"] = _DOT


def _einsum_factors(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """The op's own letters; those that are not in the result are summed over."""
    config = string(op, "einsum_config").replace(" ", "")
    before, arrow, after = config.partition("->")
    if not arrow or "." in config:
        return ()
    operands: list[Letters] = [[[letter] for letter in part] for part in before.split(",")]
    summed = set(before) - set(after)
    return factors_of(Einsum(operands, [[[letter] for letter in after]], summed=summed), shapes)


OPS["stablehlo.einsum"] = OpDefinition(
    factors=_einsum_factors, tile=SAME_OP, ties=BY_FACTORS, resize=NONE, combination=NARROW_SUM, reason=""
)


def batch_letters(rank: int) -> list[list[Hashable]]:
    """The letters of the dimensions before a matrix."""
    return [[("batch", dim)] for dim in range(rank - 2)]


def tie_square(site: Site, matrix: ir.Value) -> Spoken:
    """The last two dimensions have the same size."""
    yield from all_same(site, site.classes.places(matrix)[-2:])


def _cholesky_ties(site: Site) -> Spoken:
    yield from tie_all(site)
    yield from tie_square(site, site.op.operands[0])


OPS["stablehlo.cholesky"] = OpDefinition(
    factors=ByShardy(),
    tile=SAME_OP,
    ties=_cholesky_ties,
    resize=NONE,
    combination=NONE,
    reason="stablehlo.cholesky couples all rows and columns of a matrix",
)


def solve_factors(left: bool, shapes: Shapes) -> tuple[Factor, ...]:
    """Left `([b,k,l],[b,k,i])->([b,k,i])`, right `([b,k,l],[b,i,k])->([b,i,k])`: right-hand sides are independent."""
    if tuple(map(len, shapes.operands)) != (len(shapes.results[0]),) * 2:
        return ()
    batch = batch_letters(len(shapes.results[0]))
    free: Letters = [*batch, ["k"], ["i"]] if left else [*batch, ["i"], ["k"]]
    return factors_of(Einsum([[*batch, ["k"], ["l"]], free], [free], uncut=("k", "l")), shapes)


def solve_ties(site: Site, left: bool) -> Spoken:
    """The matrix is square and as large as the side that it is solved for."""
    matrix, sides = site.op.operands
    yield from tie(site, sides, site.op.results[0])
    *batch, rows, columns = site.classes.places(matrix)
    *others, first, second = site.classes.places(sides)
    for one, other in zip(batch, others, strict=True):
        yield from all_same(site, [one, other])
    yield from all_same(site, [rows, columns, first if left else second])


def _triangular_solve_factors(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """Batches and right-hand sides."""
    return solve_factors(boolean(op, "left_side"), shapes)


def _triangular_solve_ties(site: Site) -> Spoken:
    yield from solve_ties(site, left=boolean(site.op, "left_side"))


OPS["stablehlo.triangular_solve"] = OpDefinition(
    factors=_triangular_solve_factors,
    tile=SAME_OP,
    ties=_triangular_solve_ties,
    resize=NONE,
    combination=NONE,
    reason="stablehlo.triangular_solve couples all rows of the matrix",
)

OPS["stablehlo.fft"] = OpDefinition(
    factors=ByShardy(),
    tile=SAME_OP,
    ties=BY_FACTORS,
    resize=NONE,
    combination=NONE,
    reason="stablehlo.fft couples all elements of the dimensions that it transforms",
)

OPS["stablehlo.batch_norm_inference"] = OpDefinition(
    factors=ByShardy(), tile=SAME_OP, ties=BY_FACTORS, resize=NONE, combination=NONE, reason=""
)


def _batch_norm_factors(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """Every feature separately, `([i,c,k],[c],[c])->([i,c,k],[c],[c])`."""
    feature = integer(op, "feature_index")

    def letters(rank: int) -> Letters:
        return [["c"]] if rank == 1 else [["c"] if dim == feature else [("uncut", dim)] for dim in range(rank)]

    if len(shapes.operands[0]) < 2:
        return ()
    einsum = Einsum(
        [letters(len(shape)) for shape in shapes.operands],
        [letters(len(shape)) for shape in shapes.results],
        uncut={("uncut", dim) for dim in range(len(shapes.operands[0]))},
    )
    return factors_of(einsum, shapes)


_BATCH_NORM = OpDefinition(
    factors=_batch_norm_factors, tile=SAME_OP, ties=BY_FACTORS, resize=NONE, combination=NONE, reason=""
)
OPS["stablehlo.batch_norm_grad"] = _BATCH_NORM
OPS["stablehlo.batch_norm_training"] = _BATCH_NORM
