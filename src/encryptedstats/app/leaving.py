"""The steps, how far a project is, and what leaves this machine in each: said beside every step,
with its own figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from encryptedstats.app import asking
from encryptedstats.app.projects import State
from encryptedstats.words import plural, size_text

STEPS: Final = {
    "data": "Data",
    "questions": "Questions",
    "columns": "Columns",
    "plan": "Plan",
    "key": "Key",
    "encrypt": "Encrypt",
    "send": "Send",
    "results": "Results",
}
#: Those of a study that is being made.
STEPS_OF_STUDY: Final = {
    "data": "Data",
    "questions": "Questions",
    "columns": "Columns",
    "parties": "Parties",
    "agreement": "Agreement",
}
HERE: Final = "here"


def steps_of(state: State) -> dict[str, str]:
    """Return the steps of a project, or of a study that is being made."""
    return STEPS if state.study is None else STEPS_OF_STUDY


def is_done(step: str, state: State) -> bool:
    """Return whether a step is done."""
    return {
        "data": state.data is not None or state.has_given_schema,
        "columns": state.columns_done,
        "questions": bool(state.asked),
        "plan": state.plan is not None and "plan" in state.seen,
        "key": state.key is not None,
        "encrypt": state.sealed is not None,
        "send": state.sent is not None and state.sent.done,
        "results": bool(state.asked) and all(one.state == HERE for one in state.asked),
        "parties": state.study is not None and state.study.parties_done,
        "agreement": False,  # once it is written, the draft is gone
    }[step]


def next_step(state: State) -> str:
    """Return the first step that is not done, or the last step."""
    return next((step for step in steps_of(state) if not is_done(step, state)), "results")


def is_reachable(step: str, state: State) -> bool:
    """Return whether a step can be opened: all steps before it are done, or it is done itself."""
    names = list(steps_of(state))
    return all(is_done(one, state) for one in names[: names.index(step)]) or is_done(step, state)


@dataclass(frozen=True)
class Leaving:
    """What a step sends away, if anything, and what stays."""

    goes: tuple[str, ...]
    stays: tuple[str, ...]
    note: str = ""
    when: str = "When you send"


def leaving(step: str, state: State) -> Leaving:
    """Return the panel of a step."""
    data, sealed, plan = state.data, state.sealed, state.plan
    made = [asking.make_rounds(one.name, one.parameters) for one in state.asked]
    rounds = [one for one in made if one is not None]
    rows = f"your {plural(data.rows, 'row')}" if data is not None else "your rows"
    if step == "send":
        size = size_text(sealed.bytes) if sealed is not None else "the table"
        asked = plural(len(state.asked), "question")
        return Leaving(
            (
                *(f"round by round: {one.learned}" for one in rounds),
                f"the encrypted table, {size}",
                "the public keys in it: with them one computes, and opens nothing",
                f"the {asked}, with v0, v1, … for your columns",
                "how many rows, columns, bins and classes there are, and the bounds of numbers",
            ),
            (
                "your secret key and its passphrase",
                f"{rows}, in the clear",
                "names of columns, levels and classes",
            ),
            "The worker sees nothing else, now or later.",
        )
    if step == "results":
        return Leaving(
            (),
            (
                "the opened result",
                "whether a result could be opened at all",
                "files that you predict for",
                "what may be published, until you give it to somebody, and the ledger",
            ),
            "Opening asks nobody. Of what was asked in rounds, a worker has learned "
            "what the step Send says, and nothing more."
            if rounds
            else (
                "Opening asks nobody. A worker never learns what came out, nor whether anything "
                "did."
            ),
        )
    if step == "plan" and plan is not None:
        return Leaving(
            (),
            (rows, "all names", "the plan"),
            f"Later, if you go on, {size_text(plan['bytes_up'])} of ciphertexts and "
            f"{size_text(plan['bytes_keys'])} "
            f"of public keys will leave, and {size_text(plan['bytes_down'])} will come back.",
        )
    if step == "agreement":
        return Leaving(
            (
                "the names of the parties and the questions, with v0, v1, … for columns",
                "how many columns, levels and bins there are, and the bounds of numbers",
                "names of columns, levels and cut points, encrypted for sites and receiver",
            ),
            ("all rows", "the invitations, until you send each to its party"),
            "Everybody who can read the folder sees the document.",
            "When you write the study",
        )
    stays = {
        "parties": ("all of it, until you have seen who sees what",),
        "data": (rows, "the name of the file"),
        "columns": (rows, "names of columns, cut points, levels"),
        "questions": (rows, "names of columns", "what you ask, until you send it"),
        "plan": (rows, "all names", "the plan"),
        "key": ("the secret key", "the passphrase, which is kept nowhere", rows),
        "encrypt": (
            "the secret key",
            f"{rows}, in the clear",
            "the encrypted table, until you send it",
        ),
    }[step]
    return Leaving((), stays)
