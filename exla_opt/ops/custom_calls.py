"""Calls of foreign code: split only by a rule that their author, or the user, states."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from jaxlib.mlir import ir

from exla_opt.ir.attributes import string

from .definition import BY_TARGET, NONE, SAME_OP, OpDefinition
from .effects import CUSTOM_CALL
from .factor import DimMapping, Einsum, Factor, Letters, Shapes, factors_of, independent
from .linear import batch_letters, solve_factors, solve_ties, tie_square
from .reductions import rows_of_top_k
from .shardy import RULE
from .tie import Site, Spoken, by_factors, tie

_POTRF = re.compile(r"lapack_[sdcz]potrf_ffi")
_TRSM = re.compile(r"lapack_[sdcz]trsm_ffi")
_GTSV = re.compile(r"lapack_[sdcz]gtsv_ffi")
# XLA's decompositions by Householder reflections: each matrix alone. (Those of `Eigh` are swept until the last of them
# has converged, so their results depend on the others.)
_OF_MATRICES = frozenset({"Qr", "ProductOfElementaryHouseholderReflectors"})
# These name device layouts, or carry addresses of the process that wrote them.
_NEVER = frozenset(
    "Sharding SPMDFullToShardShape SPMDShardToFullShape CustomSPMDPartitioning InspectSharding "
    "mhlo.topk mhlo.erf".split()
)
# Shardy itself knows these well; every other rule is the author's, attached to the call at creation.
_KNOWN_TO_SHARDY = frozenset({"ApproxTopK"})
_TENSOR = re.compile(r"\[([^\[\]]*)\]")
_SIDE = re.compile(r"\((\[[^\[\]]*\](,\[[^\[\]]*\])*)?\)")


def target_of(op: ir.Operation) -> str:
    """The name of the function that a custom_call calls."""
    return string(op, "call_target_name")


@dataclass(frozen=True, slots=True)
class UserRule:
    """A rule from the command line: the letters of every dimension of every operand and result."""

    target: str
    operands: tuple[tuple[str, ...], ...]
    results: tuple[tuple[str, ...], ...]


def _side(text: str) -> tuple[tuple[str, ...], ...] | None:
    if not _SIDE.fullmatch(text):
        return None
    return tuple(tuple(inner.split(",")) if inner else () for inner in _TENSOR.findall(text))


def parse_user_rule(target: str, text: str) -> UserRule:
    """Read `([i,j],[j])->([i])`. Raises ValueError for text of another form."""
    before, arrow, after = "".join(text.split()).partition("->")
    operands, results = _side(before), _side(after)
    if not arrow or operands is None or not results:
        raise ValueError(f"the rule for {target} is not of the form ([i,j],[j])->([i]): {text!r}")
    for letter in (name for tensor in (*operands, *results) for name in tensor):
        if not letter.isidentifier():
            raise ValueError(f"the rule for {target} has {letter!r} where a letter must stand: {text!r}")
    return UserRule(target, operands, results)


def factors_by_user(rule: UserRule, shapes: Shapes) -> tuple[Factor, ...]:
    """The factors that the user promises. Raises ValueError if the rule does not fit the call."""
    written = [len(tensor) for tensor in (*rule.operands, *rule.results)]
    if len(rule.operands) != len(shapes.operands) or len(rule.results) != len(shapes.results):
        raise ValueError(
            f"the rule for {rule.target} names {len(rule.operands)} operands and {len(rule.results)} results, "
            f"the call has {len(shapes.operands)} and {len(shapes.results)}"
        )
    if written != [len(shape) for shape in shapes.all]:
        raise ValueError(
            f"the rule for {rule.target} has {written} letters for its operands and results, "
            f"the call has {[len(shape) for shape in shapes.all]} dimensions"
        )
    sizes: dict[str, int] = {}
    for tensor, shape in zip((*rule.operands, *rule.results), shapes.all, strict=True):
        for letter, size in zip(tensor, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise ValueError(
                    f"the rule for {rule.target} gives {letter} to dimensions of {sizes[letter]} and {size}"
                )
    return factors_of(Einsum(_letters(rule.operands), _letters(rule.results)), shapes)


def _letters(tensors: Sequence[Sequence[str]]) -> list[Letters]:
    return [[[letter] for letter in tensor] for tensor in tensors]


def _trsm_is_left(op: ir.Operation) -> bool | None:
    """Whether the matrix is on the left of LAPACK's triangular solve, letter L or R; None if the call does not say."""
    config = op.attributes.get("mhlo.backend_config")
    if not isinstance(config, ir.DictAttr) or "side" not in config:
        return None
    return {ord("L"): True, ord("R"): False}.get(ir.IntegerAttr(config["side"]).value)


def _gtsv_factors(shapes: Shapes) -> tuple[Factor, ...]:
    """Batches and right-hand sides of LAPACK's tridiagonal solve, `([b,k],[b,k],[b,k],[b,k,i])`.

    Its results are the factored diagonals, the solution and the error code. The diagonals are factored again for each
    slice of the right-hand sides, with the same results.
    """
    ranks = tuple(map(len, shapes.all))
    rank = ranks[3] if len(ranks) == 9 else 0
    if rank < 2 or ranks != (rank - 1,) * 3 + (rank,) + (rank - 1,) * 3 + (rank, rank - 2):
        return ()
    batch = batch_letters(rank)
    diagonal: Letters = [*batch, ["k"]]
    sides: Letters = [*batch, ["k"], ["other"]]
    einsum = Einsum([diagonal] * 3 + [sides], [diagonal] * 3 + [sides, batch], uncut=("k", "other"))
    free = DimMapping(rank - 1, shapes.operands[3][-1])
    nothing = (None, None, None)
    if free.length < 2 or any(0 in shape for shape in shapes.all):
        return factors_of(einsum, shapes)
    return (*factors_of(einsum, shapes), independent(free.length, (*nothing, free), (*nothing, free, None)))


def _batches_of_matrices(shapes: Shapes) -> tuple[Factor, ...]:
    """The dimensions before the matrices of the first operand, with which all other tensors begin."""
    batch = batch_letters(len(shapes.operands[0]))
    sizes = shapes.operands[0][: len(batch)]
    if any(shape[: len(batch)] != sizes or 0 in shape for shape in shapes.all):
        return ()
    own = [[("own", place, dim) for dim in range(len(shape) - len(batch))] for place, shape in enumerate(shapes.all)]
    letters: list[Letters] = [[*batch, *([letter] for letter in each)] for each in own]
    count = len(shapes.operands)
    return factors_of(Einsum(letters[:count], letters[count:], uncut=[*chain.from_iterable(own)]), shapes)


def own_factors(op: ir.Operation, target: str, shapes: Shapes) -> tuple[Factor, ...]:
    """The factors of the calls that we know better than Shardy; empty for all others."""
    if _TRSM.fullmatch(target):
        left = _trsm_is_left(op)
        return () if left is None else solve_factors(left, shapes)
    if _GTSV.fullmatch(target):
        return _gtsv_factors(shapes)
    if target in _OF_MATRICES:
        return _batches_of_matrices(shapes)
    return rows_of_top_k(shapes) if target == "TopK" else ()


def _ties(site: Site) -> Spoken:
    """LAPACK's Cholesky factor and triangular solve; for other calls only as far as their factors say."""
    yield from by_factors(site)
    target = target_of(site.op)
    if _POTRF.fullmatch(target):
        yield from tie(site, site.op.operands[0], site.op.results[0])
        yield from tie_square(site, site.op.operands[0])
    elif _TRSM.fullmatch(target) and (left := _trsm_is_left(site.op)) is not None:
        yield from solve_ties(site, left)


OPS: dict[str, OpDefinition] = {
    CUSTOM_CALL: OpDefinition(factors=BY_TARGET, tile=SAME_OP, ties=_ties, resize=NONE, combination=NONE, reason="")
}


def trusts_rule(op: ir.Operation, target: str) -> bool:
    """Whether a sharding rule on the call may be followed. `op` is as it was read, before Shardy wrote to it."""
    if target in _NEVER:
        return False
    return RULE in op.attributes or target in _KNOWN_TO_SHARDY
