"""Tests of seeds: fixed values, and different seeds for different purposes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from edgemask.seeds import derive, numpy_stream, torch_stream


def test_known_values() -> None:
    """All stored results depend on these values, so they must not change."""
    assert derive(0, "init") == 2410301491197795094
    assert derive(7, "sample", "acmv9", 3) == 2864898055226147055


def test_distinct_purposes_have_distinct_seeds() -> None:
    parts: list[str | int] = ["a", "b", "ab", "1", "", 0, 1, -1]
    purposes = [p for length in range(4) for p in itertools.product(parts, repeat=length)]
    assert len({derive(seed, *p) for seed in range(3) for p in purposes}) == 3 * len(purposes)


def test_seeds_fit_every_generator() -> None:
    assert all(0 <= derive(seed, "x") < 2**63 for seed in (-5, 0, 10**30))


def test_numpy_integers_are_accepted() -> None:
    assert derive(np.int64(3), "epoch", np.int32(2)) == derive(3, "epoch", 2)


@pytest.mark.parametrize("purpose", [1.5, None, ("a",)])
def test_other_types_are_rejected(purpose: object) -> None:
    with pytest.raises(TypeError):
        derive(0, purpose)  # type: ignore[arg-type]


def test_a_seed_is_not_rounded() -> None:
    with pytest.raises(TypeError):
        derive(1.5)  # type: ignore[arg-type]


def test_purpose_must_not_contain_the_separator() -> None:
    with pytest.raises(ValueError, match="separator"):
        derive(0, "a\x1fstr:b")


def test_streams_repeat_and_differ() -> None:
    def draws(*purpose: str) -> tuple[list[float], list[float]]:
        numpy, pytorch = numpy_stream(1, *purpose), torch_stream(1, *purpose)
        return numpy.random(3).tolist(), torch.rand(3, generator=pytorch).tolist()

    assert draws("a") == draws("a")
    assert draws("a")[0] != draws("b")[0]
    assert draws("a")[1] != draws("b")[1]


def test_streams_do_not_change_the_global_generators() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    torch_stream(0, "a"), numpy_stream(0, "a")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # type: ignore[index]  # noqa: NPY002
