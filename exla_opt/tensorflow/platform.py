"""What differs between releases of TensorFlow and between its devices."""

from __future__ import annotations

import tensorflow as tf
from jaxlib.mlir.dialects import stablehlo

# The StableHLO that each release reads, by its own words on a damaged artifact. Newer releases read what older ones do.
_READS = {(2, 20): "1.12.1", (2, 21): "1.13.7"}
_OLDEST = min(_READS)


def check_release() -> None:
    """Raise RuntimeError for a TensorFlow that does not write what is needed."""
    if _release() < _OLDEST:
        wanted = ".".join(map(str, _OLDEST))
        raise RuntimeError(f"exla_opt.tensorflow needs TensorFlow {wanted} or newer, and this is {tf.__version__}")


def stablehlo_version() -> str:
    """The StableHLO that this TensorFlow reads and this jaxlib writes."""
    reads = _READS.get(_release(), _READS[max(_READS)])
    return min(reads, str(stablehlo.get_current_version()), key=lambda version: tuple(map(int, version.split("."))))


def platform() -> str:
    """Where XLA runs what is not placed otherwise, as an XlaCallModule names it."""
    return "CUDA" if tf.config.list_logical_devices("GPU") else "CPU"


def _release() -> tuple[int, int]:
    major, minor = tf.__version__.split(".")[:2]
    return int(major), int(minor)
