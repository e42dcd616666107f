"""Golden tests: every .mlir file here says in its RUN lines what to do with it and what must come out."""

import sys
from pathlib import Path

import lit.formats

here = Path(__file__).parent
scripts = Path(sys.executable).parent

config.name = "exla-opt"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.test_source_root = str(here)
config.test_exec_root = str(here)
# `filecheck`, and `not` and `count` among lit's own, come from the environment that lit runs in.
config.environment["PATH"] = f"{scripts}:{config.environment['PATH']}"
# Reports are as wide as here, whatever terminal the tests run in.
config.environment["COLUMNS"] = "80"
for command in ("exla-opt", "exla-reduce", "exla-run"):
    config.substitutions.append((f"%{command}", str(scripts / command)))
