"""TensorFlow functions whose big tensors are computed in slices: `tf.function(fn, jit_compile=True)` with less memory.

`function` is the decorator; `export` writes a function as a file for the command `exla-opt`, and `call` runs such a
file as a TensorFlow op, on the arguments and what is `captured`. Importing this package imports TensorFlow;
`import exla_opt` does not.
"""

from __future__ import annotations

try:
    import tensorflow as _tensorflow  # noqa: F401
except ImportError as error:
    raise ImportError("exla_opt.tensorflow needs TensorFlow: pip install 'exla-opt[tensorflow]'") from error

from exla_opt.tensorflow.call import call
from exla_opt.tensorflow.export import captured, export
from exla_opt.tensorflow.function import function

__all__ = ["call", "captured", "export", "function"]
