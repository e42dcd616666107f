"""The process that compiles for a TPU: `python -m exla_opt.runtime.tpu_compile TOPOLOGY CHIP_CONFIG < bytecode`.

The last line of standard output is JSON: the bytes of arguments, results, aliased and peak, or libtpu's error.
"""

from __future__ import annotations

import json
import sys

from exla_opt.runtime import pjrt


def main() -> None:
    """Compile standard input and print the memory."""
    from exla_opt.ir.context import new_context
    from exla_opt.ir.read import parse_module

    topology, chip_config = sys.argv[1:]
    module = parse_module("<stdin>", sys.stdin.buffer.read(), new_context()).module
    try:
        found = pjrt.statistics(pjrt.compile_for(pjrt.tpu_devices(topology, chip_config)[:1], module, []))
    except (*pjrt.COMPILE_ERRORS, RuntimeError, NotImplementedError) as error:
        print(json.dumps({"error": str(error)}))
        return
    names = {"arguments": "argument_size", "results": "output_size", "aliased": "alias_size", "peak": "peak_memory"}
    print(json.dumps({name: getattr(found, f"{field}_in_bytes") for name, field in names.items()}))


if __name__ == "__main__":
    main()
