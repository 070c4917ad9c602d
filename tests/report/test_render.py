"""Tests of the rendered tables: every format shows all numbers and rules, has no blank cells and escapes all names."""

from __future__ import annotations

import csv
import io
import re

import pytest
from rich.console import Console

from edgemask.report.comparison import ABSENT, PUBLISHED, Cell, Comparison
from edgemask.report.render import (
    FIELDS,
    GREEK,
    STATISTICS_FIELDS,
    caption,
    cell_note,
    cell_text,
    csv_text,
    latex,
    latex_text,
    markdown,
    markdown_text,
    number,
    rich_table,
    statistics_csv,
    statistics_latex,
    statistics_markdown,
)
from edgemask.report.statistics import Versus, compare


def cell(*values, **more) -> Cell:
    return Cell({("p", seed): v for seed, v in enumerate(values)}, **{"rules": ("last",)} | more)


def table(cells, **settings) -> Comparison:
    rows = tuple(dict.fromkeys(row for row, _ in cells))
    columns = tuple(dict.fromkeys(column for _, column in cells))
    return Comparison("results_t", "Title", "What was run.", rows, columns, cells, **settings)


NASTY = table(
    {
        ("EDG*", "A→B 50%"): cell(77.0, 77.4, paper=(73.8, 1.4), rules=("auto", "last"), keys=("k", "l")),
        ("EDG*", "λ_1 & more"): cell(60.04, paper=(60.05,)),
        ("`robust`, a|b_c", "A→B 50%"): cell(70.0, 71.0, failed=1, absent="3 of 5 runs"),
        ("`robust`, a|b_c", "λ_1 & more"): Cell(paper=(1.25, 0.5), absent=ABSENT),
        ("[x] {y} ~#$^\\", "A→B 50%"): Cell(failed=2, paper=(9.0,)),
        ("[x] {y} ~#$^\\", "λ_1 & more"): Cell(paper=(8.0, 1.0)),
    },
    findings=("The first `finding`.", "The second."),
)


def grid(text: str) -> list[list[str]]:
    """Return the cells of the rows of a Markdown table."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


# ---- cells -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "plain", "signed"), [(1.25, "1.2", "+1.2"), (-3.96, "−4.0", "−4.0"), (-0.04, "0.0", "+0.0")]
)
def test_numbers_are_rounded_and_zero_has_no_minus_sign(value, plain, signed):
    assert (number(value, 1), number(value, 1, sign=True)) == (plain, signed)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (cell(77.0, 77.4, paper=(73.8, 1.4)), "77.2 ± 0.3 (73.8 ± 1.4, +3.4)"),
        (cell(77.0, paper=(78.0,)), "77.0 (78.0, −1.0)"),
        (cell(77.0, 77.4), "77.2 ± 0.3 "),
        (cell(77.0, 77.4, failed=2), "77.2 ± 0.3 (2 failed)"),
        (cell(77.0, 77.4, failed=1, absent="3 of 5 runs"), "77.2 ± 0.3 (1 failed, 3 of 5 runs)"),
        (Cell(failed=5, paper=(70.0,)), "5 failed (70.0)"),
        (Cell(failed=1, absent="1 of 5 runs"), "1 failed (1 of 5 runs)"),
        (Cell(absent=ABSENT, paper=(70.0, 1.0)), "data not available (70.0 ± 1.0)"),
        (Cell(absent="not run"), "not run "),
        (Cell(paper=(70.0,), absent=PUBLISHED), "published (70.0)"),
        (cell(77.0, 77.4, deviation=False), "77.2 "),
        (Cell(paper=(70.0,)), "not run (70.0)"),
        (Cell(), "– "),
    ],
)
def test_a_cell_shows_both_results_the_difference_and_missing_runs(shown, text):
    assert f"{cell_text(shown, 1)} {cell_note(shown, 1)}" == text


def test_the_papers_deviation_may_be_left_out():
    assert cell_note(cell(77.0, paper=(73.8, 1.4)), 1, deviation=False) == "(73.8, +3.2)"


# ---- Markdown --------------------------------------------------------------------------------------------


def test_markdown_has_every_cell_and_the_rules_in_the_last_column():
    lines = grid(markdown(NASTY))
    assert lines[0] == ["", "A→B 50%", r"λ\_1 & more", "selection"]
    assert lines[2] == [
        r"EDG\*",
        "**77.2 ± 0.3** (73.8 ± 1.4, +3.4)",
        "60.0 (60.0, +0.0)",
        "auto, last",
    ]
    assert lines[3][1:] == ["70.5 ± 0.7 (1 failed, 3 of 5 runs)", "data not available (1.2 ± 0.5)", "last"]
    assert lines[4][1:] == ["2 failed (9.0)", "not run (8.0 ± 1.0)", "–"]
    assert {len(line) for line in lines} == {4}
    assert all(text for line in lines[2:] for text in line)


def test_markdown_has_a_caption_and_the_findings():
    text = markdown(NASTY)
    assert text.startswith("### Title\n\nWhat was run.\n\n|")
    assert text.endswith("in bold: the best of a column.\n\n- The first `finding`.\n- The second.\n")
    words = "in brackets: the paper's figure and the difference (ours − paper)"
    assert f"Mean ± standard deviation over 1–2 seeds; {words}" in text


def test_markdown_with_many_columns_leaves_out_the_papers_deviations():
    few, many = (table({("r", f"c{i}"): cell(1.0, paper=(2.0, 0.5)) for i in range(n)}) for n in (4, 5))
    assert "(2.0 ± 0.5, −1.0)" in markdown(few)
    assert "(2.0, −1.0)" in markdown(many)
    assert "0.5" not in markdown(many)


def test_names_cannot_break_a_markdown_table():
    assert markdown_text("a|b*c_d<e>[f]") == r"a\|b\*c\_d\<e\>\[f\]"
    assert markdown_text("`a_b|c` d_e") == r"`a_b\|c` d\_e"
    assert markdown_text("a ` b") == r"a \` b"


@pytest.mark.parametrize(("best", "expected"), [("high", ["b", "c"]), ("low", ["a"]), ("", [])])
def test_the_best_printed_value_of_a_column_is_bold(best, expected):
    c = table({("a", "x"): cell(1.0), ("b", "x"): cell(2.04), ("c", "x"): cell(1.96), ("d", "x"): Cell()}, best=best)
    assert [line[0] for line in grid(markdown(c)) if "**" in line[1]] == expected


def test_a_column_with_one_value_or_equal_values_has_no_bold_cell():
    for cells in ({("a", "x"): cell(1.0), ("b", "x"): Cell()}, {("a", "x"): cell(1.0), ("b", "x"): cell(1.0)}):
        assert "**" not in markdown(table(cells))
        assert "bold" not in caption(table(cells))


def test_the_table_sets_the_decimals():
    assert "0.123" in markdown(table({("a", "x"): cell(0.1234)}, decimals=3))


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({("a", "x"): cell(1.0, 2.0, 3.0)}, "Mean ± standard deviation over 3 seeds."),
        ({("a", "x"): cell(1.0)}, "1 seed."),
        ({("a", "x"): cell(1.0, 2.0, deviation=False)}, "Mean over 2 seeds."),
        (
            {("a", "x"): cell(1.0, 2.0, deviation=False), ("b", "x"): cell(1.0, 3.0)},
            "Mean ± standard deviation over 2 seeds; in bold: the best of a column.",
        ),
        (
            {("a", "x"): cell(1.0), ("b", "x"): Cell(paper=(1.0,), absent=PUBLISHED)},
            "1 seed; in brackets: published figures.",
        ),
        ({("a", "x"): Cell(paper=(1.0,), absent="not run")}, "In brackets: the paper's figure."),
        ({("a", "x"): Cell()}, ""),
    ],
)
def test_the_caption_counts_seeds(cells, words):
    assert caption(table(cells)) == words


# ---- LaTeX -----------------------------------------------------------------------------------------------


def unescaped(text: str, character: str) -> int:
    """Count the occurrences of a character that no backslash escapes."""
    return len(re.findall(rf"(?<!\\)(?:\\\\)*{re.escape(character)}", text))


def balanced(text: str) -> list[str]:
    """Check that braces, dollars and environments of a `table` are closed, and return its rows."""
    bare = re.sub(r"\\[{}$&%#_]", "", text)
    depth = 0
    for c in bare:
        depth += (c == "{") - (c == "}")
        assert depth >= 0
    assert depth == 0
    assert bare.count("$") % 2 == 0
    assert re.findall(r"\\begin{(\w+)}", text) == re.findall(r"\\end{(\w+)}", text)[::-1]
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    assert text.count(r"\toprule") == text.count(r"\midrule") == text.count(r"\bottomrule") == 1
    return [line.removesuffix(r" \\") for line in body.splitlines() if line.endswith(r"\\")]


def test_latex_is_balanced_and_all_rows_have_the_same_number_of_cells():
    rows = balanced(latex(NASTY))
    assert {unescaped(row, "&") for row in rows} == {3}
    assert len(rows) == 4


def test_latex_leaves_no_special_character_unescaped():
    text = latex(NASTY)
    assert text.isascii()
    for c in "%#_~":
        assert unescaped(text, c) == 0, c
    assert r"\texttt{robust}, a$|$b\_c" in text
    assert r"EDG$^*$" in text
    assert r"A$\rightarrow$B 50\%" in text
    assert r"$\lambda$\_1 \& more" in text
    assert r"{[}x{]} \{y\} \textasciitilde{}\#\$\textasciicircum{}\textbackslash{}" in text


def test_latex_shows_both_results_and_marks_the_best():
    text = latex(NASTY)
    assert r"\textbf{\boldmath 77.2 $\pm$ 0.3} {\scriptsize (73.8 $\pm$ 1.4, +3.4)}" in text
    assert r"data not available {\scriptsize (1.2 $\pm$ 0.5)}" in text
    assert r"\label{tab:results-t}" in text


def test_every_greek_letter_has_a_command_and_accents_stay():
    assert latex_text("ω Ω β") == r"$\omega$ $\Omega$ $\beta$"
    assert latex_text("Erdős–Rényi") == "Erdős--Rényi"
    assert len(set(GREEK)) == len(GREEK) == 33


def test_the_error_about_a_symbol_without_a_latex_command_names_it():
    with pytest.raises(ValueError, match="no LaTeX command is known for '☃' in 'a ☃'"):
        latex_text("a ☃")


# ---- CSV and terminal ------------------------------------------------------------------------------------


def test_csv_has_a_line_for_every_row_and_column_with_ten_digits():
    lines = list(csv.DictReader(io.StringIO(csv_text(NASTY))))
    assert list(lines[0]) == list(FIELDS)
    assert [(line["row"], line["column"]) for line in lines] == [(r, k) for r in NASTY.rows for k in NASTY.columns]
    assert lines[0] == {
        "row": "EDG*", "column": "A→B 50%", "mean": "77.2", "std": "0.2828427125", "seeds": "2", "paper mean": "73.8",
        "paper std": "1.4", "difference": "3.4", "rules": "auto; last", "failed": "0", "absent": "", "records": "2",
    }  # fmt: skip
    assert (lines[1]["std"], lines[1]["paper std"]) == ("", "")
    assert (lines[3]["mean"], lines[3]["difference"], lines[3]["absent"]) == ("", "", ABSENT)
    assert (lines[4]["failed"], lines[5]["absent"]) == ("2", "not run")


def printed(c: Comparison, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(rich_table(c))
    return console.file.getvalue()


def test_a_terminal_shows_the_same_cells_and_reads_no_name_as_markup():
    text = printed(NASTY, 160)
    for words in (
        "77.2 ± 0.3 (73.8 ± 1.4, +3.4)",
        "2 failed (9.0)",
        "robust, a|b_c",
        "[x] {y}",
        "auto, last",
        "2 seeds",
    ):
        assert words in text, words


def test_nothing_is_cut_off_in_a_narrow_terminal():
    text = printed(NASTY, 50)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 50


def test_the_best_value_is_bold_in_a_terminal_and_its_note_is_not():
    cells = rich_table(NASTY).columns[1]._cells
    spans = {cells[0].plain[s.start : s.end]: s.style for s in cells[0].spans}
    assert spans == {"77.2 ± 0.3": "bold", " (73.8 ± 1.4, +3.4)": "dim"}
    assert "bold" not in {s.style for s in cells[1].spans}


# ---- statistics ------------------------------------------------------------------------------------------


def test_statistics_have_a_table_per_family_and_give_the_smallest_possible_p():
    cells = {("erm*", "x"): cell(1.0, 2.0, 3.0), ("ours", "x"): cell(2.0, 3.5, 4.0), ("lost", "x"): Cell(failed=3)}
    text = statistics_markdown(compare(table(cells, reference="erm*", tested=("x",))))
    assert text.startswith(r"Against erm\*:")
    assert "\n\nAgainst the best other row:\n\n" in text
    assert ["ours", r"erm\*", "+1.17", "1.00 to 1.50", "0.2500", "0.2500", "3"] in grid(text)
    assert [r"erm\*", "ours", "−1.17", "−1.50 to −1.00", "0.2500", "0.2500", "3"] in grid(text)
    assert text.count("With 3 pairs p is at least 0.25; not compared, because no runs are shared: lost.") == 2
    assert "nan" not in text


def test_significant_p_values_are_bold_and_tiny_ones_are_not_printed_as_0():
    sure, unsure = (Versus("reference", r, "erm", 20, 1.0, 0.5, 1.5, p, 2 * p) for r, p in (("a", 1e-5), ("b", 0.03)))
    lines = grid(statistics_markdown([sure, unsure]))
    assert lines[2][4:6] == ["< 0.0001", "**< 0.0001**"]
    assert lines[3][4:6] == ["0.0300", "0.0600"]


def test_a_single_pair_has_no_interval_and_an_empty_list_gives_no_text():
    one = table({("erm", "x"): cell(1.0), ("ours", "x"): cell(2.0)}, reference="erm", tested=("x",))
    assert grid(statistics_markdown(compare(one)))[2] == ["ours", "erm", "+1.00", "–", "1.0000", "1.0000", "1"]
    assert "With 1 pair p is at least 1." in statistics_markdown(compare(one))
    assert statistics_markdown([]) == ""


def test_a_family_without_runs_still_names_its_rows():
    none = table({("erm", "x"): Cell(), ("ours", "x"): cell(2.0)}, reference="erm", tested=("x",))
    assert statistics_markdown(compare(none)) == "Against erm:\n\nNot compared, because no runs are shared: ours.\n"


SPECIAL = compare(
    table(
        {
            ("erm_{1}*", "x"): cell(1.0, 2.0, 3.0),
            ("`a|b`, λ & 50%", "x"): cell(2.0, 3.5, 4.0),
            ("one, [x]", "x"): cell(1.25),
            ("lost #~", "x"): Cell(failed=3),
        },
        reference="erm_{1}*",
        tested=("x",),
    )
)


def test_latex_statistics_are_one_balanced_and_escaped_table_per_family():
    text = statistics_latex(SPECIAL)
    first, second = text.split("\n\n")
    for part, rows in ((first, 3), (second, 4)):
        body = balanced(part)
        assert {unescaped(row, "&") for row in body} == {6}
        assert len(body) == rows
    assert text.isascii()
    assert "nan" not in text
    for c in "%#_~":
        assert unescaped(text, c) == 0, c
    head, ours, one = balanced(first)
    assert head == r" & against & difference & 95 \% interval & p & p, Holm & pairs"
    assert ours.startswith(
        r"\texttt{a$|$b}, $\lambda$ \& 50\% & erm\_\{1\}$^*$ & +1.17 & 1.00 to 1.50 & 0.2500 & 0.5000"
    )
    assert one == r"one, {[}x{]} & erm\_\{1\}$^*$ & +0.25 & -- & 1.0000 & 1.0000 & 1"
    notes = "With 1 pair p is at least 1; with 3 pairs p is at least 0.25; not compared, because no runs are shared: "
    assert rf"\caption{{Against erm\_\{{1\}}$^*$. {notes}lost \#\textasciitilde{{}}.}}" in first
    assert rf"\caption{{Against the best other row. {notes}" in second


def test_latex_statistics_mark_significant_p_values_and_name_rows_without_pairs():
    sure = Versus("reference", "a", "erm", 20, -1.0, -1.5, -0.5, 1e-5, 2e-5)
    expected = r"a & erm & $-$1.00 & $-$1.50 to $-$0.50 & $<$ 0.0001 & \textbf{\boldmath $<$ 0.0001} & 20"
    assert balanced(statistics_latex([sure]))[1] == expected
    none = [Versus("reference", "a_b", "erm")]
    assert statistics_latex(none) == "Against erm. Not compared, because no runs are shared: a\\_b.\n"
    assert statistics_latex([]) == ""


def test_csv_statistics_have_every_comparison_with_ten_digits_and_no_nan():
    text = statistics_csv(SPECIAL)
    lines = list(csv.DictReader(io.StringIO(text)))
    assert tuple(lines[0]) == STATISTICS_FIELDS
    assert [(k["family"], k["row"], k["against"]) for k in lines] == [(v.family, v.row, v.other) for v in SPECIAL]
    assert lines[0] == {
        "family": "reference", "row": "`a|b`, λ & 50%", "against": "erm_{1}*", "difference": "1.166666667",
        "95 % low": "1", "95 % high": "1.5", "p": "0.25", "p Holm": "0.5", "pairs": "3", "smallest p": "0.25",
    }  # fmt: skip
    assert (lines[1]["row"], lines[1]["95 % low"], lines[1]["95 % high"], lines[1]["p"]) == ("one, [x]", "", "", "1")
    assert list(lines[2].values())[3:] == ["", "", "", "", "", "0", "1"]
    assert "nan" not in text
    assert statistics_csv([]) == ",".join(STATISTICS_FIELDS) + "\n"
