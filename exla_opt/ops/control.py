"""Control flow, calls, and ops that tie values together. Their operands and results have the same shapes."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.walk import terminator

from .definition import BY_BLOCKS, BY_PAIRS, NONE, SAME_OP, OpDefinition
from .tie import Site, Spoken, tie, tie_pairs

OPS: dict[str, OpDefinition] = {}

_CARRIES = "{} carries it from one step to the next, or returns it unsplit"


def _while_ties(site: Site) -> Spoken:
    condition, body = (region.blocks[0] for region in site.op.regions)
    returned = terminator(body).operands
    for index, operand in enumerate(site.op.operands):
        values = (site.op.results[index], condition.arguments[index], body.arguments[index])
        yield from tie(site, operand, *values, returned[index])


OPS["stablehlo.while"] = OpDefinition(
    factors=BY_BLOCKS, tile=BY_BLOCKS, ties=_while_ties, resize=NONE, combination=NONE, reason=_CARRIES
)


def _branch_ties(site: Site) -> Spoken:
    for region in site.op.regions:
        for result, value in zip(site.op.results, terminator(region.blocks[0]).operands, strict=True):
            yield from tie(site, result, value)


_BRANCHES = OpDefinition(
    factors=BY_BLOCKS, tile=BY_BLOCKS, ties=_branch_ties, resize=NONE, combination=NONE, reason=_CARRIES
)
OPS["stablehlo.case"] = _BRANCHES
OPS["stablehlo.if"] = _BRANCHES


def _call_ties(site: Site) -> Spoken:
    function = site.functions[ir.FlatSymbolRefAttr(site.op.attributes["callee"]).value]
    blocks = list(function.regions[0].blocks)
    if len(blocks) != 1:
        return
    given = (*site.op.operands, *site.op.results)
    for one, other in zip(given, (*blocks[0].arguments, *terminator(blocks[0]).operands), strict=True):
        yield from tie(site, one, other)


# Calls are inlined before anything is cut.
OPS["func.call"] = OpDefinition(factors=NONE, tile=NONE, ties=_call_ties, resize=NONE, combination=NONE, reason="")


def _return_ties(site: Site) -> Spoken:
    """The op that returns the values to its results says what holds for them."""
    for value in site.op.operands:
        yield from site.classes.places(value)


_RETURN = OpDefinition(factors=NONE, tile=NONE, ties=_return_ties, resize=NONE, combination=NONE, reason="")
OPS["func.return"] = _RETURN
OPS["stablehlo.return"] = _RETURN


OPS["stablehlo.optimization_barrier"] = OpDefinition(
    factors=BY_PAIRS,
    tile=SAME_OP,
    ties=tie_pairs,
    resize=NONE,
    combination=NONE,
    reason="stablehlo.optimization_barrier holds tensors that are split in different ways",
)
