"""A comparison as Markdown, LaTeX, CSV or a terminal's table: ours, the paper's, the difference, the selection rule."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Sequence

from rich.table import Table
from rich.text import Text

from edgemask.errors import InputError
from edgemask.report.comparison import Cell, Comparison
from edgemask.report.statistics import LEVEL, REFERENCE, Versus

NOTHING = "–"
ROOM = 4  # columns that leave room for the paper's deviations on a page or a screen
SIGNIFICANT = 0.05
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


# ---- what stands in a cell ---------------------------------------------------------------------------------


def number(value: float, decimals: int, sign: bool = False) -> str:
    """Rounded, with a true minus; what rounds to 0 has none."""
    return f"{round(value, decimals) + 0.0:{'+' if sign else ''}.{decimals}f}".replace("-", "−")


def spread(mean: float, std: float, decimals: int) -> str:
    """`77.2 ± 0.3`, or `77.2` without a deviation."""
    return number(mean, decimals) + ("" if math.isnan(std) else f" ± {number(std, decimals)}")


def ours(cell: Cell, decimals: int) -> str:
    """Mean and deviation; of a cell without values why it has none."""
    if cell.values:
        return spread(cell.mean, cell.std, decimals)
    if cell.failed:
        return f"{cell.failed} failed"
    return cell.absent or ("not run" if cell.paper else NOTHING)


def beside(cell: Cell, decimals: int, deviation: bool = True) -> str:
    """`(73.8 ± 1.4, +3.4, 1 failed)`: the paper's figure, ours less the paper's, runs that ours is without."""
    notes = []
    if cell.paper:
        std = cell.paper[1] if deviation and len(cell.paper) > 1 else math.nan
        notes.append(spread(cell.paper[0], std, decimals))
        notes += [number(cell.difference, decimals, sign=True)] if cell.values else []
    why = [f"{cell.failed} failed" if cell.failed else "", cell.absent]
    notes += [note for note in why if note and note != ours(cell, decimals)]
    return f"({', '.join(notes)})" if notes else ""


def rules(c: Comparison, row: str) -> str:
    """The selection rules of all runs of a row."""
    return ", ".join(dict.fromkeys(r for column in c.columns for r in c.cell(row, column).rules)) or NOTHING


def leaders(c: Comparison) -> set[tuple[str, str]]:
    """The best cells of each column as they are printed; none where no end is better, or all are alike."""
    found = set()
    for column in c.columns if c.best in ("high", "low") else ():
        means = {row: round(cell.mean, c.decimals) for row in c.rows if (cell := c.cell(row, column)).values}
        if len(set(means.values())) > 1:
            best = (max if c.best == "high" else min)(means.values())
            found |= {(row, column) for row, mean in means.items() if mean == best}
    return found


def caption(c: Comparison) -> str:
    """How to read the numbers: seeds, brackets, what is bold."""
    cells = [c.cell(row, column) for row in c.rows for column in c.columns]
    counts = sorted({len(cell.by_seed) for cell in cells if cell.values})
    parts = []
    if counts:
        what = "mean ± standard deviation over " if counts[-1] > 1 else ""
        parts.append(
            what + "–".join(map(str, dict.fromkeys((counts[0], counts[-1])))) + " seed" + "s" * (counts[-1] > 1)
        )
    if any(cell.paper for cell in cells):
        parts.append("in brackets the paper's figure" + (" and ours less the paper's" if counts else ""))
    if leaders(c):
        parts.append("the best of a column in bold")
    text = "; ".join(parts)
    return text and f"{text[0].upper()}{text[1:]}."


# ---- the forms ---------------------------------------------------------------------------------------------


def markdown(c: Comparison) -> str:
    """A section of a page: title, what was run, the table, how to read it, what was found."""
    best, room = leaders(c), len(c.columns) <= ROOM

    def shown(row: str, column: str) -> str:
        cell, mark = c.cell(row, column), "**" if (row, column) in best else ""
        text = mark + markdown_text(ours(cell, c.decimals)) + mark
        return f"{text} {markdown_text(beside(cell, c.decimals, deviation=room))}".rstrip()

    lines = [
        table_line(["", *map(markdown_text, c.columns), "selection"]),
        table_line(["---", *["---:"] * len(c.columns), "---"]),
    ]
    for row in c.rows:
        cells = [shown(row, column) for column in c.columns]
        lines.append(table_line([markdown_text(row), *cells, markdown_text(rules(c, row))]))
    findings = "\n".join(f"- {finding}" for finding in c.findings)
    parts = [f"### {c.title}", c.about, "\n".join(lines), caption(c), findings]
    return "\n\n".join(part for part in parts if part) + "\n"


def latex(c: Comparison) -> str:
    """A `table` for a paper, as wide as its text; it needs the packages booktabs and graphicx."""
    best = leaders(c)

    def shown(row: str, column: str) -> str:
        cell = c.cell(row, column)
        text, more = latex_text(ours(cell, c.decimals)), latex_text(beside(cell, c.decimals))
        text = rf"\textbf{{\boldmath {text}}}" if (row, column) in best else text
        return rf"{text} {{\scriptsize {more}}}" if more else text

    about = " ".join(part for part in (c.title.rstrip(".") + ".", c.about, caption(c)) if part)
    head = ["", *map(latex_text, c.columns), "selection"]
    body = [[latex_text(r), *(shown(r, column) for column in c.columns), latex_text(rules(c, r))] for r in c.rows]
    label = rf"\label{{tab:{c.name.replace('_', '-')}}}"
    return latex_table([rf"\caption{{{latex_text(about)}}}", label], f"l{'r' * len(c.columns)}l", head, body)


def latex_table(above: Sequence[str], kinds: str, head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A `table` with some lines above its rows; `kinds` are the columns'."""
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
    """One line per row and column, to ten digits; a number that is not there is empty."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(FIELDS)
    for row in c.rows:
        for column in c.columns:
            cell = c.cell(row, column)
            paper = (*cell.paper, math.nan, math.nan)[:2]
            numbers = [cell.mean, cell.std, len(cell.by_seed), *paper, cell.difference]
            held = list(map(csv_number, numbers))
            absent = cell.absent or ("" if cell.values or cell.failed else ours(cell, c.decimals))
            writer.writerow([row, column, *held, "; ".join(cell.rules), cell.failed, absent, len(cell.keys)])
    return sink.getvalue()


def csv_number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.10g}"


def rich_table(c: Comparison) -> Table:
    """A table for a terminal."""
    best, room = leaders(c), len(c.columns) <= ROOM
    out = Table(title=Text(plain_text(c.title), "bold"), caption=Text(caption(c)))
    out.title_justify = out.caption_justify = "left"
    out.add_column("", overflow="fold")  # folded, never cut: two columns may differ in their ends alone
    for column in c.columns:
        out.add_column(Text(plain_text(column)), justify="right", overflow="fold")
    out.add_column("selection", overflow="fold")
    for row in c.rows:
        texts = []
        for column in c.columns:
            cell = c.cell(row, column)
            text = Text.assemble((ours(cell, c.decimals), "bold" if (row, column) in best else ""))
            texts.append(text.append(f" {beside(cell, c.decimals, deviation=room)}".rstrip(), "dim"))
        out.add_row(Text(plain_text(row)), *texts, Text(rules(c, row)))
    return out


def statistics_markdown(compared: Sequence[Versus], decimals: int = 2) -> str:
    """The comparisons of `statistics.compare`, a table for each family; adjusted p below 0.05 in bold."""
    parts = []
    for against, members, note in families(compared, markdown_text):
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
    """The same as a `table` for each family, which needs what `latex` needs; of a family without pairs a sentence."""
    parts = []
    for against, members, note in families(compared, latex_text):
        body = []
        for v in members:
            *texts, adjusted, pairs = map(latex_text, (v.row, v.other, *statistics_texts(v, decimals)))
            bold = rf"\textbf{{\boldmath {adjusted}}}" if v.adjusted < SIGNIFICANT else adjusted
            body.append([*texts, bold, pairs])
        about, head = f"{against}. {note}", list(map(latex_text, STATISTICS))
        parts.append(latex_table([rf"\caption{{{about}}}"], "llrrrrr", head, body) if body else f"{about}\n")
    return "\n".join(parts)


def statistics_csv(compared: Sequence[Versus]) -> str:
    """One line per comparison, to ten digits; a number that is not there is empty."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(STATISTICS_FIELDS)
    for v in compared:
        numbers = (v.difference, v.low, v.high, v.p, v.adjusted, v.pairs, v.smallest_p)
        writer.writerow([v.family, v.row, v.other, *map(csv_number, numbers)])
    return sink.getvalue()


def families(compared: Sequence[Versus], escaped: Callable[[str], str]) -> Iterator[tuple[str, list[Versus], str]]:
    """Of each family what it is against, the comparisons that have pairs, and what is to be said of the pairs."""
    for family in dict.fromkeys(v.family for v in compared):
        members = [v for v in compared if v.family == family]
        against = f"Against {escaped(members[0].other) if family == REFERENCE else 'the best other row'}"
        least = {v.pairs: v.smallest_p for v in sorted(members, key=lambda v: v.pairs) if v.pairs}
        notes = [f"{n} pair{'s' * (n > 1)} allow{'s' * (n == 1)} no p below {p:.3g}" for n, p in least.items()]
        if lost := [escaped(v.row) for v in members if not v.pairs]:
            notes.append(f"left out, without a run in common: {', '.join(lost)}")
        text = "; ".join(notes)
        yield against, [v for v in members if v.pairs], f"{text[0].upper()}{text[1:]}."


def statistics_texts(v: Versus, decimals: int) -> list[str]:
    """Difference, interval, p, adjusted p and pairs."""
    span = NOTHING if math.isnan(v.low) else f"{number(v.low, decimals)} to {number(v.high, decimals)}"
    return [number(v.difference, decimals, sign=True), span, p_text(v.p), p_text(v.adjusted), str(v.pairs)]


def p_text(p: float) -> str:
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def table_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


# ---- text, in which backticks mark code ----------------------------------------------------------------------

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
    | {"[": "{[}", "]": "{]}"}  # after a line break, a bracket would be its argument
    | {"<": "$<$", ">": "$>$", "|": "$|$", "–": "--", "—": "---", "…": r"\dots{}", '"': "''", "“": "``", "”": "''"}
    | {"‘": "`", "’": "'", "⁰": "$^0$", "²": "$^2$", "³": "$^3$", "ᵀ": r"$^\top$", "½": "$1/2$", "°": r"$^\circ$"}
)


def around_code(text: str, prose: Callable[[str], str], code: Callable[[str], str]) -> str:
    """`text` with what is in backticks rewritten by `code`, and the rest by `prose`."""
    parts = re.split(r"`([^`]*)`", text)
    return "".join(code(part) if i % 2 else prose(part) for i, part in enumerate(parts))


def plain_text(text: str) -> str:
    return around_code(text, str, str)


def markdown_text(text: str) -> str:
    """For a cell of a table: nothing but backticks marks anything up."""
    return around_code(
        text, lambda t: re.sub(r"([\\*_|<>\[\]#~`])", r"\\\1", t), lambda t: "`" + t.replace("|", r"\|") + "`"
    )


def latex_text(text: str) -> str:
    """Escaped; code in `\\texttt`. A symbol that LaTeX has no known command for here is an error."""

    def escaped(part: str) -> str:
        for c in part:
            if c not in LATEX and not c.isascii() and not (c.isalpha() and c < "ɐ"):  # accented Latin letters are legal
                raise InputError(f"no LaTeX for {c!r} in {text!r}: add it to edgemask.report.render.LATEX")
        return "".join(LATEX.get(c, c) for c in part)

    return around_code(text, escaped, lambda t: rf"\texttt{{{escaped(t)}}}")
