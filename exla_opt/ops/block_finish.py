"""Selects the values of a cut block that are needed, and their forms: the block of one tile."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from jaxlib.mlir import ir

from exla_opt.ir.walk import terminator

from .block_flow import BlockFlow, ControlFactor, Refused
from .block_search import BlockSearch
from .factor import DimMapping, LaidFactor


def finish(search: BlockSearch, needed_outside: Collection[ir.Value]) -> tuple[BlockFlow, set[ir.Value]]:
    """The block of one tile, and the outer values and arguments that it needs unsplit.

    needed_outside: values that something else needs unsplit. Raises Refused if one of them exists in slices only.
    """
    content = search.content
    returned = tuple(
        state if isinstance(state := search.returned.get(index, search.states.get(value)), DimMapping) else None
        for index, value in enumerate(content.operands[-1])
    )
    demanded: set[tuple[ir.Value, DimMapping | None]] = {(value, None) for value in needed_outside}

    def demand(values: Sequence[ir.Value], mappings: Sequence[DimMapping | None]) -> None:
        for value, mapping in zip(values, mappings, strict=True):
            demanded.add((value, mapping if mapping is not None and _has_form(search, value, mapping) else None))

    tiles: dict[int, tuple[LaidFactor, ...]] = {}
    held: dict[int, tuple[tuple[int, DimMapping | None], ...]] = {}
    plain: set[int] = set()
    demand(content.operands[-1], returned)
    for place in range(len(content.ops) - 2, -1, -1):
        operands, results = content.operands[place], content.results[place]
        if place in search.held:
            unsplit = {(index, None): None for index, result in enumerate(results) if (result, None) in demanded}
            cut = [(index, mapping) for index, mapping in search.held[place] if (results[index], mapping) in demanded]
            held[place] = tuple(dict.fromkeys([*cut, *unsplit]))
            demand([operands[index] for index, _ in held[place]], [mapping for _, mapping in held[place]])
            continue
        covered: set[tuple[ir.Value, DimMapping | None]] = set()
        for laid in reversed(dict.fromkeys(search.tiles.get(place, ()))):  # the last of control flow cuts most
            made = {pair for pair in zip(results, laid.results, strict=True) if pair[1] or place in search.cut_only}
            if demanded & made - covered:
                covered |= made
                tiles[place] = (*tiles.get(place, ()), laid)
                demand(operands, laid.operands)
        if place not in search.cut_only and any((result, None) in demanded for result in results):
            plain.add(place)
            demanded.update((value, None) for value in content.read[place])
    needed = {value for value, mapping in demanded if mapping is None}
    if any(isinstance(search.states.get(value), DimMapping) for value in needed):
        raise Refused("a split value is needed unsplit as well")
    cut_values = {value: mapping for value, mapping in search.forms | search.made if value not in needed}
    cut_values |= {value: state for value, state in search.states.items() if isinstance(state, DimMapping)}
    return BlockFlow(tiles, held, frozenset(plain), returned, cut_values, content.place), needed


def _has_form(search: BlockSearch, value: ir.Value, mapping: DimMapping) -> bool:
    """Whether a tile of the value exists without cutting a slice from it."""
    if search.states.get(value) == mapping or (value, mapping) in search.made:
        return True
    return (
        value not in search.content.place
        and value.owner != search.content.block
        and len(search.captured.get(value, ())) == 1
    )


def only_added(body: ir.Block, index: int, search: BlockSearch) -> bool:
    """Whether a carry is only ever added to: its initial value may then be added at the end."""
    value = body.arguments[index]
    target = terminator(body).operands[index]
    while value != target:
        uses = list(value.uses)
        if len(uses) != 1:
            return False
        user = uses[0].owner.operation
        place = search.content.place.get(user.results[0]) if len(user.results) else None
        if place is None:
            return False
        if user.name == "stablehlo.add":
            value = user.results[0]
            continue
        laid = search.tiles.get(place, [None])[0]
        number = uses[0].operand_number
        if laid is None or not isinstance(laid.factor, ControlFactor) or number not in laid.factor.added:
            return False
        value = user.results[number]
    return len(list(target.uses)) == 1
