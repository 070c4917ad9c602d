"""Published figures, quoted for comparison only: table → row → column → (mean, deviation) or (value,).

`TABLES` holds the paper's figures, `ADAPTATION` those of adaptation methods.

Figures are in percent unless the column says otherwise. Rows and columns have the paper's names.
"""

from __future__ import annotations

Figures = dict[str, dict[str, tuple[float, ...]]]

# results_citations
_RESULTS_CITATIONS: tuple[tuple[str, ...], dict[str, tuple[tuple[float, ...], ...]]] = (
    (
        "AC->D micro",
        "AC->D macro",
        "AD->C micro",
        "AD->C macro",
        "CD->A micro",
        "CD->A macro",
        "average",
    ),
    {
        "MMD": ((68.7, 0.88), (65.88, 0.54), (70.24, 0.77), (65.79, 2.4), (62.24, 1.48), (58.45, 4.15), (65.22,)),
        "ERM": ((67.92, 0.5), (62.72, 0.58), (70.91, 0.61), (67.81, 0.69), (62.44, 0.98), (59.64, 2.34), (65.24,)),
        "DRNN": ((69.07, 0.9), (65.19, 0.26), (71.46, 0.69), (67.98, 0.86), (63.45, 0.89), (60.27, 4.0), (66.24,)),
        "GA (GCN)": ((71.45, 0.55), (67.19, 0.72), (71.62, 0.75), (66.09, 0.56), (66.44, 0.52), (60.7, 0.7), (67.25,)),
        "EERM": ((71.31, 0.1), (68.39, 0.19), (72.91, 0.39), (68.47, 1.32), (65.28, 1.04), (62.98, 2.49), (68.22,)),
        "LiSA": ((70.34, 1.45), (67.15, 1.45), (73.53, 0.6), (69.65, 0.88), (66.28, 0.67), (64.17, 2.43), (68.52,)),
        "TRACI": ((72.95, 0.77), (69.25, 1.22), (74.2, 0.68), (69.08, 1.07), (67.01, 1.04), (65.03, 0.35), (69.59,)),
        "MARIO": ((71.71, 0.72), (68.66, 0.87), (76.05, 0.16), (72.38, 0.2), (67.9, 0.47), (67.13, 0.16), (70.64,)),
        "GA (GIN)": ((72.55, 0.6), (70.05, 1.71), (74.77, 0.6), (71.79, 1.18), (69.43, 0.65), (68.77, 1.07), (71.23,)),
        "GRM": ((73.72, 0.75), (71.19, 0.93), (79.13, 0.22), (75.74, 0.54), (70.23, 1.04), (69.66, 2.0), (73.28,)),
        "EDG*": ((72.54, 1.41), (69.81, 1.76), (79.14, 0.19), (77.66, 0.15), (71.62, 0.29), (72.11, 0.25), (73.81,)),
    },
)
# results_cora_photo_fb_twitch
_RESULTS_CORA_PHOTO_FB_TWITCH: tuple[tuple[str, ...], dict[str, tuple[tuple[float, ...], ...]]] = (
    (
        "Cora min",
        "Cora avg",
        "Photo min",
        "Photo avg",
        "FB-100 min",
        "FB-100 avg",
        "Twitch min",
        "Twitch avg",
    ),
    {
        "ERM": ((65.0, 1.5), (68.2, 0.4), (84.4, 1.5), (88.6, 1.3), (50.5, 0.4), (52.8, 0.6), (49.7, 1.1), (52.2, 0.9)),
        "DRNN": (
            (56.4, 1.4),
            (74.8, 1.2),
            (76.7, 1.5),
            (77.1, 1.2),
            (48.0, 1.0),
            (51.4, 0.7),
            (44.0, 0.5),
            (48.1, 1.4),
        ),
        "MMD": ((52.4, 1.5), (75.8, 0.6), (82.1, 1.1), (84.8, 0.6), (51.4, 0.9), (53.3, 0.7), (42.8, 0.6), (49.1, 0.9)),
        "ARM": ((60.6, 1.1), (62.9, 1.4), (58.3, 1.1), (74.6, 0.7), (50.7, 1.3), (54.5, 0.9), (43.2, 1.5), (48.5, 1.3)),
        "EERM": (
            (68.0, 0.6),
            (70.5, 1.0),
            (90.8, 0.5),
            (91.8, 0.9),
            (50.9, 0.4),
            (54.3, 1.4),
            (51.6, 0.8),
            (54.1, 0.9),
        ),
        "LiSA": (
            (71.1, 1.5),
            (76.7, 0.8),
            (90.3, 1.2),
            (91.5, 1.5),
            (48.8, 1.2),
            (54.2, 1.0),
            (48.6, 1.2),
            (55.8, 2.2),
        ),
        "IS-GIB": (
            (71.3, 1.9),
            (78.6, 1.5),
            (87.2, 0.6),
            (90.2, 0.9),
            (49.6, 1.6),
            (54.6, 1.2),
            (51.2, 1.9),
            (56.0, 1.2),
        ),
        "MARIO": (
            (70.8, 1.3),
            (76.1, 1.0),
            (88.6, 0.8),
            (89.4, 1.4),
            (50.3, 1.9),
            (53.9, 1.4),
            (50.7, 2.0),
            (55.1, 1.9),
        ),
        "GRM": ((74.2, 1.2), (81.2, 1.5), (91.3, 0.9), (92.7, 1.6), (52.0, 1.3), (55.1, 1.1), (52.5, 1.7), (56.7, 1.0)),
        "EDG*": (
            (78.0, 1.2),
            (83.2, 1.1),
            (94.3, 0.6),
            (94.8, 0.6),
            (45.4, 1.2),
            (52.1, 1.8),
            (52.5, 1.3),
            (59.3, 1.7),
        ),
    },
)
# results_elliptic_arxiv_sorted
_RESULTS_ELLIPTIC_ARXIV_SORTED: tuple[tuple[str, ...], dict[str, tuple[tuple[float, ...], ...]]] = (
    (
        "Elliptic T1",
        "Elliptic T2",
        "Elliptic T3",
        "Elliptic avg",
        "ArXiv T1",
        "ArXiv T2",
        "ArXiv T3",
        "ArXiv avg",
    ),
    {
        "ERM": ((59.6, 1.4), (63.5, 1.3), (61.7, 0.6), (61.6, 1.1), (47.6, 0.9), (45.5, 1.4), (41.4, 1.0), (44.8, 1.4)),
        "EERM": (
            (66.3, 0.4),
            (63.8, 0.6),
            (55.5, 0.6),
            (61.9, 1.1),
            (50.3, 1.4),
            (48.3, 0.4),
            (44.7, 1.4),
            (47.8, 1.4),
        ),
        "ARM": ((72.1, 1.5), (69.7, 0.7), (67.9, 1.4), (69.9, 1.3), (44.9, 0.7), (42.3, 0.6), (39.7, 0.8), (42.3, 1.0)),
        "LiSA": (
            (68.8, 0.9),
            (65.6, 0.7),
            (69.3, 1.0),
            (67.9, 0.8),
            (45.9, 0.6),
            (42.3, 0.5),
            (46.1, 0.8),
            (44.7, 0.6),
        ),
        "MMD": ((71.9, 0.7), (70.1, 0.4), (69.9, 0.8), (70.6, 0.8), (44.6, 1.3), (42.4, 0.7), (38.9, 1.0), (42.0, 0.5)),
        "EDG*": (
            (70.7, 1.2),
            (68.9, 0.9),
            (68.2, 1.3),
            (69.7, 1.0),
            (48.1, 1.1),
            (45.8, 0.8),
            (44.2, 1.2),
            (45.9, 1.0),
        ),
        "DRNN": (
            (73.2, 1.4),
            (71.4, 0.7),
            (70.6, 0.3),
            (71.8, 0.8),
            (46.8, 0.5),
            (44.7, 1.1),
            (40.5, 1.3),
            (44.0, 1.0),
        ),
        "IS-GIB": (
            (71.2, 1.1),
            (70.0, 1.0),
            (70.4, 1.2),
            (70.5, 1.1),
            (49.3, 0.8),
            (46.6, 0.9),
            (50.5, 1.3),
            (48.8, 0.7),
        ),
        "MARIO": (
            (69.8, 1.9),
            (72.8, 2.4),
            (71.1, 1.4),
            (71.2, 2.0),
            (48.8, 2.3),
            (50.1, 2.4),
            (49.2, 2.4),
            (49.4, 2.8),
        ),
        "GRM*": (
            (89.4, 1.5),
            (85.5, 1.1),
            (89.1, 1.5),
            (88.0, 1.4),
            (52.2, 0.9),
            (52.6, 1.4),
            (56.1, 1.4),
            (53.6, 1.2),
        ),
    },
)
# subspace_enrichment
_SUBSPACE_ENRICHMENT: tuple[tuple[str, ...], dict[str, tuple[tuple[float, ...], ...]]] = (
    (
        "edge increase %",
        "avg degree gain",
        "spectral entropy",
        "feature Laplacian smoothness",
    ),
    {
        "ACM/DBLP/Citation (avg.)": ((58.7, 2.9), (2.1, 0.1), (0.26, 0.02), (0.14, 0.01)),
        "Cora": ((47.5, 3.2), (1.6, 0.1), (0.19, 0.02), (0.11, 0.02)),
        "Amazon-Photo": ((38.4, 2.8), (1.4, 0.1), (0.17, 0.02), (0.09, 0.02)),
        "Twitch (avg.)": ((41.2, 3.1), (1.7, 0.2), (0.18, 0.03), (0.1, 0.02)),
        "Facebook-100 (avg.)": ((36.9, 2.4), (1.3, 0.2), (0.15, 0.02), (0.07, 0.01)),
        "Elliptic (T1–T3 avg.)": ((33.1, 2.1), (0.9, 0.1), (0.12, 0.02), (0.06, 0.01)),
        "OGB-Arxiv (T1–T3 avg.)": ((29.8, 2.0), (0.8, 0.1), (0.1, 0.02), (0.05, 0.01)),
    },
)
# mask_prune_stats
_MASK_PRUNE_STATS: tuple[tuple[str, ...], dict[str, tuple[tuple[float, ...], ...]]] = (
    (
        "pruned from augmented %",
        "pruned from original %",
        "augmented retained %",
    ),
    {
        "Citation avg.": ((68.3, 2.1), (18.9, 1.5), (31.7, 2.1)),
        "Cora": ((70.5, 2.4), (16.2, 1.3), (29.5, 2.4)),
        "Amazon-Photo": ((65.4, 2.2), (21.7, 1.6), (34.6, 2.2)),
        "Twitch (avg.)": ((66.8, 2.7), (20.9, 1.8), (33.2, 2.7)),
        "Facebook-100 avg.": ((64.2, 2.5), (22.5, 1.7), (35.8, 2.5)),
        "Elliptic avg.": ((61.3, 2.0), (24.1, 1.5), (38.7, 2.0)),
        "OGB-Arxiv avg.": ((62.7, 2.1), (23.4, 1.6), (37.3, 2.1)),
    },
)
# two_by_two_ablation
_TWO_BY_TWO_ABLATION: tuple[tuple[str, ...], dict[str, tuple[tuple[float, ...], ...]]] = (
    (
        "original, no mask",
        "original, mask",
        "union, no mask",
        "union, mask",
    ),
    {
        "AC->D (Micro-F1 %)": ((69.5, 0.7), (70.8, 0.6), (71.6, 0.6), (72.54, 1.41)),
        "AD->C (Micro-F1 %)": ((75.5, 0.6), (77.0, 0.5), (78.6, 0.4), (79.14, 0.19)),
        "CD->A (Micro-F1 %)": ((66.8, 0.7), (68.2, 0.6), (70.5, 0.5), (71.62, 0.29)),
        "Cora (Acc %)": ((81.0, 0.9), (82.1, 0.8), (82.6, 0.8), (83.2, 1.1)),
        "Amazon-Photo (Acc %)": ((92.5, 0.6), (93.7, 0.5), (94.3, 0.5), (94.8, 0.6)),
        "Twitch (ROC-AUC)": ((55.2, 1.2), (57.0, 1.1), (58.6, 1.0), (59.3, 1.7)),
        "Facebook-100 (Acc %)": ((50.1, 1.2), (51.2, 1.1), (51.8, 1.1), (52.1, 1.8)),
        "Elliptic (F1 %)": ((67.2, 1.1), (68.6, 1.0), (69.2, 0.9), (69.7, 1.0)),
        "OGB-Arxiv (Acc %)": ((44.3, 1.0), (45.1, 0.9), (45.6, 0.9), (45.9, 1.0)),
    },
)
# aug_effect_baselines
_AUG_EFFECT_BASELINES: tuple[tuple[str, ...], dict[str, tuple[tuple[float, ...], ...]]] = (
    (
        "ERM",
        "EERM",
        "GRM",
        "IS-GIB",
        "EdgeMask-DG*",
    ),
    {
        "Cora": ((-0.8, 0.6), (-0.6, 0.5), (-0.5, 0.6), (-0.2, 0.5), (1.1, 0.5)),
        "Amazon-Photo": ((-0.5, 0.5), (-0.7, 0.5), (-0.3, 0.5), (-0.3, 0.4), (1.1, 0.4)),
        "Twitch": ((-0.9, 0.7), (-1.1, 0.6), (-0.6, 0.6), (-0.5, 0.6), (2.3, 0.6)),
        "Facebook-100": ((-0.7, 0.6), (-1.0, 0.6), (-0.4, 0.6), (-0.3, 0.5), (0.9, 0.5)),
        "Elliptic": ((-0.4, 0.5), (-0.5, 0.5), (-0.2, 0.5), (-0.2, 0.4), (1.1, 0.5)),
        "OGB-Arxiv": ((-0.6, 0.5), (-0.8, 0.5), (-0.3, 0.5), (-0.2, 0.4), (0.8, 0.3)),
    },
)
# ablation_lambda
_ABLATION_LAMBDA: tuple[tuple[str, ...], dict[str, tuple[tuple[float, ...], ...]]] = (
    (
        "micro",
        "macro",
    ),
    {
        "0.0": ((70.6, 0.35), (71.54, 0.38)),
        "1e-5": ((71.78, 0.28), (72.69, 0.3)),
        "1e-4": ((70.85, 0.42), (71.48, 0.44)),
        "1e-3": ((71.59, 0.26), (72.18, 0.29)),
        "1e-2": ((71.63, 0.27), (72.65, 0.31)),
        "1e-1": ((71.49, 0.3), (72.18, 0.33)),
    },
)
# knn_k_ablation
_KNN_K_ABLATION: tuple[tuple[str, ...], dict[str, tuple[tuple[float, ...], ...]]] = (
    (
        "micro",
        "macro",
    ),
    {
        "3": ((73.83,), (72.6,)),
        "5": ((72.63,), (71.15,)),
        "10": ((73.07,), (71.75,)),
        "20": ((68.71,), (64.28,)),
        "50": ((63.62,), (51.66,)),
    },
)
# spectral_k_ablation
_SPECTRAL_K_ABLATION: tuple[tuple[str, ...], dict[str, tuple[tuple[float, ...], ...]]] = (
    (
        "micro",
        "macro",
        "train seconds",
    ),
    {
        "50": ((71.26,), (65.51,), (393.3,)),
        "100": ((74.63,), (73.54,), (363.08,)),
        "150": ((74.04,), (72.68,), (323.64,)),
        "200": ((74.98,), (73.64,), (309.32,)),
        "250": ((74.57,), (73.39,), (325.24,)),
        "300": ((74.49,), (73.01,), (318.88,)),
    },
)


def _table(columns: tuple[str, ...], rows: dict[str, tuple[tuple[float, ...], ...]]) -> Figures:
    return {row: dict(zip(columns, values, strict=True)) for row, values in rows.items()}


TABLES: dict[str, Figures] = {
    "results_citations": _table(*_RESULTS_CITATIONS),
    "results_cora_photo_fb_twitch": _table(*_RESULTS_CORA_PHOTO_FB_TWITCH),
    "results_elliptic_arxiv_sorted": _table(*_RESULTS_ELLIPTIC_ARXIV_SORTED),
    "subspace_enrichment": _table(*_SUBSPACE_ENRICHMENT),
    "mask_prune_stats": _table(*_MASK_PRUNE_STATS),
    "two_by_two_ablation": _table(*_TWO_BY_TWO_ABLATION),
    "aug_effect_baselines": _table(*_AUG_EFFECT_BASELINES),
    "ablation_lambda": _table(*_ABLATION_LAMBDA),
    "knn_k_ablation": _table(*_KNN_K_ABLATION),
    "spectral_k_ablation": _table(*_SPECTRAL_K_ABLATION),
}

# The paper's name of each of its methods, by the registry's name.
NAMES: dict[str, str] = {
    "erm-gcn": "ERM",
    "group-dro": "DRNN",
    "mmd": "MMD",
    "arm": "ARM",
    "eerm": "EERM",
    "lisa": "LiSA",
    "is-gib": "IS-GIB",
    "mario": "MARIO",
    "grm": "GRM",
    "traci": "TRACI",
    "graph-aug-gcn": "GA (GCN)",
    "graph-aug-gin": "GA (GIN)",
    "edgemask-dg-star": "EDG*",
}


# Adaptation methods, which train with the target's graph: micro- and macro-F1 on the six transfers between two of the
# citation networks, averaged over the transfers. These figures are not the paper's.
ADAPTATION: Figures = {
    row: {"average micro": (micro,), "average macro": (macro,)}
    for row, micro, macro in (
        ("CDNE (Shen et al., 2021)", 76.5, 74.9),
        ("AdaGCN (Dai et al., 2022)", 77.1, 75.2),
        ("UDAGCN (Wu et al., 2020)", 77.2, 75.7),
        ("ACDNE (Shen et al., 2020)", 79.2, 77.9),
        ("DM-GNN (Shen et al., 2023)", 80.3, 79.1),
    )
}


def figure(table: str, row: str, column: str) -> tuple[float, ...]:
    """Return the paper's figure of a cell: (mean, deviation), (value,) or an empty tuple.

    Args:
        table: Name of the suite.
        row: The paper's name of the row.
        column: The paper's name of the column.

    >>> figure("results_citations", "EDG*", "average")
    (73.81,)
    """
    return TABLES[table].get(row, {}).get(column, ())


# The methods that the tables and pages show, in this order. A new method of the registry is not shown until its name is
# added here.
SHOWN: tuple[str, ...] = (
    "erm-mlp",
    "erm-gcn",
    "erm-gcn-enriched",
    "erm-gat",
    "erm-gat-enriched",
    "erm-gin",
    "erm-gin-enriched",
    "erm-sgc",
    "erm-sgc-enriched",
    "erm-egc",
    "erm-egc-enriched",
    "group-dro",
    "mmd",
    "coral",
    "irm",
    "vrex",
    "dann",
    "mixup",
    "arm",
    "ada",
    "mat",
    "eerm",
    "lisa",
    "flood",
    "is-gib",
    "mario",
    "grm",
    "traci",
    "graph-aug-gcn",
    "graph-aug-gin",
    "canet",
    "edgemask-dg",
    "edgemask-dg-star-knn",
    "edgemask-dg-star",
)
