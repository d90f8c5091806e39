"""The ledger: what was opened, published and released, when, by whom, and what privacy it cost. It only grows.

It lies in a folder beside the key, or where all members of a study reach it: a chain of signed entries (`storage.chains`). A cost
is written before the result is shown, so a crash in between costs privacy and never gives it away. Who can write to the folder can
still roll it back to an earlier state: whoever keeps the hash of its last entry (``ledger.head()``) notices.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
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
from encryptedstats.storage.chains import Chain, Entry
from encryptedstats.storage.objects import open_store

FOLDER: Final = "ledger"
BEGIN: Final = "begin"
OPENED: Final = "opened"
PUBLISHED: Final = "published"
RELEASED: Final = "released"
BUDGET: Final = "budget"
_MEMBER: Final = 64  # digits of a signing key

Content = dict[str, Any]


@dataclass(frozen=True)
class Budget:
    """What all releases together may cost."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        for name, value, most in (("epsilon", self.epsilon, math.inf), ("delta", self.delta, 1.0)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < most:
                raise ParameterError(f"{name}={value!r}: a budget has an epsilon above 0 and a delta between 0 and 1")


class NoLedgerError(EncryptedStatsError, FileNotFoundError):
    """A folder without a ledger of this key."""


class Ledger:
    """The record of a key's openings and releases, and the budget that is left.

    Parameters
    ----------
    url : path or fsspec URL
        Its folder.
    keys : PublicKeys or Owner
        Of whoever began it: entries that nobody of its members has signed are refused.

    Examples
    --------
    >>> import tempfile, encryptedstats as es
    >>> owner = es.Owner(es.Parameters.choose(max_value=1000, depth=1))
    >>> ledger = es.Ledger.begin(tempfile.mkdtemp() + "/ledger", owner, epsilon=3, delta=1e-6, rules="pcornet")
    >>> ledger.budget, ledger.epsilon_spent
    (Budget(epsilon=3, delta=1e-06), 0.0)
    """

    def __init__(self, url: str | os.PathLike[str], keys: PublicKeys | Owner) -> None:
        self.keys = keys.public_keys(()) if isinstance(keys, Owner) else keys
        self.url = os.fspath(url)
        self._chain = Chain(open_store(url), FOLDER, f"publishing ledger of key {self.keys.key_id}", _signed)

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
    ) -> Ledger:
        """A new ledger, with a budget if ``epsilon`` is given, and the rules of the study.

        ``members`` are the public keys of others who may write into it.
        """
        ledger = cls(url, owner)
        budget = None if epsilon is None else Budget(epsilon, delta)
        chosen = None if rules is None else Rules.named(rules)
        signing = [ledger.keys.signing_key.hex(), *(keys.signing_key.hex() for keys in members)]

        def content(before: Sequence[Entry]) -> Content:
            if before:
                raise ExistsError(
                    f"{ledger.url} has a ledger already, and was not touched: use it, or give another folder"
                )
            return _stamped(
                BEGIN,
                key_id=owner.key_id,
                members=list(dict.fromkeys(signing)),
                budget=None if budget is None else vars(budget),
                rules=None if chosen is None else chosen.to_dict(),
            )

        ledger._append(content, owner)
        return ledger

    @classmethod
    def of(cls, given: Ledger | str | os.PathLike[str], owner: Owner) -> Ledger:
        """A ledger that there is, for who writes into it."""
        ledger = given if isinstance(given, Ledger) else cls(given, owner)
        ledger.check_member(owner)
        return ledger

    # -- reading -------------------------------------------------------------------------------------------------------

    def entries(self) -> tuple[Entry, ...]:
        """All of it, checked: every entry follows the one before, and is signed by a member."""
        found = self._chain.entries()
        if not found:
            raise NoLedgerError(
                f"{self.url} has no ledger of key {self.keys.key_id}: begin one, ",
                Cure("begin ledger", f"es.Ledger.begin({self.url!r}, owner, epsilon=..., rules=...)"),
            )
        members = _members(found[0])
        if found[0].by != self.keys.signing_key.hex() or any(entry.by not in members for entry in found):
            raise FileFormatError(f"{self.url}: an entry was signed by nobody of this ledger's members: it was forged")
        return found

    def head(self) -> str:
        """The hash of the last entry. Keep it elsewhere: ``check_contains(head)`` then notices whether anything was taken away."""
        return self._chain.head()

    def check_contains(self, head: str) -> None:
        """Refuse a ledger from which something was taken since this was its head."""
        self._chain.check_contains(head)

    @property
    def rules(self) -> Rules | None:
        """The rules of the study, if it has some."""
        found = self.entries()[0].content.get("rules")
        return None if found is None else Rules.from_dict(found)

    @property
    def budget(self) -> Budget | None:
        """What may be spent, as it was last set; None without a limit."""
        return _budget(self.entries())

    @property
    def rho_spent(self) -> float:
        """What all releases cost together, in zCDP."""
        return sum(one.rho for one in _spent(self.entries()))

    @property
    def epsilon_spent(self) -> float:
        """What all releases cost together, at the delta of the budget (1e-6 without one)."""
        entries = self.entries()
        budget = _budget(entries)
        return total_epsilon(_spent(entries), 1e-6 if budget is None else budget.delta)

    def to_frame(self) -> pd.DataFrame:
        """A line for each entry."""
        entries = self.entries()
        budget = _budget(entries)
        delta, lines = 1e-6 if budget is None else budget.delta, []
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
                    "spent": round(total_epsilon(spent, delta), 4),
                    "by": entry.by[:8],
                }
            )
        return pd.DataFrame(lines).rename_axis("entry")

    def __repr__(self) -> str:
        entries = self.entries()
        budget = _budget(entries)
        limit = "no budget" if budget is None else f"epsilon {budget.epsilon:g} at delta {budget.delta:g}"
        return f"Ledger({self.url!r}, {len(entries)} entries, {limit}, spent {self.epsilon_spent:.4g})"

    # -- writing -------------------------------------------------------------------------------------------------------

    def check_member(self, owner: Owner) -> None:
        """Refuse who may not write here."""
        if owner.public_keys(()).signing_key.hex() not in _members(self.entries()[0]):
            raise KeyMismatchError(
                f"key {owner.key_id} is no member of the ledger {self.url}: give its public keys as one of members= when the "
                "ledger is begun"
            )

    def set_budget(self, owner: Owner, epsilon: float, delta: float = 1e-6) -> None:
        """Another budget from now on. The old one stays in the ledger for all to see."""
        budget = Budget(epsilon, delta)
        self._append(lambda before: _stamped(BUDGET, **vars(budget)), owner)

    def spend(self, owner: Owner, spent: Spent, said: Mapping[str, Any]) -> Entry:
        """Write down a release, before it is shown; refused where the budget does not allow it."""

        def content(before: Sequence[Entry]) -> Content:
            budget = _budget(before)
            if budget is not None:
                already = _spent(before)
                after = total_epsilon([*already, spent], budget.delta)
                if after > budget.epsilon * (1 + 1e-9):
                    now = total_epsilon(already, budget.delta)
                    raise BudgetError(
                        f"the budget of the ledger {self.url} is epsilon {budget.epsilon:g} at delta {budget.delta:g}; {now:.4g} "
                        f"is spent, and with this release it would be {after:.4g}: ask for a smaller epsilon, or for less"
                    )
            return _stamped(RELEASED, rho=spent.rho, pure_epsilon=spent.pure_epsilon, **said)

        return self._append(content, owner)

    def write(self, owner: Owner, what: str, said: Callable[[Sequence[Entry]], Mapping[str, Any]]) -> Entry:
        """Write down what was opened or published; ``said`` gets all entries so far, and may refuse."""
        return self._append(lambda before: _stamped(what, **said(before)), owner)

    def _append(self, content: Callable[[Sequence[Entry]], Content], owner: Owner) -> Entry:
        signing = owner.public_keys(()).signing_key.hex()
        return self._chain.append(content, by=signing, sign=owner.sign)


def _stamped(what: str, **said: Any) -> Content:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"what": what, "time": now, "version": version("encryptedstats"), **said}


def _signed(by: str, statement: bytes, signature: str) -> bool:
    return len(by) == _MEMBER and verifies(bytes.fromhex(by), statement, signature)


def _members(first: Entry) -> list[str]:
    if first.content.get("what") != BEGIN or not isinstance(first.content.get("members"), list):
        raise FileFormatError("the first entry of a ledger says who its members are, and this does not")
    return [str(member) for member in first.content["members"]]


def _budget(entries: Sequence[Entry]) -> Budget | None:
    for entry in reversed(entries):
        said = entry.content if entry.content["what"] == BUDGET else entry.content.get("budget")
        if said is not None:
            return Budget(float(said["epsilon"]), float(said["delta"]))
    return None


def _spent(entries: Sequence[Entry]) -> list[Spent]:
    released = [entry.content for entry in entries if entry.content["what"] == RELEASED]
    return [Spent(float(said["rho"]), said["pure_epsilon"]) for said in released]
