"""The faults of the system that are staged, each with what every command must do about it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from attacks.torture.children import Action, Child, command, open_streams, succeed
from attacks.torture.content import content
from attacks.torture.jobs import (
    BENCH,
    COMPARE,
    FIT,
    GAME,
    NODES,
    ONE,
    OWN,
    RACE,
    SMALL,
    STORED,
    TUNE,
    graphs,
    reproduce,
    settings,
)
from attacks.torture.stage import (
    ROOT,
    SUCCESS,
    Expected,
    Fault,
    Stage,
    become,
    fill,
    in_small_disk,
    memory_left,
    obey_permissions,
)
from edgemask import EdgeMaskClassifier
from edgemask.data.synthetic import demo_family

MODEL = "model.safetensors"
LONG = ("epochs=1000000", "hidden=8")
REPOSITORY = Path(__file__).resolve().parents[2]
HOME = {  # commands that store files at home
    *("fit", "fit auto", "bench", "compare", "tune", "demo", "reproduce", "data list", "data info", "data verify")
}
FEW = ("--method", "erm-mlp", "--no-references", "--seeds", "1")
STOPPING = 20.0  # seconds in which a command that is stopped must end, on a busy machine too
FULL = "(No space left on device|File too large)"


def prepare() -> None:
    """Write the files with which the commands work."""
    graphs()
    succeed(*FIT, "--method", "robust", *settings(*GAME))
    succeed(*STORED)


def demo() -> object:
    """Run the demo on tiny graphs with few epochs."""
    module: Any = import_module("edgemask.cli.demo")
    small = {"epochs": 3, "hidden": 8, "k": 3, "clusters": 5, "mask_projection": 8, "mask_hidden": 8}
    module.run_demo = partial(module.run_demo, nodes=NODES, **small)
    return command("demo", "--picture", "out/demo.png")()


SHORT = (*FIT, "--method", "erm-mlp", *settings("epochs=5", "hidden=8"))
READ = (MODEL, "gamma.npz")
WRITING: dict[str, tuple[Action, str]] = {  # commands that write files: what they do, and one of the files
    "fit": (command(*SHORT), MODEL),
    "fit with a checkpoint": (command(*ONE), "fit.ckpt"),
    "fit auto": (command(*RACE), MODEL),
    "fit auto with a checkpoint": (command(*RACE, "--checkpoint", "race"), "race"),
    "predict": (command("predict", *READ, "-o", "p.csv"), "p.csv"),
    "predict npz": (command("predict", *READ, "-o", "p.npz"), "p.npz"),
    "predict parquet": (command("predict", *READ, "-o", "p.parquet"), "p.parquet"),
    "explain": (command("explain", *READ, "-o", "edges.csv"), "edges.csv"),
    "bench": (command(*BENCH, "--seeds", "4"), "store"),
    "compare": (command(*COMPARE[:-2]), "store"),
    "compare with a report": (command(*COMPARE), "store"),
    "tune": (command(*TUNE), "tuned"),
    "results pack": (command("results", "pack", "store"), "store"),
    "reproduce": (reproduce("reproduce", "tiny", "--results", "store", "-o", "out", "--device", "cpu"), "store|out"),
    "slurm": (reproduce("slurm", "tiny", "-o", "job", "--minutes", "1", "--memory-mib", "100"), "job"),
    "report": (command("report", "--results", "store", "-o", "page.html"), "page.html"),
    "demo": (demo, "out/demo.png"),
}
PRINTING: dict[str, Action] = {  # every command, as it prints
    **{name: action for name, (action, _) in WRITING.items() if " " not in name or name == "fit auto"},
    "predict": command("predict", *READ),
    "evaluate": command("evaluate", *READ),
    "explain": command("explain", *READ, "--node", "1"),
    "theory": command("theory", *READ),
    "plan": command("plan", "alpha.npz", "--method", "erm-mlp", *settings(*SMALL), "--device", "cpu"),
    "methods": command("methods"),
    "methods irm": command("methods", "irm"),
    "data list": command("data", "list"),
    "data info": command("data", "info", "citation"),
    "data verify": command("data", "verify", "cora"),
    "results check": command("results", "check", "store"),
    "reproduce": reproduce("reproduce", "tiny", "--only-show", "--results", "store", "-o", "out"),
    "reproduce list": reproduce("reproduce"),
    "version": command("version"),
    "help": command("--help"),
    "predict --json": command("predict", *READ, "--json"),
    "methods --json": command("methods", "--json"),
}


# ---- files -------------------------------------------------------------------------------------------------


def full_disk(stage: Stage) -> None:
    """A command that cannot write says which file, and leaves the files that were there."""
    limited = in_small_disk(stage.place.work, 64)
    for name, (action, file) in WRITING.items():
        for spare in (0, 6000):
            if spare and file == "job":
                continue  # the file is smaller
            stage.renew()
            before = content([stage.place.work], stage.place.root)
            fill(stage.place.work, spare)
            error = rf"^error: .*({file}).* cannot be written: {FULL}$"
            stage.run(f"{name} with {spare} bytes left", action, Expected(2, error), limited)
            (stage.place.work / "ballast").unlink()
            stage.lost(name, before)


def full_temporary_folder(stage: Stage) -> None:
    """A race that cannot write its state says which file, and leaves nothing."""
    limited = in_small_disk(stage.place.root / "tmp", 8)
    fill(stage.place.root / "tmp", 6000)  # otherwise Python chooses another folder
    error = rf"^error: .*/tmp/.*edgemask-race.* cannot be written: {FULL}"
    stage.run("fit auto", command(*RACE), Expected(2, error), limited)
    stage.files("fit auto")


def full_cache(stage: Stage) -> None:
    """A fit that cannot cache its neighbours warns and goes on."""
    limited = in_small_disk(stage.place.root / "cache", 8)
    fill(stage.place.root / "cache", 0)
    expected = Expected(warning=rf"(?m)^warning: .*/cache.*{FULL}")
    stage.run("fit", command(*FIT, "--method", "robust", *settings(*GAME)), expected, limited)
    (stage.place.root / "cache" / "ballast").unlink()
    stage.files("fit")


def unwritable_cache(stage: Stage) -> None:
    """A fit that cannot cache its neighbours warns and goes on."""
    (stage.place.root / "cache").chmod(0o555)
    expected = Expected(warning=r"(?m)^warning: .*/cache.*Permission denied")
    stage.run("fit", command(*FIT, "--method", "robust", *settings(*GAME)), expected, obey_permissions)


def unwritable_output(stage: Stage) -> None:
    """A file that cannot be written is found before the work. The inputs are damaged, which is not noticed any more."""
    for path in [p for p in stage.place.work.iterdir() if p.is_file()]:
        path.write_bytes(b"damaged")
    for path in (stage.place.work, *stage.place.work.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)
    for name, (action, file) in WRITING.items():
        expected = Expected(2, rf"^error: .*({file}|{MODEL}).*: Permission denied$")
        stage.run(name, action, expected, obey_permissions)


def unusual_paths(stage: Stage) -> None:
    """Files and folders may have any name."""
    for name in ("two words", "new\nline", "[bold]x[/bold]", "[/]", "ä 日本 '\"$(ls)", "-m", "a;b", "x" * 200):
        stage.renew()
        folder = stage.place.work / name
        folder.mkdir(parents=True)
        for file in ("gamma.npz", MODEL):
            (stage.place.work / file).rename(folder / file)
        model, graph = f"./{name}/{MODEL}", f"./{name}/gamma.npz"
        shown = "".join(re.escape(c) if c != "\n" else r"(\\n|\s)" for c in name)
        for what, arguments, expected in (
            ("fit", (*SHORT, "--model", model, "--checkpoint", f"./{name}/c"), Expected(output=shown)),
            ("predict", ("predict", model, graph, "-o", f"./{name}/p.csv"), SUCCESS),
            ("evaluate", ("evaluate", model, graph), SUCCESS),
            ("compare", ("compare", graph, *OWN, *FEW, "--results", f"./{name}/s"), Expected(output=shown)),
            ("report", ("report", "--results", f"./{name}/s", "-o", f"./{name}/p.html"), Expected(output=shown)),
            ("a missing file", ("predict", model, f"./{name}/none.npz"), Expected(2, rf"^error: .*{shown}.*none.npz")),
            ("a damaged file", ("predict", graph, graph), Expected(2, rf"^error: .*{shown}")),
        ):
            stage.run(f"{what} in {name!r}", command(*arguments), expected)


def lost_folder(stage: Stage) -> None:
    """A working directory that was removed is an error or does no harm."""
    for name, action in PRINTING.items():
        stage.renew()
        (stage.place.root / "gone").mkdir()

        def go() -> None:
            os.chdir(stage.place.root / "gone")
            Path.cwd().rmdir()

        status = 0 if name.startswith(("methods", "version", "help", "reproduce list", "data")) else 2
        stage.run(name, action, Expected(status, "^error: " if status else ""), go)


# ---- accounts ----------------------------------------------------------------------------------------------


def no_home(stage: Stage) -> None:
    """A user without a home and without a name is told what to set, and can then do everything."""

    def homeless(*kept: str) -> None:
        for name in {"HOME", "EDGEMASK_CACHE", "EDGEMASK_DATA", "USER", "LOGNAME", "XDG_CACHE_HOME"} - {*kept}:
            os.environ.pop(name, None)
        if ROOT:
            become(54321)
        else:
            Path.home = _no_home  # type: ignore[method-assign]

    lost = r"^error: this user has no home directory: set the environment variable EDGEMASK_(CACHE|DATA) to a folder"
    for name, action in PRINTING.items():
        for kept in ((), ("EDGEMASK_CACHE", "EDGEMASK_DATA")):
            stage.renew()
            expected = SUCCESS if kept or name not in HOME else Expected(2, lost)
            stage.run(f"{name} with {kept}", action, expected, partial(homeless, *kept))


def _no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def read_only_install(stage: Stage) -> None:
    """Neither the package nor the home can be written, as in a container: everything works, only more slowly."""
    package = stage.place.root / "install"
    shutil.copytree(REPOSITORY / "edgemask", package / "edgemask", ignore=shutil.ignore_patterns("__pycache__"))
    stage.open_all()
    for path in (package, stage.place.root / "home", *package.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)
    (stage.place.root / "home").chmod(0)
    more = {"PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    for name, arguments in (("predict", ("predict", *READ)), ("fit", SHORT)):
        stage.run(name, real(*arguments), prepare=obey_permissions, more=more)


def real(*arguments: str) -> Action:
    """Return an action that replaces its process by a new one, which runs a command of edgemask."""

    def run() -> object:
        for name in ("NUMBA_CACHE_DIR", "EDGEMASK_CACHE"):
            os.environ.pop(name, None)
        os.execv(sys.executable, [sys.executable, "-P", "-m", "edgemask", *arguments])

    return run


# ---- streams -----------------------------------------------------------------------------------------------


def ascii_output(stage: Stage) -> None:
    """Characters that the output cannot show are replaced."""

    for name, action in PRINTING.items():
        stage.renew()
        stage.run(name, action, prepare=partial(open_streams, "ascii"))


def c_locale(stage: Stage) -> None:
    """A process in the locale C without Python's help."""
    more = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONPATH": str(REPOSITORY)}
    for name, arguments in (("evaluate", ("evaluate", *READ)), ("data info", ("data", "info", "citation"))):
        stage.run(name, real(*arguments), more=more | {"OMP_NUM_THREADS": "1"})


def closed_pipe(stage: Stage) -> None:
    """A reader that ends early, such as `head`, ends a command silently with status 141."""

    def broken() -> None:
        ours, theirs = os.pipe()
        os.dup2(theirs, 1)
        os.close(ours)
        os.close(theirs)
        open_streams()

    for name, action in PRINTING.items():
        stage.renew()
        child = stage.run(name, action, Expected(141), broken)
        stage.note(name, [f"it prints {text!r}" for text in [child.text()] if "rror" in text])


def full_output(stage: Stage) -> None:
    """Standard output that cannot be written is named."""

    def full() -> None:
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        open_streams()

    for name, action in PRINTING.items():
        stage.renew()
        where = "" if name == "help" else "standard output cannot be written: "  # typer prints the help
        stage.run(name, action, Expected(2, f"^error: {where}No space left on device$"), full)


def closed_streams(stage: Stage) -> None:
    """Commands need neither standard input nor standard output nor standard error."""

    def closed(*numbers: int) -> None:
        for number in numbers:
            os.close(number)
            setattr(sys, ("stdin", "stdout", "stderr")[number], None)

    for name, action in PRINTING.items():
        stage.renew()
        for numbers in ((0,), (0, 1, 2)):
            stage.renew()
            stage.run(f"{name} without the streams {numbers}", action, prepare=partial(closed, *numbers))


# ---- signals -----------------------------------------------------------------------------------------------


def stopped(stage: Stage) -> None:
    """A command that is stopped says how to continue, and leaves no process and no temporary file."""
    fit = (*FIT, *settings(*LONG))
    resumed = r"^interrupted: the same command with --checkpoint {} continues"
    cases: dict[str, tuple[Action, str, str]] = {  # action, file that shows that the work has begun, last line
        "fit": (command(*fit, "--method", "erm-mlp"), "", "^interrupted: nothing was saved; with --checkpoint PATH"),
        "fit with a checkpoint": (
            command(*fit, "--method", "erm-mlp", "--checkpoint", "c"), "c", resumed.format("c")
        ),
        "fit auto": (command(*fit, "--candidates", "erm-mlp"), "", "^interrupted: nothing was saved;"),
        "fit auto in processes": (
            command(*fit, "--candidates", "erm-mlp,erm-gcn", "--jobs", "2", "--checkpoint", "race"), "",
            resumed.format("race"),
        ),
        "bench": (command(*BENCH, *settings(*LONG), "--jobs", "2"), "", "^stopped: the records stay"),
        "compare": (command(*COMPARE, *settings(*LONG)), "", "^stopped: the records stay"),
        "tune": (command(*TUNE[:-2], *settings("eval_every=1000000", *LONG)), "", "^interrupted: the trials stay"),
        "plan": (command("plan", "alpha.npz", *settings(*LONG)), "", "^interrupted"),
    }  # fmt: skip
    for name, (action, begun, error) in cases.items():
        for number in (signal.SIGINT, signal.SIGTERM):
            stage.renew()
            during = partial(_stop, number=number, begun=begun and stage.place.work / begun)
            stage.run(f"{name}, {number.name}", action, Expected(130, error), during=during)
            stage.files(name)


def _stop(child: Child, number: signal.Signals, begun: Path | str) -> list[str]:
    """Send a signal to a command once it works: Ctrl-C to all processes, another signal to the first one."""
    end = time.monotonic() + 60
    while begun and not Path(begun).exists() and time.monotonic() < end:
        time.sleep(0.02)
    child.wait(1.5)
    child.kill(number, alone=number != signal.SIGINT)
    return [] if child.wait(STOPPING) else [f"it does not end within {STOPPING:g} s"]


# ---- memory, time, processes ---------------------------------------------------------------------------------


def low_memory(stage: Stage) -> None:
    """Too little memory is one line that says what to do."""
    error = "^error: not enough memory: .*edgemask plan.*inference-batch|^error: .*: not enough memory; .* batch_size"
    wide = settings("epochs=1", "hidden=100000")
    stage.run("fit", command(*FIT[:3], "--model", "wide", "--method", "erm-mlp", *wide))
    for name, arguments, mib in (
        ("fit", (*FIT, "--method", "erm-mlp", *settings("hidden=200000", "epochs=2")), 200),
        ("fit auto", (*FIT, "--candidates", "erm-mlp", *settings("hidden=200000", "epochs=2")), 200),
        ("predict", ("predict", "wide", "gamma.npz"), 60),
        ("evaluate", ("evaluate", "wide", "gamma.npz"), 60),
    ):
        stage.run(name, command(*arguments), Expected(2, error), partial(memory_left, mib))


def clock_jumps(stage: Stage) -> None:
    """The time of day may jump while a race with a budget runs. It does not change the result."""
    stage.run("fit auto", command(*RACE, "--budget", "10m"))
    before = content([stage.place.work], stage.place.root)
    for years in (-30, 30):

        def jump(years: int = years) -> None:
            usual, jumps = time.time, iter(range(10**9))
            time.time = lambda: usual() + years * 3.2e7 * (next(jumps) % 2)

        stage.run(f"fit auto, {years} years", command(*RACE, "--budget", "10m"), prepare=jump)
        stage.lost("fit auto", before)


def forked_child(stage: Stage) -> None:
    """A process that is forked after a fit predicts what its parent predicts."""

    def run() -> object:
        family = demo_family(300)
        for method in ("robust", "erm-gcn"):
            model = EdgeMaskClassifier(method, epochs=3, hidden=8, device="cpu").fit([family["alpha"], family["beta"]])
            here = model.predict_proba(family["gamma"])
            if not (pid := os.fork()):
                os._exit(not np.array_equal(model.predict_proba(family["gamma"]), here))
            if status := os.waitpid(pid, 0)[1]:
                raise RuntimeError(f"{method}: the forked child ended with {os.waitstatus_to_exitcode(status)}")
        return 0

    stage.run("predict", run)


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("full disk", full_disk),
        Fault("full temporary folder", full_temporary_folder, quick=True, needs_disk=True),
        Fault("full cache", full_cache, quick=True, needs_disk=True),
        Fault("unwritable cache", unwritable_cache, quick=True),
        Fault("unwritable output", unwritable_output, quick=True),
        Fault("unusual paths", unusual_paths),
        Fault("lost folder", lost_folder, quick=True),
        Fault("no home", no_home),
        Fault("read-only install", read_only_install),
        Fault("ascii output", ascii_output, quick=True),
        Fault("locale C", c_locale),
        Fault("closed pipe", closed_pipe),
        Fault("full output", full_output),
        Fault("closed streams", closed_streams),
        Fault("stopped", stopped),
        Fault("low memory", low_memory, quick=True),
        Fault("clock jumps", clock_jumps, quick=True),
        Fault("forked child", forked_child),
    )
}
