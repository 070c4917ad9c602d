"""Render a `Comparison` as Markdown, LaTeX, CSV or a terminal table, and the statistics of its rows."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.table import Table
from rich.text import Text

from edgemask.errors import InputError
from edgemask.report.comparison import MAJORITY, PUBLISHED, Cell, Comparison
from edgemask.report.statistics import LEVEL, REFERENCE, Versus
from edgemask.runtime.safe_text import guarded, printable

NOTHING = "–"
EQUALS_MAJORITY = "="  # mark of a cell whose scores are those of the majority class
ROOM = 4  # most columns of a table that shows the paper's deviations; wider tables have no room for them
SIGNIFICANT = 0.05  # adjusted p-values below this are printed in bold
FIELDS = (
    *("row", "column", "mean", "std", "seeds", "paper mean", "paper std", "difference"),
    *("rules", "failed", "absent", "records"),
)
INTERVAL = f"{100 * LEVEL:g} %"
STATISTICS = ("", "against", "difference", f"{INTERVAL} interval", "p", "p, Holm", "pairs")
STATISTICS_FIELDS = (
    *("family", "row", "against", "difference", f"{INTERVAL} low", f"{INTERVAL} high"),
    *("p", "p Holm", "pairs", "smallest p"),
)


# ---- cells -------------------------------------------------------------------------------------------------


def number(value: float, decimals: int, sign: bool = False) -> str:
    """Return a rounded number with a typographic minus sign. Zero never has a minus sign.

    Args:
        value: The number.
        decimals: Digits after the point.
        sign: Write a plus sign too.

    >>> number(-3.96, 1), number(-0.04, 1), number(1.25, 2, sign=True)
    ('−4.0', '0.0', '+1.25')
    """
    return f"{round(value, decimals) + 0.0:{'+' if sign else ''}.{decimals}f}".replace("-", "−")


def spread(mean: float, std: float, decimals: int) -> str:
    """Return mean ± standard deviation, or only the mean if the deviation is NaN.

    Args:
        mean: The mean.
        std: The standard deviation, NaN if there is none.
        decimals: Digits after the point.

    >>> spread(77.21, 0.3, 1), spread(77.21, math.nan, 1)
    ('77.2 ± 0.3', '77.2')
    """
    return number(mean, decimals) + ("" if math.isnan(std) else f" ± {number(std, decimals)}")


def cell_text(cell: Cell, decimals: int) -> str:
    """Return the mean and deviation of our runs, or the reason why there are no values.

    A trailing `=` marks scores that are those of the majority class.
    """
    if cell.values:
        return spread(cell.mean, cell.std, decimals) + f" {EQUALS_MAJORITY}" * cell.equals_majority
    if cell.failed:
        return f"{cell.failed} failed"
    return cell.absent or ("not run" if cell.paper else NOTHING)


def paper_text(cell: Cell, decimals: int, deviation: bool = True) -> str:
    """Return the paper's figure, with its deviation if asked for; an empty string if there is none.

    Args:
        cell: The cell.
        decimals: Digits after the point.
        deviation: Add the paper's deviation.
    """
    std = cell.paper[1] if deviation and len(cell.paper) > 1 else math.nan
    return spread(cell.paper[0], std, decimals) if cell.paper else ""


def difference_text(cell: Cell, decimals: int) -> str:
    """Return our mean minus the paper's with its sign; an empty string if either is missing."""
    return number(cell.difference, decimals, sign=True) if cell.values and cell.paper else ""


def missing_runs(cell: Cell, decimals: int) -> list[str]:
    """Return notes on failed and missing runs that `cell_text` does not show."""
    notes = [f"{cell.failed} failed" if cell.failed else "", cell.absent]
    return [note for note in notes if note and note != cell_text(cell, decimals)]


def cell_note(cell: Cell, decimals: int, deviation: bool = True) -> str:
    """Return what follows the mean in brackets: the paper's figure, the difference, failed and missing runs.

    Args:
        cell: The cell.
        decimals: Digits after the point.
        deviation: Add the paper's deviation.

    >>> cell_note(Cell({("AC→D", 0): 77.2}, paper=(73.8, 1.4), failed=1), 1)
    '(73.8 ± 1.4, +3.4, 1 failed)'
    """
    notes = [paper_text(cell, decimals, deviation), difference_text(cell, decimals), *missing_runs(cell, decimals)]
    text = ", ".join(note for note in notes if note)
    return f"({text})" if text else ""


def row_rules(c: Comparison, row: str) -> str:
    """Return the selection rules of all runs of a row."""
    return ", ".join(dict.fromkeys(r for column in c.columns for r in c.cell(row, column).rules)) or NOTHING


def best_cells(c: Comparison) -> set[tuple[str, str]]:
    """Return the (row, column) of the best cells of each column, compared as printed.

    A column has none if neither end is better or if all its cells are equal.
    """
    cells = set()
    for column in c.columns if c.best in ("high", "low") else ():
        means = {row: round(cell.mean, c.decimals) for row in c.rows if (cell := c.cell(row, column)).values}
        if len(set(means.values())) > 1:
            best = (max if c.best == "high" else min)(means.values())
            cells |= {(row, column) for row, mean in means.items() if mean == best}
    return cells


def caption(c: Comparison) -> str:
    """Return a sentence that explains the numbers: seeds, brackets, bold type and marks."""
    cells = [c.cell(row, column) for row in c.rows if row != MAJORITY for column in c.columns]
    counts = sorted({len(cell.by_seed) for cell in cells if cell.values and c.over_seeds})
    parts = []
    if counts:
        several, deviations = counts[-1] > 1, any(not math.isnan(cell.std) for cell in cells)
        quantity = "mean ± standard deviation over " if deviations else "mean over " if several else ""
        parts.append(quantity + count_range(counts) + " seed" + "s" * several)
    quoted = [cell for cell in cells if cell.paper]
    if quoted and all(cell.absent == PUBLISHED for cell in quoted):
        parts.append("in brackets: published figures")
    elif quoted:
        parts.append("in brackets: the paper's figure" + (" and the difference (ours − paper)" if counts else ""))
    if best_cells(c):
        parts.append("in bold: the best of a column")
    if any(cell.equals_majority for cell in cells):
        parts.append(f"{EQUALS_MAJORITY} equals the majority class")
    text = "; ".join(parts)
    return text and f"{text[0].upper()}{text[1:]}."


def count_range(counts: Sequence[int]) -> str:
    """Return the smallest and the largest of sorted counts as `3–5`, or `5` if they are equal."""
    return "–".join(map(str, dict.fromkeys((counts[0], counts[-1]))))


# ---- formats -----------------------------------------------------------------------------------------------


def markdown(c: Comparison) -> str:
    """Return a Markdown section: title, description, table, caption and findings."""
    best, room = best_cells(c), len(c.columns) <= ROOM

    def shown(row: str, column: str) -> str:
        cell, mark = c.cell(row, column), "**" if (row, column) in best else ""
        text = mark + markdown_text(cell_text(cell, c.decimals)) + mark
        return f"{text} {markdown_text(cell_note(cell, c.decimals, deviation=room))}".rstrip()

    lines = [
        table_line(["", *map(markdown_text, c.columns), "selection"]),
        table_line(["---", *["---:"] * len(c.columns), "---"]),
    ]
    for row in c.rows:
        cells = [shown(row, column) for column in c.columns]
        lines.append(table_line([markdown_text(row), *cells, markdown_text(row_rules(c, row))]))
    findings = "\n".join(f"- {finding}" for finding in c.findings)
    parts = [f"### {c.title}", c.about, "\n".join(lines), caption(c), findings]
    return "\n\n".join(part for part in parts if part) + "\n"


def latex(c: Comparison) -> str:
    """Return a LaTeX `table` as wide as the text. It needs the packages booktabs and graphicx."""
    best = best_cells(c)

    def shown(row: str, column: str) -> str:
        cell = c.cell(row, column)
        text, note = latex_text(cell_text(cell, c.decimals)), latex_text(cell_note(cell, c.decimals))
        text = rf"\textbf{{\boldmath {text}}}" if (row, column) in best else text
        return rf"{text} {{\scriptsize {note}}}" if note else text

    about = " ".join(part for part in (c.title.rstrip(".") + ".", c.about, caption(c)) if part)
    head = ["", *map(latex_text, c.columns), "selection"]
    body = [[latex_text(r), *(shown(r, column) for column in c.columns), latex_text(row_rules(c, r))] for r in c.rows]
    label = rf"\label{{tab:{c.name.replace('_', '-')}}}"
    return latex_table([rf"\caption{{{latex_text(about)}}}", label], f"l{'r' * len(c.columns)}l", head, body)


def latex_table(above: Sequence[str], kinds: str, head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a LaTeX `table`.

    Args:
        above: Lines above the rows, such as the caption.
        kinds: Column specification of `tabular`.
        head: Cells of the head.
        body: Cells of each row.
    """
    first, *rows = (" & ".join(cells) + r" \\" for cells in (head, *body))
    lines = [
        r"\begin{table}[htbp]",
        r"\centering",
        *above,
        rf"\resizebox{{\textwidth}}{{!}}{{\begin{{tabular}}{{@{{}}{kinds}@{{}}}}",
        r"\toprule",
        first,
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def csv_text(c: Comparison) -> str:
    """Return CSV with one line per row and column. Numbers have ten digits; a missing number is an empty field.

    A table with a row of the majority class has a last field `equals majority`, which is 1 or 0.
    """
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow([*FIELDS, "equals majority"] if c.has_majority else FIELDS)
    for row in c.rows:
        for column in c.columns:
            cell = c.cell(row, column)
            paper = (*cell.paper, math.nan, math.nan)[:2]
            numbers = [cell.mean, cell.std, len(cell.by_seed), *paper, cell.difference]
            fields = list(map(csv_field, numbers))
            absent = cell.absent or ("" if cell.values or cell.failed else cell_text(cell, c.decimals))
            marks = [int(cell.equals_majority)] if c.has_majority else []
            name, title, rules, why = map(csv_cell, (row, column, "; ".join(cell.rules), absent))
            writer.writerow([name, title, *fields, rules, cell.failed, why, len(cell.keys), *marks])
    return sink.getvalue()


def csv_field(value: float) -> str:
    """Return a number as a CSV field: ten digits, or empty for NaN."""
    return "" if math.isnan(value) else f"{value:.10g}"


def csv_cell(text: str) -> str:
    """Return a text as a CSV field that no spreadsheet runs, without control characters."""
    return str(guarded(printable(text)))


def rich_table(c: Comparison) -> Table:
    """Return a table for a terminal."""
    best, room = best_cells(c), len(c.columns) <= ROOM
    out = Table(title=Text(plain_text(c.title), "bold"), caption=Text(caption(c)))
    out.title_justify = out.caption_justify = "left"
    out.add_column("", overflow="fold")  # fold instead of cutting: two names may differ only at the end
    for column in c.columns:
        out.add_column(Text(plain_text(column)), justify="right", overflow="fold")
    out.add_column("selection", overflow="fold")
    for row in c.rows:
        texts = []
        for column in c.columns:
            cell = c.cell(row, column)
            text = Text.assemble((cell_text(cell, c.decimals), "bold" if (row, column) in best else ""))
            texts.append(text.append(f" {cell_note(cell, c.decimals, deviation=room)}".rstrip(), "dim"))
        out.add_row(Text(plain_text(row)), *texts, Text(row_rules(c, row)))
    return out


def statistics_markdown(compared: Sequence[Versus], decimals: int = 2) -> str:
    """Return the comparisons of `statistics.compare` as one Markdown table per family.

    Adjusted p-values below 0.05 are bold.

    Args:
        compared: The comparisons.
        decimals: Decimals of differences and intervals.
    """
    parts = []
    for against, members, note in _families(compared, markdown_text):
        parts.append(f"{against}:")
        lines = [table_line(STATISTICS), table_line(["---", "---", *["---:"] * 5])]
        for v in members:
            *texts, adjusted, pairs = statistics_texts(v, decimals)
            mark = "**" if v.adjusted < SIGNIFICANT else ""
            names = map(markdown_text, (v.row, v.other))
            lines.append(table_line([*names, *texts, f"{mark}{adjusted}{mark}", pairs]))
        parts += ["\n".join(lines)] if members else []
        parts.append(note)
    return "\n\n".join(parts) + "\n" if parts else ""


def statistics_latex(compared: Sequence[Versus], decimals: int = 2) -> str:
    """Return the comparisons as one LaTeX `table` per family, or as a sentence for a family without pairs.

    The tables need the same packages as `latex`.

    Args:
        compared: The comparisons.
        decimals: Decimals of differences and intervals.
    """
    parts = []
    for against, members, note in _families(compared, latex_text):
        body = []
        for v in members:
            *texts, adjusted, pairs = map(latex_text, (v.row, v.other, *statistics_texts(v, decimals)))
            bold = rf"\textbf{{\boldmath {adjusted}}}" if v.adjusted < SIGNIFICANT else adjusted
            body.append([*texts, bold, pairs])
        about, head = f"{against}. {note}", list(map(latex_text, STATISTICS))
        parts.append(latex_table([rf"\caption{{{about}}}"], "llrrrrr", head, body) if body else f"{about}\n")
    return "\n".join(parts)


def statistics_csv(compared: Sequence[Versus]) -> str:
    """Return CSV with one line per comparison. Numbers have ten digits; a missing number is an empty field."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(STATISTICS_FIELDS)
    for v in compared:
        numbers = (v.difference, v.low, v.high, v.p, v.adjusted, v.pairs, v.smallest_p)
        writer.writerow([*map(csv_cell, (v.family, v.row, v.other)), *map(csv_field, numbers)])
    return sink.getvalue()


def _families(compared: Sequence[Versus], escaped: Callable[[str], str]) -> Iterator[tuple[str, list[Versus], str]]:
    """Yield the heading of each family, its comparisons that have pairs, and a note on the numbers of pairs."""
    for family in dict.fromkeys(v.family for v in compared):
        members = [v for v in compared if v.family == family]
        against = f"Against {escaped(members[0].other) if family == REFERENCE else 'the best other row'}"
        least = {v.pairs: v.smallest_p for v in sorted(members, key=lambda v: v.pairs) if v.pairs}
        notes = [f"with {n} pair{'s' * (n > 1)} p is at least {p:.3g}" for n, p in least.items()]
        if unpaired := [escaped(v.row) for v in members if not v.pairs]:
            notes.append(f"not compared, because no runs are shared: {', '.join(unpaired)}")
        text = "; ".join(notes)
        yield against, [v for v in members if v.pairs], f"{text[0].upper()}{text[1:]}."


def statistics_texts(v: Versus, decimals: int) -> list[str]:
    """Return difference, interval, p, adjusted p and number of pairs as text."""
    span = NOTHING if math.isnan(v.low) else f"{number(v.low, decimals)} to {number(v.high, decimals)}"
    return [number(v.difference, decimals, sign=True), span, p_text(v.p), p_text(v.adjusted), str(v.pairs)]


def p_text(p: float) -> str:
    """Return a p-value with four decimals. Smaller ones are `< 0.0001`."""
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def table_line(cells: Sequence[str]) -> str:
    """Return one line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def markdown_table(head: Sequence[str], lines: Iterable[str]) -> str:
    """Return a Markdown table.

    Args:
        head: The column titles.
        lines: The rows as Markdown lines, as `table_line` makes them.

    >>> print(markdown_table(["method", "score"], [table_line(["erm", "71.3"])]))
    | method | score |
    | --- | --- |
    | erm | 71.3 |
    """
    return "\n".join([table_line(head), table_line(["---"] * len(head)), *lines])


# ---- text: backticks mark code -------------------------------------------------------------------------------

GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu"),
    *("xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"),
    *("Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega"),
)
COMMANDS = (
    dict(zip("αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ", GREEK, strict=True))
    | {"→": "rightarrow", "←": "leftarrow", "↑": "uparrow", "↓": "downarrow", "±": "pm", "×": "times", "·": "cdot"}
    | {"≤": "le", "≥": "ge", "≈": "approx", "≠": "ne", "∞": "infty", "∪": "cup", "∈": "in", "∂": "partial"}
)
LATEX = (
    {c: rf"\{c}" for c in "&%$#_{}"}
    | {c: rf"$\{command}$" for c, command in COMMANDS.items()}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "*": "$^*$", "−": "$-$"}
    | {"[": "{[}", "]": "{]}"}  # after a line break, LaTeX would read a bracket as its argument
    | {"<": "$<$", ">": "$>$", "|": "$|$", "–": "--", "—": "---", "…": r"\dots{}", '"': "''", "“": "``", "”": "''"}
    | {"‘": "`", "’": "'", "⁰": "$^0$", "²": "$^2$", "³": "$^3$", "ᵀ": r"$^\top$", "½": "$1/2$", "°": r"$^\circ$"}
)


def around_code(text: str, prose: Callable[[str], str], code: Callable[[str], str]) -> str:
    """Return `text` with the parts in backticks rewritten by `code` and the other parts by `prose`.

    Args:
        text: The text.
        prose: Rewrites the parts outside of backticks.
        code: Rewrites the parts inside, which are given without their backticks.
    """
    parts = re.split(r"`([^`]*)`", text)
    return "".join(code(part) if i % 2 else prose(part) for i, part in enumerate(parts))


def plain_text(text: str) -> str:
    """Return text without its backticks."""
    return around_code(text, str, str)


def markdown_text(text: str) -> str:
    """Return text escaped for a cell of a Markdown table. Only backticks keep their meaning."""
    return around_code(
        text, lambda t: re.sub(r"([\\*_|<>\[\]#~`])", r"\\\1", t), lambda t: "`" + t.replace("|", r"\|") + "`"
    )


def latex_text(text: str) -> str:
    """Return text escaped for LaTeX, with code in `\\texttt`.

    Raises:
        InputError: `LATEX` has no command for a symbol.
    """

    def escaped(part: str) -> str:
        for c in part:
            if c not in LATEX and not c.isascii() and not (c.isalpha() and c < "ɐ"):  # accented Latin letters are legal
                raise InputError(
                    f"no LaTeX command is known for {c!r} in {text!r}: add it to edgemask.report.render.LATEX"
                )
        return "".join(LATEX.get(c, c) for c in part)

    return around_code(text, escaped, lambda t: rf"\texttt{{{escaped(t)}}}")
