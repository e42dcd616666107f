"""Control flow and calls: what goes in and out has one shape on both sides."""

from __future__ import annotations

from jaxlib.mlir import ir

from .site import Site, Told, tie


def while_(site: Site) -> Told:
    condition, body = (region.blocks[0] for region in site.op.regions)
    *_, last = body.operations
    for index, operand in enumerate(site.op.operands):
        values = (site.op.results[index], condition.arguments[index], body.arguments[index])
        yield from tie(site, operand, *values, last.operation.operands[index])


def branches(site: Site) -> Told:
    for region in site.op.regions:
        *_, last = region.blocks[0].operations
        for result, value in zip(site.op.results, last.operation.operands, strict=True):
            yield from tie(site, result, value)


def call(site: Site) -> Told:
    function = site.functions[ir.FlatSymbolRefAttr(site.op.attributes["callee"]).value]
    blocks = list(function.regions[0].blocks)
    if len(blocks) != 1:
        return
    *_, last = blocks[0].operations
    given = (*site.op.operands, *site.op.results)
    for one, other in zip(given, (*blocks[0].arguments, *last.operation.operands), strict=True):
        yield from tie(site, one, other)


def return_(site: Site) -> Told:
    """What holds of these values was told by who takes them."""
    for value in site.op.operands:
        yield from site.classes.places(value)
