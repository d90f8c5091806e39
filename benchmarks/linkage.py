"""Linking the people of two sites, and encrypting their columns in common slots.

All times are CPU time of one core, so that they can be compared on a machine that is busy. The
intersection is measured on a part of the people: its time is proportional to their number.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from encryptedstats.studies import linking
from encryptedstats.studies.intersection import CommutingKey

SITES = {"hospital": ["age", "sex"], "registry": ["stage", "ill"]}
INTERSECTED = 20_000


@part("linkage")
def linkage(settings: Settings) -> Report:
    """The part's entry point."""
    n_people = 20_000 if settings.quick else 1_000_000
    results = {"people": n_people, **run(n_people)}
    table = Table("step", "seconds", box=box.SIMPLE)
    for name, seconds in results["seconds"].items():
        table.add_row(name, f"{seconds:.1f}")
    return Report(results, [table], ["CPU time of one core; intersection scaled from a part."])


def run(n_people: int) -> dict[str, Any]:
    """Return the CPU seconds of each step, and the numbers that were opened."""
    seconds: dict[str, float] = {}

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        start = time.process_time()
        yield
        seconds[name] = seconds.get(name, 0.0) + time.process_time() - start

    everybody = _people(n_people)
    schema = es.Schema.infer(everybody.drop(columns="id"), target="ill", bins=5)
    rows = {
        "hospital": everybody.iloc[: int(0.8 * n_people)][["id", *SITES["hospital"]]],
        "registry": everybody.iloc[int(0.2 * n_people) :][["id", *SITES["registry"]]],
    }
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        place = Path(folder)
        with timed("plan"):
            study = es.Study.create(
                place / "study",
                schema=schema,
                questions={"bayes": es.MultinomialNB()},
                n_rows=n_people,
                sites=list(SITES),
                worker="centre",
                receiver="board",
                linkage=es.Linkage(SITES, ["code"], agent="office"),
            )
        party = {
            name: es.Study.join(place / "study", code, place / f"{name}.id")
            for name, code in study.invitations.items()
        }
        for site, own in rows.items():
            with timed("hash the people of both sites"):
                party[site].link(own, on=["id"])
        with timed("assign slots"):
            party["office"].link()
        party["board"].keygen(place / "board.key")
        for site, own in rows.items():
            with timed("encrypt the columns of both sites"):
                party[site].add(own, workers=1)
        bytes_up = sum(one.stat().st_size for one in (place / "study" / "rows").rglob("*.*"))
    people = [text.encode() for text in everybody["id"].iloc[:INTERSECTED]]
    scale = 1.6 * n_people / len(people)
    with timed("intersection instead: blind the people of both sites"):
        points = CommutingKey(b"a").blind(people, b"study")
    with timed("intersection instead: raise them again"):
        CommutingKey(b"b").blind_again(points)
    for name in seconds:
        if name.startswith("intersection"):
            seconds[name] *= scale
    linked = linking.links_of(study.state()).n_linked
    return {"seconds": seconds, "linked": linked, "bytes": bytes_up}


def _people(n_people: int) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    return pd.DataFrame(
        {
            "id": [f"{number:09}" for number in rng.permutation(n_people)],
            "age": rng.normal(50, 12, n_people).round(1),
            "sex": rng.choice(["f", "m"], n_people),
            "stage": rng.choice(["one", "two", "three"], n_people),
            "ill": rng.choice(["no", "yes"], n_people),
        }
    )
