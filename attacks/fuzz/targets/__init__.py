"""All targets of the fuzzer."""

from __future__ import annotations

from attacks.fuzz.targets import benchmarks, graphs, results, state

TARGETS = (*graphs.TARGETS, *benchmarks.TARGETS, *results.TARGETS, *state.TARGETS)
