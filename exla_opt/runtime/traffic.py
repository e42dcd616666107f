"""Bytes that the devices of a program send to each other, from the collectives in the compiled HLO."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from exla_opt.runtime.hlo import Module, attribute, parse_hlo

_COLLECTIVES = frozenset(
    "all-gather all-reduce reduce-scatter all-to-all collective-permute collective-broadcast ragged-all-to-all".split()
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_NAMES = re.compile(r"[\w.\-]+")


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of one device. bytes: the larger of what each collective reads and writes; in loops once per trip.

    in_loops: the part within loops. ops: the number of collectives in the program. at_least: whether one is in a loop
    with an unknown trip count, which counts as one trip.
    """

    bytes: float = 0.0
    in_loops: float = 0.0
    ops: int = 0
    at_least: bool = False


def traffic_of(text: str) -> Traffic:
    """The bytes that one device sends, from its optimised HLO. Raises HloError when the text cannot be read."""
    module = parse_hlo(text)
    return _Reader(module).of(module.entry)


@dataclass(slots=True)
class _Reader:
    module: Module
    known: dict[str, Traffic] = field(default_factory=dict)

    def of(self, name: str) -> Traffic:
        if name in self.known or name not in self.module.computations:
            return self.known.get(name, Traffic())
        total = Traffic()
        instructions = self.module.computations[name].instructions
        for each in instructions.values():
            opcode = each.opcode.removesuffix("-start")
            if opcode in _COLLECTIVES:
                read = sum(instructions[operand].bytes for operand in each.operands if operand in instructions)
                # A start's tuple also contains its operands.
                written = each.bytes - (read if opcode != each.opcode else 0)
                total = _plus(total, Traffic(max(read, written), 0.0, 1))
            elif each.opcode == "while":
                total = _plus(total, self.loop(each.attributes, attribute(each, "body")))
            else:
                inner = [*_CALLED.findall(each.attributes)]
                if branches := _BRANCHES.search(each.attributes):
                    inner += _NAMES.findall(branches[1])
                for called in inner:
                    total = _plus(total, self.of(called))
        self.known[name] = total
        return total

    def loop(self, attributes: str, body: str) -> Traffic:
        """The traffic of all trips of a loop."""
        found, trips = self.of(body), _TRIPS.search(attributes)
        count = int(trips[1]) if trips else 1
        return Traffic(
            count * found.bytes, count * found.bytes, found.ops, found.at_least or bool(not trips and found.ops)
        )


def _plus(one: Traffic, other: Traffic) -> Traffic:
    return Traffic(
        one.bytes + other.bytes, one.in_loops + other.in_loops, one.ops + other.ops, one.at_least or other.at_least
    )
