"""Linear algebra, Fourier transforms and batch norms: rounded, and cut along batches only."""

from __future__ import annotations

from tests.fuzz import dtypes, emit
from tests.fuzz.builder import Builder, Value
from tests.fuzz.reductions import inexactly


def _rounded(b: Builder, name: str, operands: list[Value], kind: tuple[tuple[int, ...], str], notes: str) -> Value:
    [result] = b.op(name, operands, [kind], notes)
    return inexactly(Value(result, *kind, size=20.0))


def transformed(b: Builder, x: Value) -> list[Value]:
    """fft of the last dimension."""
    if not x.rank or x.shape[-1] < 1 or x.dtype not in ("f32", "f64", "complex<f32>"):
        return []
    x = emit.tame(b, x, 4.0)
    length = x.shape[-1]
    if dtypes.is_complex(x.dtype):
        kind = b.rng.choice(("FFT", "IFFT"))
        notes = f"fft_type = #stablehlo<fft_type {kind}>, fft_length = {emit.list_of([length])}"
        return [_rounded(b, "stablehlo.fft", [x], x.type, notes)]
    notes = f"fft_type = #stablehlo<fft_type RFFT>, fft_length = {emit.list_of([length])}"
    half = ((*x.shape[:-1], length // 2 + 1), f"complex<{x.dtype}>")
    made = _rounded(b, "stablehlo.fft", [x], half, notes)
    [part] = b.op("stablehlo.real", [made], [(half[0], x.dtype)])
    return [inexactly(Value(part, half[0], x.dtype, size=4.0 * length))]


def _definite(b: Builder, batch: tuple[int, ...], n: int, dtype: str) -> Value:
    """Matrices a a' + 20: they have a square root, and are far from singular."""
    a = emit.tame(b, b.argument((*batch, n, n), dtype), 3.0)
    lead = list(range(len(batch)))
    rank = len(batch) + 2
    square = emit.dot(b, a, a, (lead, lead), ([rank - 1], [rank - 1]))
    rows, columns = emit.iota(b, square.shape, "i32", rank - 2), emit.iota(b, square.shape, "i32", rank - 1)
    eye = emit.convert(b, emit.compare(b, rows, columns, "EQ"), dtype)
    return emit.binary(b, "add", square, emit.binary(b, "multiply", eye, b.splat(square.shape, dtype, 20)))


def solved(b: Builder, x: Value) -> list[Value]:
    """cholesky of batches, and triangular_solve of many right-hand sides."""
    dtype = b.rng.choice(("f32", "f64"))
    if b.special:
        return []
    batch = (b.rng.choice((2, 3, 7)),) if b.chance(0.6) else ()
    n, m = b.rng.choice((2, 3, 4)), b.rng.choice(b.sizes)
    if not b.fits((*batch, n, m)):
        return []
    matrix = _definite(b, batch, n, dtype)
    root = _rounded(b, "stablehlo.cholesky", [matrix], matrix.type, "lower = true")
    left = b.chance(0.5)
    shape = (*batch, n, m) if left else (*batch, m, n)
    sides = b.argument(shape, dtype)
    if b.chance(0.5):
        sides = emit.mapped(b, "stablehlo.sine", [sides], 1.0)
    flip = b.rng.choice(("NO_TRANSPOSE", "TRANSPOSE"))
    notes = (
        f"left_side = {str(left).lower()}, lower = true, unit_diagonal = false, "
        f"transpose_a = #stablehlo<transpose {flip}>"
    )
    return [_rounded(b, "stablehlo.triangular_solve", [root, sides], sides.type, notes)]


def batch_normed(b: Builder, x: Value) -> list[Value]:
    """batch_norm_inference and batch_norm_training."""
    if x.rank < 2 or x.dtype not in ("f32", "f64") or 0 in x.shape or b.special:
        return []
    x = emit.tame(b, x, 4.0)
    feature = b.rng.randrange(x.rank)
    kind = ((x.shape[feature],), x.dtype)
    notes = f"epsilon = 1.0 : f32, feature_index = {feature} : i64"
    scale, offset = b.argument(*kind), b.argument(*kind)
    if b.chance(0.5):
        names = b.op("stablehlo.batch_norm_training", [x, scale, offset], [x.type, kind, kind], notes)
        return [inexactly(Value(names[0], *x.type, size=20.0)), inexactly(Value(names[1], *kind, size=4.0))]
    mean, variance = b.argument(*kind), b.argument(*kind)
    variance = emit.mapped(b, "stablehlo.abs", [variance], variance.size, integral=True)
    return [_rounded(b, "stablehlo.batch_norm_inference", [x, scale, offset, mean, variance], x.type, notes)]


def pooled_gradient(b: Builder, x: Value) -> list[Value]:
    """select_and_scatter: the gradient of pooling, whose windows may overlap."""
    if not x.rank or x.dtype not in ("f32", "f64", "i32") or 0 in x.shape:
        return []
    sizes, strides, shape = [], [], []
    for size in x.shape:
        window = b.rng.choice((1, 1, 2, 3))
        window = window if window <= size else 1
        stride = b.rng.choice((window, window, 1))
        sizes.append(window)
        strides.append(stride)
        shape.append((size - window) // stride + 1)
    source = emit.tame(b, b.argument(tuple(shape), x.dtype), 4.0)
    x = x if x.exact else emit.tame(b, b.argument(x.shape, x.dtype), 4.0)
    notes = f"window_dimensions = {emit.list_of(sizes)}, window_strides = {emit.list_of(strides)}"
    first, second, held = b.fresh(), b.fresh(), b.fresh()
    kind = b.spell(((), x.dtype))
    chosen = (
        f"{{\n^bb0({first}: {kind}, {second}: {kind}):\n"
        f'{held} = "stablehlo.compare"({first}, {second}) {{comparison_direction = #stablehlo<comparison_direction '
        f"GE>}} : ({kind}, {kind}) -> tensor<i1>\n"
        f'"stablehlo.return"({held}) : (tensor<i1>) -> ()\n}}'
    )
    zero = b.scalar(x.dtype, 0)
    regions = [chosen, emit.body(b, "add", x.dtype)]
    [name] = b.op("stablehlo.select_and_scatter", [x, source, zero], [x.type], notes, regions)
    return [emit.combined(source, "add", 81, 0.0, x.type, name)]


ALGEBRA = ((transformed, 1), (solved, 2), (batch_normed, 1), (pooled_gradient, 1))
