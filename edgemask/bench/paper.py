"""Figures of the paper, by its own names of the systems: quoted, in percent, for comparison only."""

from __future__ import annotations

# (AC→D micro, macro, AD→C micro, macro, CD→A micro, macro, average), table results_citations
CITATION: dict[str, tuple[float, ...]] = {
    "MMD": (68.7, 65.88, 70.24, 65.79, 62.24, 58.45, 65.22),
    "ERM": (67.92, 62.72, 70.91, 67.81, 62.44, 59.64, 65.24),
    "DRNN": (69.07, 65.19, 71.46, 67.98, 63.45, 60.27, 66.24),
    "GA (GCN)": (71.45, 67.19, 71.62, 66.09, 66.44, 60.7, 67.25),
    "EERM": (71.31, 68.39, 72.91, 68.47, 65.28, 62.98, 68.22),
    "LiSA": (70.34, 67.15, 73.53, 69.65, 66.28, 64.17, 68.52),
    "TRACI": (72.95, 69.25, 74.2, 69.08, 67.01, 65.03, 69.59),
    "MARIO": (71.71, 68.66, 76.05, 72.38, 67.9, 67.13, 70.64),
    "GA (GIN)": (72.55, 70.05, 74.77, 71.79, 69.43, 68.77, 71.23),
    "GRM": (73.72, 71.19, 79.13, 75.74, 70.23, 69.66, 73.28),
    "EDG*": (72.54, 69.81, 79.14, 77.66, 71.62, 72.11, 73.81),
}

# (Cora min, avg, Photo min, avg, FB-100 min, avg, Twitch min, avg), table results_cora_photo_fb_twitch
OTHERS: dict[str, tuple[float, ...]] = {
    "ERM": (65.0, 68.2, 84.4, 88.6, 50.5, 52.8, 49.7, 52.2),
    "DRNN": (56.4, 74.8, 76.7, 77.1, 48.0, 51.4, 44.0, 48.1),
    "MMD": (52.4, 75.8, 82.1, 84.8, 51.4, 53.3, 42.8, 49.1),
    "ARM": (60.6, 62.9, 58.3, 74.6, 50.7, 54.5, 43.2, 48.5),
    "EERM": (68.0, 70.5, 90.8, 91.8, 50.9, 54.3, 51.6, 54.1),
    "LiSA": (71.1, 76.7, 90.3, 91.5, 48.8, 54.2, 48.6, 55.8),
    "IS-GIB": (71.3, 78.6, 87.2, 90.2, 49.6, 54.6, 51.2, 56.0),
    "MARIO": (70.8, 76.1, 88.6, 89.4, 50.3, 53.9, 50.7, 55.1),
    "GRM": (74.2, 81.2, 91.3, 92.7, 52.0, 55.1, 52.5, 56.7),
    "EDG*": (78.0, 83.2, 94.3, 94.8, 45.4, 52.1, 52.5, 59.3),
}

# The registry's name of each of the paper's systems.
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
