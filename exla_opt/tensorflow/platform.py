"""Differences between TensorFlow releases and between their devices."""

from __future__ import annotations

import tensorflow as tf
from jaxlib.mlir.dialects import stablehlo

# The StableHLO version that each release reads, from its error on a damaged artifact. Later releases read older ones.
_READS = {(2, 20): "1.12.1", (2, 21): "1.13.7"}
_OLDEST = min(_READS)


def check_release() -> None:
    """Raise RuntimeError for a TensorFlow too old to write the modules that are needed."""
    if _release() < _OLDEST:
        wanted = ".".join(map(str, _OLDEST))
        raise RuntimeError(f"exla_opt.tensorflow needs TensorFlow {wanted} or newer, and this is {tf.__version__}")


def stablehlo_version() -> str:
    """The newest StableHLO version that this TensorFlow reads and this jaxlib writes."""
    reads = _READS.get(_release(), _READS[max(_READS)])
    return min(reads, str(stablehlo.get_current_version()), key=lambda version: tuple(map(int, version.split("."))))


def platform() -> str:
    """The platform on which XLA runs ops without a placement, in the spelling of XlaCallModule."""
    return "CUDA" if tf.config.list_logical_devices("GPU") else "CPU"


def _release() -> tuple[int, int]:
    major, minor = tf.__version__.split(".")[:2]
    return int(major), int(minor)
