"""Write the pages and figures in docs/ that are generated from the records in results/: `python -m paper`."""

from __future__ import annotations

from pathlib import Path

from paper import baselines, replication, results

DOCS, RESULTS = Path("docs"), Path("results")


def main() -> None:
    """Write docs/results.md with its figures, docs/replication.md and docs/baselines.md."""
    results.write(DOCS, RESULTS)
    (DOCS / "replication.md").write_text(replication.page(RESULTS), encoding="utf-8")
    (DOCS / "baselines.md").write_text(baselines.page(RESULTS), encoding="utf-8")


if __name__ == "__main__":
    main()
