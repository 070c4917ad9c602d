"""All targets of the fuzzer."""

from __future__ import annotations

from attacks.fuzz.targets import graphs, state

TARGETS = (*graphs.TARGETS, *state.TARGETS)
