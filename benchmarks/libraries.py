"""Our own code compared with well-maintained libraries that do the same: the measurements behind docs/dependencies.md.

`python -m benchmarks.libraries` runs every comparison in fresh processes, prints the figures and writes them to
results/libraries.json. It needs pynndescent and pooch, which edgemask itself does not use.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

Figures = dict[str, Any]
TARGET = Path("results/libraries.json")
NEIGHBOURS = 10


# ---- approximate nearest neighbours ----------------------------------------------------------------------------


def features(kind: str) -> Any:
    """Return clustered rows: 100,000 × 128 dense, or 50,000 × 5,000 sparse word counts."""
    import numpy as np
    import scipy.sparse as sp

    stream = np.random.default_rng(0)
    if kind == "dense":
        centres = stream.normal(size=(500, 128))
        return (centres[stream.integers(500, size=100_000)] + stream.normal(size=(100_000, 128))).astype(np.float32)
    topics = stream.dirichlet(np.full(5_000, 0.02), size=100)
    rows = [np.bincount(stream.choice(5_000, 40, p=topics[stream.integers(100)]), minlength=5_000) for _ in range(500)]
    base, picks = sp.csr_array(np.array(rows, dtype=np.float32)), stream.integers(500, size=50_000)
    noise = sp.random_array((50_000, 5_000), density=0.002, rng=stream, dtype=np.float32, format="csr")
    return sp.csr_array(base[picks] + noise)


def neighbours(library: str, kind: str) -> Figures:
    """Return the time, recall and peak memory of one index."""
    import numpy as np

    from edgemask.enrich.index import approximate_knn, recall
    from edgemask.runtime.device import peak_rss

    x = features(kind)
    before = peak_rss()

    def ours(part: Any) -> Any:
        return approximate_knn(part, NEIGHBOURS, seed=0)

    def pynndescent(part: Any) -> Any:
        from pynndescent import NNDescent

        index = NNDescent(part, metric="cosine", n_neighbors=2 * NEIGHBOURS, random_state=0, n_jobs=2)
        lists = index.neighbor_graph[0]
        own = np.arange(len(lists))[:, None]
        return np.array([row[row != i][:NEIGHBOURS] for row, i in zip(lists, own, strict=True)])

    search: Callable[[Any], Any] = {"edgemask": ours, "pynndescent": pynndescent}[library]
    search(x[:2_000])  # compile
    start = time.perf_counter()
    lists = search(x)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak_mib": peak_rss() - before, "recall": recall(x, lists, seed=1)}


# ---- Adam ------------------------------------------------------------------------------------------------------


def adam(library: str) -> Figures:
    """Time the first and later steps on the parameters of a GCN, and measure the memory that the first step loads."""
    import torch

    from edgemask.nn.adam import Adam
    from edgemask.runtime.device import peak_rss

    torch.set_num_threads(1)
    weights = [torch.randn(shape, requires_grad=True) for shape in ((6775, 64), (64,), (64, 5), (5,))]
    before, start = peak_rss(), time.perf_counter()
    optimiser = {"edgemask": Adam, "torch": torch.optim.Adam}[library](weights, 1e-3, weight_decay=5e-4)

    def step() -> None:
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        optimiser.step()

    step()
    first, loaded = time.perf_counter() - start, peak_rss() - before
    rounds = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(30):
            step()
        rounds.append((time.perf_counter() - start) / 30 * 1e3)
    return {"first_seconds": first, "loaded_mib": loaded, "step_ms": min(rounds)}  # the least disturbed round


# ---- downloads -------------------------------------------------------------------------------------------------

BODY = os.urandom(1 << 20) * 64
SHA256 = hashlib.sha256(BODY).hexdigest()
GIT = hashlib.sha1(b"blob %d\0" % len(BODY) + BODY).hexdigest()
LIMIT = 8.0  # seconds after which a download counts as endless


class Server(BaseHTTPRequestHandler):
    """A server that sends the same file completely, truncated or endlessly, depending on the path."""

    def do_GET(self) -> None:
        self.send_response(200)
        if self.path != "/endless":
            self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        try:
            if self.path == "/truncated":
                self.wfile.write(BODY[: 1 << 20])
            elif self.path == "/endless":
                while True:
                    self.wfile.write(BODY)
            else:
                self.wfile.write(BODY)
        except OSError:
            pass  # the client has closed the connection

    def log_message(self, *_: object) -> None:
        pass


def downloads(library: str) -> Figures:
    """Time a valid download, and report how invalid downloads end."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"

    def ours(path: str, checksum: str, folder: Path) -> Path:
        from edgemask.data.store import File, Store

        return Store(folder, offline=False).fetch(File("file", f"{address}/{path}", checksum, size=len(BODY)))

    def pooch(path: str, checksum: str, folder: Path) -> Path:
        import pooch

        downloader = pooch.HTTPDownloader(timeout=30)
        return Path(pooch.retrieve(f"{address}/{path}", checksum, fname="file", path=folder, downloader=downloader))

    fetch: Callable[[str, str, Path], Path] = {"edgemask": ours, "pooch": pooch}[library]
    figures: Figures = {}
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        fetch("good", f"sha256:{SHA256}", Path(folder) / "good")
        figures["seconds"] = time.perf_counter() - start
        cases = {"truncated": ("truncated", f"sha256:{SHA256}"), "endless": ("endless", f"sha256:{SHA256}")}
        for name, (path, checksum) in (cases | {"git checksum": ("good", f"git:{GIT}")}).items():
            outcome: list[str] = []

            def attempt(
                name: str = name, path: str = path, checksum: str = checksum, outcome: list[str] = outcome
            ) -> None:
                try:
                    fetch(path, checksum, Path(folder) / name)
                    outcome.append("accepted")
                except Exception as error:
                    outcome.append(f"refused: {type(error).__name__}")

            thread = threading.Thread(target=attempt, daemon=True)
            thread.start()
            thread.join(LIMIT)
            figures[name] = outcome[0] if outcome else f"still running after {LIMIT:g} s"
    return figures


# ---- all comparisons -------------------------------------------------------------------------------------------

JOBS: dict[str, tuple[Callable[..., Figures], list[tuple[str, ...]]]] = {
    "neighbours": (neighbours, [(lib, kind) for kind in ("dense", "sparse") for lib in ("edgemask", "pynndescent")]),
    "adam": (adam, [("edgemask",), ("torch",)]),
    "downloads": (downloads, [("edgemask",), ("pooch",)]),
}


def main() -> None:
    """Run one job (in a child process) or all of them."""
    if len(sys.argv) > 1:
        name, *arguments = sys.argv[1:]
        print(json.dumps(JOBS[name][0](*arguments)), flush=True)
        os._exit(0)  # an endless download may still run
    figures: Figures = {}
    for name, (_, cases) in JOBS.items():
        for case in cases:
            done = subprocess.run([sys.executable, "-m", __spec__.name, name, *case], capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(done.stderr)
            figures[f"{name}, {', '.join(case)}"] = json.loads(done.stdout.splitlines()[-1])
            print(name, *case, figures[f"{name}, {', '.join(case)}"], flush=True)
    packages = ("torch", "numpy", "faiss-cpu", "pynndescent", "pooch")
    versions = {"python": platform.python_version()} | {package: version(package) for package in packages}
    record = {"machine": f"{os.cpu_count()} cores", "versions": versions, "figures": figures}
    TARGET.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
