"""``study``: several owners who pool rows. Each command does what is due for the party whose
identity it is given.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import encryptedstats as es
from encryptedstats.cli._console import plural, printable, progress, show, tell
from encryptedstats.cli._files import Reads, Writes, save, write_text
from encryptedstats.cli._inputs import load_schema
from encryptedstats.cli._keys import first_line
from encryptedstats.cli._on import LOCAL, Place
from encryptedstats.cli._options import (
    AsJson,
    Force,
    On,
    PassphraseFile,
    SchemaFile,
    argument,
    file_option,
    option,
)
from encryptedstats.tables.answers.answer import PREDICTION_KIND
from encryptedstats.tables.answers.opened import describe_opened
from encryptedstats.tables.questions.words import make_questions
from encryptedstats.views import View

_WAYS: Final = ("rows", "votes", "totals", "masked")
_KINDS: Final = ("one-holder", "escrow", "joint")

StudyUrl = Annotated[str, Reads, argument("STUDY", "Folder or URL that all parties share.")]
IdentityFile = Annotated[
    Path,
    file_option("--identity", help="Who you are in the study: the file that study join has made."),
]
StudyKey = Annotated[
    Path | None,
    file_option("--key", help="The secret key, where one holder has it: the receiver alone."),
]
Why = Annotated[str, option(metavar="TEXT", help="The reason, for the record.")]


def study_create(
    url: StudyUrl,
    schema: SchemaFile,
    rows: Annotated[
        int, typer.Option(min=1, metavar="N", help="The most rows that all sites have together.")
    ],
    site: Annotated[
        list[str], option(metavar="NAME", help="A site, which brings rows; given for each.")
    ],
    worker: Annotated[str, option(metavar="NAME", help="Who computes on what is encrypted.")],
    receiver: Annotated[str, option(metavar="NAME", help="Who opens results; not the worker.")],
    invitations: Annotated[
        Path,
        Writes("the invitations of a study are stored nowhere else"),
        file_option(
            metavar="FOLDER",
            help="A new folder for the invitations: send each party its own, and no other.",
        ),
    ],
    ask: Annotated[
        list[str],
        option(
            metavar="[WAY:]NAME=QUESTION",
            help="A question, as ask takes it: 'ages=Describe(age)'. Ways: rows (the default), from "
            "encrypted rows; totals, which sites compute at home and encrypt; masked, which they "
            "compute at home and mask, so that only the sum is seen; votes, with --kind joint: a "
            "model that is never opened, whose votes for new rows the receiver gets.",
        ),
    ] = [],  # noqa: B006  Typer copies it
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="Who can open: one-holder, the receiver alone; escrow:N, so many of the sites "
            "together with it; or (experimental) joint, all of them, with a key that nobody ever "
            "holds.",
        ),
    ] = _KINDS[0],
    name: Annotated[str, typer.Option(metavar="NAME", help="What the study is called.")] = "study",
) -> None:
    """Write the document of a new study, and an invitation for each party.

    The document says who takes part, what may be asked, and how rows are cut. Nothing else is
    ever opened. It cannot be changed: another agreement is another study. All parties share a
    folder or bucket, and no party has to be there when another is: every command does what is due
    for whoever runs it.

    Examples:
      encryptedstats study create shared --schema schema.json --rows 5000 --site north --site south --site west \\
        --worker centre --receiver registry --ask "model=forest trees=20 seed=1" --invitations sent
      # every party, once; then all compare the fingerprint that status shows, by telephone
      encryptedstats study join shared sent/north.invitation north.id
      encryptedstats study keygen shared --identity registry.id --key registry.key
      encryptedstats study add shared patients.csv --identity north.id
      encryptedstats study share shared --identity north.id
      encryptedstats study fit shared --identity centre.id
      encryptedstats study open shared --identity registry.id --key registry.key -o results
      encryptedstats open results/model.opened

      # a key that nobody holds: two of three sites have to help to open
      encryptedstats study create shared --schema schema.json --rows 5000 --site north --site south --site west \\
        --worker centre --receiver registry --ask "bayes=mnb" --kind escrow:2 --invitations sent
    """
    known, questions = load_schema(schema), {}
    for text in ask:
        called, way, words = _question_words(text)
        if called in questions:
            raise typer.BadParameter(f"--ask {text}: give each name once")
        made = make_questions(words, known)
        if len(made) != 1:
            raise typer.BadParameter(f"--ask {text}: one question for each name")
        questions[called] = (made[0], way)
    key, _, openers = kind.partition(":")
    if key not in _KINDS or (openers and not openers.isdigit()):
        raise typer.BadParameter(f"--kind {kind}: one-holder, escrow:N or joint is needed")
    with progress("planning"):
        study = es.Study.create(
            url,
            schema=known,
            questions=questions,
            n_rows=rows,
            sites=site,
            worker=worker,
            receiver=receiver,
            key=key.replace("-", " "),
            openers=int(openers or 0),
            name=name,
        )
    invitations.mkdir(mode=0o700, parents=True, exist_ok=True)
    for party, code in study.invitations.items():
        write_text(invitations / f"{party}.invitation", code + "\n", force=False)
    wrote = (
        f"{plural(len(study.invitations), 'invitation')} to {invitations}: send each to its party"
    )
    show(View(f"Study {study.document.id} at {url}", {"wrote": wrote}))


def _question_words(text: str) -> tuple[str, str, list[str]]:
    """A name, a way and the words of ``WAY:NAME=QUESTION``; a call is one word."""
    called, equals, words = text.partition("=")
    way, colon, rest = called.partition(":")
    if not equals or (colon and way not in _WAYS):
        raise typer.BadParameter(
            f"--ask {text}: NAME=QUESTION, or one of {', '.join(_WAYS)}: before it"
        )
    is_call = "(" in words.partition(" ")[0] or words.rstrip().endswith(")")
    return (
        (rest if colon else called),
        (way if colon else _WAYS[0]),
        ([words] if is_call else shlex.split(words)),
    )


def study_join(
    url: StudyUrl,
    invitation: Annotated[Path, argument("INVITATION", "The file that you were sent.")],
    identity: Annotated[
        Path,
        Writes("whoever loses an identity has left the study", resumed=True),
        argument("IDENTITY", "File for your secret in this study: it stays with you."),
    ],
    passphrase_file: PassphraseFile = None,
) -> None:
    """Take part in a study: makes your keys and signs the document, in your name.

    Run again after an interruption, with the same file.

    Examples:
      encryptedstats study join shared north.invitation north.id
    """
    words = None if passphrase_file is None else first_line(passphrase_file)
    joined = es.Study.join(url, first_line(invitation, private=False), identity, passphrase=words)
    text = f"You are {joined.me.name} in study {joined.document.name!r}"
    show(View(f"{text}. Keep {identity}, and give it to nobody"))


def study_keygen(
    url: StudyUrl,
    identity: IdentityFile,
    key: StudyKey = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Make the study's key, when all have joined.

    With one holder, the receiver keeps it in a file. Under escrow it is sealed, and every site
    gets a share. A joint key is made by all sites, each a few times, as status says: every site
    keeps its part beside its identity. The receiver comes last, with a file for a key of its own,
    to which results are switched.

    Examples:
      encryptedstats study keygen shared --identity registry.id --key registry.key

      # under escrow there is no file
      encryptedstats study keygen shared --identity registry.id

      # a joint key: every site, until status says that the receiver is next
      encryptedstats study keygen shared --identity north.id
    """
    study = _opened(url, identity, passphrase_file)
    with progress("making keys"):
        study.keygen(key)
    _tell(study)


def study_add(
    url: StudyUrl,
    data: Annotated[Path, argument("DATA", "CSV or Parquet file with your rows.")],
    identity: IdentityFile,
    new: Annotated[
        Path | None,
        file_option(
            "--new",
            help="Where the study asks for votes: rows of yours to vote on. The receiver sees the "
            "votes of each.",
        ),
    ] = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Bring your rows: checked against the agreed schema, and encrypted for the study's key.

    Of questions that are answered at home, the totals of the rows are computed, encrypted or
    masked, and announced. When all sites have announced theirs, study share stores them.

    Examples:
      encryptedstats study add shared patients.csv --identity north.id
      encryptedstats study add shared patients.csv --new this-week.csv --identity north.id
    """
    study = _opened(url, identity, passphrase_file)
    study.add(data, new=new)
    _tell(study)


def study_fit(
    url: StudyUrl,
    identity: IdentityFile,
    on: On = LOCAL,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Compute what can be computed now.

    First whether the rows of each site are valid, then the answers.

    Examples:
      encryptedstats study fit shared --identity centre.id
    """
    study = _opened(url, identity, passphrase_file)
    options = Place.parse(on).local_options()
    done = study.fit(**options)
    _tell(study, f"Computed {', '.join(done)}" if done else "There is nothing to compute now")


def study_share(
    url: StudyUrl, identity: IdentityFile, passphrase_file: PassphraseFile = None
) -> None:
    """Send what the study waits for from you.

    Your number of the coin, totals that all have announced, or your share of an opening. With a
    joint key, what is to be opened is first computed anew from the rows of all sites: that takes
    as long as the worker took.

    Examples:
      encryptedstats study share shared --identity north.id
    """
    study = _opened(url, identity, passphrase_file)
    given = study.share()
    _tell(study, f"Sent {', '.join(given)}" if given else "The study does not wait for you now")


def study_open(
    url: StudyUrl,
    identity: IdentityFile,
    key: StudyKey = None,
    out: Annotated[
        Path | None,
        file_option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Write opened results there, one file for each question.",
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Where sites help: call once more for what was opened already, and is lost.",
        ),
    ] = False,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
) -> None:
    """Open results, as the receiver of the study.

    Opens what may be opened now: first whether rows are valid, then the answers to the questions
    of the document; open shows their files again, and writes them as tables.

    Under escrow, and with a joint key, the first time calls for the shares of the sites, and the
    next time opens when enough are there. Every opening is recorded in the study before it is
    shown.

    Examples:
      encryptedstats study open shared --identity registry.id --key registry.key -o results
    """
    study = _opened(url, identity, passphrase_file)
    for name, result in study.open(key, again=again).items():
        if out is not None:
            typer.echo(printable(_written(out, name, result, force)))
            continue
        kind = PREDICTION_KIND if isinstance(result, es.Votes) else ""
        is_known = hasattr(result, "source") or hasattr(result, "answer_")
        view = describe_opened(result, kind).view if is_known else None
        typer.echo(f"{name}:")
        if view is not None and not kind:
            show(view)
        else:
            typer.echo("\n".join(map(printable, str(result).splitlines())))
    _tell(study)


def study_exclude(
    url: StudyUrl,
    site: Annotated[str, argument("SITE", "The site to go on without.")],
    identity: IdentityFile,
    why: Why,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Go on without a site that does not come, in all questions, in writing.

    Totals that are computed at home are sent again without it, under other masks. Refused once
    any question is complete.

    Examples:
      encryptedstats study exclude shared west --why "has withdrawn" --identity registry.id
    """
    study = _opened(url, identity, passphrase_file)
    study.exclude(site, why)
    _tell(study)


def study_retire(
    url: StudyUrl,
    identity: IdentityFile,
    why: Why,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Retire the study's key, in writing.

    Sites add nothing after this. What is there is computed on and opened as before.

    Examples:
      encryptedstats study retire shared --why "the receiver's laptop was lost" --identity registry.id
    """
    study = _opened(url, identity, passphrase_file)
    study.retire_key(why)
    _tell(study)


def study_status(url: StudyUrl, as_json: AsJson = False) -> None:
    """Show who has done what, what was refused, and who has to do what next.

    Anybody who may read the folder can look.

    JSON: study, name, fingerprint, key, key_id, retired, joined, rows, new_rows, planned_rows,
      excluded, valid, answered, opened, refused, next, open_risks

    Examples:
      encryptedstats study status shared
    """
    study = es.Study(url)
    status = study.status()
    told = study.fingerprint if status.state.joined else ""
    title, *lines = str(status).splitlines()
    notes = [*lines, *([f"  fingerprint  {told}"] if told else [])]
    tell(View(title, notes=tuple(notes)), {**status.to_dict(), "fingerprint": told}, as_json)


def _opened(url: str, identity: Path, passphrase_file: Path | None) -> es.Study:
    return es.Study(
        url, identity, passphrase=None if passphrase_file is None else first_line(passphrase_file)
    )


def _tell(study: es.Study, done: str = "") -> None:
    """What was done, what was refused, and who is next."""
    status = study.status()
    lines = [f"refused: {why}" for why in status.to_dict()["refused"]]
    lines += [f"next: {who}, encryptedstats study {what}" for who, what in status.next]
    if not status.next:
        lines.append(status.ended.capitalize())
    for line in [*([done] if done else []), *lines]:
        typer.echo(printable(line))


def _written(folder: Path, name: str, result: Any, force: bool) -> str:
    """An opened result as a file: models and statistics by themselves, tables as CSV. One that was
    opened before stays.
    """
    folder.mkdir(parents=True, exist_ok=True)
    suffix = "csv" if hasattr(result, "to_csv") else "opened" if hasattr(result, "save") else "json"
    path = folder / f"{name}.{suffix}"
    if path.exists() and not force:
        return f"{path} is there already and was not touched: --force replaces it"
    if suffix == "opened":
        save(result, path, force=force)
    elif suffix == "csv":
        table = (
            result.frame() if hasattr(result, "frame") else result
        )  # of votes, what they say of each row
        write_text(path, table.to_csv(lineterminator="\n"), force=force)
    else:
        write_text(path, json.dumps(result, default=str) + "\n", force=force)
    return f"Wrote {path}"
