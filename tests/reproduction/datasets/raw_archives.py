"""UCI's raw archives, rebuilt from the CSVs: the inverse of the recipes, written without their
help.

Where the CSV has all that is in UCI's file, the rebuilt file is UCI's to the byte: ``UCI_SHA256``.
Elsewhere, ids and other fields that the CSV drops are made up.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

Rows = list[
    list[str]
]  # fields of the CSV without its header; missing is empty, the last is the target


def rows(folder: Path, name: str) -> Rows:
    text = gzip.decompress((folder / f"{name}.csv.gz").read_bytes()).decode()
    return [line.split(",") for line in text.splitlines()[1:]]


def zipped(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return buffer.getvalue()


def _lines(
    rows: Rows, line: Callable[[list[str], str], str], labels: tuple[str, str], missing: str = "?"
) -> bytes:
    """One raw line per row, given its values and its class as UCI writes it."""
    raw = [line([value or missing for value in row[:-1]], labels[int(row[-1])]) for row in rows]
    return ("\n".join(raw) + "\n").encode()


def _plain(
    member: str, line: Callable[[list[str], str], str], labels: tuple[str, str]
) -> Callable[..., bytes]:
    return lambda folder, name: zipped(
        {member: _lines(rows(folder, name), line, labels), "Index": b"..."}
    )


def _acute(folder: Path, _: str) -> bytes:
    lines = [
        "\t".join(
            [
                infl[0].replace(".", ","),
                *infl[1:6],
                *(("no", "yes")[int(r[-1])] for r in (infl, neph)),
            ]
        )
        for infl, neph in zip(rows(folder, "infl"), rows(folder, "neph"), strict=True)
    ]
    return zipped(
        {"diagnosis.data": "\r\n".join([*lines, ""]).encode("utf-16"), "diagnosis.names": b"..."}
    )


def _adult(folder: Path, name: str) -> bytes:
    table = rows(folder, name)
    train = _lines(table[:32561], lambda v, c: ", ".join([*v, c]), ("<=50K", ">50K"))
    test = _lines(table[32561:], lambda v, c: ", ".join([*v, c]), ("<=50K.", ">50K."))
    return zipped(
        {"adult.data": train + b"\n", "adult.test": b"|1x3 Cross validator\n" + test + b"\n"}
    )


_BANK_COLUMNS = (
    "age job marital education default housing loan contact month day_of_week duration campaign "
    "pdays previous "
    "poutcome emp.var.rate cons.price.idx cons.conf.idx euribor3m nr.employed"
)


def _bank(folder: Path, name: str) -> bytes:
    def quoted(fields: list[str]) -> str:
        return ";".join(f if f.lstrip("-")[:1].isdigit() else f'"{f}"' for f in fields) + "\r"

    header = quoted([*_BANK_COLUMNS.split(), "y"]).encode() + b"\n"
    lines = _lines(
        rows(folder, name), lambda v, c: quoted([*v, c]), ("no", "yes"), missing="unknown"
    )
    inner = {
        "bank-additional/": b"",
        "bank-additional/bank-additional-full.csv": header + lines,
        "__MACOSX/bank-additional/._bank-additional-full.csv": b"\0",
    }
    return zipped({"bank.zip": zipped({"bank.csv": b"..."}), "bank-additional.zip": zipped(inner)})


def _monks(folder: Path, name: str) -> bytes:
    table = rows(folder, name)
    members = {
        member: _lines(part, lambda v, c: f" {c} {' '.join(v)} data_7", ("0", "1")) + b"\n"
        for member, part in (("monks-3.train", table[:122]), ("monks-3.test", table[122:]))
    }
    return zipped({"monks-1.train": b"...", **members})


_BLOOD_HEADER = (
    "Recency (months),Frequency (times),Monetary (c.c. blood),Time (months),"
    '"whether he/she donated blood in March 2007"\r\n'
)


def _blood(folder: Path, name: str) -> bytes:
    lines = _lines(
        rows(folder, name),
        lambda v, c: f"{v[0]} ,{v[1]},{int(v[1]) * 250},{v[2]} ,{c}\r",
        ("0", "1"),
    )
    return zipped({"transfusion.data": (_BLOOD_HEADER.encode() + lines).rstrip()})


ARCHIVES: dict[str, tuple[str, Callable[[Path, str], bytes]]] = {
    "infl": ("184/acute+inflammations", _acute),
    "neph": ("184/acute+inflammations", _acute),
    "adult": ("2/adult", _adult),
    "bank": ("222/bank+marketing", _bank),
    "blood": ("176/blood+transfusion+service+center", _blood),
    "bcw_d": (
        "17/breast+cancer+wisconsin+diagnostic",
        _plain("wdbc.data", lambda v, c: f"842302,{c},{','.join(v)}", ("B", "M")),
    ),
    "bcw_o": (
        "15/breast+cancer+wisconsin+original",
        _plain(
            "breast-cancer-wisconsin.data", lambda v, c: f"1000025,{','.join(v)},{c}", ("2", "4")
        ),
    ),
    "bcw_p": (
        "16/breast+cancer+wisconsin+prognostic",
        _plain("wpbc.data", lambda v, c: f"119513,{c},31,{','.join(v)}", ("N", "R")),
    ),
    "chess": (
        "22/chess+king+rook+vs+king+pawn",
        _plain("kr-vs-kp.data", lambda v, c: f"{','.join(v)},{c}", ("nowin", "won")),
    ),
    "haber": (
        "43/haberman+s+survival",
        _plain("haberman.data", lambda v, c: f"{','.join(v)},{c}", ("1", "2")),
    ),
    "heart": (
        "45/heart+disease",
        _plain("processed.cleveland.data", lambda v, c: f"{','.join(v)},{c}", ("0", "3")),
    ),
    "iono": (
        "52/ionosphere",
        _plain("ionosphere.data", lambda v, c: f"1,0,{','.join(v)},{c}", ("b", "g")),
    ),
    "magic": (
        "159/magic+gamma+telescope",
        _plain("magic04.data", lambda v, c: f"{','.join(v)},{c}", ("h", "g")),
    ),
    "mammo": (
        "161/mammographic+mass",
        _plain("mammographic_masses.data", lambda v, c: f"5,{','.join(v)},{c}", ("0", "1")),
    ),
    "monks3": ("70/monk+s+problems", _monks),
    "musk1": (
        "74/musk+version+1",
        _plain("clean1.data", lambda v, c: f"MUSK-188,188_1+1,{','.join(v)},{c}", ("0.", "1.")),
    ),
    "ozone": (
        "172/ozone+level+detection",
        _plain("onehr.data", lambda v, c: f"1/1/1998,{','.join(v)},{c}", ("0.", "1.")),
    ),
    "spam": (
        "94/spambase",
        _plain("spambase.data", lambda v, c: f"{','.join(v)},{c}\r", ("0", "1")),
    ),
}

# Of UCI's own files, as stated in public repositories that use them; we have not downloaded them
# ourselves.
UCI_SHA256 = {
    ("adult", "adult.data"): "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    ("adult", "adult.test"): "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    ("bank", "bank-additional.zip/bank-additional/bank-additional-full.csv"): (
        "74adfc578bf77a7ff4bb1ba4a9f8709d9e3c6907342959c2c8416847e0afb4d8"
    ),
    (
        "blood",
        "transfusion.data",
    ): "96c8e1091b9c037bcaf25a19b24b49d07771cd88689ffd273e056e9e8845ffe7",
    ("haber", "haberman.data"): "b4b7a32586a5668f9f4d6dc8be9d1bc8cd4822523affb1f6b5bfc350681ef3e2",
    ("magic", "magic04.data"): "e9314b7ebd4b4b59a3b3d65f7316663963777b16a46786877651dbbaa640b36a",
    ("spam", "spambase.data"): "b1ef93de71f97714d3d7d4f58fc9f718da7bbc8ac8a150eff2778616a8097b12",
}
