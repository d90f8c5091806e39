"""``study``: several owners who pool rows. Each command does what is due for the party whose
identity it is given.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import encryptedstats as es
from encryptedstats.cli._console import plural, print_json, printable, progress
from encryptedstats.cli._files import Reads, Writes, save, write_text
from encryptedstats.cli._inputs import load_schema
from encryptedstats.cli._keys import first_line
from encryptedstats.cli._options import (
    AsJson,
    Device,
    Force,
    PassphraseFile,
    SchemaFile,
    Workers,
    file_argument,
    file_option,
)
from encryptedstats.cli._questions import make_question

ABOUT: Final = """Several owners: hospitals that pool encrypted rows, agree on what may be asked, and open nothing else.

All parties share a folder or bucket, and no party has to be there when another is: every command does what is due for whoever runs
it. study status says who is next.
"""
STORY: Final = """\
# whoever sets it up; each party is sent its own file of invitations
encryptedstats study create shared --schema schema.json --rows 5000 --site north --site south --site west \\
  --worker centre --receiver registry --ask "forest=CompletelyRandomForest n_trees=20 random_state=1" --invitations sent
# every party, once; then all compare the fingerprint that status shows, by telephone
encryptedstats study join shared sent/north.invitation north.id
encryptedstats study keygen shared --identity registry.id --key registry.key
encryptedstats study add shared patients.csv --identity north.id
encryptedstats study share shared --identity north.id
encryptedstats study fit shared --identity centre.id
encryptedstats study open shared --identity registry.id --key registry.key -o results
encryptedstats study status shared"""

StudyUrl = Annotated[
    str,
    Reads,
    typer.Argument(
        metavar="STUDY", help="Folder or URL that all parties share.", show_default=False
    ),
]
IdentityFile = Annotated[
    Path,
    file_option("--identity", help="Who you are in the study: the file that study join has made."),
]
StudyKey = Annotated[
    Path | None,
    file_option("--key", help="The secret key, where one holder has it: the receiver alone."),
]


class KeyKindName(str, Enum):
    """Who can open results, as an option offers it."""

    one_holder = "one-holder"
    escrow = "escrow"
    joint = "joint"


def study_create(
    url: StudyUrl,
    schema: SchemaFile,
    rows: Annotated[
        int, typer.Option(min=1, metavar="N", help="The most rows that all sites have together.")
    ],
    site: Annotated[
        list[str],
        typer.Option(
            metavar="NAME", help="A site, which brings rows; given for each.", show_default=False
        ),
    ],
    worker: Annotated[
        str,
        typer.Option(metavar="NAME", help="Who computes on what is encrypted.", show_default=False),
    ],
    receiver: Annotated[
        str,
        typer.Option(metavar="NAME", help="Who opens results; not the worker.", show_default=False),
    ],
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
        typer.Option(
            metavar="NAME=QUESTION",
            help="A question that is answered from encrypted rows, as ask takes it: 'ages=Describe "
            "variables=age'.",
            show_default=False,
        ),
    ] = [],  # noqa: B006  Typer copies it
    ask_votes: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=MODEL",
            help="A model that is never opened: with --kind joint, the receiver gets its votes for "
            "new rows that sites bring.",
            show_default=False,
        ),
    ] = [],  # noqa: B006
    ask_totals: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=QUESTION",
            help="A question whose totals sites compute at home, and encrypt.",
            show_default=False,
        ),
    ] = [],  # noqa: B006
    ask_masked: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=QUESTION",
            help="A question whose totals sites compute at home, and mask: only the sum is seen.",
            show_default=False,
        ),
    ] = [],  # noqa: B006
    key: Annotated[
        KeyKindName,
        typer.Option(
            "--kind",
            help="Who can open: the receiver alone; --openers of the sites together with it; or "
            "(joint, experimental) all of them, "
            "with a key that nobody ever holds.",
        ),
    ] = KeyKindName.one_holder,
    openers: Annotated[
        int, typer.Option(metavar="N", help="With --kind escrow: how many sites it takes.")
    ] = 0,
    name: Annotated[str, typer.Option(metavar="NAME", help="What the study is called.")] = "study",
) -> None:
    """Write the document of a new study, and an invitation for each party.

    The document says who takes part, what may be asked, and how rows are cut. Nothing else is ever opened. It cannot be changed:
    another agreement is another study.

    Examples:
      encryptedstats study create shared --schema schema.json --rows 5000 --site north --site south --site west \\
        --worker centre --receiver registry --ask "forest=CompletelyRandomForest n_trees=20 random_state=1" --invitations sent

      # a key that nobody holds: two of three sites have to help to open
      encryptedstats study create shared --schema schema.json --rows 5000 --site north --site south --site west \\
        --worker centre --receiver registry --ask "bayes=MultinomialNB" --kind escrow --openers 2 --invitations sent
    """
    known = load_schema(schema)
    questions: dict[str, tuple[es.Question, str]] = {}
    for way, listed in (
        ("rows", ask),
        ("votes", ask_votes),
        ("totals", ask_totals),
        ("masked", ask_masked),
    ):
        for text in listed:
            called, equals, words = text.partition("=")
            if not equals or called in questions:
                raise typer.BadParameter(f"{text}: give NAME=QUESTION, each name once")
            questions[called] = (make_question(shlex.split(words), known), way)
    with progress("planning"):
        made = es.Study.create(
            url,
            schema=known,
            questions=questions,
            n_rows=rows,
            sites=site,
            worker=worker,
            receiver=receiver,
            key=key.value.replace("-", " "),
            openers=openers,
            name=name,
        )
    invitations.mkdir(mode=0o700, parents=True, exist_ok=True)
    for party, code in made.invitations.items():
        write_text(invitations / f"{party}.invitation", code + "\n", force=False)
    typer.echo(printable(f"Study {made.document.id} at {url}"))
    typer.echo(
        printable(
            f"Wrote {plural(len(made.invitations), 'invitation')} to {invitations}: send each to "
            "its party"
        )
    )


def study_join(
    url: StudyUrl,
    invitation: Annotated[Path, file_argument("INVITATION", "The file that you were sent.")],
    identity: Annotated[
        Path,
        Writes("whoever loses an identity has left the study", left_to=("invitation",)),
        file_argument("IDENTITY", "File for your secret in this study: it stays with you."),
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
    typer.echo(
        printable(
            f"You are {joined.me.name} in study {joined.document.name!r}. Keep {identity}, and "
            "give it to nobody"
        )
    )


def study_keygen(
    url: StudyUrl,
    identity: IdentityFile,
    key: StudyKey = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Make the study's key, when all have joined.

    With one holder, the receiver keeps it in a file. Under escrow it is sealed, and every site gets a share. A joint key is made by
    all sites, each a few times, as status says: every site keeps its part beside its identity. The receiver comes last, with a file
    for a key of its own, to which results are switched.

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
    data: Annotated[Path, file_argument("DATA", "CSV or Parquet file with your rows.")],
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

    Of questions that are answered at home, the totals of the rows are computed, encrypted or masked, and announced. When all sites
    have announced theirs, study share stores them.

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
    passphrase_file: PassphraseFile = None,
    workers: Workers = None,
    device: Device = "auto",
) -> None:
    """Compute what can be computed now: whether the rows of each site are valid, then the answers.

    Examples:
      encryptedstats study fit shared --identity centre.id
    """
    study = _opened(url, identity, passphrase_file)
    done = study.fit(workers=workers, device=device)
    typer.echo(
        printable(f"Computed {', '.join(done)}" if done else "There is nothing to compute now")
    )
    _tell(study)


def study_share(
    url: StudyUrl, identity: IdentityFile, passphrase_file: PassphraseFile = None
) -> None:
    """Send what the study waits for from you: your number of the coin, totals that all have announced, your share of an opening.

    With a joint key, what is to be opened is first computed anew from the rows of all sites: that takes as long as the worker took.

    Examples:
      encryptedstats study share shared --identity north.id
    """
    study = _opened(url, identity, passphrase_file)
    given = study.share()
    typer.echo(
        printable(f"Sent {', '.join(given)}" if given else "The study does not wait for you now")
    )
    _tell(study)


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
    """Open what may be opened now: first whether rows are valid, then the answers to the questions of the document.

    Under escrow, and with a joint key, the first time calls for the shares of the sites, and the next time opens when enough are
    there. Every opening is recorded in the study before it is shown.

    Examples:
      encryptedstats study open shared --identity registry.id --key registry.key -o results
    """
    study = _opened(url, identity, passphrase_file)
    for name, result in study.open(key, again=again).items():
        if out is None:
            typer.echo(f"{name}:")
            for line in str(
                result.summary() if hasattr(result, "summary") else result
            ).splitlines():
                typer.echo(printable(line))
        else:
            typer.echo(printable(_written(out, name, result, force)))
    _tell(study)


def study_exclude(
    url: StudyUrl,
    site: Annotated[
        str, typer.Argument(metavar="SITE", help="The site to go on without.", show_default=False)
    ],
    identity: IdentityFile,
    why: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason, for the record.", show_default=False)
    ],
    passphrase_file: PassphraseFile = None,
) -> None:
    """Go on without a site that does not come, in all questions, in writing.

    Totals that are computed at home are sent again without it, under other masks. Refused once any question is complete.

    Examples:
      encryptedstats study exclude shared west --why "has withdrawn" --identity registry.id
    """
    study = _opened(url, identity, passphrase_file)
    study.exclude(site, why)
    _tell(study)


def study_retire(
    url: StudyUrl,
    identity: IdentityFile,
    why: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason, for the record.", show_default=False)
    ],
    passphrase_file: PassphraseFile = None,
) -> None:
    """Retire the study's key, in writing: sites add nothing after this. What is there is computed on and opened as before.

    Examples:
      encryptedstats study retire shared --why "the receiver's laptop was lost" --identity registry.id
    """
    study = _opened(url, identity, passphrase_file)
    study.retire_key(why)
    _tell(study)


def study_status(url: StudyUrl, as_json: AsJson = False) -> None:
    """Show who has done what, what was refused, and who has to do what next. Anybody who may read the folder can look.

    Examples:
      encryptedstats study status shared
    """
    study = es.Study(url)
    status = study.status()
    told = study.fingerprint if status.state.joined else ""
    if as_json:
        print_json({**status.to_dict(), "fingerprint": told})
        return
    for line in str(status).splitlines():
        typer.echo(printable(line))
    if told:
        typer.echo(f"  fingerprint  {told}")


#: The commands of the group, by name.
COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "create": study_create,
    "join": study_join,
    "keygen": study_keygen,
    "add": study_add,
    "share": study_share,
    "fit": study_fit,
    "open": study_open,
    "exclude": study_exclude,
    "retire": study_retire,
    "status": study_status,
}


def _opened(url: str, identity: Path, passphrase_file: Path | None) -> es.Study:
    return es.Study(
        url, identity, passphrase=None if passphrase_file is None else first_line(passphrase_file)
    )


def _tell(study: es.Study) -> None:
    """What was refused, and who is next."""
    status = study.status()
    for why in status.to_dict()["refused"]:
        typer.echo(printable(f"refused: {why}"))
    steps = status.next
    for who, what in steps:
        typer.echo(printable(f"next: {who}, encryptedstats study {what}"))
    if not steps:
        typer.echo(printable(status.ended.capitalize()))


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
