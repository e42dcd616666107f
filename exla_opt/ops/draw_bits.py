"""What rng_bit_generator computes, in elementwise ops on numbers that count: then every slice can be computed alone.

Both generators are functions of a key and a counter (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy
as 1, 2, 3", 2011): Philox4x32-10 makes four words of 32 bits of a counter of 128 bits, Threefry2x32-20 two words of one
of 64. How the words are laid out, and how the state goes on, is XLA's own expansion of the op, for CPUs and GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build

# The default is Philox where XLA expands the op, on CPUs and GPUs.
_PHILOX = ("PHILOX", "DEFAULT")
_PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_PHILOX_STEPS = (0x9E3779B9, 0xBB67AE85)
_PHILOX_ROUNDS = 10
_THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_THREEFRY_PARITY = 0x1BD11BDA
_WIDTHS = (8, 16, 32, 64)


def draw(op: ir.Operation) -> tuple[ir.Value, ir.Value] | None:
    """The state after an rng_bit_generator and its bits, in other ops at the insertion point.

    None, and nothing, for another op or algorithm, for a state that is not two or three ui64, and for a shape in which
    words are left over.
    """
    if op.name != "stablehlo.rng_bit_generator":
        return None
    algorithm = stablehlo.RngAlgorithmAttr(op.attributes["rng_algorithm"]).value
    kind, state = build.tensor_of(op.results[1]), op.operands[0]
    states = build.shape_of(state)
    if not isinstance(kind.element_type, ir.IntegerType) or str(build.tensor_of(state).element_type) != "ui64":
        return None
    element = ir.IntegerType(kind.element_type)
    if element.width not in _WIDTHS or not kind.rank or not prod(kind.shape):
        return None
    if algorithm in _PHILOX and states in ([2], [3]):
        return _philox(state, kind, element)
    if algorithm == "THREE_FRY" and states == [2]:
        return _threefry(state, kind, element)
    return None


def _philox(state: ir.Value, kind: ir.RankedTensorType, element: ir.IntegerType) -> tuple[ir.Value, ir.Value] | None:
    """Four words of 32 bits, or two of 64, of each counter stand behind each other along the last dimension."""
    shape, words = list(kind.shape), 2 if element.width == 64 else 4
    if shape[-1] % words:
        return None
    groups = [*shape[:-1], shape[-1] // words]
    key, low = (_number(state, place) for place in (0, 1))
    high = _number(state, 2) if build.shape_of(state) == [3] else key
    index = _index(groups)
    low_words = stablehlo.add(build.broadcast(low, groups), index)
    carry = build.convert(_below(low_words, index), _unsigned(64))
    high_words = stablehlo.add(build.broadcast(high, groups), carry)
    found = [*_halves(low_words), *_halves(high_words)]
    keys = [build.broadcast(half, groups) for half in _halves(key)]
    for _ in range(_PHILOX_ROUNDS):
        (low0, high0), (low1, high1) = (
            _product(found[place], number) for place, number in zip((0, 2), _PHILOX_MULTIPLIERS, strict=True)
        )
        found = [_xor(high1, found[1], keys[0]), low1, _xor(high0, found[3], keys[1]), low0]
        keys = [stablehlo.add(k, build.splat(k.type, step)) for k, step in zip(keys, _PHILOX_STEPS, strict=True)]
    if words == 2:
        found = [_joined(*found[:2]), _joined(*found[2:])]
    count = build.splat(low.type, prod(groups))
    after = [key, stablehlo.add(low, count)]
    if build.shape_of(state) == [3]:
        after.append(stablehlo.add(high, build.convert(_below(after[1], count), _unsigned(64))))
    return _vector(after), build.convert(_interleaved(found, len(groups)), element)


def _threefry(state: ir.Value, kind: ir.RankedTensorType, element: ir.IntegerType) -> tuple[ir.Value, ir.Value] | None:
    """One counter makes an element of 64 bits, or two neighbours along the first even dimension."""
    shape = list(kind.shape)
    key, counter = (_number(state, place) for place in (0, 1))
    dim = next((place for place, size in enumerate(shape) if size % 2 == 0), None)
    if element.width < 64 and dim is None:
        return None
    groups = shape if element.width == 64 or dim is None else [*shape[:dim], shape[dim] // 2, *shape[dim + 1 :]]
    inputs = _halves(stablehlo.add(build.broadcast(counter, groups), _index(groups)))
    found = _threefry_words(inputs, [build.broadcast(half, groups) for half in _halves(key)])
    after = _vector([key, stablehlo.add(counter, build.splat(counter.type, prod(groups)))])
    if element.width == 64 or dim is None:
        return after, build.convert(_joined(*found), element)
    return after, build.convert(_interleaved(found, dim + 1), element)


def _threefry_words(words: list[ir.Value], keys: list[ir.Value]) -> list[ir.Value]:
    schedule = [*keys, _xor(*keys, build.splat(keys[0].type, _THREEFRY_PARITY))]
    words = [stablehlo.add(word, key) for word, key in zip(words, schedule[:2], strict=True)]
    for group in range(5):
        for rotation in _THREEFRY_ROTATIONS[group % 2]:
            total = stablehlo.add(*words)
            words = [total, _xor(_rotated(words[1], rotation), total)]
        added = stablehlo.add(schedule[(group + 2) % 3], build.splat(words[1].type, group + 1))
        words = [stablehlo.add(words[0], schedule[(group + 1) % 3]), stablehlo.add(words[1], added)]
    return words


def _unsigned(bits: int) -> ir.Type:
    return ir.IntegerType.get_unsigned(bits)


def _number(state: ir.Value, place: int) -> ir.Value:
    """One number of the state, as a 0-d tensor."""
    one = stablehlo.slice(state, [place], [place + 1], [1])
    return stablehlo.reshape(build.with_shape(build.tensor_of(state), []), one)


def _vector(numbers: Sequence[ir.Value]) -> ir.Value:
    kind = build.tensor_of(numbers[0])
    ones = [stablehlo.reshape(build.with_shape(kind, [1]), number) for number in numbers]
    return stablehlo.ConcatenateOp(ones, 0, results=[build.with_shape(kind, [len(ones)])]).result


def _index(shape: Sequence[int]) -> ir.Value:
    """The place of every element in the order of memory, in ui64."""
    kind = ir.RankedTensorType.get(list(shape), _unsigned(64))
    total = stablehlo.iota(kind, len(shape) - 1)
    for dim, size in enumerate(shape[:-1]):
        if size > 1:
            stride = build.splat(kind, prod(shape[dim + 1 :]))
            total = stablehlo.add(stablehlo.multiply(stablehlo.iota(kind, dim), stride), total)
    return total


def _below(left: ir.Value, right: ir.Value) -> ir.Value:
    direction, kind = stablehlo.ComparisonDirectionAttr.get("LT"), stablehlo.ComparisonTypeAttr.get("UNSIGNED")
    return stablehlo.compare(left, right, direction, compare_type=kind)


def _halves(number: ir.Value) -> list[ir.Value]:
    """The low and the high 32 bits."""
    shifted = stablehlo.shift_right_logical(number, build.splat(number.type, 32))
    return [build.convert(number, _unsigned(32)), build.convert(shifted, _unsigned(32))]


def _joined(low: ir.Value, high: ir.Value) -> ir.Value:
    wide = build.convert(high, _unsigned(64))
    return stablehlo.or_(build.convert(low, _unsigned(64)), stablehlo.shift_left(wide, build.splat(wide.type, 32)))


def _product(word: ir.Value, number: int) -> list[ir.Value]:
    wide = build.convert(word, _unsigned(64))
    return _halves(stablehlo.multiply(wide, build.splat(wide.type, number)))


def _xor(first: ir.Value, *others: ir.Value) -> ir.Value:
    for other in others:
        first = stablehlo.xor(first, other)
    return first


def _rotated(word: ir.Value, bits: int) -> ir.Value:
    left = stablehlo.shift_left(word, build.splat(word.type, bits))
    return stablehlo.or_(left, stablehlo.shift_right_logical(word, build.splat(word.type, 32 - bits)))


def _interleaved(words: Sequence[ir.Value], dim: int) -> ir.Value:
    """The words of each counter behind each other: a new dimension `dim`, and that merged into the one before it."""
    kind = build.tensor_of(words[0])
    shape = list(kind.shape)
    dims = [place + (place >= dim) for place in range(len(shape))]
    one = build.with_shape(kind, [*shape[:dim], 1, *shape[dim:]])
    columns = [stablehlo.broadcast_in_dim(one, word, ir.DenseI64ArrayAttr.get(dims)) for word in words]
    several = build.with_shape(kind, [*shape[:dim], len(words), *shape[dim:]])
    together = stablehlo.ConcatenateOp(columns, dim, results=[several]).result
    merged = [*shape[: dim - 1], shape[dim - 1] * len(words), *shape[dim:]]
    return stablehlo.reshape(build.with_shape(kind, merged), together)
