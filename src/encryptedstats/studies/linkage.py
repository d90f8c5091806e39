"""Linked columns: one table whose columns lie at different sites.

`Linkage` is what the document of a study says about it. Every site encrypts its own columns in
slots that all sites agree on, and says in a further column which slots it has a person in. This
module derives the schema of each site, joins the encrypted columns, and multiplies every total by
the further columns, so that only people of all sites are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import (
    COLUMN,
    LINEAR,
    PRODUCT,
    TOTAL,
    Expression,
    column,
    fold,
)
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.crypto import PublicKeys
from encryptedstats.errors import ArgumentError, Cure, ParameterError, SchemaError
from encryptedstats.studies.identifiers import KINDS
from encryptedstats.tables import EncryptedTable, PublicSchema, Question, Schema, Table
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.blocks import Residues
from encryptedstats.tables.columns import list_question_columns, table_columns
from encryptedstats.tables.encodings import Column, encoding_of
from encryptedstats.tables.facts import Blocks, Sign
from encryptedstats.tables.questions.question import count_weights, product_of
from encryptedstats.tables.schema.variables import PublicVariable, Variable

if TYPE_CHECKING:
    from encryptedstats.studies.documents import StudyDocument

#: What sites learn of each other's people: how many they share, or also which.
SIZE, MEMBERS = "size", "members"
#: The further variable of a site's table: whether it has a person in the slot.
LINKED: Final = "(linked)"
_LEVELS: Final = ("yes", "no")
TARGET_POSITION: Final = -1


@dataclass(frozen=True)
class Linkage:
    """How the columns of a study lie at its sites, and how their rows are linked.

    Parameters
    ----------
    columns : mapping
        For each site the names of the variables that it brings, the target among them. In a
        document these are positions, and -1 for the target.
    identifiers : sequence of "text", "code" or "date"
        The kinds of the identifiers by which people are linked, in the order in which all sites
        give them.
    agent : str
        The party that links: it sees keyed hashes alone. Without an agent, two sites compute the
        intersection of their people between themselves.
    reveals : "size" or "members"
        Whether sites learn only how many people they share, or which of their own. Without an
        agent both sites learn which.
    min_count : int
        The least number of people in any cell that is made from the columns of one site.
    sensitive : bool
        Whether being at a site is sensitive itself. Then nothing may reveal members.

    Examples
    --------
    >>> Linkage({"hospital": ["age", "bmi"], "registry": ["died"]}, ["code"], agent="office")
    Linkage(hospital: age, bmi; registry: died; linked by office)
    """

    columns: Mapping[str, Sequence[str | int]]
    identifiers: Sequence[str] = ("code",)
    agent: str = ""
    reveals: str = SIZE
    min_count: int = 10
    sensitive: bool = False

    def resolve(self, schema: Schema) -> Linkage:
        """Return the linkage of a document, which has positions in place of names."""
        columns = {
            site: tuple(
                TARGET_POSITION if name == schema.target else schema.index(name) for name in names
            )
            for site, names in self.columns.items()
        }
        return replace(self, columns=columns, identifiers=tuple(self.identifiers))

    def to_dict(self) -> dict[str, Any]:
        return {
            "columns": {site: list(found) for site, found in self.columns.items()},
            "identifiers": list(self.identifiers),
            "agent": self.agent,
            "reveals": self.reveals,
            "min_count": self.min_count,
            "sensitive": self.sensitive,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Linkage:
        """Return the linkage that :meth:`to_dict` wrote; `check` refuses impossible ones."""
        columns = {site: tuple(found) for site, found in values["columns"].items()}
        found = cls(
            columns,
            tuple(values["identifiers"]),
            values["agent"],
            values["reveals"],
            values["min_count"],
            values["sensitive"],
        )
        types = (found.agent, str), (found.min_count, int), (found.sensitive, bool)
        if not all(type(value) is kind for value, kind in types):
            raise ArgumentError("a malformed linkage", code="malformed-linkage")
        return found

    def positions(self, site: str) -> tuple[int, ...]:
        """Return the positions of a site's variables, in a document; -1 is the target."""
        return tuple(int(one) for one in self.columns[site])

    def places(self, site: str) -> dict[int, int]:
        """Return where each variable of a site lies in the site's own table."""
        own = [j for j in self.positions(site) if j != TARGET_POSITION]
        found = {j: place for place, j in enumerate(own)}
        has_target = TARGET_POSITION in self.positions(site)
        return found | ({TARGET_POSITION: TARGET_POSITION} if has_target else {})

    @property
    def multiplies(self) -> bool:
        """Whether slots hold people of some sites only, so that totals have to leave them out."""
        return self.reveals == SIZE

    def risks(self, sites: Sequence[str]) -> list[str]:
        """Return what linking does not protect from, in sentences for the members."""
        found = [
            "a site knows who sits in which slot: one that encrypts columns for a single person "
            "learns, with the receiver, what other sites know of that person"
        ]
        if self.agent:
            found.append(
                f"{self.agent} together with one site can try out the identifiers of the others' "
                "people"
            )
            if self.multiplies:
                found.append(
                    f"{self.agent}, which assigns slots, can let the sites share one person alone: "
                    "anybody who gets the answers learns the columns of that person"
                )
        else:
            found.append("a site that makes up identifiers learns whether they are at the other")
        if self.reveals == MEMBERS:
            found.append(f"{' and '.join(sites)} learn which of their people they share")
        return found

    def check(self, document: StudyDocument) -> None:
        """Refuse what would link nothing, or reveal what the document promises to keep."""
        schema, sites = document.schema, document.sites
        listed = [position for found in self.columns.values() for position in found]
        every = [*range(len(schema.variables)), *([TARGET_POSITION] if schema.has_target else [])]
        if set(self.columns) != set(sites) or sorted(listed) != sorted(every):
            raise ArgumentError(
                "linked columns: each site brings some columns, and each variable and the target "
                "come from one site",
                code="columns-not-of-sites",
            )
        if not self.identifiers or not set(self.identifiers) <= set(KINDS):
            raise ArgumentError(
                f"identifiers={list(self.identifiers)}: one or more of {', '.join(KINDS)}",
                code="unknown-identifier-kind",
            )
        if self.agent in (*sites, document.worker, document.receiver):
            raise ArgumentError(
                f"{self.agent} links and has another role: together with the role of a site, "
                "worker or receiver, its hashes would tell who is who. Name another party",
                code="agent-has-other-role",
            )
        if self.reveals not in (SIZE, MEMBERS) or self.min_count < 1:
            raise ArgumentError(
                f"reveals={self.reveals!r}, min_count={self.min_count!r}: reveals is {SIZE!r} or "
                f"{MEMBERS!r}, and a cell has one person or more",
                code="malformed-linkage",
            )
        self._check_promises(document)

    def _check_promises(self, document: StudyDocument) -> None:
        if self.sensitive and (self.reveals == MEMBERS or not self.agent):
            raise ParameterError(
                "being at a site is sensitive in this study, and without an agent, or with "
                f"reveals={MEMBERS!r}, sites learn whom they share: ",
                Cure("link by an agent", f"name an agent, and reveals={SIZE!r}"),
                code="membership-sensitive",
            )
        if not self.agent and (len(document.sites) != 2 or self.reveals != MEMBERS):
            raise ArgumentError(
                f"without an agent two sites link, and both learn whom they share: say "
                f"reveals={MEMBERS!r}, or name an agent",
                code="intersection-of-two",
            )
        for name, one in document.questions.items():
            if one.mode != "rows":
                raise ArgumentError(
                    f"{name!r} is asked in the mode {one.mode!r}: no site has all columns, so "
                    "linked rows are asked in the mode 'rows'",
                    code="linked-needs-rows",
                )
            if one.question._drawn_circuit(document.schema)[0] is not None:
                raise ArgumentError(
                    f"{name!r} draws rows by their slots, and sites know who sits in which slot: "
                    "fraction=0",
                    code="stochastic-fraction",
                )
            link_totals(
                one.question.circuit(document.schema, question_columns(document.schema)), ()
            )

    def __repr__(self) -> str:
        columns = "; ".join(f"{site}: {', '.join(map(str, c))}" for site, c in self.columns.items())
        return f"Linkage({columns}; linked by {self.agent or 'the sites themselves'})"


def question_columns(schema: PublicSchema) -> list[Column]:
    """Return the columns that questions about linked rows are written with."""
    return list_question_columns(schema, table_columns(schema, classes=schema.has_target))


# -- schemas ---------------------------------------------------------------------------------------


def site_schema(schema: PublicSchema, positions: Sequence[int]) -> PublicSchema:
    """Return the public schema of the table of one site: its columns, and whether they
    are there.
    """
    chosen = [schema.variables[j] for j in positions if j != TARGET_POSITION]
    every = [*chosen, PublicVariable("", "categorical", len(_LEVELS))]
    renamed = tuple(replace(one, id=f"v{place}") for place, one in enumerate(every))
    if TARGET_POSITION in positions:
        return PublicSchema(renamed, schema.n_classes, schema.target_number)
    return PublicSchema(renamed)


def own_site_schema(schema: Schema, positions: Sequence[int]) -> Schema:
    """Return the same with names, for the site itself."""
    chosen = tuple(schema.variables[j] for j in positions if j != TARGET_POSITION)
    has_target = TARGET_POSITION in positions
    return Schema(
        (*chosen, Variable(LINKED, "categorical", levels=_LEVELS)),
        schema.target if has_target else None,
        schema.classes if has_target else (),
        schema.missing,
        target_number=schema.target_number if has_target else None,
    )


def joined_schema(schema: PublicSchema, n_sites: int) -> PublicSchema:
    """Return the schema of the joined table: that of the study, and a further variable a site."""
    start = len(schema.variables)
    more = tuple(
        PublicVariable(f"v{start + k}", "categorical", len(_LEVELS)) for k in range(n_sites)
    )
    return replace(schema, variables=(*schema.variables, *more))


def link_columns(schema: PublicSchema, linkage: Linkage) -> tuple[str, ...]:
    """Return the columns of the joined table that totals are multiplied by."""
    start, sites = len(schema.variables), range(len(linkage.columns))
    return tuple(str(Column("onehot", start + k)) for k in sites) if linkage.multiplies else ()


def place_rows(table: Table, slots: NDArray[np.int64], n_slots: int) -> Table:
    """Return a site's table with each row in its slot.

    Slots without a person have any valid value: whatever is computed there is multiplied by 0.
    """
    variables = table.schema.variables

    def place(values: NDArray[Any], filler: int) -> NDArray[Any]:
        placed = np.full(n_slots, filler, dtype=values.dtype)
        placed[slots] = values
        return placed

    fillers = [_nearest_to_zero(one) for one in variables[:-1]] + [_LEVELS.index("no")]
    number = table.schema.target_number
    return replace(
        table,
        data=tuple(map(place, table.data, fillers)),
        class_codes=None if table.class_codes is None else place(table.class_codes, 0),
        target_values=None
        if table.target_values is None or number is None
        else place(table.target_values, _nearest_to_zero(number)),
        chunk_rows=(),
        n_dropped=0,
    )


def _nearest_to_zero(variable: Variable) -> int:
    """Return a valid value of a variable: its first bin, or the number nearest to 0."""
    if variable.kind != "number":
        return 0
    return min(max(0, variable.low or 0), variable.high or 0)


# -- totals ----------------------------------------------------------------------------------------


def link_totals(totals: Sequence[Expression], names: Sequence[str]) -> list[Expression]:
    """Multiply what is added up by the columns with these names.

    Where each term has a class or row indicator, the indicator is multiplied instead: one product
    for each class, in place of one for each total.
    """
    of_classes = count_weights(totals)
    linked = product_of([column(name) for name in names]) if names else None

    def rule(node: Expression, args: list[Expression]) -> Expression:
        if node.op not in (COLUMN, LINEAR, PRODUCT, TOTAL):
            raise ArgumentError(
                f"a question with the operation {node.op!r} depends on slots, and sites know who "
                "sits in which slot: it cannot be asked of linked rows",
                code="slots-of-linked-rows",
            )
        if linked is None:
            return node
        if node.op == COLUMN:
            is_start = of_classes and encoding_of(Column.parse(node.data)).counts_rows
            return node * linked if is_start else node
        if node.op == TOTAL and not of_classes:
            args = [args[0] * linked]
        return Expression(node.op, tuple(args), node.data, node.is_total)

    values = fold(totals, rule)
    return [values[total] for total in totals]


def plan_linked(question: Question, schema: PublicSchema, linkage: Linkage) -> list[Expression]:
    """Return the totals of a question about linked rows, for a plan."""
    found = question.circuit(schema, question_columns(schema))
    return link_totals(found, link_columns(schema, linkage))


# -- the joined table ------------------------------------------------------------------------------


@dataclass(frozen=True)
class JoinedBlocks:
    """The blocks of several tables with the same rows, as blocks with all their columns.

    Attributes
    ----------
    parts : tuple of Blocks
        One a site.
    places : tuple of (int, int)
        For each column of the joined table the part that has it, and where.
    """

    parts: tuple[Blocks, ...]
    places: tuple[tuple[int, int], ...]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple("+".join(ids) for ids in zip(*(part.ids for part in self.parts), strict=True))

    @property
    def rows(self) -> tuple[int, ...]:
        return self.parts[0].rows

    def block(self, index: int) -> Residues:
        return np.stack([self.column(index, place) for place in range(len(self.places))])

    def seeds(self, index: int) -> bytes:
        return b""

    def column(self, index: int, column: int) -> Residues:
        part, place = self.places[column]
        return self.parts[part].column(index, place)

    def columns(self, index: int, columns: Sequence[int]) -> Sequence[Residues]:
        return self._gather(columns, lambda part, places: part.columns(index, places))

    def pieces(
        self, index: int, columns: Sequence[int], prime: int, start: int, stop: int
    ) -> Residues:
        found = self._gather(
            columns, lambda part, places: list(part.pieces(index, places, prime, start, stop))
        )
        return np.stack(found)

    def _gather(
        self, columns: Sequence[int], read: Callable[[Blocks, list[int]], Sequence[Residues]]
    ) -> list[Residues]:
        """Read columns site by site, and return them in the order that was asked for."""
        found: dict[int, Residues] = {}
        for number, part in enumerate(self.parts):
            own = [one for one in columns if self.places[one][0] == number]
            if own:
                found |= zip(own, read(part, [self.places[one][1] for one in own]), strict=True)
        return [found[one] for one in columns]

    def content(self) -> list[str]:
        return [one for part in self.parts for one in part.content()]

    def stored_bytes(self) -> int:
        return sum(part.stored_bytes() for part in self.parts)

    def signer(self, index: int) -> Sign | None:
        """Return None: rows of sites carry no signature of an owner."""
        return None


class LinkedTable(EncryptedTable):
    """The columns of all sites, which counts people of all of them only.

    Attributes
    ----------
    links : tuple of str
        The columns that every total is multiplied by.
    """

    def __init__(
        self,
        tables: Sequence[EncryptedTable],
        document: StudyDocument,
        keys: PublicKeys,
        n_linked: int,
    ) -> None:
        linkage = document.linkage
        assert linkage is not None
        self._known, self._n_linked = document.schema, n_linked
        self.links = link_columns(document.schema, linkage)
        facts, places = _join_columns(tables, document, linkage)
        blocks = JoinedBlocks(tuple(table.blocks for table in tables), places)
        super().__init__(facts, blocks, keys, accepted=True)

    @property
    def n_rows(self) -> int:
        """The number of people that all sites have."""
        return self._n_linked

    def totals(self, question: Question, **options: Any) -> EncryptedNumbers:
        found = question.circuit(self._known, question_columns(self._known))
        return self.evaluate(link_totals(found, self.links), **options)

    def _with_totals(self, asked: Question, totals: EncryptedNumbers) -> Answer:
        assert isinstance(self.blocks, JoinedBlocks)
        ids = tuple(one for part in self.blocks.parts for one in part.ids)
        return Answer(asked, totals, self._known, self.n_rows, ids, weight_bound=1)


def _join_columns(
    tables: Sequence[EncryptedTable], document: StudyDocument, linkage: Linkage
) -> tuple[Any, tuple[tuple[int, int], ...]]:
    """Return the facts of the joined table, and where each of its columns lies."""
    schema = joined_schema(document.schema, len(tables))
    columns = tuple(
        table_columns(schema, classes=schema.has_target, digit_bits=document.parameters.digit_bits)
    )
    owners: dict[int, tuple[int, int]] = {}
    for part, site in enumerate(document.sites):
        own = linkage.places(site)
        owners |= {j: (part, place) for j, place in own.items()}
        n_own = sum(j != TARGET_POSITION for j in own)
        owners[len(document.schema.variables) + part] = part, n_own
    places = []
    for one in columns:
        part, position = owners[one.variable]
        local = replace(one, variable=position)
        places.append((part, tables[part].facts.columns.index(local)))
    if len({table.blocks.rows for table in tables}) != 1:
        raise SchemaError(
            "the sites' tables have different numbers of rows: they are not of the same slots",
            code="different-slots",
        )
    facts = replace(tables[0].facts, schema=schema, columns=columns)
    return facts, tuple(places)
