"""``encrypt``: by the owner, by others, again after an interrupt; and what it refuses leaves
nothing behind.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_helpers import Hospital, Run, disk_full, done, names, private_file, the_error

import encryptedstats as es
from encryptedstats.storage.objects import FolderStore, open_store
from encryptedstats.tables.blocks import block_id_of


def arguments(hospital: Hospital, *more: object) -> tuple[object, ...]:
    return ("--schema", hospital.schema, "--key", hospital.key, *more)


def n_blocks(place: Path) -> int:
    return sum(block_id_of(name) is not None for name in open_store(place).names())


def test_what_is_said(run: Run, hospital: Hospital, tmp_path: Path) -> None:
    shown = done("encrypt", hospital.csv, tmp_path / "t", *arguments(hospital)).stdout
    for words in (
        "rows/s",
        "60 in 1 block",
        "encrypted with the secret key",
        "no key in it decrypts anything",
        "secret.key",
    ):
        assert words in shown
    assert "encryptedstats ask" in shown
    assert "exists already and was not touched" in the_error(
        run("encrypt", hospital.csv, tmp_path / "t", *arguments(hospital))
    )
    facts = json.loads(
        done(
            "encrypt", hospital.csv, tmp_path / "t", *arguments(hospital, "--force", "--json")
        ).stdout
    )
    assert facts["rows"] == 60
    assert facts["blocks_kept"] == 0
    assert facts["bytes"] == es.EncryptedTable.load(tmp_path / "t").info().to_dict()["bytes"]


def test_weights_folds_and_encodings(hospital: Hospital, tmp_path: Path, run: Run) -> None:
    weights = np.arange(60) % 4
    hospital.frame.assign(w=weights).to_csv(tmp_path / "d.csv", index=False)
    options = ("--weights", "w", "--folds", 3, "--encoding", "onehot", "--encoding", "centred")
    given = (tmp_path / "d.csv", tmp_path / "t", *arguments(hospital, *options))
    assert "--weights needs --weight-bound" in the_error(run("encrypt", *given))
    shown = done("encrypt", *given, "--weight-bound", 4).stdout
    assert "folds" in shown
    table = es.EncryptedTable.load(tmp_path / "t")
    assert table.n_folds == 3
    assert {column.encoding for column in table.columns()} == {
        "onehot",
        "centred",
        "number",
        "class",
    }
    done("ask", tmp_path / "t", "counts(v1, class)", "-o", tmp_path / "r")
    done(
        "open",
        tmp_path / "r",
        "--key",
        hospital.key,
        "--schema",
        hospital.schema,
        "-o",
        tmp_path / "r.csv",
    )
    expected = pd.crosstab(
        hospital.frame["grade"], hospital.frame["ill"], values=weights, aggfunc="sum"
    ).fillna(0)
    assert pd.read_csv(tmp_path / "r.csv", index_col=0).to_dict() == expected.to_dict()
    error = the_error(run("encrypt", *given, "--weight-bound", 2, "--force"))
    assert "the bound of the weights is 2, but the largest weight is 3" in error
    assert es.EncryptedTable.load(tmp_path / "t").n_folds == 3


def test_whole_where_it_is_asked_for(hospital: Hospital, tmp_path: Path) -> None:
    sizes = {}
    for options in ((), ("--whole",)):
        place = tmp_path / "-".join(("t", *options))
        sizes[options] = json.loads(
            done("encrypt", hospital.csv, place, *arguments(hospital, *options, "--json")).stdout
        )
        assert [entry.seeded for entry in es.load(place).blocks.entries] == [not options]
    assert 1.9 < sizes["--whole",]["bytes"] / sizes[()]["bytes"] < 2.0


def test_others_encrypt_with_the_public_keys(registry: Hospital, tmp_path: Path, run: Run) -> None:
    options = ("--schema", registry.schema, "--public-keys", registry.public)
    shown = done("encrypt", registry.csv, tmp_path / "t", *options).stdout
    assert "encrypted with the public key" in shown
    assert "you cannot" in shown
    assert "secret.key" not in shown
    assert es.PublicKeys.load(registry.public).fingerprint in shown
    for question in (
        ("ask", tmp_path / "t", "counts(v1)"),
        ("ask", tmp_path / "t", "mnb"),
    ):
        refused = the_error(run(*question, "-o", tmp_path / "r"))
        assert "contributors encrypted rows of this table with the public keys" in refused
        assert refused.endswith("accept the rows: --by-others")
    assert "contributors encrypted rows" in done("data", "info", tmp_path / "t").stdout
    done("ask", tmp_path / "t", "counts(v1)", "-o", tmp_path / "r", "--by-others")
    facts = json.loads(done("open", tmp_path / "r", "--key", registry.key, "--json").stdout)
    (table,) = facts["tables"].values()
    assert [row[0] for row in table["values"]] == registry.frame[
        "grade"
    ].value_counts().sort_index().tolist()


def test_keys_without_room_for_rows_of_others_are_refused_before_anything_is_encrypted(
    hospital: Hospital, tmp_path: Path, run: Run
) -> None:
    rows = (
        "encrypt",
        hospital.csv,
        tmp_path / "t",
        "--schema",
        hospital.schema,
        "--public-keys",
        hospital.public,
    )
    error = the_error(run(*rows))
    assert "have no room for the noise" in error
    assert error.endswith("plan --by-others and key make --plan")
    assert names(tmp_path) == []


def test_public_keys_are_taken_under_the_fingerprint_that_was_read_out(
    registry: Hospital, files: Path, tmp_path: Path, run: Run
) -> None:
    fingerprint = es.PublicKeys.load(registry.public).fingerprint
    rows = ("encrypt", registry.csv, tmp_path / "t", "--schema", registry.schema)
    other = es.PublicKeys.load(files / "public.keys")
    error = the_error(
        run(*rows, "--public-keys", files / "public.keys", "--fingerprint", fingerprint)
    )
    assert (
        f"holds the keys {other.fingerprint}, and those of {fingerprint} are expected: do not use them"
        in error
    )
    assert "--fingerprint is for --public-keys" in the_error(
        run(*rows, "--key", registry.key, "--fingerprint", fingerprint)
    )
    assert names(tmp_path) == []
    done(*rows, "--public-keys", registry.public, "--fingerprint", fingerprint)


def test_rows_to_predict(hospital: Hospital, tmp_path: Path) -> None:
    hospital.frame.drop(columns="ill").to_csv(tmp_path / "d.csv", index=False)
    shown = done("encrypt", tmp_path / "d.csv", tmp_path / "t", *arguments(hospital)).stdout
    assert "no column 'ill' in the file: these are rows to predict" in shown


# -- interrupts
# ------------------------------------------------------------------------------------------------


@pytest.fixture
def long_csv(hospital: Hospital, tmp_path: Path) -> Path:
    """More rows than two blocks hold, few columns: see `narrow`."""
    return rows_of_three_blocks(hospital, tmp_path)


def rows_of_three_blocks(story: Hospital, tmp_path: Path) -> Path:
    slots = es.PublicKeys.load(story.public).parameters.slots
    frame = pd.DataFrame({"a": np.arange(2 * slots + 10) % 2, "b": 1})
    frame.to_csv(tmp_path / "long.csv", index=False)
    done("data", "schema", tmp_path / "long.csv", "-o", tmp_path / "narrow.json")
    return tmp_path / "long.csv"


def stop_at(block: int, monkeypatch: pytest.MonkeyPatch, stop: Any) -> None:
    """Let the store fail when it is to write the block of this number."""
    create = FolderStore.create

    def failing(self: FolderStore, name: str, data: bytes) -> bool:
        if name.startswith(f"blocks/{block:06d}"):
            stop()
        return create(self, name, data)

    monkeypatch.setattr(FolderStore, "create", failing)


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupt_leaves_a_draft_that_is_resumed(
    hospital: Hospital, run: Run, long_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "t"
    command = (
        "encrypt",
        long_csv,
        out,
        "--schema",
        tmp_path / "narrow.json",
        "--key",
        hospital.key,
    )
    with monkeypatch.context() as patch:
        stop_at(1, patch, interrupt)
        result = run(*command)
    assert result.exit_code == 130
    assert result.stdout == ""
    expected = f"interrupted: 1 block of a draft kept at {out}; run the same command to resume\n"
    assert result.stderr == expected
    first = {path.name: path.stat().st_mtime_ns for path in (out / "blocks").iterdir()}
    assert len(first) == 1

    assert "unfinished table, 1 block so far" in done("data", "info", out).stdout
    assert json.loads(done("data", "info", out, "--json").stdout)["blocks"] == 1
    assert "not finished" in the_error(run("ask", out, "counts(v0)", "-o", tmp_path / "r"))

    shown = done(*command).stdout
    assert "1 block of an earlier run kept" in shown
    assert "rows/s" not in shown
    assert n_blocks(out) == 3
    name, written = next(iter(first.items()))
    assert (out / "blocks" / name).stat().st_mtime_ns == written
    done("ask", out, "counts(v0)", "-o", tmp_path / "r")
    facts = json.loads(done("open", tmp_path / "r", "--key", hospital.key, "--json").stdout)
    n = len(pd.read_csv(long_csv))
    (table,) = facts["tables"].values()
    assert [row[0] for row in table["values"]] == [n // 2, n // 2]


def test_a_draft_of_something_else(
    registry: Hospital, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_csv = rows_of_three_blocks(registry, tmp_path)
    public = (
        "--schema",
        tmp_path / "narrow.json",
        "--public-keys",
        registry.public,
    )
    out = tmp_path / "t"
    with monkeypatch.context() as patch:
        stop_at(1, patch, interrupt)
        result = run("encrypt", long_csv, out, *public)
    assert result.exit_code == 130
    assert "run again with --force" in result.stderr
    error = the_error(run("encrypt", long_csv, out, *public))
    assert "or --force to" in error
    done("encrypt", long_csv, out, *public, "--force")
    assert n_blocks(out) == 3


def test_an_interrupt_before_anything_was_written(
    hospital: Hospital, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(es.Owner, "encrypt_file", lambda *_, **__: interrupt())
    result = run("encrypt", hospital.csv, tmp_path / "t", *arguments(hospital))
    assert result.exit_code == 130
    assert result.stderr == "interrupted: nothing was written\n"
    assert names(tmp_path) == []


def test_a_disk_that_gets_full_on_the_way(
    hospital: Hospital, run: Run, long_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "t"
    command = (
        "encrypt",
        long_csv,
        out,
        "--schema",
        tmp_path / "narrow.json",
        "--key",
        hospital.key,
    )
    with monkeypatch.context() as patch:
        stop_at(2, patch, disk_full)
        error = the_error(run(*command))
    assert f"{out}: no space left on device; free some space" in error
    assert "2 blocks of a draft kept" in error
    assert not list(out.rglob("*.tmp"))
    assert "2 blocks of an earlier run kept" in done(*command).stdout


# -- refusals
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.drop(columns="age"), "the data has no column 'age'; it has"),
        (
            lambda frame: frame.assign(grade=9),
            "column 'grade', row 1: 9 is not a level of the schema",
        ),
        (lambda frame: frame.assign(ill="perhaps"), "'perhaps' is not a class of the schema"),
        (lambda frame: frame.assign(age="old"), "column 'age', row 1: 'old' is not a number"),
        (
            lambda frame: frame.assign(dose=1000),
            "data schema --column 'COLUMN range=LOW:HIGH' widens them",
        ),
        (
            lambda frame: frame.assign(age=np.nan),
            "make one, data schema --column 'age missing=bin'",
        ),
    ],
)
def test_rows_that_do_not_fit(
    run: Run, hospital: Hospital, tmp_path: Path, change: Any, words: str
) -> None:
    change(hospital.frame).to_csv(tmp_path / "d.csv", index=False)
    error = the_error(run("encrypt", tmp_path / "d.csv", tmp_path / "t", *arguments(hospital)))
    assert words in error
    assert names(tmp_path) == ["d.csv"]


def test_keys_that_are_missing_or_wrong(
    run: Run, hospital: Hospital, files: Path, tmp_path: Path
) -> None:
    rows = ("encrypt", hospital.csv, tmp_path / "t", "--schema", hospital.schema)
    assert "one key is needed" in the_error(run(*rows))
    assert "one key" in the_error(
        run(*rows, "--key", hospital.key, "--public-keys", hospital.public)
    )
    assert "none: no such file or directory; check the path" in the_error(
        run(*rows, "--key", tmp_path / "none")
    )
    wrong = the_error(run(*rows, "--key", hospital.public))
    assert "holds public keys, and your secret key is wanted here" in wrong
    assert f"give them as --public-keys {hospital.public}" in wrong
    wrong = the_error(run(*rows, "--public-keys", hospital.key))
    assert "holds a secret key, and a file of public keys is wanted here" in wrong
    assert "keep the secret key off every machine but the owner's" in wrong
    assert "is no file of this program, and your secret key" in the_error(
        run(*rows, "--key", hospital.csv)
    )
    assert names(tmp_path) == []


def test_keys_for_smaller_numbers(
    run: Run, hospital: Hospital, files: Path, tmp_path: Path
) -> None:
    hospital.frame[["dose"]].to_csv(tmp_path / "d.csv", index=False)
    done(
        "data", "schema", tmp_path / "d.csv", "--column", "dose digits=6", "-o", tmp_path / "s.json"
    )
    rows = (
        "encrypt",
        tmp_path / "d.csv",
        tmp_path / "t",
        "--schema",
        tmp_path / "s.json",
        "--key",
        files / "secret.key",
    )
    assert "it takes keys for max_value=67108864 (plan chooses it)" in the_error(run(*rows))
    assert names(tmp_path) == ["d.csv", "s.json"]


def test_passphrases(
    run: Run, hospital: Hospital, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private_file(tmp_path / "wrong", b"battery staple\n")
    private_file(tmp_path / "right", b"correct horse\n")
    pd.DataFrame({"a": [0, 1, 1]}).to_csv(tmp_path / "d.csv", index=False)
    done("data", "schema", tmp_path / "d.csv", "-o", tmp_path / "s.json")
    rows = (
        "encrypt",
        tmp_path / "d.csv",
        tmp_path / "t",
        "--schema",
        tmp_path / "s.json",
        "--key",
        files / "locked.key",
    )
    error = the_error(run(*rows))
    assert "locked.key is locked by a passphrase" in error
    assert "locked.key: the passphrase does not open" in the_error(
        run(*rows, "--passphrase-file", tmp_path / "wrong")
    )
    assert not (tmp_path / "t").exists()
    done(*rows, "--passphrase-file", tmp_path / "right")

    done("ask", tmp_path / "t", "counts(v0)", "-o", tmp_path / "r")
    monkeypatch.setattr("encryptedstats.cli._keys._can_ask", lambda: True)
    result = done("open", tmp_path / "r", "--key", files / "locked.key", input="correct horse\n")
    assert "Counts of v0" in result.stdout
    assert "correct horse" not in result.output


def test_a_table_is_not_laid_among_secrets(run: Run, hospital: Hospital, tmp_path: Path) -> None:
    for place in (hospital.home, hospital.home / "..", f"file://{hospital.home}"):
        error = the_error(run("encrypt", hospital.csv, place, *arguments(hospital)))
        assert "is to be given away, and" in error
        assert "a folder of its own" in error
    (tmp_path / "file").write_text("x")
    assert "file" in the_error(
        run("encrypt", hospital.csv, tmp_path / "file", *arguments(hospital))
    )
    assert (tmp_path / "file").read_text() == "x"


def test_a_url(hospital: Hospital, tmp_path: Path) -> None:
    done("encrypt", hospital.csv, "memory://cli-test/t", *arguments(hospital))
    assert (
        json.loads(done("data", "info", "memory://cli-test/t", "--json", "--check").stdout)["rows"]
        == 60
    )
    done("ask", "memory://cli-test/t", "counts(v0)", "-o", tmp_path / "r")
    assert "fsspec" in sys.modules
