"""The tool as a library: a module in, a module out; or a JAX function in, a JAX function out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from exla_opt.options import Options


@overload
def optimize(program: str, options: Options | None = None) -> str: ...
@overload
def optimize(program: bytes, options: Options | None = None) -> bytes: ...
def optimize(program: str | bytes, options: Options | None = None) -> str | bytes:
    """Rewrite one module so that its big tensors are computed in slices; the signature and results stay the same.

    Of a module for several devices the sizes are those of each device; where none of its tensors is split, or there is
    no program of one device, it comes out as it was.

    program: MLIR text, or MLIR bytecode or a portable artifact as bytes. Text gives text, bytes give a portable
    artifact. Raises `exla_opt.ir.diagnostics.InputError` when the module cannot be read.
    """
    # The bindings take a fifth of a second to load, which `import exla_opt` should not.
    from exla_opt.ir.context import new_context
    from exla_opt.ir.read import parse_module
    from exla_opt.ir.write import serialise
    from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
    from exla_opt.sharding.rewrite import rewrite_each_device

    is_text = isinstance(program, str)
    data = program.encode() if isinstance(program, str) else program
    with new_context() as context:
        module = parse_module("<program>", data, context).module
        module = rewrite_each_device(
            module, lambda one: run_pipeline(one, DEFAULT_PASSES, options or Options()).remarks
        )
        written = serialise(module, "text" if is_text else "portable")
        return written.decode() if is_text else written


def jit(function: Callable[..., Any], options: Options | None = None) -> Callable[..., Any]:
    """`jax.jit(function)`, computed in slices: the function is exported, rewritten and compiled once per signature.

    function: of arrays, or of pytrees of arrays, as for `jax.jit`; it cannot be differentiated or mapped afterwards,
    so take `jax.grad` or `jax.vmap` first. Raises what `jax.export` raises for functions that it cannot export.
    """
    from exla_opt.runtime.jit import split_jit

    def rewrite(module: bytes) -> bytes:
        return optimize(module, options)

    return split_jit(function, rewrite)
