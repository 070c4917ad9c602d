"""Ray: a real cluster that loses a node during a run, and the resources requested for each task."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

sys.path.insert(0, str(HERE := Path(__file__).resolve().parent))  # workers must be able to import the toy tasks
from toy_task import OPTIONS, Toy, notes

from edgemask import EdgeMaskClassifier
from edgemask.config import Recipe
from edgemask.data import benchmark
from edgemask.errors import MissingDependencyError
from edgemask.experiments import on_ray
from edgemask.experiments.needs import CONTEXT_MIB, MARGIN, Need, need, need_key
from edgemask.experiments.on_ray import OnRay
from edgemask.experiments.records import ResultStore
from edgemask.experiments.run import Run
from edgemask.experiments.runner import Failed, MissingData, Retry, Settings, Started, Tally, run_all

CPU = Settings(device="cpu")
RUN = Run("synthetic", OPTIONS, benchmark("synthetic").protocols[0], "erm-mlp", Recipe(
    mask=False, k=0, clusters=0, backbone="mlp", hidden=8, epochs=2), 0)  # fmt: skip


# ---- a real cluster ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster():
    """Start a head node without a CPU for tasks and two nodes with one CPU each, without shared memory."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'edgemask[cluster]'")
    from ray.cluster_utils import Cluster

    with (
        tempfile.TemporaryDirectory(
            dir="/tmp", ignore_cleanup_errors=True
        ) as folder,  # the names of sockets must be short
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(HERE.parents[1])]))
        common = {"object_store_memory": 100 * 2**20, "plasma_directory": folder}
        held = Cluster()
        try:
            held.add_node(num_cpus=0, include_dashboard=False, **common)
            yield held, [held.add_node(num_cpus=1, **common) for _ in range(2)]
        finally:
            held.shutdown()


@pytest.mark.slow
def test_every_record_is_written_once_although_a_node_is_killed(cluster, tmp_path: Path):
    held, nodes = cluster
    log, killed = str(tmp_path / "log"), []

    def kill(tally: Tally) -> None:
        """Once some tasks are done, kill the node of a waiting task and its workers. Then release the others."""
        deadline = time.monotonic() + 30
        while tally.done >= 3 and not killed and time.monotonic() < deadline:
            ended = [line.split()[1] for line in notes(log) if line.startswith("ended")]
            running = [line.split() for line in notes(f"{log}.processes")]
            for node in nodes:
                raylet = str(node.all_processes["raylet"][0].process.pid)
                workers = [int(pid) for seed, parent, pid in running if parent == raylet and seed not in ended]
                if workers and not killed:
                    killed.append(node)
                    held.remove_node(node, allow_graceful=False)
                    for pid in workers:
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        if killed:
            Path(f"{log}.released").touch()

    toys = [Toy(seed, log, seconds=0.1, hold=seed >= 4) for seed in range(12)]
    tally = run_all(toys, ResultStore(tmp_path / "r"), OnRay(CPU, held.address), kill)

    assert killed
    assert (tally.done, tally.recorded_elsewhere, tally.failed, tally.exit_code) == (12, 0, [], 0)
    store = ResultStore(tmp_path / "r")
    assert sorted(r["seed"] for r in store) == list(range(12))
    assert store.rejected == {}
    assert all(store.find(toy) for toy in toys)
    begun = Counter(line for line in notes(log) if line.startswith("begun"))
    assert len(begun) == 12
    assert sum(begun.values()) > 12  # the tasks of the killed node ran again


@pytest.mark.slow
def test_a_training_is_planned_and_run_on_a_node(cluster, tmp_path: Path):
    held, _ = cluster
    elsewhere = Toy(0, str(tmp_path / "log"), benchmark="facebook100", options={})
    settings = Settings(tmp_path, offline=True, device="auto", cache=tmp_path / "cache")
    tally = run_all([RUN, elsewhere], ResultStore(tmp_path / "r"), OnRay(settings, held.address), lambda tally: None)
    assert (tally.done, tally.failed) == (1, [])
    assert [label for label, _ in tally.absent] == [elsewhere.label]
    assert tally.absent[0][1].root == str(tmp_path)
    assert ResultStore(tmp_path / "r").find(RUN)["machine"]["device"].startswith("cpu")


@pytest.mark.slow
def test_the_candidates_of_a_race_run_on_a_cluster(cluster):
    held, _ = cluster
    graphs = benchmark("synthetic").load(nodes=80)
    sources = [graphs["alpha"], graphs["beta"]]
    few = {"candidates": ("erm-mlp", "erm-gcn"), "epochs": 10, "hidden": 8, "device": "cpu"}
    here = EdgeMaskClassifier(**few).fit(sources)
    with on_ray.ray_executor(held.address, "cpu") as (executor, jobs):
        there = EdgeMaskClassifier(**few, jobs=jobs).fit(sources, executor=executor)
    np.testing.assert_allclose(there.predict_proba(graphs["gamma"]), here.predict_proba(graphs["gamma"]), rtol=1e-5)
    assert there.leaderboard_["candidate"].tolist() == here.leaderboard_["candidate"].tolist()


# ---- requested resources -----------------------------------------------------------------------------------


class FakeRay:
    """A fake cluster. Tasks end immediately and are reported one by one."""

    exceptions = SimpleNamespace(RayError=RuntimeError)

    def __init__(self, *nodes: dict[str, float], crash: tuple[int, ...] = ()):
        self.resources, self.crash = nodes, crash
        self.calls, self.pending, self.most = [], {}, 0

    def cluster_resources(self):
        return dict(sum((Counter(node) for node in self.resources), Counter()))

    def nodes(self):
        return [{"Alive": True, "Resources": dict(n)} for n in self.resources] + [{"Alive": False, "Resources": {}}]

    def remote(self, call):
        def submit(task, settings, **options):
            self.calls.append((call.__name__, task.seed, settings, options))
            ref = len(self.calls)
            lost = call is on_ray.work and task.seed in self.crash
            self.pending[ref] = None if lost else call(task, settings)
            self.most = max(self.most, len(self.pending))
            return ref

        return SimpleNamespace(options=lambda **o: SimpleNamespace(remote=lambda *a: submit(*a, **o)))

    def wait(self, refs, timeout):
        return refs[:1], refs[1:]

    def get(self, ref):
        if (result := self.pending.pop(ref)) is None:
            raise RuntimeError("The worker died unexpectedly")
        return result


@pytest.fixture
def events(monkeypatch):
    """Run tasks on a fake cluster with given plans and return the events."""

    def run(ray: FakeRay, tasks, plan=None, settings=CPU):
        @contextmanager
        def fake(address):
            yield ray

        monkeypatch.setattr(on_ray, "connected", fake)
        if plan is not None:
            monkeypatch.setattr(on_ray, "need", plan)
        return list(OnRay(settings, "auto").run(tasks))

    return run


def test_each_kind_is_planned_once_and_requests_the_planned_resources(events, tmp_path: Path, monkeypatch):
    log = str(tmp_path / "log")
    toys = [Toy(s, log, transfer=t) for t in range(2) for s in range(3)]
    monkeypatch.setattr(on_ray, "perform", lambda task, settings: {"seed": task.seed})
    ray = FakeRay({"CPU": 8, "GPU": 1, "memory": 64 * 2**30})
    plans = {0: Need(0.25, 1024.0), 1: Need(0.5, 2048.0)}
    found = events(ray, toys, lambda task, settings: plans[task.transfer], Settings(device="auto"))
    assert sorted(i for i, e in found if isinstance(e, dict)) == list(range(6))
    assert sorted(i for i, e in found if isinstance(e, Started)) == list(range(6))
    calls = Counter((name, o["num_gpus"], o["memory"], o["num_cpus"], o["max_retries"]) for name, _, _, o in ray.calls)
    assert calls == {
        ("predict_need", 0.1, None, 1, 3): 2, ("work", 0.25, 2**30, 1, 3): 3, ("work", 0.5, 2**31, 1, 3): 3
    }  # fmt: skip
    assert {settings.device for _, _, settings, _ in ray.calls} == {"cuda"}


@pytest.mark.slow
def test_no_more_tasks_are_submitted_than_fit_on_the_cluster(events, tmp_path: Path):
    ray = FakeRay({"CPU": 0}, {"CPU": 2}, {"CPU": 1})
    found = events(ray, [Toy(s, str(tmp_path / "log")) for s in range(9)])
    assert sum(isinstance(e, dict) for _, e in found) == 9
    assert ray.most == 3


def test_a_task_too_large_for_every_node_fails_and_the_others_run(events, tmp_path: Path):
    toys = [Toy(s, str(tmp_path / "log"), transfer=s) for s in range(2)]
    ray = FakeRay({"CPU": 1, "memory": 2**30}, {"CPU": 1, "memory": 2**30})
    found = events(ray, toys, lambda task, settings: Need(0.0, 2000.0 if task.seed else 10.0))
    ended = {i: e for i, e in found if not isinstance(e, Started)}
    assert ended[1] == Failed("no node of the cluster has 1 CPU and 2.0 GiB of memory")
    assert isinstance(ended[0], dict)


def test_a_cluster_that_can_run_no_task_is_an_error(events, tmp_path: Path):
    with pytest.raises(ValueError, match="no node of the cluster has 1 CPU"):
        events(FakeRay({"CPU": 0}), [Toy(0, str(tmp_path / "log"))])


def test_a_task_out_of_memory_on_a_shared_gpu_is_repeated_on_a_whole_gpu(events, tmp_path, monkeypatch):
    tried = Counter()

    def perform(task, settings):
        tried[task.seed] += 1
        full = task.seed == 1 or tried[task.seed] == 1
        return {"seed": task.seed, "failed": {"kind": "OutOfMemoryError"}} if full else {"seed": task.seed}

    monkeypatch.setattr(on_ray, "perform", perform)
    toys = [Toy(s, str(tmp_path / "log")) for s in range(2)]
    ray = FakeRay({"CPU": 2, "GPU": 1, "memory": 2**40})
    found = events(ray, toys, lambda task, settings: Need(0.3, 1024.0), Settings(device="cuda"))
    assert sum(isinstance(e, Retry) for _, e in found) == 2
    assert [o["num_gpus"] for name, _, _, o in ray.calls if name == "work"] == [0.3, 0.3, 1.0, 1.0]
    assert {i: "failed" in e for i, e in found if isinstance(e, dict)} == {0: False, 1: True}


def test_a_task_that_cannot_be_planned_gets_a_whole_gpu_with_a_warning(events, tmp_path: Path, monkeypatch):
    def fails(task, settings):
        raise ValueError("the configuration does not run")

    monkeypatch.setattr(on_ray, "perform", lambda task, settings: {})
    ray = FakeRay({"CPU": 2, "GPU": 1})
    with pytest.warns(UserWarning, match="toy 0 could not be planned.*ValueError: the configuration does not run"):
        found = events(ray, [Toy(0, str(tmp_path / "log"))], fails, Settings(device="cuda"))
    assert found[-1] == (0, {})
    assert ray.calls[-1][3]["num_gpus"] == 1.0


def test_a_task_that_is_lost_too_often_fails_and_the_others_run(events, tmp_path: Path):
    found = events(FakeRay({"CPU": 1}, crash=(1,)), [Toy(s, str(tmp_path / "log")) for s in range(3)])
    ended = {i: e for i, e in found if not isinstance(e, Started)}
    assert ended[1] == Failed("The worker died unexpectedly")
    assert isinstance(ended[0], dict)
    assert isinstance(ended[2], dict)


def test_workers_get_absolute_paths(events, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ray = FakeRay({"CPU": 1})
    elsewhere = Toy(0, str(tmp_path / "log"), benchmark="facebook100", options={})
    found = events(ray, [elsewhere], settings=Settings(Path("data"), True, "auto", Path("cache")))
    settings = ray.calls[-1][2]
    assert (settings.data_root, settings.cache, settings.device) == (tmp_path / "data", tmp_path / "cache", "cpu")
    assert isinstance(found[-1][1], MissingData)


@pytest.mark.parametrize(("address", "own"), [("local", True), ("10.0.0.1:6379", False)])
def test_the_sigterm_handler_stays_and_a_local_cluster_sends_no_statistics(monkeypatch, address, own):
    seen = []

    def init(**options):
        seen.append((options["address"], "include_dashboard" in options, os.environ.get("RAY_USAGE_STATS_ENABLED")))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as Ray puts its own handler in place

    fake = SimpleNamespace(init=init, shutdown=lambda: seen.append("shut down"))
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    before = signal.getsignal(signal.SIGTERM)
    with on_ray.connected(address):
        assert signal.getsignal(signal.SIGTERM) is before
    assert seen == [(address, own, "0" if own else None), "shut down"]
    assert "RAY_USAGE_STATS_ENABLED" not in os.environ


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"needs Ray: install edgemask\[cluster\]"):
        next(OnRay(CPU, "auto").run([RUN]))


# ---- needs -------------------------------------------------------------------------------------------------


def test_tasks_that_differ_only_in_their_seed_are_alike(tmp_path: Path):
    assert need_key(Toy(0, "log")) == need_key(Toy(1, "log"))
    assert need_key(Toy(0, "log")) != need_key(Toy(0, "log", transfer=1))
    assert need_key(Toy(0, "log")) != need_key(Toy(0, "log", recipe=Recipe(k=3)))


def test_a_need_is_the_prediction_with_a_margin(monkeypatch):
    from edgemask.experiments import needs

    def plan(sources, recipe, device, *, method, validation):
        assert [g.name for g in sources] == list(RUN.protocol.sources)
        assert (recipe, device, method, validation) == (RUN.recipe, "cuda", RUN.method, [])
        device = SimpleNamespace(type="cuda")
        return SimpleNamespace(device=device, peak_mib=800.0, host_mib=1000.0, total_seconds=7.0)

    monkeypatch.setattr(needs, "plan", plan)
    whole = SimpleNamespace(total_memory=16 * 2**30)
    monkeypatch.setattr(needs.torch.cuda, "get_device_properties", lambda device: whole)
    found = need(RUN, Settings(device="cuda"))
    assert found == Need((MARGIN * 800 + CONTEXT_MIB) / 16384, MARGIN * 1000, 7.0)


def test_an_unknown_need_is_a_whole_gpu_unless_the_device_is_a_cpu(tmp_path: Path):
    assert need(Toy(0, "log"), CPU) == Need(0.0)
    assert need(Toy(0, "log"), Settings(device="cuda")) == Need(1.0)
    social = benchmark("facebook100")
    absent = Run("facebook100", {}, social.protocols[0], "erm-mlp", RUN.recipe, 0)
    assert need(absent, Settings(tmp_path, offline=True, device="cpu")) == Need(0.0)
