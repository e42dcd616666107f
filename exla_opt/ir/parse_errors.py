"""Errors of MLIR's parser on a damaged or foreign file, reworded for users who know no MLIR flags."""

from __future__ import annotations

import re

from jaxlib.mlir import ir
from jaxlib.version import __version__ as jaxlib_version

from exla_opt.ir.diagnostics import InputError, error_at

BYTECODE = b"ML\xefR"
DYNAMIC = "dynamic shape {}: exla-opt needs to know every size"
BOUNDED = (
    "TensorFlow writes such sizes for tf.where, tf.unique and sparse gradients, as those of an Embedding with Adagrad "
    "or RMSprop: tf.convert_to_tensor(gradient) or Adam have none"
)
SPECIALISE = "export with concrete sizes, or specialise the module with stablehlo-refine-shapes"
EXPORT_HELP = "export StableHLO: jax.jit(f).lower(...).as_text(), or TensorFlow's get_compiler_ir(stage='stablehlo')"

_TF_DIALECTS = ("tf", "tf_executor", "tf_saved_model", "mhlo_disc")
_UNKNOWN_DIALECT = r"^Dialect `(\w+)' not found|[!#]\"?(\w+)\"?<.* created with unregistered dialect"
_HEX_SIZE = "the constant's hex data does not have the size of its type"


def explain(error: ir.MLIRError, data: bytes) -> InputError:
    """Reword the parser's first error. data: its input."""
    if not error.error_diagnostics:
        return InputError("MLIR cannot read it, and does not say why", help="the file may be damaged; export it again")
    first = error.error_diagnostics[0]
    message: str = first.message.strip()
    plain = error_at(first.location, message)
    if data.startswith(BYTECODE) and plain.line is None and "newer" not in message:  # no op's fault: the encoding's
        plain.message = f"the MLIR bytecode is damaged or cut short: {message}"
        plain.help = "copy or export the file again"
    elif "elements hex data size is invalid" in message:
        _explain_hex(plain)
    elif found := re.search(_UNKNOWN_DIALECT, message, re.DOTALL):
        _explain_dialect(plain, found[1] or found[2])
    elif message.startswith("operation being parsed with an unregistered dialect"):
        _explain_dialect(plain, _generic_dialect(plain, data))
    elif found := re.match(r"(?:custom op|unregistered operation) '([\w.]+)' (?:is unknown|found in dialect)", message):
        _explain_operation(plain, found[1])
    elif found := re.search(r"must be ranked tensor.* but got '(tensor<\*x\w+>)'", message, re.DOTALL):
        plain.message, plain.help = DYNAMIC.format(found[1]), SPECIALISE
    elif _is_at_end(plain, data):
        plain.help = "the text ends here; the file may be cut short"
    return plain


def _explain_operation(error: InputError, name: str) -> None:
    error.message = f"unknown operation '{name}'"
    if "." in name:
        error.help = f"jaxlib {jaxlib_version} has no such op; if it is a new one, upgrade jaxlib"
    else:
        error.help = f"operations are written as in stablehlo.add; if this file is not MLIR, {EXPORT_HELP}"


def _explain_hex(error: InputError) -> None:
    if "i1>" not in error.message:
        error.message = error.message.replace("elements hex data size is invalid for provided type:", _HEX_SIZE)
        return
    error.message = "this boolean constant is written bit-packed, as TensorFlow does, and MLIR cannot read that as text"
    error.help = "export bytecode instead of text: get_compiler_ir(...)(stage='stablehlo_serialized')"


def _is_at_end(error: InputError, data: bytes) -> bool:
    """Whether the parser expected more after the last token, of which it quotes the start or the end."""
    if error.line is None or error.col is None or not error.message.startswith("expected"):
        return False
    rows = data.rstrip().split(b"\n", error.line)
    return len(rows) == error.line and len(rows[-1][error.col :].split()) <= 1


def _explain_dialect(error: InputError, dialect: str) -> None:
    error.message = f"unknown dialect '{dialect}'" if dialect else "operation of an unknown dialect"
    error.help = (
        EXPORT_HELP if dialect in _TF_DIALECTS else "exla-opt reads StableHLO and the other dialects that jaxlib knows"
    )


def _generic_dialect(error: InputError, data: bytes) -> str:
    """The dialect of a generic-form op: the last quoted `"dialect.op"` up to where the parser stopped."""
    if error.line is None or error.col is None or data.startswith(BYTECODE):
        return ""
    row = data.split(b"\n", error.line)[error.line - 1][: error.col]
    names = re.findall(rb'"(\w+)\.[\w.]+"', row)
    return names[-1].decode() if names else ""
