"""The limit on the memory that the content of a file may take."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgemask.errors import InputError, LimitError
from edgemask.limits import DEFAULT, check_size, max_bytes, size_text


def test_the_limit_is_4_gib_or_four_times_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("EDGEMASK_MAX_BYTES", raising=False)
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    assert max_bytes() == max_bytes(path) == max_bytes(tmp_path / "missing") == DEFAULT == 4 * 2**30
    monkeypatch.setenv("EDGEMASK_MAX_BYTES", "2K")
    assert max_bytes() == 2048
    assert max_bytes(path) == 4000


@pytest.mark.parametrize(("text", "size"), [("100", 100), ("8G", 8 * 2**30), ("8 GiB", 8 * 2**30), ("5m", 5 * 2**20)])
def test_sizes_have_units(text: str, size: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EDGEMASK_MAX_BYTES", text)
    assert max_bytes() == size


@pytest.mark.parametrize("text", ["-1", "lots", "1.5G", "8X", "9" * 30])
def test_other_values_are_refused(text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EDGEMASK_MAX_BYTES", text)
    with pytest.raises(InputError, match="EDGEMASK_MAX_BYTES must be a number of bytes such as 8G"):
        max_bytes()


def test_what_exceeds_the_limit_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("EDGEMASK_MAX_BYTES", raising=False)
    check_size(DEFAULT, "x")
    with pytest.raises(LimitError, match=r"x would take 5\.0 GiB of memory, and the limit is 4\.0 GiB; .* such as 5G"):
        check_size(5 * 2**30, "x")
    for huge in (2**100, 10**400):
        with pytest.raises(LimitError):
            check_size(huge, "x")


def test_sizes_are_readable():
    assert [size_text(size) for size in (0, 1023, 1024, 2**30, 2**41)] == [
        "0 bytes",
        "1023 bytes",
        "1.0 KiB",
        "1.0 GiB",
        "2.0 TiB",
    ]
