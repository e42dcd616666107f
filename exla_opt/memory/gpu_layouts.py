"""What XLA:GPU keeps with its channels last because a convolution made it so, and turns where a function returns it."""

from __future__ import annotations

from exla_opt.ops.traits import Trait, traits_of

from .block import Block, Operation

# What a window moves over stays in its order.
_KEEPS = frozenset({"reduce_window", "pad", "slice", "dynamic_slice"})


def turn_results(block: Block) -> None:
    """Add an op for each result of a function that a convolution's order of dimensions has reached."""
    turned = channels_last(block, set())
    for place, value in enumerate(block.returned):
        if value not in turned:
            continue
        result = block.add_tensor(block.shapes[value], block.sizes[value], block.dtypes[value])
        block.values[result] = block.values[value]
        block.ops.append(Operation("transpose", traits_of("stablehlo.transpose"), (value,), (result,)))
        block.returned[place] = result


def channels_last(block: Block, turned: set[int]) -> set[int]:
    """The tensors of a block that lie with their channels last. turned: those that come in so."""
    found = set(turned)
    for op in block.ops:
        if op.name == "convolution":
            if op.is_turned:
                found.update(op.results)
        elif op.name == "while" and op.bodies:
            body = op.bodies[0]
            inside = channels_last(body, set())
            found.update(result for result, value in zip(op.results, body.returned, strict=False) if value in inside)
        elif op.name == "dynamic_update_slice":
            found.update(op.results if op.operands[1] in found else ())
        elif (Trait.POINTWISE in op.traits or op.name in _KEEPS) and not found.isdisjoint(op.operands):
            found.update(op.results)
    return found
