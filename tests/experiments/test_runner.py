"""The runner: one record per task, also after crashes and interruptions; one failure does not affect other tasks."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from edgemask.runtime.safe_text import SafeConsole

sys.path.insert(0, str(HERE := Path(__file__).resolve().parent))  # workers must be able to import the toy tasks
import toy_task
from toy_task import OPTIONS, Toy, notes

from edgemask.config import Recipe
from edgemask.data import benchmark
from edgemask.experiments import local, progress, runner
from edgemask.experiments.auto import AutoRun
from edgemask.experiments.local import Local, default_jobs
from edgemask.experiments.records import ResultStore
from edgemask.experiments.run import Run
from edgemask.experiments.runner import Failed, MissingData, Settings, Started, Tally, group_by_data, perform, run_all
from edgemask.runtime import processes

CPU = Settings(device="cpu")
PLAIN = Recipe(mask=False, k=0, clusters=0, backbone="mlp", hidden=8, epochs=2)
LONG = 120  # seconds; nothing here takes that long on an idle machine


@pytest.fixture
def log(tmp_path: Path) -> str:
    return str(tmp_path / "log")


class Scripted:
    """An executor that yields a given event for each task, by seed."""

    def __init__(self, **said):
        self.said, self.asked, self.closed = said, [], False

    def run(self, tasks):
        try:
            for i, task in enumerate(tasks):
                self.asked.append(task.seed)
                yield i, Started()
                said = self.said.get(f"seed{task.seed}", "perform")
                if isinstance(said, BaseException):
                    raise said
                yield from [(i, perform(task, CPU) if e == "perform" else e) for e in (said,)]
        finally:
            self.closed = True


def quiet(tally: Tally) -> None:
    pass


def contents(root: Path) -> dict[Path, tuple[bytes, int]]:
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in root.rglob("*.json")}


# ---- the worker --------------------------------------------------------------------------------------------


def test_a_worker_returns_the_record_and_writes_nothing(log, tmp_path: Path):
    run = Run("synthetic", OPTIONS, benchmark("synthetic").protocols[0], "erm-mlp", PLAIN, 0)
    record = perform(run, Settings(device="cpu", cache=tmp_path / "cache"))
    assert isinstance(record, dict)
    assert record["metrics"].keys() == {"alpha"}
    assert list(tmp_path.iterdir()) == []
    assert ResultStore(tmp_path).add(run, record).is_file()


def test_a_worker_keeps_the_graphs_of_the_last_few_protocols(log, monkeypatch):
    loaded = []
    monkeypatch.setattr(runner, "load_domains", lambda b, p, *rest: loaded.append(p.name) or FAMILY)
    runner._domains.cache_clear()
    for transfer in (0, 0, 1, 0, 2, 1, 0):
        runner.domains_of(Toy(0, log, transfer=transfer), CPU)
    assert len(loaded) == 3
    for nodes in (81, 82, 83):
        runner.domains_of(Toy(0, log, options=OPTIONS | {"nodes": nodes}), CPU)
    runner.domains_of(Toy(0, log), CPU)
    assert len(loaded) == 7
    runner._domains.cache_clear()


FAMILY = benchmark("synthetic").load(nodes=80)


@pytest.mark.parametrize(
    ("act", "said"),
    [("raise", "KeyError: 'a mistake'"), ("foreign", "record of another task"), ("no json", "not JSON serializable")],
)
def test_a_failed_task_reports_the_end_of_its_traceback(log, act, said):
    outcome = perform(Toy(0, log, act=act), CPU)
    assert isinstance(outcome, Failed)
    assert said in outcome.why.splitlines()[-1]
    assert "line" in outcome.why
    assert len(outcome.why.splitlines()) < 20


def test_missing_data_is_not_a_failure_of_a_worker(log, tmp_path: Path):
    outcome = perform(Toy(0, log, benchmark="facebook100", options={}), Settings(tmp_path, offline=True, device="cpu"))
    assert isinstance(outcome, MissingData)
    assert outcome.root == str(tmp_path)
    assert "facebook100/Caltech36.mat" in outcome.files
    assert notes(log) == []


# ---- the driver --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_only_tasks_without_a_record_are_run_and_each_once(log, tmp_path: Path):
    first = Scripted()
    run_all([Toy(1, log)], ResultStore(tmp_path / "r"), first, quiet)
    before = contents(tmp_path / "r")
    second = Scripted()
    tally = run_all([Toy(s, log) for s in (0, 1, 2, 2, 0)], ResultStore(tmp_path / "r"), second, quiet)
    assert (first.asked, second.asked) == ([1], [0, 2])
    assert (tally.total, tally.already_recorded, tally.done, tally.remaining, tally.exit_code) == (3, 1, 2, 0, 0)
    assert contents(tmp_path / "r").items() >= before.items()
    assert len(ResultStore(tmp_path / "r")) == 3
    third = Scripted()
    assert run_all([Toy(s, log) for s in range(3)], ResultStore(tmp_path / "r"), third, quiet).already_recorded == 3
    assert not third.closed  # no executor is started for nothing


def test_what_a_killed_driver_left_is_removed(log, tmp_path: Path):
    task, store = Toy(0, log), ResultStore(tmp_path)
    path = store.add(task, perform(task, CPU))
    left = path.with_name(f".{path.name[:50]}.part-0123456789abcdef")
    left.touch()
    run_all([task], store, Scripted(), quiet)  # also if there is nothing to write
    assert [path] == list(path.parent.iterdir())


def test_failures_and_missing_data_are_distinguished_and_other_tasks_run(log, tmp_path: Path):
    absent = MissingData("host", "/data", ("a.bin",))
    executor = Scripted(seed0=Failed("Traceback\nKeyError: 'x'"), seed2=absent)
    tally = run_all([Toy(s, log) for s in range(4)], ResultStore(tmp_path / "r"), executor, quiet)
    assert tally.failed == [("toy 0", "Traceback\nKeyError: 'x'")]
    assert tally.absent == [("toy 2", absent)]
    assert (tally.done, tally.exit_code) == (2, 1)
    said = progress.summary(tally)
    assert "2 of 4 recorded" in said
    assert "toy 0: KeyError: 'x'" in said
    assert "data not available for 1 (/data on host): a.bin" in said


def test_missing_data_alone_is_not_a_failure(log, tmp_path: Path):
    absent = Scripted(seed0=MissingData("host", "/data", ("a.bin",)))
    assert run_all([Toy(0, log)], ResultStore(tmp_path / "r"), absent, quiet).exit_code == 0


@pytest.mark.slow
def test_a_record_that_another_driver_wrote_first_counts_as_done(log, tmp_path: Path):
    ours, theirs = ResultStore(tmp_path / "r"), ResultStore(tmp_path / "r")
    run_all([Toy(0, log)], theirs, Scripted(), quiet)
    before = contents(tmp_path / "r")
    tally = run_all([Toy(0, log), Toy(1, log)], ours, Scripted(), quiet)
    assert (tally.done, tally.recorded_elsewhere, tally.failed, tally.exit_code) == (2, 1, [], 0)
    assert contents(tmp_path / "r").items() > before.items()


@pytest.mark.slow
def test_a_damaged_file_in_place_of_a_record_is_a_failure(log, tmp_path: Path):
    run_all([Toy(0, log)], ResultStore(tmp_path / "r"), Scripted(), quiet)
    (path,) = contents(tmp_path / "r")
    path.write_text("{")
    tally = run_all([Toy(0, log)], ResultStore(tmp_path / "r"), Scripted(), quiet)
    assert (tally.done, tally.exit_code) == (0, 1)
    assert str(path) in tally.failed[0][1]
    assert "remove it" in tally.failed[0][1]
    assert path.read_text() == "{"


def test_an_interrupted_driver_closes_its_executor_and_says_how_to_continue(log, tmp_path: Path):
    executor = Scripted(seed1=KeyboardInterrupt())
    tally = run_all([Toy(s, log) for s in range(3)], ResultStore(tmp_path / "r"), executor, quiet)
    assert (tally.done, tally.interrupted, tally.exit_code, executor.closed) == (1, True, 130, True)
    assert "the same command continues" in progress.summary(tally)


def test_an_error_of_the_driver_itself_stops_everything(log, tmp_path: Path):
    executor = Scripted()

    def full(*_):
        raise OSError("disk full")

    store = ResultStore(tmp_path / "r")
    store.add = full  # type: ignore[method-assign]
    with pytest.raises(OSError, match="disk full"):
        run_all([Toy(s, log) for s in range(3)], store, executor, quiet)
    assert executor.closed
    assert executor.asked == [0]


def test_sigterm_stops_the_run_and_its_handler_is_restored(log, tmp_path: Path):
    before = signal.getsignal(signal.SIGTERM)

    class Terminated:
        def run(self, tasks):
            yield 0, Started()
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)

    tally = run_all([Toy(0, log)], ResultStore(tmp_path / "r"), Terminated(), quiet)
    assert tally.interrupted
    assert signal.getsignal(signal.SIGTERM) is before


def test_tasks_on_the_same_data_are_grouped(log):
    mixed = [Toy(s, log, transfer=t) for s in range(2) for t in (1, 0, 2)]
    assert [(t.transfer, t.seed) for t in group_by_data(mixed)] == [(1, 0), (1, 1), (0, 0), (0, 1), (2, 0), (2, 1)]


def test_races_that_share_trainings_follow_each_other_and_the_largest_one_is_last():
    protocol = benchmark("synthetic").protocols[0]
    many = ("erm-mlp", "erm-gcn")
    runs = [
        AutoRun("synthetic", OPTIONS, protocol, seed, PLAIN, names)
        for names in (many, many[:1], many[1:])
        for seed in (0, 1)
    ]
    order = [(run.seed, len(run.candidates)) for run in group_by_data(runs)]
    assert order == [(0, 1), (0, 1), (0, 2), (1, 1), (1, 1), (1, 2)]


@pytest.mark.slow
def test_tasks_that_share_work_run_in_one_process_also_after_a_crash(log, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(local, "shared_work", lambda task: task.seed // 4 if task.seed < 8 else None)
    toys = [Toy(s, log, 0.1, "die once" if s == 1 else "") for s in range(9)]
    tally = run_all(toys, ResultStore(tmp_path / "r"), Local(CPU, 2), quiet)
    assert (tally.done, tally.failed) == (9, [])
    lines = [line.split() for line in notes(f"{log}.processes")]
    processes_of = {part: {pid for seed, _, pid in lines if int(seed) // 4 == part} for part in (0, 1)}
    assert len(processes_of[1]) == 1
    assert len(processes_of[0]) == 2  # the first process died in the second task
    assert processes_of[0].isdisjoint(processes_of[1])
    assert [line for line in notes(log) if line.startswith("begun") and int(line.split()[1]) < 4] == [
        f"begun {s}" for s in (0, 1, 1, 2, 3)
    ]


# ---- progress ----------------------------------------------------------------------------------------------


def test_time_left_follows_the_mean_rate_so_far():
    tally = Tally(total=12, already_recorded=2, begun=time.monotonic() - 20)
    assert tally.seconds_left is None
    tally.done, tally.failed = 3, [("x", "y")]
    tally.absent = [("z", MissingData("h", "r", ("f",)))]
    assert tally.seconds_left == pytest.approx(20 / 4 * 5, rel=0.01)


def test_without_a_terminal_counts_are_printed_rarely_and_failures_immediately():
    sink = io.StringIO()
    with progress.progress(SafeConsole(file=sink, width=60)) as show:
        tally = Tally(100)
        for n in range(1, 101):
            tally.done = n
            if n in (50, 60):
                tally.done, tally.failed = n - 1, [*tally.failed, (f"toy [{n}]", "frame\nKeyError: 'x'")]
            show(tally)
        show(tally)
    said = sink.getvalue()
    assert said.count("recorded") < 5
    assert "toy [50] failed:\nframe\nKeyError: 'x'\n" in said
    assert "toy [60] failed in the same way: KeyError: 'x'\n" in said


def test_on_a_terminal_a_table_lists_running_tasks_with_their_times():
    tally = Tally(40, already_recorded=3, done=2, begun=time.monotonic() - 100)
    tally.running = {i: (f"toy [{i}]", time.monotonic() - 65) for i in range(25)}
    tally.failed = [("x", "why")]
    sink = SafeConsole(file=io.StringIO(), width=100)
    sink.print(progress.table(tally))
    said = sink.file.getvalue()
    for part in ("recorded", "5 of 40", "running", "25", "failed", "time left", "18 min 53 s", "1 min 05 s  toy [0]"):
        assert part in said
    assert "data not available" not in said
    assert "and 5 more" in said


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s"), (59.6, "1 min 00 s"), (3599, "59 min 59 s"), (7500, "2 h 05 min")]
)
def test_durations(seconds, said):
    assert progress.duration(seconds) == said


# ---- local processes ---------------------------------------------------------------------------------------


def test_the_default_is_one_job_on_a_cpu_and_zero_is_refused():
    assert default_jobs("cpu") == 1
    with pytest.raises(ValueError, match=r"jobs must be an integer in \[1, inf\) or None, got 0"):
        Local(CPU, 0)


def test_the_default_jobs_on_a_gpu_leave_one_core_and_fit_the_memory(monkeypatch):
    monkeypatch.setattr(local, "resolve_device", lambda name: local.torch.device("cuda"))
    monkeypatch.setattr(local, "cores", lambda: 16)
    monkeypatch.setattr(local, "free_memory", lambda: 1e6)
    for free, jobs in ((139 * 2**30, 15), (20 * 2**30, 5), (2**30, 1)):
        monkeypatch.setattr(local.torch.cuda, "mem_get_info", lambda device, free=free: (free, 2**40))
        assert default_jobs("cuda") == jobs


def test_environment_variables_are_restored(monkeypatch):
    monkeypatch.setenv("A_SETTING", "mine")
    monkeypatch.delenv("ANOTHER", raising=False)
    with local.environment({"A_SETTING": "1", "ANOTHER": "1"}):
        assert os.environ["A_SETTING"] == os.environ["ANOTHER"] == "1"
    assert os.environ["A_SETTING"] == "mine"
    assert "ANOTHER" not in os.environ


@pytest.mark.slow
def test_a_worker_that_dies_affects_only_its_own_task(log, tmp_path: Path, monkeypatch):
    """A worker may be killed once but not twice. A task that runs out of memory is repeated alone."""
    monkeypatch.setattr(processes, "cores", lambda: 6)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    acts = {1: "die once", 2: "die", 3: "raise", 4: "crowded once"}
    toys = [Toy(s, log, 0.1, acts.get(s, "")) for s in range(9)]
    run = Run("synthetic", OPTIONS, benchmark("synthetic").protocols[0], "erm-mlp", PLAIN, 0)
    store = ResultStore(tmp_path / "r")
    tally = run_all([*toys, run], store, Local(CPU, 2), quiet)

    assert sorted(label for label, _ in tally.failed) == ["toy 2", "toy 3"]
    assert dict(tally.failed)["toy 2"] == "its process was killed by SIGKILL, also at the second attempt"
    assert "KeyError" in dict(tally.failed)["toy 3"]
    assert (tally.done, tally.exit_code) == (8, 1)
    assert [store.find(t) is not None for t in [*toys, run]] == [s not in (2, 3) for s in range(10)]
    assert {r["seed"]: r["threads"]["OMP_NUM_THREADS"] for r in store if "threads" in r}[0] == "3"
    begun = Counter(line for line in notes(log) if line.startswith("begun"))
    assert begun == Counter({f"begun {s}": 2 if s in (1, 2, 4) else 1 for s in range(9)})
    assert store.find(toys[4])["metrics"]  # the second attempt's, made when all others had ended
    assert notes(log)[-2:] == ["begun 4", "ended 4"]


@pytest.mark.slow
def test_a_worker_that_cannot_start_is_an_error(log, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(local, "serve", toy_task.broken)
    with pytest.raises(OSError, match="a worker could not start: its process ended with status 7"):
        run_all([Toy(0, log)], ResultStore(tmp_path / "r"), Local(CPU, 1), quiet)


@contextmanager
def driver(root: Path, log: str, count: int, seconds: float, jobs: int = 1):
    command = [sys.executable, toy_task.__file__, str(root), log, str(count), str(seconds), str(jobs)]
    pipe, path = subprocess.PIPE, os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        command,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": path},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background ignores it
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(condition, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_run_continues_and_two_drivers_share_a_folder(log, tmp_path: Path):
    root = tmp_path / "r"
    with driver(root, log, 6, 4.0) as killed:
        until(lambda: contents(root) and len(notes(log)) % 2, killed)  # one is recorded, the next has begun
        workers = psutil.Process(killed.pid).children(recursive=True)
        killed.kill()
        killed.wait()
        assert psutil.wait_procs(workers, timeout=3)[1] == []  # no worker continues
    before = contents(root)
    assert len(before) == 1
    with driver(root, log, 6, 0.4) as one, driver(root, log, 6, 0.4) as other:
        said = [process.communicate(timeout=LONG) for process in (one, other)]
        assert [one.returncode, other.returncode] == [0, 0], said
    assert all("6 of 6 recorded" in out for out, _ in said)
    after = contents(root)
    assert after.items() >= before.items()  # neither bytes nor time of writing have changed
    store = ResultStore(root)
    assert sorted(r["seed"] for r in store) == list(range(6))
    assert store.rejected == {}
    assert not list(root.rglob(".*"))  # no half-written file is left


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_stopped_run_keeps_its_records_stops_its_workers_and_says_how_to_continue(log, tmp_path: Path, stop):
    root = tmp_path / "r"
    with driver(root, log, 50, 0.3) as stopped:
        until(lambda: list(root.rglob("*.json")), stopped)
        workers = psutil.Process(stopped.pid).children(recursive=True)
        if stop == signal.SIGINT:
            os.killpg(stopped.pid, stop)  # as a terminal does
        else:
            stopped.send_signal(stop)
        out, err = stopped.communicate(timeout=LONG)
    assert stopped.returncode == 130
    assert "the same command continues" in out
    assert "Traceback" not in err
    assert psutil.wait_procs(workers, timeout=20)[1] == []
    assert 1 <= len(ResultStore(root)) < 50
    assert ResultStore(root).rejected == {}


@pytest.mark.parametrize(("given", "threads"), [(None, 3), ("", 3), ("1", 1), ("8", 3), ("many", 3)])
def test_workers_share_the_cores_and_respect_the_users_number_of_threads(given, threads, monkeypatch):
    monkeypatch.setattr(processes, "cores", lambda: 6)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert processes.threads_per_worker(2) == threads
