"""Job files for Slurm: the split of the tasks, the script as bash runs it, the requested resources."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parent))
from toy_task import Toy

from edgemask.experiments.needs import Need, need
from edgemask.experiments.runner import Settings
from edgemask.experiments.slurm import DRIVER_MIB, MARGIN, START, job_file, shard

CPU = Settings(device="cpu")
TOYS = [Toy(s, "log", transfer=t) for t in range(3) for s in range(5)]


def job_text(*suites: str, tasks=TOYS, settings=CPU, **options) -> str:
    options = {"results": Path("results"), "predict": lambda task, settings: Need(0.0, 1000.0, 60.0)} | options
    return job_file(suites or ("theory",), tasks, settings, **options)


def directives(text: str) -> dict[str, str]:
    return dict(re.findall(r"^#SBATCH --([\w-]+)=(.*)$", text, re.MULTILINE))


@given(st.integers(0, 60), st.integers(1, 70))
def test_shards_are_a_partition_and_even(count, n):
    parts = [shard(range(count), i, n) for i in range(n)]
    assert sorted(task for part in parts for task in part) == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert parts == [shard(range(count), i, n) for i in range(n)]


@pytest.mark.parametrize(("i", "n"), [(3, 3), (-1, 3), (0, 0)])
def test_a_shard_out_of_range_is_refused(i, n):
    with pytest.raises(ValueError, match=f"got {i}/{n}"):
        shard(TOYS, i, n)


def test_bash_runs_the_file_with_the_right_arguments(tmp_path: Path):
    """Every element runs `edgemask` with its part, also if folder names have special characters."""
    settings = Settings(tmp_path / "da ta'", True, "cuda", tmp_path / "ca $che")
    path = tmp_path / "job"
    path.write_text(
        job_text("theory", "recipes", settings=settings, results=tmp_path / "re sults", elements=4, seeds=2)
    )
    subprocess.run(["bash", "-n", path], check=True)
    fake_command = tmp_path / "bin" / "edgemask"
    fake_command.parent.mkdir()
    fake_command.write_text('#!/bin/bash\nprintf "%s\\n" "$EDGEMASK_CACHE" "$@"\n')
    fake_command.chmod(0o755)
    for element in range(4):
        # as if only two elements were submitted again: the count of Slurm is then not the number of parts
        array = {"SLURM_ARRAY_TASK_ID": str(element), "SLURM_ARRAY_TASK_COUNT": "2"}
        env = {"PATH": f"{fake_command.parent}{os.pathsep}{os.environ['PATH']}", **array}
        said = subprocess.run(["bash", path], check=True, env=env, capture_output=True, text=True).stdout.splitlines()
        assert said == [
            str(tmp_path / "ca $che"), "reproduce", "theory", "recipes", "--shard", f"{element}/4",
            "--results", str(tmp_path / "re sults"), "--device", "cuda", "--jobs", "1",
            "--data-root", str(tmp_path / "da ta'"), "--seeds", "2", "--offline",
        ]  # fmt: skip


def test_an_element_outside_an_array_fails_at_once(tmp_path: Path):
    (tmp_path / "job").write_text(job_text())
    result = subprocess.run(
        ["bash", tmp_path / "job"], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True
    )
    assert result.returncode != 0
    assert "SLURM_ARRAY_TASK_ID" in result.stderr


def test_time_and_memory_are_those_of_the_longest_element():
    costs = {0: Need(0.0, 900.2, 10.0), 1: Need(0.0, 5000.0, 100.0), 2: Need(0.0, None, None)}
    calls = []

    def predict(task, settings):
        calls.append(task.transfer)
        return costs[task.transfer]

    requests = directives(job_text(elements=5, jobs=2, predict=predict))
    assert sorted(calls) == [0, 1, 2]  # once for all seeds
    # each element has one task of each transfer; the one without a prediction counts as the longest
    assert requests["time"] == str(-(-int(START + MARGIN * (10 + 100 + 100)) // 60))
    assert requests["mem"] == f"{DRIVER_MIB + 2 * 5000}M"
    assert requests["array"] == "0-4"
    assert {"gpus", "partition"}.isdisjoint(requests)


def test_given_resources_are_requested_without_a_prediction():
    def predict(task, settings):
        raise AssertionError

    options = {"minutes": 30, "memory_mib": 2000, "gpus": 1, "cpus": 8, "partition": "long"}
    requests = directives(job_text(predict=predict, **options))
    expected = {"time": "30", "mem": "2000M", "gpus": "1", "cpus-per-task": "8", "partition": "long", "array": "0-14"}
    assert requests.items() >= expected.items()


def test_resources_that_cannot_be_predicted_must_be_given():
    with pytest.raises(
        ValueError, match="time and memory of theory cannot be predicted here: give minutes and memory_mib"
    ):
        job_text(predict=need)  # a toy is not trained


@pytest.mark.parametrize("elements", [0, 16])
def test_there_are_at_most_as_many_elements_as_tasks(elements):
    with pytest.raises(ValueError, match=f"from 1 to the number of tasks, 15, got {elements}"):
        job_text(elements=elements)
