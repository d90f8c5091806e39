"""How UCI's raw archives become the CSVs of the index: one declaration per set, and the code that
follows it.

A recipe need not be trusted: what it makes must have the CSV's checksum before it is used
(``_files.py``), so a wrong recipe, or a file that UCI has changed, gives an error and never other
data.
"""

from __future__ import annotations

import csv
import io
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from encryptedstats.errors import EncryptedStatsError, FileFormatError
from reproduction.datasets._errors import DatasetUnavailableError
from reproduction.datasets._index import DatasetInfo

MAX_MEMBER_BYTES = (
    64 * 2**20
)  # the largest file in use has 5 MB: more than this is a mistake or a zip bomb


@dataclass(frozen=True)
class Recipe:
    """Where the rows of a set lie in UCI's archive, and what their fields mean.

    Attributes
    ----------
    slug
        Name of the archive at UCI, without ``.zip``.
    members
        Files whose rows follow one another, found by base name; ``inner.zip/file`` lies in an
        archive inside.
    layout
        The raw fields in order: a column's name, ``*`` for all columns, ``target``, ``-`` for a
        dropped one.
    positive, negative
        Labels of the target that become 1 and 0. Any other label is an error.
    separator
        Between fields; empty for runs of blanks.
    skip
        Header lines at the top of each member.
    comment
        Lines that start so are left out.
    missing
        The code of a missing value, written as an empty field.
    decimal
        The decimal sign, written as a point.
    encoding
        Of the members.
    """

    slug: str
    members: tuple[str, ...]
    layout: str
    positive: tuple[str, ...]
    negative: tuple[str, ...]
    separator: str = ","
    skip: int = 0
    comment: str = ""
    missing: str = "?"
    decimal: str = "."
    encoding: str = "utf-8"


def _acute(layout: str) -> Recipe:
    return Recipe(
        "acute+inflammations",
        ("diagnosis.data",),
        layout,
        ("yes",),
        ("no",),
        separator="\t",
        decimal=",",
        encoding="utf-16",
    )


RECIPES: dict[str, Recipe] = {
    "infl": _acute("* target -"),
    "neph": _acute("* - target"),
    # adult.test has a comment line on top and a point after each label.
    "adult": Recipe(
        "adult",
        ("adult.data", "adult.test"),
        "* target",
        (">50K", ">50K."),
        ("<=50K", "<=50K."),
        comment="|",
    ),
    "bank": Recipe(
        "bank+marketing",
        ("bank-additional.zip/bank-additional-full.csv",),
        "* target",
        ("yes",),
        ("no",),
        separator=";",
        skip=1,
        missing="unknown",
    ),
    "blood": Recipe(
        "blood+transfusion+service+center",
        ("transfusion.data",),
        "recency_months frequency_times - time_months target",
        ("1",),
        ("0",),
        skip=1,
    ),
    "bcw_d": Recipe(
        "breast+cancer+wisconsin+diagnostic", ("wdbc.data",), "- target *", ("M",), ("B",)
    ),
    "bcw_o": Recipe(
        "breast+cancer+wisconsin+original",
        ("breast-cancer-wisconsin.data",),
        "- * target",
        ("4",),
        ("2",),
    ),
    "bcw_p": Recipe(
        "breast+cancer+wisconsin+prognostic", ("wpbc.data",), "- target - *", ("R",), ("N",)
    ),
    "chess": Recipe(
        "chess+king+rook+vs+king+pawn", ("kr-vs-kp.data",), "* target", ("won",), ("nowin",)
    ),
    "haber": Recipe("haberman+s+survival", ("haberman.data",), "* target", ("2",), ("1",)),
    "heart": Recipe(
        "heart+disease", ("processed.cleveland.data",), "* target", ("1", "2", "3", "4"), ("0",)
    ),
    "iono": Recipe("ionosphere", ("ionosphere.data",), "- - * target", ("g",), ("b",)),
    "magic": Recipe("magic+gamma+telescope", ("magic04.data",), "* target", ("g",), ("h",)),
    "mammo": Recipe(
        "mammographic+mass", ("mammographic_masses.data",), "- * target", ("1",), ("0",)
    ),
    "monks3": Recipe(
        "monk+s+problems",
        ("monks-3.train", "monks-3.test"),
        "target * -",
        ("1",),
        ("0",),
        separator="",
    ),
    "musk1": Recipe("musk+version+1", ("clean1.data",), "- - * target", ("1.",), ("0.",)),
    "musk2": Recipe("musk+version+2", ("clean2.data",), "- - * target", ("1.",), ("0.",)),
    "ozone": Recipe("ozone+level+detection", ("onehr.data",), "- * target", ("1.",), ("0.",)),
    "spam": Recipe("spambase", ("spambase.data",), "* target", ("1",), ("0",)),
}


def csv_from_archive(info: DatasetInfo, archive: bytes) -> bytes:
    """The CSV made from UCI's raw zip archive by the set's recipe; the caller checks its checksum.

    Raises
    ------
    FileFormatError
        If the archive is not a zip, lacks a file, or a row does not fit the recipe.
    DatasetUnavailableError
        If the file is packed in a way that cannot be unpacked here.
    """
    recipe = RECIPES[info.name]
    fields = _fields(recipe, info)
    lines = [",".join((*info.columns, "target"))]
    for member in recipe.members:
        text = _decoded(_member(archive, member, recipe, info), member, recipe, info)
        for number, line in _data_lines(text, recipe):
            row = _split(line, recipe)
            if len(row) != len(fields):
                raise _misfit(
                    info, recipe, f"{member}, line {number}: {len(row)} fields, not {len(fields)}"
                )
            lines.append(_csv_line(row, fields, f"{member}, line {number}", recipe, info))
    return ("\n".join(lines) + "\n").encode()


def _fields(recipe: Recipe, info: DatasetInfo) -> list[str]:
    """The layout with ``*`` written out."""
    fields: list[str] = []
    for field in recipe.layout.split():
        fields.extend(info.columns if field == "*" else (field,))
    return fields


def _data_lines(text: str, recipe: Recipe) -> Iterator[tuple[int, str]]:
    """The lines, numbered from 1, that are not header, comment or blank."""
    for number, line in enumerate(text.splitlines(), start=1):
        comment = bool(recipe.comment) and line.startswith(recipe.comment)
        if number > recipe.skip and line.strip() and not comment:
            yield number, line


def _split(line: str, recipe: Recipe) -> list[str]:
    if not recipe.separator:
        return line.split()
    try:
        row = next(csv.reader([line], delimiter=recipe.separator))
    except (
        csv.Error
    ):  # binary rubbish; as one field it is refused like any other row that does not fit
        row = [line]
    return [field.strip() for field in row]


def _csv_line(
    row: list[str], fields: list[str], where: str, recipe: Recipe, info: DatasetInfo
) -> str:
    raw = dict(zip(fields, row, strict=True))
    label = raw["target"]
    known = recipe.positive + recipe.negative
    if label not in known:
        raise _misfit(info, recipe, f"{where}: class {label!r}, not one of {', '.join(known)}")
    values = ("" if raw[column] == recipe.missing else raw[column] for column in info.columns)
    if recipe.decimal != ".":
        values = (value.replace(recipe.decimal, ".") for value in values)
    return ",".join((*values, "1" if label in recipe.positive else "0"))


def _member(archive: bytes, member: str, recipe: Recipe, info: DatasetInfo) -> bytes:
    """One file of the archive, of bounded size; ``inner.zip/file`` is looked for in the inner
    archive.
    """
    base, _, inner = member.partition("/")
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            found = {e.filename.rsplit("/", 1)[-1]: e for e in opened.infolist() if not e.is_dir()}
            content = b""
            if base in found:
                with opened.open(found[base]) as stream:
                    content = stream.read(MAX_MEMBER_BYTES + 1)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        # RuntimeError: an encrypted member, or (NotImplementedError) an unknown way of compressing.
        raise _misfit(info, recipe, f"not a readable zip archive ({error})") from error
    if base not in found:
        raise _absent(base, set(found), recipe, info)
    if len(content) > MAX_MEMBER_BYTES:
        raise _misfit(info, recipe, f"{base} unpacks to more than {MAX_MEMBER_BYTES} bytes")
    return _member(content, inner, recipe, info) if inner else content


def _absent(member: str, found: set[str], recipe: Recipe, info: DatasetInfo) -> EncryptedStatsError:
    if f"{member}.Z" in found:
        return DatasetUnavailableError(
            f"data set {info.name!r}: UCI packs {member} by Unix compress ({member}.Z), which "
            "Python's "
            f"standard library cannot unpack. Put {info.file} into a folder and set "
            "ENCRYPTEDSTATS_DATA to it."
        )
    return _misfit(
        info, recipe, f"no file {member} in it (it has {', '.join(sorted(found)) or 'none'})"
    )


def _decoded(content: bytes, member: str, recipe: Recipe, info: DatasetInfo) -> str:
    try:
        return content.decode(recipe.encoding)
    except UnicodeError as error:
        raise _misfit(info, recipe, f"{member} is not {recipe.encoding} text") from error


def _misfit(info: DatasetInfo, recipe: Recipe, what: str) -> FileFormatError:
    return FileFormatError(
        f"data set {info.name!r}: {recipe.slug}.zip is not UCI's archive as known: {what}"
    )
