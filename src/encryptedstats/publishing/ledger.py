"""The ledger: what was opened, published and released, when, by whom, and at what privacy cost.

It lies in a folder beside the key, or where all members of a study reach it: a chain of signed
entries (`storage.chains`). A cost is written before the result is shown, so a crash in between
costs privacy and never gives it away. A person who can write to the folder can still restore an
earlier state; keep the hash of the last entry (``ledger.head()``) to notice.

A ledger adds up epsilons of one unit of privacy and one neighbouring relation (`units.Unit`), which
are fixed when it begins. A second ledger of the same key would start at 0 again: `Ledger.begin`
looks for others in the folder around it and in the list beside the key file (`other_ledgers`).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pandas as pd

from encryptedstats.crypto.keys import Owner, PublicKeys
from encryptedstats.crypto.signatures import verifies
from encryptedstats.errors import (
    BudgetError,
    Cure,
    EncryptedStatsError,
    ExistsError,
    FileFormatError,
    KeyMismatchError,
    ParameterError,
)
from encryptedstats.publishing.accounting import Spent, total_epsilon
from encryptedstats.publishing.rules import Rules
from encryptedstats.publishing.units import ADD, REPLACE, ROW, Unit
from encryptedstats.storage.chains import Chain, ChainEntry
from encryptedstats.storage.files import PRIVATE, write_atomic
from encryptedstats.storage.objects import open_store
from encryptedstats.tables.blocks import rows_id
from encryptedstats.words import plural

FOLDER: Final = "ledger"
BEGIN: Final = "begin"
OPENED: Final = "opened"
PUBLISHED: Final = "published"
RELEASED: Final = "released"
BUDGET: Final = "budget"
_FIRST: Final = "00000000.json"
_MEMBER: Final = 64  # digits of a signing key
_LISTED: Final = ".ledgers"  # beside the key file: the ledgers that were begun for it

Content = dict[str, Any]


@dataclass(frozen=True)
class Budget:
    """The most that all releases together may cost."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        for name, value, most in (("epsilon", self.epsilon, math.inf), ("delta", self.delta, 1.0)):
            if (
                isinstance(value, bool)
                or not isinstance(value, (int, float))
                or not 0 < value < most
            ):
                raise ParameterError(
                    (
                        f"{name}={value!r}: a budget has an epsilon above 0 and a delta between 0 "
                        "and 1"
                    ),
                    code="budget-out-of-range",
                )


class NoLedgerError(EncryptedStatsError, FileNotFoundError):
    """A folder without a ledger of this key."""


class Ledger:
    """The record of a key's openings and releases, and the budget that is left.

    Parameters
    ----------
    url : path or fsspec URL
        Its folder.
    keys : PublicKeys or Owner
        The keys of the ledger's founder: entries that none of its members has signed are refused.

    Examples
    --------
    >>> import tempfile, encryptedstats as es
    >>> owner = es.Owner(es.Parameters.choose(max_value=1000, depth=1))
    >>> url = tempfile.mkdtemp() + "/ledger"
    >>> ledger = es.Ledger.begin(url, owner, epsilon=3, delta=1e-6, rules="pcornet")
    >>> ledger.budget, ledger.epsilon_spent
    (Budget(epsilon=3.0, delta=1e-06), 0.0)
    """

    def __init__(self, url: str | os.PathLike[str], keys: PublicKeys | Owner) -> None:
        self.keys = keys.public_keys(()) if isinstance(keys, Owner) else keys
        self.url = os.fspath(url)
        self._chain = Chain(
            open_store(url), FOLDER, f"publishing ledger of key {self.keys.key_id}", _is_signed
        )

    @classmethod
    def begin(
        cls,
        url: str | os.PathLike[str],
        owner: Owner,
        *,
        epsilon: float | None = None,
        delta: float = 1e-6,
        rules: str | Rules | None = None,
        members: Sequence[PublicKeys] = (),
        max_rows: int = 1,
        relation: str = REPLACE,
        another: bool = False,
    ) -> Ledger:
        """Begin a ledger, with a budget if ``epsilon`` is given, and the rules of the study.

        Parameters
        ----------
        url, owner, epsilon, delta, rules
            Its folder, who begins it, its budget and its rules.
        members : sequence of PublicKeys
            Others who may write into it.
        max_rows, relation
            The unit and the neighbouring relation of every release that is spent from it, fixed
            from now on: 1 protects a row, more protect a person with up to that many rows;
            ``"replace"`` takes the number of rows for public, ``"add"`` does not.
        another : bool
            Begin it although there is another ledger of this key, whose costs it does not count.
        """
        ledger = cls(url, owner)
        unit = Unit(max_rows, relation)
        budget = None if epsilon is None else Budget(epsilon, delta)
        chosen = None if rules is None else Rules.find(rules)
        signing = [ledger.keys.signing_key.hex(), *(keys.signing_key.hex() for keys in members)]

        def content(before: Sequence[ChainEntry]) -> Content:
            if before:
                raise ExistsError(
                    f"{ledger.url} has a ledger already, and was not touched: use it, or give "
                    "another folder",
                    code="ledger-exists",
                )
            others = other_ledgers(ledger.url, owner)
            if _place(ledger.url) in _list_by_key(owner):  # begun here once, and gone
                others.append(_place(ledger.url))
            if others and not another:
                raise ExistsError(
                    f"key {owner.key_id} has a ledger already, {others[0]}: a second one would "
                    "start at epsilon 0 again. "
                    "Spend from the first, or begin another for rows that the first has nothing "
                    "of, ",
                    Cure("another ledger", "another=True"),
                )
            return _stamp(
                BEGIN,
                key_id=owner.key_id,
                members=list(dict.fromkeys(signing)),
                budget=None if budget is None else vars(budget),
                rules=None if chosen is None else chosen.to_dict(),
                unit=unit.to_dict(),
                others=len(others),
            )

        ledger._append(content, owner)
        _list_beside_key(ledger.url, owner)
        return ledger

    @classmethod
    def of(cls, place: Ledger | str | os.PathLike[str], owner: Owner) -> Ledger:
        """Return an existing ledger that the owner may write to."""
        ledger = place if isinstance(place, Ledger) else cls(place, owner)
        ledger.check_member(owner)
        return ledger

    # -- reading
    # --------------------------------------------------------------------------------------------

    def entries(self) -> tuple[ChainEntry, ...]:
        """Return all entries, each checked to follow the one before and to be signed by
        a member.
        """
        found = self._chain.entries()
        if not found:
            raise NoLedgerError(
                f"{self.url} has no ledger of key {self.keys.key_id}: begin one, ",
                Cure(
                    "begin ledger", f"es.Ledger.begin({self.url!r}, owner, epsilon=..., rules=...)"
                ),
            )
        members = _members(found[0])
        if found[0].by != self.keys.signing_key.hex() or any(
            entry.by not in members for entry in found
        ):
            raise FileFormatError(
                (
                    f"{self.url}: an entry was signed by nobody of this ledger's members: it was "
                    "forged"
                ),
                code="forged-entry",
            )
        return found

    def head(self) -> str:
        """Return the hash of the last entry.

        Keep it elsewhere: ``check_contains(head)`` then notices if entries were removed.
        """
        return self._chain.head()

    def check_contains(self, head: str) -> None:
        """Refuse a ledger from which something was taken since this was its head."""
        self._chain.check_contains(head)

    @property
    def rules(self) -> Rules | None:
        """The rules of the study, or None."""
        found = self.entries()[0].content.get("rules")
        return None if found is None else Rules.from_dict(found)

    @property
    def budget(self) -> Budget | None:
        """The current budget; None without a limit."""
        return _budget(self.entries())

    @property
    def unit(self) -> Unit | None:
        """Return whose privacy its epsilon is about; None of an older ledger without any release.

        Raises
        ------
        FileFormatError
            Where an older version has spent releases of different units from it: these do not add
            up.
        """
        return unit_of(self.entries())

    @property
    def units(self) -> tuple[Unit, ...]:
        """Return every unit that occurs in it: one, or several where an older version
        mixed them.
        """
        return tuple(_units(self.entries()))

    @property
    def n_others(self) -> int:
        """Return how many other ledgers of this key were noticed when this one began, or since."""
        return max(int(entry.content.get("others", 0)) for entry in self.entries())

    @property
    def rho_spent(self) -> float:
        """The cost of all releases together, in zCDP."""
        entries = self.entries()
        unit_of(entries)  # costs of different units do not add up
        return sum(one.rho for one in _spent(entries))

    @property
    def epsilon_spent(self) -> float:
        """The cost of all releases together, at the delta of the budget (1e-6 without one)."""
        entries = self.entries()
        unit_of(entries)  # costs of different units do not add up
        budget = _budget(entries)
        return total_epsilon(_spent(entries), 1e-6 if budget is None else budget.delta)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a line for each entry."""
        entries = self.entries()
        budget = _budget(entries)
        delta, lines = 1e-6 if budget is None else budget.delta, []
        mixed = len(_units(entries)) > 1
        for entry in entries:
            said = entry.content
            spent = _spent(entries[: entry.number + 1])
            lines.append(
                {
                    "time": said["time"],
                    "what": said["what"],
                    "question": said.get("question", ""),
                    "rows": said.get("rows"),
                    "epsilon": said.get("epsilon"),
                    "spent": math.nan if mixed else round(total_epsilon(spent, delta), 4),
                    "by": entry.by[:8],
                }
            )
        return pd.DataFrame(lines).rename_axis("entry")

    def __repr__(self) -> str:
        entries = self.entries()
        budget = _budget(entries)
        limit = (
            "no budget"
            if budget is None
            else f"epsilon {budget.epsilon:g} at delta {budget.delta:g}"
        )
        units = _units(entries)
        spent = "costs of different units" if len(units) > 1 else f"spent {self.epsilon_spent:.4g}"
        return f"Ledger({self.url!r}, {len(entries)} entries, {limit}, {spent})"

    # -- writing
    # --------------------------------------------------------------------------------------------

    def check_member(self, owner: Owner) -> None:
        """Refuse who may not write here."""
        if owner.public_keys(()).signing_key.hex() not in _members(self.entries()[0]):
            raise KeyMismatchError(
                f"key {owner.key_id} is no member of the ledger {self.url}: give its public keys "
                "as one of members= when the "
                "ledger is begun",
                code="not-a-member",
            )

    def set_budget(self, owner: Owner, epsilon: float, delta: float = 1e-6) -> None:
        """Set another budget from now on. The old one stays in the ledger."""
        budget = Budget(epsilon, delta)
        self._append(lambda before: _stamp(BUDGET, **vars(budget)), owner)

    def check_unit(self, unit: Unit) -> None:
        """Refuse a release of another unit or relation than the ledger is about."""
        _check_unit(self.entries(), unit, self.url)

    def spend(
        self, owner: Owner, spent: Spent, said: Mapping[str, Any], unit: Unit = ROW
    ) -> ChainEntry:
        """Write down a release, before it is shown; refused where unit or budget do not
        allow it.
        """

        def content(before: Sequence[ChainEntry]) -> Content:
            _check_unit(before, unit, self.url)
            budget = _budget(before)
            if budget is not None:
                already = _spent(before)
                after = total_epsilon([*already, spent], budget.delta)
                if after > budget.epsilon * (1 + 1e-9):
                    now = total_epsilon(already, budget.delta)
                    raise BudgetError(
                        f"the budget of the ledger {self.url} is epsilon {budget.epsilon:g} at "
                        f"delta {budget.delta:g}; {now:.4g} "
                        f"is spent, and with this release it would be {after:.4g}: ask for a "
                        "smaller epsilon, or for less",
                        code="budget-exceeded",
                    )
            whose = {"unit": unit.who, "relation": unit.neighbours, "max_rows": unit.max_rows}
            return _stamp(
                RELEASED, rho=spent.rho, pure_epsilon=spent.pure_epsilon, **{**said, **whose}
            )

        return self._append(content, owner)

    def write(
        self, owner: Owner, what: str, said: Callable[[Sequence[ChainEntry]], Mapping[str, Any]]
    ) -> ChainEntry:
        """Write down what was opened or published; ``said`` gets all entries so far, and may
        refuse.
        """
        return self._append(lambda before: _stamp(what, **said(before)), owner)

    def _append(
        self, content: Callable[[Sequence[ChainEntry]], Content], owner: Owner
    ) -> ChainEntry:
        signing = owner.public_keys(()).signing_key.hex()
        return self._chain.append(content, by=signing, sign=owner.sign)


def _stamp(what: str, **said: Any) -> Content:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"what": what, "time": now, "version": version("encryptedstats"), **said}


def _is_signed(by: str, statement: bytes, signature: str) -> bool:
    return len(by) == _MEMBER and verifies(bytes.fromhex(by), statement, signature)


def _members(first: ChainEntry) -> list[str]:
    if first.content.get("what") != BEGIN or not isinstance(first.content.get("members"), list):
        raise FileFormatError(
            "the first entry of a ledger says who its members are, and this does not",
            code="members-missing",
        )
    return [str(member) for member in first.content["members"]]


def _budget(entries: Sequence[ChainEntry]) -> Budget | None:
    for entry in reversed(entries):
        said = entry.content if entry.content["what"] == BUDGET else entry.content.get("budget")
        if said is not None:
            return Budget(float(said["epsilon"]), float(said["delta"]))
    return None


def _spent(entries: Sequence[ChainEntry]) -> list[Spent]:
    released = [entry.content for entry in entries if entry.content["what"] == RELEASED]
    spent = [Spent(float(said["rho"]), said["pure_epsilon"]) for said in released]
    if any(one.rho < 0 or (one.pure_epsilon or 0) < 0 for one in spent):
        raise FileFormatError(
            "an entry of the ledger names a cost below 0, which would raise the budget",
            code="negative-cost",
        )
    return spent


# -- units ---------------------------------------------------------------------------------------


def _units(entries: Sequence[ChainEntry]) -> list[Unit]:
    """Return every unit that the ledger began with or that something was spent in."""
    begun = entries[0].content.get("unit") if entries else None
    found = [] if begun is None else [_read_unit(lambda: Unit.from_dict(begun))]
    for entry in entries:
        said = entry.content
        if said["what"] == RELEASED and "unit" in said:
            words = str(said["unit"]), str(said.get("relation"))
            found.append(_read_unit(partial(Unit.from_words, *words)))
    return list(dict.fromkeys(found))


def _read_unit(read: Callable[[], Unit]) -> Unit:
    try:
        return read()
    except (ParameterError, KeyError, TypeError) as error:
        raise FileFormatError(
            f"the ledger names a unit or relation that is not known here: {error}",
            code="unknown-unit",
        ) from error


def unit_of(entries: Sequence[ChainEntry]) -> Unit | None:
    """Return the one unit of a ledger, None where nothing fixes it; refused where there are
    several.
    """
    found = _units(entries)
    if len(found) > 1:
        raise FileFormatError(
            "the releases of this ledger are about different units "
            f"({'; and '.join(map(str, found))}), "
            "whose epsilons do not add up: begin ",
            Cure(
                "ledger for each unit",
                "another ledger for each unit, es.Ledger.begin(..., another=True)",
            ),
            ". Its entries can still be read",
        )
    return found[0] if found else None


def hides_rows(entries: Sequence[ChainEntry]) -> bool:
    """Return whether the number of rows is not public in this ledger, so that no entry
    may name it.
    """
    return any(unit.relation == ADD for unit in _units(entries))


def exact_of_same_rows(
    entries: Sequence[ChainEntry], blocks: Iterable[str]
) -> dict[str, list[int]]:
    """Return the entries that show some of these rows without noise, those opened exactly first."""
    own, found = {rows_id(block) for block in blocks}, dict[str, list[int]]()
    for what in (OPENED, PUBLISHED):
        numbers = [
            one.number for one in entries if one.content["what"] == what and own & _blocks(one)
        ]
        if numbers:
            found[what] = numbers
    return found


def _blocks(entry: ChainEntry) -> set[str]:
    """Return what tells the rows of its blocks, also where they were encrypted anew."""
    return {rows_id(str(block)) for block in entry.content.get("blocks", ())}


def describe_exact(found: Mapping[str, Sequence[int]]) -> list[str]:
    """Return in words what :func:`exact_of_same_rows` found, the exact openings first."""
    words = {
        OPENED: "{n} of the same rows, opened exactly ({entries} of the ledger): epsilon is about "
        "noisy numbers only",
        PUBLISHED: (
            "{n} of the same rows, published by rules without noise ({entries} of the ledger)"
        ),
    }
    return [
        words[what].format(
            n=plural(len(numbers), "result"),
            entries=f"{'entry' if len(numbers) == 1 else 'entries'} {', '.join(map(str, numbers))}",
        )
        for what, numbers in found.items()
    ]


def _check_unit(entries: Sequence[ChainEntry], unit: Unit, url: str) -> None:
    own = unit_of(entries)
    if own is not None and unit != own:
        raise ParameterError(
            f"the ledger {url} is about {own}, and this release about {unit}: epsilons of "
            "different units do not add up. "
            "Nothing was spent. Release it ",
            Cure("unit of the ledger", f"with max_rows={own.max_rows}, relation={own.relation!r}"),
            ", or leave both out",
        )


# -- other ledgers of the same key ---------------------------------------------------------------


def other_ledgers(url: str, owner: Owner) -> list[str]:
    """Return other ledgers of the key, as far as they can be noticed from here.

    These are the local folders beside ``url`` and around it, and what the list beside the key file
    names. A ledger elsewhere, under a key without a file, or at a remote store is not noticed.
    """
    own = _local(url)
    found = [
        *(_ledgers_beside(own, owner.key_id) if own is not None else ()),
        *_list_by_key(owner),
    ]
    return [one for one in dict.fromkeys(found) if one != _place(url)]


def _place(url: str) -> str:
    """Return the one spelling of a place by which ledgers are compared."""
    local = _local(url)
    return url if local is None else str(local)


def _local(url: str) -> Path | None:
    path = url.removeprefix("file://")
    return None if "://" in path else Path(path).resolve()


def _ledgers_beside(own: Path, key_id: str) -> list[str]:
    found = []
    around = [folder / FOLDER / _FIRST for folder in own.parents]
    for first in [*sorted(own.parent.glob(f"*/{FOLDER}/{_FIRST}")), *around]:
        try:
            content = json.loads(first.read_bytes())["content"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # not a ledger, or not ours to read
        if isinstance(content, dict) and content.get("key_id") == key_id:
            found.append(str(first.parent.parent))
    return found


def _list_file(owner: Owner) -> Path | None:
    file = owner.key_file
    return None if file is None else file.with_name(file.name + _LISTED)


def _list_by_key(owner: Owner) -> list[str]:
    return _read_list(_list_file(owner)).get(owner.key_id, [])


def _read_list(file: Path | None) -> dict[str, list[str]]:
    """Return the ledgers by key: the file may have been made for another key that lay there."""
    if file is None or not file.exists():
        return {}
    try:
        listed = json.loads(file.read_bytes())
        return {str(key): [str(one) for one in places] for key, places in listed.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise FileFormatError(
            f"{file} lists the ledgers of the key, and cannot be read: {error}",
            code="unreadable-file",
        ) from error


def _list_beside_key(url: str, owner: Owner) -> None:
    """Add a ledger to the list beside the key file, if there is one that can be written."""
    file = _list_file(owner)
    if file is None:
        return
    listed = _read_list(file)
    listed[owner.key_id] = list(dict.fromkeys([*listed.get(owner.key_id, []), _place(url)]))
    # A key may lie where nothing can be written: the folder of the ledger is still looked at.
    with contextlib.suppress(OSError):
        write_atomic(file, [json.dumps(listed).encode()], mode=PRIVATE, overwrite=True)
