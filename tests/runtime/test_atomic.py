"""Atomic writes: two writers, writers that are killed, full disks, and paths that cannot be replaced."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import edgemask
from edgemask.errors import FileError
from edgemask.runtime.atomic import part_of, remove_leftovers, replacing, temporary_folder, writable

PART = ".model.part-0123456789abcdef"


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def killed(code: str, *arguments: str, **environment: str) -> None:
    """Run a program that prints a line and waits, and kill it."""
    code = f"{code}\n    print('ready', flush=True); import time; time.sleep(60)"
    environment = {**os.environ, "PYTHONPATH": str(Path(edgemask.__file__).parents[1]), **environment}
    with subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)


IMPORTS = "import sys; from pathlib import Path; from edgemask.runtime.atomic import *\n"
WRITER = f"{IMPORTS}with replacing(Path(sys.argv[1])) as file:\n    file.write(b'half')\n    file.flush()"
FOLDER = f"{IMPORTS}with temporary_folder('edgemask-race') as folder:\n    (folder / 'state').touch()"


def test_the_next_writer_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    killed(WRITER, str(tmp_path / "model"))
    (left,) = names(tmp_path)
    assert left.startswith(".model.part-")
    with replacing(tmp_path / "other") as file:
        file.write(b"whole")
    assert names(tmp_path) == ["other"]


def test_a_temporary_folder_of_a_killed_process_is_removed_by_the_next_one(tmp_path: Path, monkeypatch) -> None:
    killed(FOLDER, TMPDIR=str(tmp_path))
    assert len(names(tmp_path)) == 1
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary_folder("edgemask-race") as folder:
        (folder / "state").touch()
        assert names(tmp_path) == [folder.name]
    assert names(tmp_path) == []


def test_writers_leave_each_other_alone(tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as one, replacing(tmp_path / "b") as two, replacing(tmp_path / "a") as three:
        remove_leftovers(tmp_path)
        assert len(names(tmp_path)) == 3
        for file in (one, two, three):
            file.write(file.name.encode()[-5:])
    assert names(tmp_path) == ["a", "b"]
    assert (tmp_path / "a").read_bytes() == one.name.encode()[-5:]


def test_a_writer_in_another_process_is_left_alone(tmp_path: Path) -> None:
    code = WRITER + "\n    print('ready', flush=True); sys.stdin.readline()"
    command = [sys.executable, "-c", code, str(tmp_path / "model")]
    environment = {**os.environ, "PYTHONPATH": str(Path(edgemask.__file__).parents[1])}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with replacing(tmp_path / "other"):
            assert len(names(tmp_path)) == 2
        process.communicate(b"go on\n")
    assert names(tmp_path) == ["model", "other"]
    assert (tmp_path / "model").read_bytes() == b"half"


def test_only_part_files_are_removed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    kept = {".model.part-012", "model.part-0123456789abcdef", ".part-0123456789abcdef", "target"}
    for name in kept:
        (tmp_path / name).touch()
    (tmp_path / ".link.part-0123456789abcdef").symlink_to("target")
    os.mkfifo(tmp_path / ".pipe.part-0123456789abcdef")
    (tmp_path / PART).touch()
    (tmp_path / ".folder.part-0123456789abcdef").mkdir()
    (tmp_path / ".folder.part-0123456789abcdef" / "inside").touch()
    remove_leftovers(tmp_path)
    assert kept <= set(names(tmp_path))
    assert PART not in names(tmp_path)
    assert ".folder.part-0123456789abcdef" not in names(tmp_path)
    assert (tmp_path / "target").exists()
    remove_leftovers(tmp_path / "missing")


def test_a_checked_path_removes_leftovers(tmp_path: Path) -> None:
    (tmp_path / PART).touch()
    writable(tmp_path / "model")
    assert names(tmp_path) == []


def test_a_part_folder_can_be_renamed(tmp_path: Path) -> None:
    with part_of(tmp_path / "graph", folder=True) as part:
        (part / "nodes.csv").touch()
        part.rename(tmp_path / "graph")
    assert names(tmp_path) == ["graph"]
    assert names(tmp_path / "graph") == ["nodes.csv"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch, call) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with (
        pytest.raises(FileError, match="model cannot be written: No space left on device"),
        replacing(tmp_path / "model"),
    ):
        pass
    assert names(tmp_path) == []


def test_a_file_that_must_be_new_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "record").write_text("first")
    with pytest.raises(FileExistsError), replacing(tmp_path / "record", text=True, once=True) as file:
        file.write("second")
    assert (tmp_path / "record").read_text() == "first"
    assert names(tmp_path) == ["record"]
    with (
        pytest.raises(FileError, match="record/below cannot be written"),
        replacing(tmp_path / "record" / "below", once=True),
    ):
        pass


def test_devices_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(FileError, match="is not a regular file"):
            writable(path)
        with pytest.raises(FileError, match="is not a regular file"), replacing(path):
            pass


@pytest.mark.parametrize("name", ["a b", "line\nbreak", "[bold]x", "n" * 250, "é" * 125])
def test_any_name_can_be_written(tmp_path: Path, name: str) -> None:
    with replacing(tmp_path / name) as file:
        file.write(b"x")
    assert names(tmp_path) == [name]


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    paths, system_open = [], os.open

    def remove_first(path, flags, *rest, **options):
        if not paths:
            paths.append(path)
            os.rmdir(path)  # as another process that takes the folder for a leftover
        return system_open(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", remove_first)
    with temporary_folder("edgemask-heat") as folder:
        assert folder.is_dir()
        assert folder != paths[0]
    assert names(tmp_path) == []
