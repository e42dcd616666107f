"""TensorFlow, imported once: it warns of its own deprecations, and every other warning is an error here."""

from __future__ import annotations

import importlib
import os
import warnings
from importlib.util import find_spec

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if find_spec("tensorflow") is not None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("tensorflow", "gpflow"):
            importlib.import_module(name)
