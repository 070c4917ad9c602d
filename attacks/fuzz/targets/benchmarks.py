"""Readers of the raw files of all benchmarks. The checksums of the store are not compared."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from attacks.fuzz.archives import archive_mutation, members, packed, zipped
from attacks.fuzz.cases import Case, Files, Mutation, Target
from attacks.fuzz.matlab import mat_mutation, saved
from attacks.fuzz.mutate import dump_json, mutate_bytes, mutate_json
from attacks.fuzz.pickles import mutate_pickle
from attacks.fuzz.tables import csv_mutation
from attacks.fuzz.targets.oracles import check_graph, require
from edgemask import Graph
from edgemask.data import citation, facebook, shifted
from edgemask.data.airports import read_network
from edgemask.data.arxiv import read_years
from edgemask.data.elliptic import read_steps
from edgemask.data.store import File, Store
from edgemask.data.twitch import read_language


class Unverified(Store):
    """The files of a folder, whose checksums are not compared."""

    def get(self, file: File) -> Path:
        """Return the path of a file."""
        return self.root / self.present_alternative(file).path


def checked(read: Callable[[Path], dict[str, Graph]], names: set[str]) -> Callable[[Case, Path], None]:
    """Return a function that reads graphs from a folder and checks them.

    Args:
        read: Returns the graphs by name.
        names: The names of the graphs.
    """

    def read_case(case: Case, folder: Path) -> None:
        graphs = read(folder)
        require(set(graphs) == names, f"graphs {sorted(graphs)}")
        for name, graph in graphs.items():
            require(graph.name == name, f"graph {graph.name} in the place of {name}")
            check_graph(graph, folder)

    return read_case


# ---- .mat --------------------------------------------------------------------------------------------------------


def citation_bases() -> list[Files]:
    """Return the file of a network."""
    edges = sp.csc_array(np.eye(4, k=1) + np.eye(4))
    group = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]], np.uint8)
    fields = {"network": edges, "attrb": sp.csc_array(np.eye(4, 6)), "group": group}
    return [{"citation/acmv9.mat": saved(fields, compressed=compressed)} for compressed in (True, False)]


def read_citation(folder: Path) -> dict[str, Graph]:
    """Read the network with one and with several labels."""
    store = Unverified(folder, offline=True)
    citation.read(store, ["acmv9"], labels="multi")
    return citation.read(store, ["acmv9"], labels="first")


def facebook_bases() -> list[Files]:
    """Return the files of two schools."""
    friends = sp.csc_array(np.array([[0.0, 1.0], [1.0, 0.0]]))
    tables = {"Reed98": [[1, 0, 5, 0, 0, 0, 9], [2, 1, 0, 0, 0, 0, 9]], "Yale4": [[2, 2, 6, 0, 0, 0, 0], [0] * 7]}
    return [
        {
            f"facebook100/{name}.mat": saved(
                {"A": friends, "local_info": np.array(table, np.float64)}, compressed=compressed
            )
            for name, table in tables.items()
        }
        for compressed in (False, True)
    ]


def read_facebook(folder: Path) -> dict[str, Graph]:
    """Read both schools."""
    return facebook.read(Unverified(folder, offline=True), ["Reed98", "Yale4"], missing="skip")


# ---- pickles -----------------------------------------------------------------------------------------------------


def cora_bases() -> list[Files]:
    """Return the files of Planetoid for five papers, as different versions of Python pickle them."""
    x, y = sp.csr_matrix(np.eye(5, 4, dtype=np.float32)), np.eye(3, dtype=np.int32)[[0, 1, 2, 0, 1]]
    neighbours = {0: [1, 2], 1: [0, 1], 2: [0, 4, 4], 3: [4], 4: [2]}
    values = {"allx": x[:3], "x": x[:2], "ally": y[:3], "y": y[:2], "tx": x[3:], "ty": y[3:], "graph": neighbours}
    return [
        {"planetoid/ind.cora.test.index": b"4\n3\n"}
        | {f"planetoid/ind.cora.{part}": pickle.dumps(value, protocol) for part, value in values.items()}
        for protocol in (3, 4)
    ]


def mutate_planetoid(rng: random.Random, files: Files) -> Files:
    """Change a pickle, or the list of test nodes."""
    name = rng.choice(sorted(files))
    return files | {name: mutate_pickle(rng, files[name])} if "index" not in name else mutate_bytes(rng, files)


def photo_parts() -> tuple[Any, Any, Any]:
    """Return the adjacency matrix, features and labels of five products."""
    return sp.csr_matrix(np.eye(5, k=1)), sp.csr_matrix(np.eye(5, 4, dtype=np.float32)), np.array([0, 1, 2, 0, 1])


def photo_bases() -> list[Files]:
    """Return the file of Amazon Photo with object arrays."""
    adjacency, x, y = photo_parts()
    objects = {"adj_matrix": adjacency, "node_attr": x, "node_label": y}
    parts = []
    for name, value in objects.items():
        array = np.empty((), object)
        array[()] = value
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, array if name != "node_label" else y, allow_pickle=True)
        parts.append((f"{name}.npy", buffer.getvalue()))
    return [{"amazon/amazon_photo.npz": zipped(parts)}]


def plain_photo_bases() -> list[Files]:
    """Return the file of Amazon Photo without object arrays."""
    adjacency, x, y = photo_parts()
    arrays = {
        f"{name}_{part}": getattr(matrix, part)
        for name, matrix in (("adj", adjacency), ("attr", x))
        for part in ("data", "indices", "indptr", "shape")
    }
    return [{"amazon/amazon_electronics_photo.npz": packed(arrays | {"labels": y})}]


def mutate_objects(rng: random.Random, files: Files) -> Files:
    """Change the pickle in an object array."""
    (name,) = files
    try:
        parts = members(files[name])
        i = rng.randrange(len(parts))
        own, content = parts[i]
        start = content.index(b"\n") + 1
    except Exception:  # an earlier mutation has damaged the archive
        return mutate_bytes(rng, files)
    parts[i] = own, content[:start] + mutate_pickle(rng, content[start:])
    return files | {name: zipped(parts)}


def read_cora(folder: Path) -> dict[str, Graph]:
    """Read Cora."""
    return {"cora": shifted.read_cora(Unverified(folder, offline=True))}


def read_photo(folder: Path) -> dict[str, Graph]:
    """Read Amazon Photo."""
    return {"photo": shifted.read_photo(Unverified(folder, offline=True))}


# ---- text --------------------------------------------------------------------------------------------------------


def twitch_bases() -> list[Files]:
    """Return the files of a language with three people."""
    target = "id,days,mature,views,partner,new_id\n90,5,True,1,False,2\n91,5,False,1,False,0\n92,5,True,1,True,1\n"
    return [
        {
            "edges.csv": b"from,to\n0,1\n1,2\n2,1\n2,2\n",
            "features.json": json.dumps({"1": [5], "0": [3169, 7, 7], "2": []}).encode(),
            "target.csv": target.encode(),
        }
    ]


def json_text(suffix: str) -> Mutation:
    """Return a mutation of a JSON file that keeps hostile values."""

    def mutate(rng: random.Random, files: Files) -> Files:
        name = next(name for name in files if name.endswith(suffix))
        try:
            return files | {name: dump_json(mutate_json(rng, json.loads(files[name]))).encode()}
        except (ValueError, RecursionError):
            return mutate_bytes(rng, files)

    return mutate


def read_twitch(folder: Path) -> dict[str, Graph]:
    """Read a language."""
    return {"XX": read_language("XX", *(folder / f for f in ("edges.csv", "features.json", "target.csv")))}


def airports_bases() -> list[Files]:
    """Return the files of three airports."""
    return [{"edges.edgelist": b"30 10\n10 20\n20 10\n20 20\n", "labels.txt": b"node label\n30 3\n10 0\n20 1\n"}]


def read_airports(folder: Path) -> dict[str, Graph]:
    """Read a network."""
    return {"small": read_network("small", folder / "edges.edgelist", folder / "labels.txt")}


def elliptic_bases() -> list[Files]:
    """Return the files of five transactions in two time steps."""
    features = ",".join(f"{value:.3f}" for value in np.linspace(-1, 1, 165))
    rows = "".join(f"{tx},{step},{features}\n" for tx, step in [(10, 1), (20, 2), (30, 1), (40, 1), (50, 2)])
    return [
        {
            "features.csv": rows.encode(),
            "classes.csv": b"txId,class\n50,unknown\n10,1\n20,2\n30,2\n40,unknown\n",
            "edgelist.csv": b"txId1,txId2\n40,10\n30,10\n20,50\n",
        }
    ]


def read_elliptic(folder: Path) -> dict[str, Graph]:
    """Read both time steps."""
    features, classes, edges = (folder / f for f in ("features.csv", "classes.csv", "edgelist.csv"))
    return read_steps(features, classes, edges, ["t01", "t02"])


ARXIV_TEXTS = {
    "edge": "0,1\n1,2\n2,1\n3,4\n4,2\n5,5\n0,5\n",
    "node-feat": "".join(f"{i}.5,-1\n" for i in range(6)),
    "node-label": "0\n1\n2\n1\n0\n2\n",
    "node_year": "2016\n2011\n1999\n2014\n2012\n2015\n",
    "num-edge-list": "7\n",
    "num-node-list": "6\n",
    "categories": "label idx,arxiv category\n0,arxiv cs ai\n1,arxiv cs lg\n2,arxiv cs db\n",
}


def arxiv_bases() -> list[Files]:
    """Return the files of six papers."""
    return [{f"{name}.csv.gz": gzip.compress(text.encode(), 1, mtime=0) for name, text in ARXIV_TEXTS.items()}]


def mutate_gzip(rng: random.Random, files: Files) -> Files:
    """Change the text of a compressed file, or replace it by one that expands to much."""
    name = rng.choice(sorted(files))
    try:
        text = gzip.decompress(files[name])
    except (OSError, EOFError, ValueError):  # an earlier mutation has damaged the file
        return mutate_bytes(rng, files)
    if rng.random() < 0.02:
        changed = {name: text + rng.choice((b"0", b"\n", b"1,", b" ")) * (100 * 2**20)}
    else:
        changed = rng.choice((csv_mutation(name), mutate_bytes))(rng, {name: text})
    return files | {name: gzip.compress(changed[name], 1, mtime=0)}


def read_arxiv(folder: Path) -> dict[str, Graph]:
    """Read three years."""
    return read_years({name: folder / f"{name}.csv.gz" for name in ARXIV_TEXTS}, ["2011", "2014", "2016"])


TARGETS = (
    Target("citation", citation_bases, checked(read_citation, {"acmv9"}), (mat_mutation,)),
    Target("facebook100", facebook_bases, checked(read_facebook, {"Reed98", "Yale4"}), (mat_mutation,)),
    Target("cora", cora_bases, checked(read_cora, {"cora"}), (mutate_planetoid,), byte_level=0.3, share=2),
    Target(
        "photo",
        photo_bases,
        checked(read_photo, {"photo"}),
        (mutate_objects, mutate_objects, archive_mutation("amazon/amazon_photo.npz")),
        byte_level=0.2,
    ),
    Target(
        "photo-plain",
        plain_photo_bases,
        checked(read_photo, {"photo"}),
        (archive_mutation("amazon/amazon_electronics_photo.npz"),),
    ),
    Target("twitch", twitch_bases, checked(read_twitch, {"XX"}), (csv_mutation(".csv"), json_text("features.json"))),
    Target(
        "airports",
        airports_bases,
        checked(read_airports, {"small"}),
        (csv_mutation(".edgelist", " "), csv_mutation(".txt", " ")),
    ),
    Target("elliptic", elliptic_bases, checked(read_elliptic, {"t01", "t02"}), (csv_mutation(".csv"),)),
    Target("arxiv", arxiv_bases, checked(read_arxiv, {"2011", "2014", "2016"}), (mutate_gzip,), byte_level=0.2),
)
