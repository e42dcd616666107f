"""The process that compiles for TPUs: `python -m exla_opt.runtime.tpu_compile TOPOLOGY DEVICES CHIP_CONFIG < bytecode`.

The last line of standard output is JSON: the bytes of arguments, results, aliased and peak of a device, and what one of
several sends; or libtpu's error.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from exla_opt.runtime import pjrt
from exla_opt.runtime.hlo import HloError
from exla_opt.runtime.traffic import traffic_of


def main() -> None:
    """Compile standard input and print the memory."""
    from exla_opt.ir.attributes import replicas_of
    from exla_opt.ir.context import new_context
    from exla_opt.ir.read import parse_module
    from exla_opt.sharding.gspmd import is_gspmd, unspecified_results

    topology, count, chip_config = sys.argv[1:]
    module = parse_module("<stdin>", sys.stdin.buffer.read(), new_context()).module
    try:
        executable = pjrt.compile_for(
            pjrt.tpu_devices(topology, chip_config)[: int(count)],
            module,
            [],
            replicas=replicas_of(module),
            by_shardy=not is_gspmd(module),
            unspecified=unspecified_results(module) if int(count) > 1 else (),
        )
        found = pjrt.statistics(executable)
        traffic = traffic_of(pjrt.optimised_hlo(executable)) if int(count) > 1 else None
    except (*pjrt.COMPILE_ERRORS, HloError, RuntimeError, NotImplementedError) as error:
        print(json.dumps({"error": str(error)}))
        return
    names = {"arguments": "argument_size", "results": "output_size", "aliased": "alias_size", "peak": "peak_memory"}
    sizes = {name: getattr(found, f"{field}_in_bytes") for name, field in names.items()}
    print(json.dumps({**sizes, **({} if traffic is None else {"traffic": asdict(traffic)})}))


if __name__ == "__main__":
    main()
