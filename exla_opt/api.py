"""exla-opt as a library: rewrite a program and get the same kind of program back, or decorate a JAX function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload

from exla_opt.findings import summary_of, warn_of
from exla_opt.options import ChainCost, Options
from exla_opt.remarks import Remark
from exla_opt.sizes import parse_size

# The bindings load in a fifth of a second, and jax in more; `import exla_opt` should not wait for them.
if TYPE_CHECKING:
    import jax
    from jaxlib.mlir import ir

    from exla_opt.rewriting import Rewriting

Size = int | str
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Program = TypeVar("Program")


class Wishes(TypedDict, total=False):
    """The keyword arguments of `optimize` and `jit`. Sizes are bytes, or text such as "2GB" (10^9) or "2GiB" (2^30).

    memory_limit: the memory that the program must fit in; sets the next two sizes.
    size_threshold: tensors larger than this are computed in slices; "1GB" if neither is given.
    split_size: the maximum size of one slice; the threshold if not given.
    nested_tiles: whether tiles may be cut along a second dimension; False by default, and for sizes only.
    target: the machine that runs the program, as in `exla-opt --target`: cpu, gpu, cuda, cuda:h200 or another GPU,
    cuda: and the path of a description, tpu:v5e or another TPU.
    reassociate: whether a floating-point sum may be computed tile by tile; True by default.
    op_rules: how custom calls may be cut, as (call target, rule) pairs.
    chain_cost: what to minimise when reordering a product of matrices: "flops", "bytes" or "both".
    """

    memory_limit: Size
    size_threshold: Size
    split_size: Size
    nested_tiles: bool
    target: str
    reassociate: bool
    op_rules: tuple[tuple[str, str], ...]
    chain_cost: ChainCost


@dataclass(frozen=True, slots=True)
class Result(Generic[Program]):
    """A rewritten program, its remarks and its memory.

    program: of the same kind as the argument. remarks: what was done and what was not, tensor by tensor.
    peak_before, peak_after: peak memory in bytes, per device if there are several.
    compiled: whether XLA planned peak_after; otherwise it is predicted, with a margin if there is a limit.
    fits: whether the peak is within memory_limit; None without a limit, and for a module of several devices that is
    left unchanged if no compiler can say. summary: the table that `exla-opt` prints.
    """

    program: Program
    remarks: tuple[Remark, ...]
    peak_before: int
    peak_after: int
    compiled: bool
    fits: bool | None
    summary: str


class Jitted(Protocol[P, R_co]):
    """The return type of `exla_opt.jit`: a function with the methods of `jax.jit`'s, and `explain`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    def lower(self, *args: P.args, **kwargs: P.kwargs) -> jax.stages.Lowered:
        """As `jax.jit(f).lower`."""

    def trace(self, *args: P.args, **kwargs: P.kwargs) -> jax.stages.Traced:
        """As `jax.jit(f).trace`."""

    def eval_shape(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """As `jax.jit(f).eval_shape`."""

    def clear_cache(self) -> None:
        """As `jax.jit(f).clear_cache`."""

    def explain(self, *args: P.args, **kwargs: P.kwargs) -> tuple[Remark, ...]:
        """Print the summary for these arguments, and return the remarks; nothing is run.

        Arguments may be abstract (jax.ShapeDtypeStruct).
        """


@overload
def optimize(program: str, **wishes: Unpack[Wishes]) -> Result[str]: ...
@overload
def optimize(program: bytes, **wishes: Unpack[Wishes]) -> Result[bytes]: ...
@overload
def optimize(program: ir.Module, **wishes: Unpack[Wishes]) -> Result[ir.Module]: ...
@overload
def optimize(program: jax.export.Exported, **wishes: Unpack[Wishes]) -> Result[jax.export.Exported]: ...
@overload
def optimize(program: jax.stages.Lowered, **wishes: Unpack[Wishes]) -> Result[jax.stages.Lowered]: ...
def optimize(program: Any, **wishes: Unpack[Wishes]) -> Result[Any]:
    """Rewrite one program so that its big tensors are computed in slices; signature and results stay the same.

    program: MLIR text, MLIR bytecode or a portable artifact as bytes (returned as a portable artifact), a module, or a
    result of `jax.export.export(…)(…)` or `jax.jit(…).lower(…)`; the derivatives of an Exported are rewritten on
    demand. wishes: see `Wishes`. If the program runs on several devices, all sizes are per device.

    If the program cannot fit in memory_limit, the closest version is returned, with `fits` False. Raises InputError
    when the program cannot be read and for an unknown target, ValueError for sizes that contradict each other,
    TypeError for another kind of program.
    """
    options, limit = options_of(wishes)

    def run(module: ir.Module) -> Rewriting:
        from exla_opt.rewriting import rewrite

        return rewrite(module, options, limit, wishes.get("target"))

    if not isinstance(program, str | bytes):
        from exla_opt.runtime.programs import rewritten

        new, found = rewritten(program, run)
        return _result(new, found)
    from exla_opt.ir.context import new_context
    from exla_opt.ir.read import parse_module
    from exla_opt.ir.write import serialise

    data = program.encode() if isinstance(program, str) else program
    found = run(parse_module("<program>", data, new_context()).module)
    if isinstance(program, str):
        return _result(serialise(found.module, "text").decode(), found)
    return _result(serialise(found.module, "portable"), found)


@overload
def jit(
    function: Callable[P, R],
    /,
    *,
    memory_limit: Size | None = None,
    size_threshold: Size | None = None,
    split_size: Size | None = None,
    nested_tiles: bool = False,
    target: str | None = None,
    reassociate: bool = True,
    op_rules: tuple[tuple[str, str], ...] = (),
    **jax_jit_options: Any,
) -> Jitted[P, R]: ...
@overload
def jit(
    *,
    memory_limit: Size | None = None,
    size_threshold: Size | None = None,
    split_size: Size | None = None,
    nested_tiles: bool = False,
    target: str | None = None,
    reassociate: bool = True,
    op_rules: tuple[tuple[str, str], ...] = (),
    **jax_jit_options: Any,
) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
def jit(function: Callable[..., Any] | None = None, /, **given: Any) -> Any:
    """`jax.jit`, computed in slices: `exla_opt.jit(f, memory_limit="2GB")`, `@exla_opt.jit` or `@exla_opt.jit(…)`.

    The keywords in `Wishes` are for exla-opt; all others go to `jax.jit` (static_argnames, donate_argnums, …),
    which works as usual: one compile per signature, weak types, `lower`, donation (which counts for the limit, so
    put it on the outermost function: `jax.jit` around it would donate nothing). Without a target, jax's own backend
    is used. `jax.grad` of the function, by the arguments that it is asked for, and `jax.vmap` of it are computed in
    slices too; jax refuses forward mode (use `exla_opt.jit` of the derivative instead). Under `jax.disable_jit` the
    original function runs. On arrays sharded over devices it works like `jax.jit` if it is the outermost function.

    A tensor that stays above the threshold, or a limit that is not met, causes a `StaysInMemory` warning. Raises
    ValueError for sizes that contradict each other and InputError for an unknown target; when called,
    NotImplementedError for a function that calls Python while it runs, or communicates along an axis of an enclosing
    function, and whatever `jax.jit` and `optimize` raise.
    """
    if function is None:
        return functools.partial(jit, **given)
    names = Wishes.__optional_keys__
    wishes: Any = {name: value for name, value in given.items() if name in names and value is not None}
    options, limit = options_of(wishes)
    target = wishes.get("target")
    from exla_opt.runtime.jit import backend_target, sliced_jit

    def run(module: bytes) -> Rewriting:
        from exla_opt.ir.context import new_context
        from exla_opt.ir.read import parse_module
        from exla_opt.memory.machine import machine_of
        from exla_opt.rewriting import rewrite

        where = backend_target() if target is None else target
        source = parse_module(f"<{getattr(function, '__name__', 'function')}>", module, new_context())
        return rewrite(source.module, replace(options, machine=machine_of(where)), limit, where)

    def shrink(module: bytes) -> bytes:
        from exla_opt.ir.write import serialise

        found = run(module)
        warn_of(found, limit)
        return serialise(found.module, "portable")

    for_jax = {name: value for name, value in given.items() if name not in names}
    jitted = sliced_jit(function, shrink, for_jax)

    def explain(*arguments: Any, **named: Any) -> tuple[Remark, ...]:
        seen: list[Rewriting] = []

        def look(module: bytes) -> bytes:
            seen.append(run(module))
            return module

        sliced_jit(function, look, for_jax).trace(*arguments, **named)
        print(summary_of(seen[0]))
        return seen[0].remarks

    jitted.explain = explain
    return jitted


def options_of(wishes: Wishes) -> tuple[Options, int | None]:
    """Return the settings, and the limit in bytes.

    Raises TypeError for an unknown keyword, ValueError if sizes contradict each other or are below one byte, InputError
    for an unknown target.
    """
    from exla_opt.memory.machine import CPU, machine_of

    if unknown := sorted(wishes.keys() - Wishes.__optional_keys__):
        raise TypeError(f"unknown keyword {unknown[0]!r}: there are {', '.join(sorted(Wishes.__optional_keys__))}")
    limit = _bytes(wishes.get("memory_limit"))
    if limit is not None and limit < 1:
        raise ValueError("memory_limit must be at least one byte")
    threshold, split = _bytes(wishes.get("size_threshold")), _bytes(wishes.get("split_size"))
    if limit is not None and ((threshold, split) != (None, None) or wishes.get("nested_tiles")):
        raise ValueError("memory_limit chooses size_threshold, split_size and nested_tiles itself; leave them out")
    target = wishes.get("target")
    if target is not None and target not in ("cpu", "gpu", "cuda"):  # parsing "cuda" asks the driver
        from exla_opt.runtime.target import parse_target

        parse_target(target)
    return Options(
        size_threshold=Options().size_threshold if threshold is None else threshold,
        split_size=split,
        nested_tiles=wishes.get("nested_tiles", False),
        reassociate=wishes.get("reassociate", True),
        op_rules=wishes.get("op_rules", ()),
        chain_cost=wishes.get("chain_cost", "both"),
        machine=CPU if target is None else machine_of(target),
        memory_limit=limit,
    ), limit


def _bytes(size: Size | None) -> int | None:
    return parse_size(size) if isinstance(size, str) else size


def _result(program: Any, found: Rewriting) -> Result[Any]:
    fitted = found.fitted
    return Result(
        program=program,
        remarks=found.remarks,
        peak_before=fitted.before.peak if fitted is not None else found.before[1].memory.peak,
        peak_after=fitted.peak if fitted is not None else found.after[1].memory.peak,
        compiled=fitted is not None and fitted.compiled,
        fits=None if fitted is None else fitted.fits,
        summary=summary_of(found),
    )
