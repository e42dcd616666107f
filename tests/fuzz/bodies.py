"""The regions of reduces, scatters and collectives."""

from __future__ import annotations

from collections.abc import Sequence

from tests.fuzz.builder import Builder


def body(b: Builder, name: str, dtype: str) -> str:
    """The region of a reduce or scatter that computes one op: in either order, in a wider type, or by a choice."""
    first, second = b.fresh(), b.fresh()
    kind = b.spell(((), dtype))
    # Between devices XLA combines by a single op of both in order.
    plain = b.mesh is not None and b.chance(0.9)
    pair = [first, second] if plain or b.chance(0.7) else [second, first]
    lines: list[str] = []

    def write(op: str, operands: Sequence[str], takes: Sequence[str], gives: str, notes: str = "") -> str:
        made = b.fresh()
        lines.append(f'{made} = "stablehlo.{op}"({", ".join(operands)}){notes} : ({", ".join(takes)}) -> ({gives})')
        return made

    if plain:
        result = write(name, pair, [kind, kind], kind)
    elif dtype in ("bf16", "f16") and b.chance(0.2):
        wide = b.spell(((), "f32"))
        converted = [write("convert", [value], [kind], wide) for value in pair]
        result = write("convert", [write(name, converted, [wide, wide], wide)], [wide], kind)
    elif name in ("maximum", "minimum") and not b.special and b.chance(0.15):
        # Of NaN this would depend on the order.
        direction = "GT" if name == "maximum" else "LT"
        notes = f" {{comparison_direction = #stablehlo<comparison_direction {direction}>}}"
        held = write("compare", pair, [kind, kind], "tensor<i1>", notes)
        result = write("select", [held, *pair], ["tensor<i1>", kind, kind], kind)
    else:
        result = write(name, pair, [kind, kind], kind)
    lines.append(f'"stablehlo.return"({result}) : ({kind}) -> ()')
    return f"{{\n^bb0({first}: {kind}, {second}: {kind}):\n" + "\n".join(lines) + "\n}"
