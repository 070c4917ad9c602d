"""Files of trained state: round trips, damaged files, and writers that die."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from typer.testing import CliRunner

import edgemask
from edgemask.cli import app
from edgemask.data import write_graph
from edgemask.data.synthetic import demo_family
from edgemask.errors import CheckpointError
from edgemask.runtime.checkpoint import read, write

PACKAGE = Path(edgemask.__file__).parent
DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip
TENSORS = {"w": torch.arange(6.0).reshape(2, 3), "step": torch.tensor(3)}
META = {"epoch": 7, "name": "α"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    write(path, "model", TENSORS, META)
    return path


def identical(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        one[k].dtype == other[k].dtype and one[k].shape == other[k].shape and torch.equal(one[k], other[k]) for k in one
    )


# ---- round trip ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3)], ids=str)
def test_tensors_come_back_to_the_bit(tmp_path: Path, dtype, shape):
    tensor = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    write(tmp_path / "state", "model", {"t": tensor}, {})
    assert identical(read(tmp_path / "state", "model")[0], {"t": tensor})


def test_values_json_has_no_literal_for_come_back(tmp_path: Path):
    tensors = {"t": torch.tensor([torch.nan, torch.inf, -0.0])}
    write(tmp_path / "state", "model", tensors, {"loss": [1e-300, 0.1 + 0.2]})
    back, meta = read(tmp_path / "state", "model")
    assert back["t"].view(torch.int32).tolist() == tensors["t"].view(torch.int32).tolist()
    assert meta == {"loss": [1e-300, 0.1 + 0.2]}


def test_views_of_larger_tensors_are_written_with_their_values(tmp_path: Path):
    write(tmp_path / "state", "model", {"t": TENSORS["w"].T}, {})
    assert identical(read(tmp_path / "state", "model")[0], {"t": TENSORS["w"].T})


def test_a_write_replaces_the_file_and_makes_its_folder(path: Path):
    write(path.parent / "new" / "state", "model", TENSORS, META)
    write(path, "model", {"other": torch.ones(2)}, {"epoch": 8})
    assert read(path.parent / "new" / "state", "model")[1] == META
    assert read(path, "model")[1] == {"epoch": 8}


# ---- damage ----------------------------------------------------------------------------------------------


def assert_refused(path: Path, kind: str = "model", match: str | None = None) -> None:
    with pytest.raises(CheckpointError, match=match) as caught:
        read(path, kind)
    assert str(path) in str(caught.value)


def test_a_flipped_bit_anywhere_is_found(path: Path):
    whole = path.read_bytes()
    for at in range(len(whole)):  # header length, header and tensors alike
        broken = bytearray(whole)
        broken[at] ^= 1 << at % 8
        path.write_bytes(broken)
        assert_refused(path)


def test_a_changed_number_in_the_header_is_found(path: Path):
    whole = path.read_bytes()
    assert whole.count(b'\\"epoch\\": 7') == 1
    path.write_bytes(whole.replace(b'\\"epoch\\": 7', b'\\"epoch\\": 9'))
    assert_refused(path, match="damaged")


def test_a_truncated_file_is_found_wherever_it_ends(path: Path):
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert_refused(path, match="damaged")


def test_bytes_at_the_end_are_found(path: Path):
    path.write_bytes(path.read_bytes() + b"\0")
    assert_refused(path, match="damaged")


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_are_refused(path: Path, seed):
    path.write_bytes(torch.randint(0, 256, (500,), generator=torch.Generator().manual_seed(seed)).byte().numpy())
    assert_refused(path, match="damaged or not a safetensors file")


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_a_foreign_safetensors_file_is_refused(path: Path, metadata):
    save_file(TENSORS, path, metadata)
    assert_refused(path, match="not written by edgemask")


@pytest.mark.parametrize("header", ["{", "[]", '"x"', '{"format": 1, "kind": "model"}'])
def test_a_header_of_another_shape_is_refused(path: Path, header):
    save_file(TENSORS, path, {"edgemask": header})
    assert_refused(path, match="damaged edgemask header")


def test_a_file_without_a_checksum_is_refused(path: Path):
    save_file(TENSORS, path, {"edgemask": json.dumps({"format": 1, "kind": "model", "meta": {}})})
    assert_refused(path, match="damaged")


def test_another_kind_is_refused(path: Path):
    assert_refused(path, "checkpoint", match="holds a model of format 1, expected a checkpoint of format 1")


def test_another_format_is_refused(path: Path, monkeypatch):
    monkeypatch.setattr("edgemask.runtime.checkpoint.FORMAT", 2)
    assert_refused(path, match="holds a model of format 1, expected a model of format 2")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path):
    assert_refused(tmp_path / "nowhere", match="no such file")
    assert_refused(tmp_path, match="is a folder, not a file")


# ---- a writer that dies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=repr)
def test_a_write_that_dies_leaves_the_old_file_alone(path: Path, monkeypatch, call, error):
    def die(*_):
        raise error

    monkeypatch.setattr(os, call, die)
    with pytest.raises(type(error)):
        write(path, "model", {"w": torch.zeros(9)}, {})
    assert [p.name for p in path.parent.iterdir()] == ["state"]
    tensors, meta = read(path, "model")
    assert identical(tensors, TENSORS)
    assert meta == META


def test_a_reader_sees_the_old_file_or_the_new_one_while_a_writer_replaces_it(path: Path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # only to make the writer faster
    over = threading.Event()

    def rewrite() -> None:
        epoch = 0
        while not over.is_set():
            write(path, "model", {"w": torch.full((1000,), epoch)}, {"epoch": epoch})
            epoch += 1

    write(path, "model", {"w": torch.full((1000,), -1)}, {"epoch": -1})
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(rewrite)
        try:
            seen = [read(path, "model") for _ in range(500)]
        finally:
            over.set()
        writing.result()
    assert all((tensors["w"] == meta["epoch"]).all() for tensors, meta in seen)


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


def test_only_the_restricted_reader_imports_pickle():
    picklers = {"pickle", "_pickle", "cPickle", "pickletools", "joblib", "dill", "cloudpickle", "shelve", "marshal"}
    importers = {str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py") if imported(p) & picklers}
    assert importers == {"data/unpickle.py"}


def test_nothing_loads_without_a_restriction():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            given = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
            assert given.get("allow_pickle") is not True, f"{path}:{node.lineno}"
            assert given.get("weights_only") is not False, f"{path}:{node.lineno}"
            assert ast.unparse(node.func) != "torch.load", f"{path}:{node.lineno}"


# ---- SIGKILL ---------------------------------------------------------------------------------------------


def progress(path: Path) -> int:
    """Epochs completed in a checkpoint, over all stages; 0 if there is no checkpoint."""
    if not path.exists():
        return 0
    _, meta = read(path, "checkpoint")
    return 1000 * len(meta["held_out"]) + int(meta["trainer"]["epoch"])


@pytest.mark.slow
def test_a_killed_fit_gives_the_same_model_when_continued(tmp_path: Path, monkeypatch):
    alpha, beta, _ = demo_family(70).values()
    for graph in (alpha, beta):
        write_graph(graph, tmp_path / f"{graph.name}.npz")
    tiny = {"epochs": 80, "clusters": 5, "k": 3, "hidden": 8, "mask_projection": 8, "mask_hidden": 8, "alpha": "0,0.9"}
    sets = [part for pair in tiny.items() for part in ("--set", "{}={}".format(*pair))]
    fit = ["fit", "alpha.npz", "beta.npz", *sets, "--method", "robust", "--device", "cpu"]
    killable = [sys.executable, "-m", "edgemask.cli", *fit, "--model", "killed.model"]
    killable += ["--checkpoint", "killed.ckpt", "--checkpoint-every", "1"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("EDGEMASK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE.parent))

    with subprocess.Popen(killable, stderr=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + 120
            while progress(Path("killed.ckpt")) < 1005 and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)  # until the second of three stages is under way
        finally:
            process.send_signal(signal.SIGKILL)
            stderr = process.communicate()[1]
    assert process.returncode == -signal.SIGKILL, stderr
    assert 1005 <= progress(Path("killed.ckpt")) < 2080
    assert not Path("killed.model").exists()

    with subprocess.Popen(killable, stderr=subprocess.PIPE, text=True) as process:
        whole = CliRunner().invoke(app, [*fit, "--model", "whole.model"], catch_exceptions=False)
        assert process.communicate(timeout=120)[1] == ""  # no terminal: no progress bar
    assert (process.returncode, whole.exit_code) == (0, 0)
    (one, one_meta), (other, other_meta) = (read(f"{name}.model", "model") for name in ("whole", "killed"))
    assert identical(one, other)
    assert one_meta == other_meta
