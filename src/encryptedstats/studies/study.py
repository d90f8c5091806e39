"""A study: several owners of rows agree on a document, pool encrypted rows or totals, and open
nothing but what the document asks.

Everything happens in one shared folder or bucket: the document, the signed messages, and the
objects they bring. The parties need not be online at the same time, and a killed process continues
where it was. Each call does what is due for the party that makes it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import pandas as pd

from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.circuits.search import Stage
from encryptedstats.crypto import Parameters, PublicKeys
from encryptedstats.crypto.envelopes import seal_for
from encryptedstats.crypto.keys import fingerprint_of
from encryptedstats.errors import ExistsError, FileFormatError, KeyMismatchError, StudyError
from encryptedstats.procedures.site_procedure import MINIMUM, SiteProcedure
from encryptedstats.storage import container
from encryptedstats.storage.objects import (
    local_or_url,
    object_exists,
    open_store,
    read_object,
    write_object,
)
from encryptedstats.studies import linking, rounds, validity
from encryptedstats.studies import totals as home
from encryptedstats.studies.documents import (
    MASKED,
    MAX_DOCUMENT_BYTES,
    ONE_HOLDER,
    ROUNDS,
    ROWS,
    TOTALS,
    VOTES,
    KeyRule,
    StudyDocument,
    check_votes,
    split_modes,
    write_document,
)
from encryptedstats.studies.holding import KeyKind, Opener, kind_of
from encryptedstats.studies.identifiers import REFUSE, LinkReport
from encryptedstats.studies.linkage import Linkage, LinkedTable, joined_schema, plan_linked
from encryptedstats.studies.parties import RECEIVER, SITE, WORKER, Identity, Invitation
from encryptedstats.studies.pooling import (
    are_from_rows,
    describe_rows,
    pool,
    seal_rows,
    site_table,
)
from encryptedstats.studies.runs import Round
from encryptedstats.studies.sealing import SealedStore
from encryptedstats.studies.status import Status
from encryptedstats.studies.transcript import (
    CHECK,
    MAX_OBJECT_BYTES,
    NEW,
    Message,
    SiteRows,
    StudyState,
    Transcript,
)
from encryptedstats.tables import EncryptedTable, PublicSchema, Question, Schema, Table
from encryptedstats.tables.answers.answer import PREDICTION_KIND, Answer
from encryptedstats.tables.answers.files import read_answer
from encryptedstats.tables.columns import table_columns
from encryptedstats.tables.encryption import FileRows
from encryptedstats.tables.manifest import MANIFEST
from encryptedstats.tables.questions.question import prepare_question
from encryptedstats.tables.questions.row_answers import stages_of

DOCUMENT: Final = "study.json"
_SEEN: Final = ".seen"
_SENT: Final = ".sent"
_STAGED: Final = ".staged"
_MAX_SEEN_BYTES: Final = 1 << 10
#: What to do where a study was deleted and created again in its folder.
_START_OVER: Final = (
    "If its members have agreed to create it again, join it with your new invitation and a new "
    "file for your identity, such as again.id, and compare the fingerprint; else do not go on"
)


@dataclass(frozen=True)
class Agreement:
    """What a new study is to be, before anything of it is written: the arguments of
    :meth:`Study.create`, which has their meaning.
    """

    schema: Schema
    questions: Mapping[
        str, Question | SiteProcedure | tuple[Question, str] | tuple[SiteProcedure, str]
    ]
    n_rows: int
    sites: Sequence[str]
    worker: str
    receiver: str
    key: str = ONE_HOLDER
    openers: int = 0
    name: str = "study"
    parameters: Parameters | None = None
    linkage: Linkage | None = None
    minimum: int = MINIMUM

    def to_document(self) -> tuple[StudyDocument, dict[str, str]]:
        """Return a new document with planned parameters, and the invitations by name; refuse what
        cannot be a study.
        """
        asked = {one: _with_mode(found) for one, found in self.questions.items()}
        holding = kind_of(self.key)
        return write_document(
            self.name,
            self.schema,
            asked,
            self.n_rows,
            self.parameters or self._plan(asked, holding),
            self.sites,
            self.worker,
            self.receiver,
            KeyRule(self.key, self.openers),
            self.linkage,
            self.minimum,
        )

    def _plan(self, asked: Mapping[str, Any], holding: KeyKind) -> Parameters:
        """Return the parameters that carry all questions and the validity of all rows."""
        resolved = None if self.linkage is None else self.linkage.resolve(self.schema)
        known, circuits = planned_circuits(
            self.schema, split_modes(asked)[0], self.n_rows, resolved
        )
        if not circuits:
            return Parameters.choose(max_value=self.n_rows, depth=0)
        return holding.parameters(circuits, known, self.n_rows, len(self.sites))


class Study:
    """A study as one of its parties sees it, or anybody who may read its folder.

    Parameters
    ----------
    url : path or fsspec URL
        The folder or bucket that all parties share.
    identity : path of a file, or Identity, optional
        Who you are in it, as :meth:`join` made it. Without it, you can only look.
    passphrase : str, optional
        Of the identity's file.
    fingerprint : str, optional
        What others have read to you by telephone, from :attr:`fingerprint`: a study of other
        members or documents is refused.

    Attributes
    ----------
    document : StudyDocument
        What the members have agreed on.
    invitations : dict
        Codes by name, where the study was just made: each is sent to one party, and stored nowhere.
    refusals : list of str
        What was refused while this object worked.

    Examples
    --------
    ``docs/guides/studies.md`` tells a whole study. The receiver::

        study = es.Study.create("study", schema=schema, questions={"forest": forest}, n_rows=10_000,
                                sites=["north", "south", "west"], worker="centre",
                                receiver="registry")

    every party, with the code that it was sent, and with the identity that this makes::

        es.Study.join("study", code, "north.id")
        study = es.Study("study", "north.id")
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        identity: str | os.PathLike[str] | Identity | None = None,
        *,
        passphrase: str | None = None,
        fingerprint: str | None = None,
    ) -> None:
        self.url = local_or_url(url)
        self.store = open_store(self.url)
        try:
            data = self.store.read(DOCUMENT, limit=MAX_DOCUMENT_BYTES)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{self.store.where(DOCUMENT)} is not there: no study lies at {self.url}"
            ) from None
        self.document = StudyDocument.from_bytes(data, self.store.where(DOCUMENT))
        self.transcript = Transcript(self.store, self.document)
        self.invitations: dict[str, str] = {}
        self.refusals: list[str] = []
        self._home: str | None = None
        self._seen: str | None = None
        self._me: Identity | None = None
        self._courses: dict[str, rounds.Followed] = {}
        if identity is not None:
            self._become(identity, passphrase)
        if fingerprint is not None:
            self._check_fingerprint(fingerprint)

    # -- who is who --------------------------------------------------------------------------------

    def _become(self, identity: str | os.PathLike[str] | Identity, passphrase: str | None) -> None:
        """Act as a party, with its files at home; without them it might send other bytes under
        masks, or for a coin, that it has used.
        """
        me = identity if isinstance(identity, Identity) else Identity.load(identity, passphrase)
        if me.study != self.document.id:
            raise KeyMismatchError(
                f"this identity is for study {me.study}, and {self.url} is study "
                f"{self.document.id}. {_START_OVER}",
                code="other-study",
            )
        self._me = me
        if not isinstance(identity, Identity):
            self._home = os.fspath(identity)
            self._seen = self._home + _SEEN
            if not object_exists(self._seen):
                raise StudyError(
                    f"{self._seen} is missing, which was made with the identity: without its files "
                    f"this party does not know what it has sent. Put back all files whose names "
                    f"begin with {Path(self._home).name}, or agree on another study",
                    code="files-at-home-missing",
                )
            self._remember()

    def _refuse_remains(self, identity: str | os.PathLike[str]) -> None:
        """Refuse a new identity beside what another one has seen and sent: it would be taken for
        its own.
        """
        for suffix in (_SEEN, _SENT, _STAGED):
            kept = os.fspath(identity) + suffix
            if not (object_exists(kept) or Path(kept).is_dir()):
                continue
            if suffix == _SEEN and self._has_had(kept):
                continue  # joining was interrupted, or nothing was sent that is kept at home
            raise StudyError(
                f"{kept} is of an identity that is no longer there, perhaps in a study that was "
                f"created again since. {_START_OVER}",
                code="remains-of-identity",
            )

    def _has_had(self, seen: str) -> bool:
        """Return whether the messages of this study contain what a file of seen ones ends with."""
        try:
            head = read_object(seen, limit=_MAX_SEEN_BYTES).decode().strip()
            self.transcript.check_contains(head)
        except (FileFormatError, UnicodeDecodeError):
            return False
        return True

    def path_by_identity(self, suffix: str) -> str:
        """Return a path at home, in the folder of the identity's file."""
        if self._home is None:
            raise StudyError(
                "this takes the file of your identity, beside which your part of the key and what "
                "you have sent are kept: give its "
                "path",
                code="no-identity-file",
            )
        return self._home + suffix

    def _remember(self) -> None:
        """Keep the end of the chain at home: a chain that lacks what this party has seen is
        refused.
        """
        if self._seen is not None:
            if object_exists(self._seen):
                self.transcript.check_contains(
                    read_object(self._seen, limit=_MAX_SEEN_BYTES).decode().strip()
                )
            write_object(self._seen, self.transcript.head().encode() + b"\n", private=True)

    @property
    def me(self) -> Identity:
        """Your identity."""
        if self._me is None:
            raise StudyError(
                "this takes a party of the study: give your identity, the file that was made when "
                "you joined",
                code="not-a-party",
            )
        return self._me

    def _as(self, role: str, what: str) -> Identity:
        if role not in self.document.roles(self.me.name):
            holders = {
                SITE: self.document.sites,
                WORKER: (self.document.worker,),
                RECEIVER: (self.document.receiver,),
            }
            raise StudyError(
                f"{self.me.name} does not {what}: that is for {', '.join(holders[role])}",
                code="wrong-role",
            )
        return self.me

    @property
    def fingerprint(self) -> str:
        """A hash of the document and all keys that members read to each other by telephone once all
        have joined.
        """
        state = self.state()
        state.check_joined("there is a fingerprint")
        parts = [
            self.document.id,
            *(
                repr(sorted(state.parties[name].to_dict().items()))
                for name in self.document.parties
            ),
        ]
        return fingerprint_of(hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32])

    def _check_fingerprint(self, expected: str) -> None:
        if "".join(expected.replace("-", " ").split()).lower() != self.fingerprint.replace(" ", ""):
            raise KeyMismatchError(
                f"the study at {self.url} has the fingerprint {self.fingerprint}, and "
                f"{expected!r} is expected: it has other "
                "members, keys or agreements than those that were read to you. Do not go on with "
                "it",
                code="other-fingerprint",
            )

    # -- making and joining ------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        url: str | os.PathLike[str],
        *,
        schema: Schema,
        questions: Mapping[
            str, Question | SiteProcedure | tuple[Question, str] | tuple[SiteProcedure, str]
        ],
        n_rows: int,
        sites: Sequence[str],
        worker: str,
        receiver: str,
        key: str = ONE_HOLDER,
        openers: int = 0,
        name: str = "study",
        parameters: Parameters | None = None,
        linkage: Linkage | None = None,
        minimum: int = MINIMUM,
    ) -> Study:
        """Write the document of a new study.

        :attr:`invitations` of the result has a code for each party.

        Parameters
        ----------
        url : path or fsspec URL
        schema : Schema
            Variables, levels and cut points, agreed on beforehand.
        questions : mapping
            All that may ever be asked, by name: a question or model; or with the mode it is
            answered, ``"rows"`` (from encrypted rows, by default), ``"votes"`` (under a joint key:
            for new rows that sites bring, by a model that nobody ever opens), ``"totals"`` (sites
            encrypt totals) or ``"masked"`` (sites mask totals, and only the sum is seen). A
            :class:`SiteProcedure` has the mode ``"rounds"``: sites mask totals round by round, and
            all of them and the receiver see the sums.
        n_rows : int
            The most rows that all sites have together.
        sites, worker, receiver : names
            Who brings rows, who computes, who opens. The worker must not be the receiver.
        key : "one holder", "escrow" or "joint"
            Whether the receiver holds the secret key, ``openers`` of the sites have to help it, or
            (experimental) nobody ever holds it, and all sites have to help: see
            docs/explanation/threshold.md.
        openers : int
            With ``key="escrow"``: how many sites it takes.
        name : str
        parameters : Parameters, optional
            By default those that carry all questions and the validity of all rows.
        linkage : Linkage, optional
            Where each site brings other columns of the same people. ``n_rows`` is then the most
            people that all sites have together.
        minimum : int
            The fewest rows of all sites behind a number that a procedure opens.

        Notes
        -----
        Procedures need ten rows of all sites for each number that their rounds can open:
        ``procedure.plan(schema)`` says how many before there is a study, and
        ``study.document.rows_needed`` for all of them together.
        """
        agreement = Agreement(
            schema,
            questions,
            n_rows,
            sites,
            worker,
            receiver,
            key,
            openers,
            name,
            parameters,
            linkage,
            minimum,
        )
        document, invitations = agreement.to_document()
        store = open_store(local_or_url(url))
        if not store.create(DOCUMENT, document.to_bytes()):
            raise ExistsError(
                f"there is a study at {os.fspath(url)} already; it was not touched: give another "
                "place",
                code="already-exists",
            )
        study = cls(url)
        study.invitations = invitations
        return study

    @classmethod
    def join(
        cls,
        url: str | os.PathLike[str],
        invitation: str,
        identity: str | os.PathLike[str],
        *,
        passphrase: str | None = None,
    ) -> Study:
        """Take part, with the code that you were sent: makes your keys, keeps them in a file, and
        signs the document.

        Read the document first: ``print(es.Study(url).document)``. Run again, after it was
        interrupted, with the same file.
        """
        study, invited = cls(url), Invitation(invitation)
        name = study.document.find_invited(invited)
        if object_exists(identity):
            me = Identity.load(identity, passphrase)
        else:
            study._refuse_remains(identity)
            me = Identity.new(study.document.id, name, study.document.reading_key(name, invited))
            # Before the identity is there, so that none is ever without it.
            if not object_exists(os.fspath(identity) + _SEEN):
                head = study.transcript.head().encode() + b"\n"
                write_object(os.fspath(identity) + _SEEN, head, private=True)
            me.save(identity, passphrase)
        study._become(identity, passphrase)
        if me.name != name:
            raise KeyMismatchError(
                f"{os.fspath(identity)} is the identity of {me.name}, and the invitation is for "
                f"{name}",
                code="other-identity",
            )
        known = study.state().parties.get(name)
        if known != me.party:
            study.post(
                "join",
                {"party": me.party.to_dict(), "proof": invited.proof(study.document.id, me.party)},
            )
        return study

    # -- what everybody sees -----------------------------------------------------------------------

    def state(self) -> StudyState:
        """Return the state after all messages so far."""
        return self.transcript.state()

    def status(self) -> Status:
        """Return who has done what, what was refused, and who has to do what next; prints as a
        list.
        """
        state = self.state()
        return Status(state, list(self.refusals), self._unsent(state))

    def _unsent(self, state: StudyState) -> list[tuple[str, str]]:
        """List who has announced what is not stored: a process of theirs was stopped, or waited for
        the others.
        """
        brought = [*state.rows.items(), *state.new_rows.items()]
        found = [
            (site, "add")
            for site, rows in brought
            if not self.store.exists(f"{rows.folder}/{MANIFEST}")
        ]
        has = self.transcript.has_object
        found += [(who, "link") for who, digest in linking.objects_of(state) if not has(digest)]
        due = rounds.objects_due(state)
        found += [(site, "share") for site, digest in due if not has(digest)]
        for now in state.rounds.values():
            found += [
                (site, "share")
                for site, digest in now.objects.items()
                if now.complete and not has(digest)
            ]
        if state.call is not None:
            sent = state.shares.get(state.call.hash, {})
            found += [(site, "share") for site, digest in sent.items() if not has(digest)]
        for sent in state.key_rounds.values():
            found += [
                (site, "keygen")
                for site, digest in sent.items()
                if not state.keys and not has(digest)
            ]
        found += [
            (self.document.worker, "fit")
            for digest in _computed_objects(state).values()
            if not has(digest)
        ]
        return list(dict.fromkeys(found))

    def messages(self) -> list[Message]:
        """Return all messages in order: the record of the study, openings among them."""
        return self.transcript.messages()

    def post(self, kind: str, content: Mapping[str, Any]) -> Message:
        """Say something in your name, signed; refused where the rules of the study do
        not allow it.
        """
        said = self.transcript.post(self.me, kind, content)
        self._remember()
        return said

    @cached_property
    def schema(self) -> Schema:
        """The agreed schema with all names; for members."""
        return self.document.own_schema(self._me)

    def public_keys(self) -> PublicKeys:
        """Return the keys that rows and totals are encrypted for."""
        return self._keys_of(self.state())

    def _keys_of(self, state: StudyState) -> PublicKeys:
        if not state.keys:
            raise StudyError(
                f"the study has no key yet: {self.document.receiver} has to make it", code="no-key"
            )
        keys = PublicKeys.from_container(
            container.from_bytes(self.transcript.read_object(state.keys))
        )
        if keys.key_id != state.key_id or keys.parameters != self.document.parameters:
            raise FileFormatError(
                "the public keys of the study are not those that were announced, or of other "
                "parameters",
                code="other-key",
            )
        return keys

    # -- the key -----------------------------------------------------------------------------------

    def keygen(
        self, path: str | os.PathLike[str] | None = None, passphrase: str | None = None
    ) -> None:
        """Make the study's key; ``path`` is where one holder keeps it."""
        kind_of(self.document.key.kind).keygen(self, path, passphrase)

    def retire_key(self, why: str) -> None:
        """Say in writing that nothing is to be encrypted for the study's key any more: who adds
        after this is refused.
        """
        self._as(RECEIVER, "retire the key")
        self.post("retire", {"key_id": self.state().key_id, "why": why})

    # -- a site ------------------------------------------------------------------------------------

    def add(self, data: Any, y: Any = None, *, new: Any = None, **options: Any) -> None:
        """Bring your rows, encrypted under the study's key, and the totals that are computed at
        home.

        Parameters
        ----------
        data : DataFrame, 2-D array, Table, path of a CSV or Parquet file, or EncryptedTable
            An encrypted table was made with :meth:`public_keys` elsewhere, and brings no totals.
            All others are checked against the agreed schema: a level, class or number that it does
            not know is an error.
        y : array, optional
            Classes, where ``data`` has none.
        new : DataFrame, 2-D array, path of a CSV or Parquet file, or EncryptedTable, optional
            Where the study asks for votes: your rows to vote on; their class, if it is known, stays
            at home. **The receiver sees the votes of each of them.** New rows come before all other
            rows: the first call says which you bring, or that you bring none, and once all sites
            have said so another call brings the other rows. :meth:`status` says when.
        **options
            Of the encryption, such as ``workers``.
        """
        self._as(SITE, "bring rows")
        state = self.state()
        if self.document.linkage is not None:
            self._upload_rows(state)
            if self.me.name not in state.rows:
                self._add_rows("rows", linking.place_own_rows(self, data), state, options)
            return
        if new is not None and not self.document.questions_in(VOTES):
            raise StudyError(
                "new= is for studies that ask for votes, and no question of this one does",
                code="no-votes-asked",
            )
        table = self._read_home(data, y)
        self._upload_rows(state)
        if self.document.pools and self.me.name not in state.rows:
            if self.me.name in state.undecided:
                self._add_new_rows(new, state, options)
            if not self.state().undecided:
                self._add_rows("rows", data if table is None else table, state, options)
        if table is not None and self.state().ready:
            for question in self.document.questions_in(TOTALS, MASKED):
                self._add_totals(question, table)
        self._store_totals()
        rounds.take_part(self, table)

    def _read_home(self, data: Any, y: Any = None) -> Table | None:
        """Return rows as a clear table; None where they are only encrypted, a piece at a time."""
        if isinstance(data, EncryptedTable):
            if self.document.measures:
                raise StudyError(
                    "totals are computed from plain rows, and these are encrypted: give the rows",
                    code="already-encrypted",
                )
            return None
        if not isinstance(data, (str, os.PathLike)):
            return self._check_table(data, y)
        if not self.document.measures:
            return None
        return Table.concat(
            list(FileRows(self.schema, data).tables(self.document.parameters.slots))
        )

    def run_rounds(
        self,
        data: Any,
        y: Any = None,
        *,
        every: float = 2.0,
        progress: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """Do what is due for your site in all procedures, until all are done; return their results.

        It waits for the other sites in every round. After an interruption call it again, with the
        same rows.

        Parameters
        ----------
        data, y
            See :meth:`add`.
        every : float
            Seconds between two looks into the shared folder.
        progress : function, optional
            Called with a sentence whenever a procedure has come further.
        """
        self._as(SITE, "bring rows")
        table, printed = self._read_home(data, y), dict[str, str]()
        while True:
            self.add(table)
            state = self.state()
            for name, facts in rounds.describe_runs(state).items():
                said = rounds.describe_run(name, facts)
                if progress is not None and printed.get(name) != said:
                    progress(said)
                printed[name] = said
            if not any(run.waits for run in state.runs.values()):
                return rounds.read_ended(self, record=False)
            time.sleep(every)

    def link(
        self,
        rows: pd.DataFrame | None = None,
        *,
        on: Sequence[str] = (),
        duplicates: str = REFUSE,
        send: bool = True,
    ) -> LinkReport | None:
        """Agree on the slots of people, in a study with linked columns; do what is due for you.

        A site gives its rows and the columns of their identifiers. Its first call sends keyed
        hashes or blinded points of them, and nothing else. Later calls, and those of the linkage
        agent, take no rows.

        Parameters
        ----------
        rows : DataFrame, optional
        on : sequence of str
            The columns with the identifiers, in the order that the study has agreed on.
        duplicates : "refuse", "first" or "drop"
            What becomes of rows with the identifiers of another row.
        send : bool
            False reports on the rows of a site, and sends nothing.

        Returns
        -------
        LinkReport or None
            Rows without identifiers, duplicates, people who nearly agree, and how many people are
            linked once that is known. None for the agent.
        """
        if not send and rows is not None:
            return linking.find_own_people(self, rows, on, duplicates).report
        return linking.link(self, rows, on, duplicates)

    def compare_linked(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Compare the people of this site who are linked with those who are not; send nothing.

        Parameters
        ----------
        rows : DataFrame
            The rows that were linked, with any columns.

        Returns
        -------
        DataFrame
            By column and level, the mean or share among linked and unlinked people, and their
            difference in standard deviations. Texts of more than 20 levels are left out.

        Raises
        ------
        StudyError
            If no site learns which of its people are linked (``reveals="size"``), or not yet.
        """
        return linking.compare_own_people(self, rows)

    def identifier_columns(self) -> list[str]:
        """Return the columns by which this site has linked its people."""
        return linking.identifier_columns(self)

    def _check_table(self, data: Any, y: Any) -> Table:
        table = (
            data
            if isinstance(data, Table)
            else self.schema.table(data, y, slots=self.document.parameters.slots)
        )
        if not table.schema.same_bins(self.schema):
            raise StudyError(
                "the table was made with another schema than the study's: give the rows, or make "
                "it with study.schema",
                code="other-schema",
            )
        if (
            table.weight_bound != 1
            or table.n_folds
            or not table.public_schema == self.document.schema
        ):
            raise StudyError(
                "rows of a study have no weights and no folds: their validity could not be checked",
                code="weights-or-folds",
            )
        return table

    def _add_new_rows(self, data: Any, state: StudyState, options: Mapping[str, Any]) -> None:
        """Bring the rows to vote on, or say that there are none."""
        if data is None:
            self.post("new rows", {"n_rows": 0})
            return
        if isinstance(data, EncryptedTable):
            self._add_rows("new rows", data, state, options)
            return
        if isinstance(data, (str, os.PathLike)):
            data = Table.concat(
                list(FileRows(self.schema, data).tables(self.document.parameters.slots))
            )
        table = replace(self._check_table(data, None), class_codes=None, target_values=None)
        self._add_rows("new rows", table, state, options)

    def _add_rows(
        self, kind: str, data: Any, state: StudyState, options: Mapping[str, Any]
    ) -> None:
        keys = self._keys_of(state)
        if state.key_id in state.retired:
            raise StudyError(
                f"the key {state.key_id} of the study is retired: {state.retired[state.key_id]}",
                code="retired-key",
            )
        kind_of(self.document.key.kind).check_keys(self, state, keys)
        staged = self._staging_place() / secrets.token_hex(8)
        if isinstance(data, EncryptedTable):
            data.save(staged)
        elif isinstance(data, Table):
            keys.encrypt(data, out=staged, **options)
        else:
            keys.encrypt_file(data, self.schema, staged, **options)
        self._announce_rows(kind, staged, state)

    def _announce_rows(self, kind: str, staged: Path, state: StudyState) -> None:
        """Post the message that fixes encrypted rows and whom they are sealed for; then
        store them.
        """
        folder, keys = f"rows/{self.me.name}/{staged.name}", {}
        for name in self.document.row_readers:
            bound = self._bind_folder(folder, name)
            keys[name] = seal_for(
                state.parties[name].sealing, self._own_folder_key(folder), bound
            ).hex()
        self.post(kind, {**describe_rows(str(staged), folder), "keys": keys})
        self._upload_rows(self.state())

    def _staging_place(self) -> Path:
        """Return the folder at home where rows are encrypted before their message is posted."""
        place = Path(self.path_by_identity(_STAGED))
        place.mkdir(mode=0o700, exist_ok=True)
        return place

    def _upload_rows(self, state: StudyState) -> None:
        """Store encrypted rows that a message of yours has announced; forget attempts without a
        message.
        """
        if self._home is None or not Path(self._home + _STAGED).is_dir():
            return
        announced = [
            rows[self.me.name].folder
            for rows in (state.new_rows, state.rows)
            if self.me.name in rows
        ]
        for staged in self._staging_place().iterdir():
            for folder in announced:
                if Path(folder).name == staged.name:
                    seal_rows(
                        str(staged), SealedStore(self.store, folder, self._own_folder_key(folder))
                    )
            shutil.rmtree(staged)

    def _own_folder_key(self, folder: str) -> bytes:
        return self.me.secret(b"rows\0" + folder.encode())

    def _bind_folder(self, folder: str, reader: str) -> bytes:
        return json.dumps(["encryptedstats rows", self.document.id, folder, reader]).encode()

    def _add_totals(self, question: str, table: Table) -> None:
        state, asked = self.state(), self.document.questions[question]
        now, name = state.round(question), self.me.name
        if name in now.objects or name not in now.members:
            return

        def make() -> bytes:
            if asked.mode == MASKED:
                return home.mask_totals(
                    self, state, question, home.site_values(asked.question, table)
                )
            keys = self._keys_of(state)
            kind_of(self.document.key.kind).check_keys(self, state, keys)
            answer = home.encrypt_answer(asked.question, table, keys)
            return home.seal_answer(self, state, question, answer)

        # What was made once under this binding is what is sent, whatever the rows are now.
        data = self._keep(_name_totals(question, now), make)
        self.post(
            "totals",
            {"question": question, "round": now.number, "object": hashlib.sha256(data).hexdigest()},
        )

    def _store_totals(self) -> list[str]:
        """Store your totals of questions for which every member has announced its own.

        Before that, a member could be excluded, and the totals of two lists of members would tell
        those of single ones.
        """
        stored, name, rounds = [], self.me.name, self.state().rounds
        # The announcements came after this party's own message: without them no later chain is
        # followed, or the host of the folder could remove one and exclude its site after these
        # totals are stored.
        self._remember()
        for question, now in rounds.items():
            if (
                now.complete
                and name in now.objects
                and not self.transcript.has_object(now.objects[name])
            ):
                self.store_announced(_name_totals(question, now), now.objects[name])
                stored.append(f"totals of {question}")
        return stored

    def share(self) -> list[str]:
        """Give what the study waits for from you: your number of the coin, your share of an
        opening. Says what was given.
        """
        sent = [*self._toss(), *self._store_totals(), *rounds.take_part(self, None)]
        state = self.state()
        call = state.call
        kind = kind_of(self.document.key.kind)
        due = call is not None and kind.shared and SITE in self.document.roles(self.me.name)
        if call is not None and due:
            name = f"share-{call.hash}"
            if self.me.name not in state.shares.get(call.hash, {}):
                self.send(
                    "share", {"call": call.hash}, name, partial(kind.share, self, state, call)
                )
                sent.append(f"a share for opening {', '.join(call.items)}")
            else:
                self.store_announced(name, state.shares[call.hash][self.me.name])
        return sent

    def send(
        self, kind: str, content: Mapping[str, Any], name: str, make: Callable[[], bytes]
    ) -> None:
        """Post a message that names an object, then store the object; both are made once, under a
        name at home.
        """
        digest = hashlib.sha256(self._keep(name, make)).hexdigest()
        self.post(kind, {**content, "object": digest})
        self.store_announced(name, digest)

    def store_announced(self, name: str, digest: str) -> None:
        """Store an object that a message of yours names, unless it is there."""
        if self.transcript.has_object(digest):
            return
        place = Path(self.path_by_identity(_SENT)) / name
        data = read_object(place, limit=MAX_OBJECT_BYTES)
        if hashlib.sha256(data).hexdigest() != digest:
            raise StudyError(
                f"{place} is not what your message has announced: it was changed since",
                code="changed-since-announced",
            )
        self.transcript.store_object(data)

    def _keep(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return what was made the first time, from a file at home.

        In the shared folder somebody else could replace the bytes, and they would be sent in this
        party's name.
        """
        place = Path(self.path_by_identity(_SENT))
        place.mkdir(mode=0o700, exist_ok=True)
        if not object_exists(place / name):
            with suppress(
                FileExistsError
            ):  # by another process of this party: then that is what is sent
                write_object(place / name, make(), private=True, overwrite=False)
        return read_object(place / name, limit=MAX_OBJECT_BYTES)

    def _toss(self) -> list[str]:
        state, name = self.state(), self.me.name
        if not state.fixed or name not in state.tossers or name in state.coins:
            return []
        if self._keep("rows-of-the-coin", lambda: state.fixed_rows) != state.fixed_rows:
            raise StudyError(
                "you have shown your number of the coin, or were about to, when the rows of the "
                "study were others: who exchanged "
                "them since knows it. Do not go on with this study",
                code="coin-already-shown",
            )
        self.post("coin", {"number": self.me.coin.hex()})
        return ["its random number for the joint draw"]

    # -- the worker --------------------------------------------------------------------------------

    def fit(self, **options: Any) -> list[str]:
        """Compute what can be computed now: validity totals of all sites, then the answers. Says
        what was computed.

        Options are those of :meth:`EncryptedTable.evaluate`, such as ``workers`` and ``device``.
        """
        self._as(WORKER, "compute")
        state, done = self.state(), []
        for name, digest in _computed_objects(state).items():
            self.store_announced(name, digest)
        if state.coin is not None and not state.checks:
            self._check_sites(state, options)
            done.append("validity totals of " + ", ".join(state.checked))
        for question in self._answerable(self.state()):

            def make(question: str = question) -> bytes:
                return container.to_bytes(
                    self._answer(question, self.state(), options).to_container()
                )

            self.send("answer", {"question": question}, _name_answer(question), make)
            done.append(question)
        return done

    def _answerable(self, state: StudyState) -> list[str]:
        ready = list(state.answerable)
        ready += [
            question
            for question in self.document.questions_in(TOTALS)
            if self._has_totals(state, question)
        ]
        return [question for question in ready if question not in state.answers]

    def _has_totals(self, state: StudyState, question: str) -> bool:
        now = state.round(question)
        return now.complete and all(map(self.transcript.has_object, now.objects.values()))

    def _check_sites(self, state: StudyState, options: Mapping[str, Any]) -> None:
        keys, coin, found = self._keys_of(state), state.coin or b"", {}
        for one in state.checked:

            def make(one: str = one) -> bytes:
                rows = self._rows_to_check(one, state, keys)
                total = validity.ask(rows, coin, len(self.document.sites), **options)
                return container.to_bytes(total.to_container())

            found[one] = hashlib.sha256(self._keep(_name_check(one, coin), make)).hexdigest()
        self.post("checks", {"objects": found})
        for one, digest in found.items():
            self.store_announced(_name_check(one, coin), digest)

    def _site(self, site: str, state: StudyState, keys: PublicKeys) -> EncryptedTable:
        rows = state.rows[site]
        return site_table(self._sealed_folder(site, rows), site, rows, self.document, keys)

    def _sealed_folder(self, site: str, rows: SiteRows) -> SealedStore:
        if self.me.name not in rows.keys:
            raise StudyError(
                f"the rows of {site} are sealed for {', '.join(rows.keys)}, not for {self.me.name}",
                code="sealed-for-others",
            )
        key = self.me.reader.open(
            rows.keys[self.me.name], self._bind_folder(rows.folder, self.me.name)
        )
        return SealedStore(self.store, rows.folder, key)

    def _rows_to_check(self, one: str, state: StudyState, keys: PublicKeys) -> EncryptedTable:
        """Return the rows that validity totals are computed from: those of a site, or
        its new rows.
        """
        if not one.startswith(NEW):
            return self._site(one, state, keys)
        site = one.removeprefix(NEW)
        rows = state.new_rows[site]
        return site_table(
            self._sealed_folder(site, rows), site, rows, self.document, keys, new=True
        )

    def new_rows(self) -> EncryptedTable:
        """Return the encrypted rows to vote on, of all valid sites, in the order of the
        document.
        """
        state = self.state()
        if not state.asking_sites:
            raise StudyError("no new rows were found to be valid yet", code="no-valid-new-rows")
        keys = self._keys_of(state)
        return pool([self._rows_to_check(NEW + site, state, keys) for site in state.asking_sites])

    def table(self) -> EncryptedTable:
        """Return the encrypted rows of all valid sites as one table."""
        state = self.state()
        if not state.judged or not state.good_sites:
            raise StudyError("no rows were found to be valid yet", code="no-valid-rows")
        keys = self._keys_of(state)
        tables = [self._site(site, state, keys) for site in state.good_sites]
        if self.document.linkage is None:
            return pool(tables)
        return LinkedTable(tables, self.document, keys, linking.links_of(state).n_linked)

    def _answer(self, question: str, state: StudyState, options: Mapping[str, Any]) -> Answer:
        if self.document.questions[question].mode == TOTALS:
            return home.add_up(self, question, state.round(question), self._keys_of(state))
        return self.answer_from_rows(question, **options)

    def answer_from_rows(self, question: str, **options: Any) -> Answer:
        """Return the answer to a question over the rows of all valid sites, or votes on their new
        rows.

        The answer is the same for everybody.
        """
        asked = self.document.questions[question]
        answer = self.table()._answer_to(asked.question, **options)
        return answer.predict_votes(self.new_rows(), **options) if asked.mode == VOTES else answer

    # -- the receiver ------------------------------------------------------------------------------

    def exclude(self, site: str, why: str) -> None:
        """Go on without a site that does not come, in all questions; those who sent totals send
        them under other masks.

        Refused once any question has the totals or validity totals of all its members.
        """
        self._as(RECEIVER, "exclude sites")
        self.post("exclude", {"name": site, "why": why})

    def open(
        self,
        key: str | os.PathLike[str] | None = None,
        passphrase: str | None = None,
        *,
        again: bool = False,
    ) -> dict[str, Any]:
        """Open what may be opened now: first whether rows are valid, then the answers. An opening
        is recorded before it is shown. Sites read the results of procedures, whose sums they see.

        Parameters
        ----------
        key : path, optional
            Of the secret key, where one holder has it.
        passphrase : str, optional
            Of its file.
        again : bool
            Where sites have to help: call for answers once more that were opened already, since
            what was shown is lost.

        Returns
        -------
        dict
            What each question makes of its totals, by name; empty where something else comes first:
            :meth:`status` says what.
        """
        if self.document.procedures and RECEIVER not in self.document.roles(self.me.name):
            self._as(SITE, "read the results of procedures")
            return rounds.read_ended(self, record=False)
        self._as(RECEIVER, "open results")
        self._toss()
        found = self._open_masked(self.state()) | rounds.read_ended(self, record=True)
        state = self.state()
        items = self._openable(state, again)
        if not items:
            return found
        kind, call = kind_of(self.document.key.kind), None
        if kind.shared:
            call = state.call
            if call is None:
                self.post("call", {"items": items})
                return found
            items = {name: digest for name, digest in call.items.items() if name in state.pending}
        opener = kind.opener(self, state, call, key, passphrase)
        if opener is None:
            return found
        if any(name.startswith(CHECK) for name in items):
            self._judge(state, items, opener)
            return found | (self.open(key, passphrase) if not kind.shared else {})
        return found | {
            name: self._open_answer(name, digest, state, opener) for name, digest in items.items()
        }

    def _openable(self, state: StudyState, again: bool) -> dict[str, str]:
        """Return what is to be opened next: validity totals first, then all answers
        that are there.
        """
        if state.checks and not state.valid:
            return {CHECK + site: digest for site, digest in state.checks.items()}
        if kind_of(self.document.key.kind).shared and state.call is None:
            return {
                name: digest
                for name, digest in state.answers.items()
                if again or name not in state.opened
            }
        return dict(state.answers)

    def _judge(self, state: StudyState, items: Mapping[str, str], opener: Opener) -> None:
        """Open the validity totals, and say pass or fail of each, once; nobody is shown more."""
        keys, valid = self._keys_of(state), {}
        for name, digest in items.items():
            file = container.from_bytes(self.transcript.read_object(digest))
            totals = EncryptedNumbers.from_container(file, keys)
            valid[name.removeprefix(CHECK)] = validity.passes(
                totals, opener, len(self.document.sites)
            )
        self.post("verdict", {"valid": valid})

    def _open_answer(self, question: str, digest: str, state: StudyState, opener: Opener) -> Any:
        keys, asked = self._keys_of(state), self.document.questions[question]
        answer = read_answer(container.from_bytes(self.transcript.read_object(digest)), keys)
        self._check_answer(question, answer, state)
        if question not in state.opened or question in state.pending:
            self.post("opened", {"question": question, "object": digest})
        return opener(
            answer if asked.mode == TOTALS else answer.question._present(answer), schema=self.schema
        )

    def _check_answer(self, question: str, answer: Answer, state: StudyState) -> None:
        """Refuse an answer to another question, or from other rows, than the study has
        agreed on.
        """
        asked = self.document.questions[question]
        good = (
            answer.question._asks_same(asked.question)
            and answer.schema.public() == self.document.schema
        )
        if asked.mode != TOTALS:
            votes = asked.mode == VOTES
            rows = (
                [state.new_rows[s] for s in state.asking_sites]
                if votes
                else [state.rows[s] for s in state.good_sites]
            )
            n_rows = sum(one.n_rows for one in rows)
            if self.document.linkage is not None:
                n_rows = linking.links_of(state).n_linked
            good = good and answer.n_rows == n_rows and are_from_rows(answer.block_ids, rows)
            good = good and (answer.kind == PREDICTION_KIND, answer.output) == (
                asked.mode == VOTES,
                asked.question.outputs[0] if asked.mode == VOTES else "",
            )
            good = good and (
                bool(answer.ciphertexts.flooded) or self._keys_of(state).joint
            )  # whose members flood when they share
        if not good:
            raise FileFormatError(
                f"what {self.document.worker} gave for {question!r} answers another question, or "
                "is from other rows: "
                "it is not opened",
                code="other-question-or-rows",
            )

    def _open_masked(self, state: StudyState) -> dict[str, Any]:
        found = {}
        for question, asked in self.document.questions_in(MASKED).items():
            now = state.round(question)
            if self._has_totals(state, question):
                read = home.unmask(self, question, now, asked.question, self.schema)
                if question not in state.opened:
                    self.post("opened", {"question": question, "object": now.digest})
                found[question] = read
        return found

    def __repr__(self) -> str:
        who = "somebody" if self._me is None else self._me.name
        return (
            f"Study({self.document.name!r} at {self.url}, {len(self.document.sites)} sites, seen "
            f"by {who})"
        )


def _with_mode(asked: Any) -> tuple[Any, str]:
    """Return a question and its mode, which need not be said of rows and of procedures."""
    if isinstance(asked, tuple):
        return asked
    return asked, ROUNDS if isinstance(asked, SiteProcedure) else ROWS


def _name_totals(question: str, now: Round) -> str:
    return f"totals-{question}-{now.number}"


def _name_answer(question: str) -> str:
    return f"answer-{question}"


def _name_check(one: str, coin: bytes) -> str:
    return f"check-{one.replace(' ', '-')}-{coin.hex()[:16]}"


def _computed_objects(state: StudyState) -> dict[str, str]:
    """Return the hashes of all that the worker has computed, by the names that it keeps
    them under.
    """
    checks = {_name_check(one, state.coin or b""): digest for one, digest in state.checks.items()}
    return checks | {_name_answer(question): digest for question, digest in state.answers.items()}


def planned_circuits(
    schema: Schema,
    asked: Mapping[str, tuple[Question, str]],
    n_rows: int,
    linkage: Linkage | None = None,
) -> tuple[Schema | PublicSchema, list[Any]]:
    """Return everything that the parameters of a study must carry, and the schema of the columns.

    That is the questions, and the validity of the rows of any site.
    """
    if linkage is not None:
        return _planned_links(schema, asked, n_rows, linkage)
    rows = [question for question, mode in asked.values() if mode == ROWS]
    sums = [question for question, mode in asked.values() if mode == TOTALS]
    public, votes = schema.public(), []
    for name, (question, mode) in asked.items():
        if mode == VOTES:
            prepared = prepare_question(question, schema)._fix_seed()
            check_votes(name, prepared, public)
            votes.append(prepared)
    circuits: list[Any] = [
        *rows,
        *(home.plan_totals(one.in_ids(schema)._fix_seed(), public, n_rows) for one in sums),
    ]
    stored = table_columns(public, classes=public.has_target)
    for number, one in enumerate(votes):
        # Totals of several models have names of their own.
        circuits += [
            stage.rename_packs(str(number)) for stage in stages_of(one, public, stored, n_rows)
        ]
    if rows or votes:
        circuits.append(validity.plan_validity(public, n_rows))
    return schema, circuits


def _planned_links(
    schema: Schema, asked: Mapping[str, tuple[Question, str]], n_rows: int, linkage: Linkage
) -> tuple[PublicSchema, list[Any]]:
    """Return the same for linked columns: totals multiplied by the columns that link."""
    joined = joined_schema(schema.public(), len(linkage.columns))
    settled = (prepare_question(one, schema)._fix_seed() for one, _ in asked.values())
    stages = [Stage(plan_linked(one, schema.public(), linkage), n_rows) for one in settled]
    return joined, [*stages, validity.plan_validity(joined, n_rows)]
