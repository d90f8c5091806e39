"""``study``: pool rows of several owners. Each command acts for the party of ``--identity``."""

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
from encryptedstats.procedures.site_procedure import MINIMUM
from encryptedstats.procedures.words import SITE_PROCEDURES, make_procedure
from encryptedstats.studies import linking
from encryptedstats.tables.answers.answer import PREDICTION_KIND
from encryptedstats.tables.answers.opened import describe_opened
from encryptedstats.tables.answers.results import Result
from encryptedstats.tables.questions.words import make_questions
from encryptedstats.views import TableView, View
from encryptedstats.words import did_you_mean

_SOURCES: Final = ("rows", "votes", "totals", "masked", "rounds")
_KINDS: Final = ("one-holder", "escrow", "joint")

StudyUrl = Annotated[str, Reads, argument("STUDY", "Folder or URL that all parties share.")]
IdentityFile = Annotated[
    Path,
    file_option("--identity", help="Your identity in the study, the file that study join made."),
]
StudyKey = Annotated[
    Path | None,
    file_option("--key", help="File of the secret key, for the receiver of a one-holder study."),
]
Why = Annotated[str, option(metavar="TEXT", help="The reason, which is recorded in the study.")]


def study_create(
    url: StudyUrl,
    schema: SchemaFile,
    rows: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="The largest number of rows of all sites together."),
    ],
    site: Annotated[
        list[str], option(metavar="NAME", help="A party that brings rows; given for each site.")
    ],
    worker: Annotated[str, option(metavar="NAME", help="The party that computes.")],
    receiver: Annotated[
        str, option(metavar="NAME", help="The party that opens answers; not the worker.")
    ],
    invitations: Annotated[
        Path,
        Writes("invitations are stored nowhere else"),
        file_option(
            metavar="FOLDER",
            help="A new folder for the invitations: send each party its own and no other.",
        ),
    ],
    ask: Annotated[
        list[str],
        option(
            metavar="[FROM:]NAME=QUESTION",
            help="A question, as for ask: 'ages=Describe(age)'. It is answered from: rows (the "
            "default), encrypted by the sites; totals, computed and encrypted by each site; "
            "masked, totals with masks that only their sum removes; rounds, a procedure such as "
            "PooledGLM, whose masked totals follow from the sums before (see --minimum); "
            "votes, with --kind joint: an encrypted model, whose votes for new rows the receiver "
            "opens.",
        ),
    ] = [],  # noqa: B006  Typer copies it
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="Who can open: one-holder, the receiver alone; escrow:N, the receiver with N of "
            "the sites; or (experimental) joint, all together, with a key that nobody holds.",
        ),
    ] = _KINDS[0],
    link: Annotated[
        str,
        typer.Option(
            metavar="WORDS",
            help="Where sites bring different columns of the same people: SITE=COLUMN,... of each "
            "site, by=KIND,... (text, code, date) of the identifiers, agent=NAME, "
            "reveals=size|members, min_count=N, sensitive=yes.",
        ),
    ] = "",
    minimum: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="For rounds: the fewest rows of all sites behind a number that is opened, 5 or "
            "more. Where fewer are, the rounds stop.",
        ),
    ] = MINIMUM,
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the study.")] = "study",
) -> None:
    """Write the document of a new study, and an invitation for each party.

    The document lists the parties, the questions and the schema. Nothing else is ever opened, and
    it cannot be changed. All parties share a folder or bucket and need not be online at the same
    time: each command does what its party has to do next.

    Examples:
      encryptedstats study create shared --schema schema.json --rows 5000 --site north \\
        --site south --site west \\
        --worker centre --receiver registry --ask "model=forest trees=20 seed=1" --invitations sent
      # every party once; then all compare by telephone the fingerprint that status shows
      encryptedstats study join shared sent/north.invitation north.id
      encryptedstats study keygen shared --identity registry.id --key registry.key
      encryptedstats study add shared patients.csv --identity north.id
      encryptedstats study share shared --identity north.id
      encryptedstats study fit shared --identity centre.id
      encryptedstats study open shared --identity registry.id --key registry.key -o results
      encryptedstats open results/model.opened

      # a sealed key: two of three sites have to help to open
      encryptedstats study create shared --schema schema.json --rows 5000 --site north \\
        --site south --site west \\
        --worker centre --receiver registry --ask "bayes=mnb" --kind escrow:2 --invitations sent

      # a regression that converges: sites compute at home, and open the sums of each round
      encryptedstats plan schema.json "PooledGLM(ill ~ age + sex)"
      encryptedstats study create shared --schema schema.json --rows 5000 --site north \\
        --site south --site west \\
        --worker centre --receiver registry --ask "rounds:fit=PooledGLM(ill ~ age + sex)" \\
        --invitations sent

      # two sites have columns of the same people, who are linked by an agent
      encryptedstats study create linked --schema schema.json --rows 5000 --site clinic \\
        --site registry \\
        --worker centre --receiver office --ask "table=crosstab(sex, ill)" --invitations sent \\
        --link "clinic=age,sex registry=ill by=text,date agent=linker"
    """
    known, questions = load_schema(schema), {}
    for text in ask:
        called, source, words = _parse_question(text)
        if called in questions:
            raise typer.BadParameter(f"--ask {text}: give each name once")
        questions[called] = (_make_asked(text, source, words, known), source)
    key, _, openers = kind.partition(":")
    if key not in _KINDS or (openers and not openers.isdigit()):
        raise typer.BadParameter(f"--kind {kind}: give one-holder, escrow:N or joint")
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
            linkage=_linkage(link, site) if link else None,
            minimum=minimum,
        )
    invitations.mkdir(mode=0o700, parents=True, exist_ok=True)
    for party, code in study.invitations.items():
        write_text(invitations / f"{party}.invitation", code + "\n", force=False)
    wrote = (
        f"{plural(len(study.invitations), 'invitation')} to {invitations}: send each to its party"
    )
    facts = {"wrote": wrote}
    if study.document.procedures:
        facts["needs"] = f"{study.document.rows_needed:,} rows or more of all sites together"
    show(View(f"Study {study.document.id} at {url}", facts))


def _parse_question(text: str) -> tuple[str, str, list[str]]:
    """Return the name, the source and the words of ``FROM:NAME=QUESTION``."""
    called, equals, words = text.partition("=")
    source, colon, rest = called.partition(":")
    if not equals or (colon and source not in _SOURCES):
        raise typer.BadParameter(
            f"--ask {text}: give NAME=QUESTION, or one of {', '.join(_SOURCES)} and a colon "
            "before it"
        )
    is_call = "(" in words.partition(" ")[0] or words.rstrip().endswith(")")
    return (
        (rest if colon else called),
        (source if colon else _SOURCES[0]),
        ([words] if is_call else shlex.split(words)),
    )


def _make_asked(text: str, source: str, words: list[str], schema: es.Schema) -> Any:
    """Return the question that words ask for, or the procedure that is asked in rounds."""
    if source == "rounds":
        found = make_procedure(words)
        if found is None:
            near = did_you_mean(words[0].partition("(")[0].strip(), SITE_PROCEDURES)
            raise typer.BadParameter(
                f"--ask {text}: {words[0]} is no procedure{near}; studies have "
                f"{', '.join(SITE_PROCEDURES)}"
            )
        return found
    if words and words[0].partition("(")[0].strip() in SITE_PROCEDURES:
        raise typer.BadParameter(
            f"--ask {text}: the sites of a study compute it in rounds, rounds:NAME=QUESTION"
        )
    made = make_questions(words, schema)
    if len(made) != 1:
        raise typer.BadParameter(f"--ask {text}: one question for each name")
    return made[0]


def _linkage(text: str, sites: list[str]) -> es.Linkage:
    """Read how columns are linked from the words of ``--link``."""
    words = dict(word.partition("=")[::2] for word in shlex.split(text))
    columns = {site: words.pop(site, "").split(",") for site in sites}
    allowed = {"by", "agent", "reveals", "min_count", "sensitive"}
    if set(words) - allowed or not words.get("min_count", "0").isdigit():
        raise typer.BadParameter(
            f"--link {text}: columns of {', '.join(sites)}, and {', '.join(sorted(allowed))}"
        )
    options: dict[str, Any] = {name: words[name] for name in ("agent", "reveals") if name in words}
    if "min_count" in words:
        options["min_count"] = int(words["min_count"])
    return es.Linkage(
        columns,
        words.get("by", "code").split(","),
        sensitive=words.get("sensitive", "no") == "yes",
        **options,
    )


def study_join(
    url: StudyUrl,
    invitation: Annotated[Path, argument("INVITATION", "The file that you were sent.")],
    identity: Annotated[
        Path,
        Writes("without its identity, a party has left the study", resumed=True),
        argument("IDENTITY", "File for your secret in this study: keep it private."),
    ],
    passphrase_file: PassphraseFile = None,
) -> None:
    """Join a study: make your keys and sign its document.

    After an interruption, run it again with the same files.

    Examples:
      encryptedstats study join shared north.invitation north.id
    """
    words = None if passphrase_file is None else first_line(passphrase_file)
    joined = es.Study.join(url, first_line(invitation, private=False), identity, passphrase=words)
    text = f"You are {joined.me.name} in study {joined.document.name!r}"
    show(View(f"{text}. Keep {identity} private"))


def study_keygen(
    url: StudyUrl,
    identity: IdentityFile,
    key: StudyKey = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Make the study's key, once everybody has joined.

    With one holder, the receiver keeps it in a file. Under escrow it is sealed, and every site
    gets a share. All sites make a joint key together: each runs this a few times, as status says,
    and keeps its share beside its identity. The receiver comes last, with a file for a key of its
    own, for which answers are switched.

    Examples:
      encryptedstats study keygen shared --identity registry.id --key registry.key

      # under escrow, without a file
      encryptedstats study keygen shared --identity registry.id

      # a joint key: every site, until the receiver is next
      encryptedstats study keygen shared --identity north.id
    """
    study = _load_study(url, identity, passphrase_file)
    with progress("making keys"):
        study.keygen(key)
    _print_status(study)


def study_link(
    url: StudyUrl,
    identity: IdentityFile,
    data: Annotated[
        Path | None, argument("DATA", "CSV file with your rows and their identifiers, once.")
    ] = None,
    by: Annotated[
        str,
        option(metavar="COLUMNS", help="The columns with the identifiers: surname,born."),
    ] = "",
    duplicates: Annotated[
        str,
        typer.Option(metavar="WHAT", help="Rows with the same identifiers: refuse, first or drop."),
    ] = "refuse",
    passphrase_file: PassphraseFile = None,
) -> None:
    """Agree with other sites on which rows are of the same people.

    A site brings its rows once, of which keyed hashes are sent for the linkage agent, or points
    that only both sites together can compare. Everything else is done without rows. Once people
    are linked, rows without --by show how your linked people differ from the others, if the study
    has reveals=members; nothing is sent for that.

    Examples:
      encryptedstats study link linked clinic.csv --by surname,born --identity clinic.id
      encryptedstats study link linked --identity linker.id

      # are the people who were found in both places like the others?
      encryptedstats study link linked clinic.csv --identity clinic.id
    """
    study = _load_study(url, identity, passphrase_file)
    if data is not None and not by and _has_linked(study):
        _compare_linked(study, data)
        return
    columns = [one.strip() for one in by.split(",")] if by else []
    rows = None if data is None else _read_identified(data, columns)
    report = study.link(rows, on=columns, duplicates=duplicates)
    if report is not None:
        show(View("People", notes=tuple(str(report).splitlines())))
    _print_status(study)


def _has_linked(study: es.Study) -> bool:
    known = linking.report(study)
    return known is not None and known.n_linked is not None


def _compare_linked(study: es.Study, data: Path) -> None:
    found = study.compare_linked(_read_identified(data, study.identifier_columns()))
    show(
        View(
            "Linked people and the others: means and shares",
            tables=(TableView("", found),),
            notes=(
                "difference: in standard deviations; 0.1 or more is usually called an imbalance",
            ),
        )
    )


def study_add(
    url: StudyUrl,
    data: Annotated[Path, argument("DATA", "CSV or Parquet file with your rows.")],
    identity: IdentityFile,
    new: Annotated[
        Path | None,
        file_option(
            "--new",
            help=(
                "For a study with votes: your rows to predict. The receiver sees the votes of each."
            ),
        ),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="For rounds: stay until the last one, and show each."),
    ] = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Check your rows against the agreed schema, and encrypt them for the study.

    For questions from totals or masked totals, these are computed and announced. When all sites
    have announced theirs, study share sends them. Questions in rounds take your rows once for
    each round: run it again, with the same file, whenever status says so, or once with --wait.

    Examples:
      encryptedstats study add shared patients.csv --identity north.id
      encryptedstats study add shared patients.csv --new this-week.csv --identity north.id
      encryptedstats study add shared patients.csv --wait --identity north.id
    """
    study = _load_study(url, identity, passphrase_file)
    if wait:
        study.run_rounds(data, progress=lambda said: typer.echo(printable(said), err=True))
    elif study.document.linkage is None:
        study.add(data, new=new)
    else:
        study.add(_read_identified(data, study.identifier_columns()))
    _print_status(study)


def study_fit(
    url: StudyUrl,
    identity: IdentityFile,
    on: On = LOCAL,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Compute what can be computed now.

    First it checks that the rows of each site are valid, then it computes the answers.

    Examples:
      encryptedstats study fit shared --identity centre.id
    """
    study = _load_study(url, identity, passphrase_file)
    options = Place.parse(on).local_options()
    done = study.fit(**options)
    _print_status(
        study, f"Computed {', '.join(done)}" if done else "There is nothing to compute now"
    )


def study_share(
    url: StudyUrl, identity: IdentityFile, passphrase_file: PassphraseFile = None
) -> None:
    """Send what the study waits for.

    This is your share of a common random number, totals that all have announced, or your share of
    an opening. With a joint key, the answer is first computed again from the rows of all sites,
    which takes as long as the worker took.

    Examples:
      encryptedstats study share shared --identity north.id
    """
    study = _load_study(url, identity, passphrase_file)
    sent = study.share()
    _print_status(
        study, f"Sent {', '.join(sent)}" if sent else "The study does not wait for you now"
    )


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
            help="Folder for the results, one file for each question.",
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Ask the sites once more for shares of a result that was opened and lost.",
        ),
    ] = False,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
) -> None:
    """Open results, as the receiver of the study.

    First it opens whether rows are valid, then the answers to the questions of the document. The
    command open shows the files again and writes them as tables.

    Under escrow and with a joint key, the first run asks the sites for shares, and a later one
    opens when enough have sent theirs. Every opening is recorded in the study before it is shown.
    Sites open the results of questions in rounds, whose sums they have seen.

    Examples:
      encryptedstats study open shared --identity registry.id --key registry.key -o results
    """
    study = _load_study(url, identity, passphrase_file)
    for name, result in study.open(key, again=again).items():
        if out is not None:
            typer.echo(printable(_write_result(out, name, result, force)))
            continue
        kind = PREDICTION_KIND if isinstance(result, es.Votes) else ""
        if isinstance(result, Result):
            view: View | None = result.view()
        else:
            is_model = hasattr(result, "answer_") or kind
            view = describe_opened(result, kind).view if is_model else None
        typer.echo(f"{name}:")
        if view is not None and not kind:
            show(view)
        else:
            typer.echo("\n".join(map(printable, str(result).splitlines())))
    _print_status(study)


def study_exclude(
    url: StudyUrl,
    site: Annotated[str, argument("SITE", "The site to go on without.")],
    identity: IdentityFile,
    why: Why,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Continue without a site, in all questions.

    Masked totals are sent again without it, under new masks. It is refused once any question is
    complete.

    Examples:
      encryptedstats study exclude shared west --why "has withdrawn" --identity registry.id
    """
    study = _load_study(url, identity, passphrase_file)
    study.exclude(site, why)
    _print_status(study)


def study_retire(
    url: StudyUrl,
    identity: IdentityFile,
    why: Why,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Retire the study's key.

    Sites can add no rows afterwards. Rows that are there are computed on and opened as before.

    Examples:
      encryptedstats study retire shared --why "the receiver's laptop was lost" \\
        --identity registry.id
    """
    study = _load_study(url, identity, passphrase_file)
    study.retire_key(why)
    _print_status(study)


def study_status(url: StudyUrl, as_json: AsJson = False) -> None:
    """Show who has done what, what was refused, and what is next.

    It needs no identity, only access to the folder.

    JSON: study, name, fingerprint, key, key_id, retired, joined, people, linked, rows, new_rows,
      planned_rows, rows_needed, minimum, excluded, valid, answered, opened, rounds, refused, next,
      open_risks

    Examples:
      encryptedstats study status shared
    """
    study = es.Study(url)
    status = study.status()
    fingerprint = study.fingerprint if status.state.joined else ""
    title, *lines = str(status).splitlines()
    notes = [*lines, *([f"  fingerprint  {fingerprint}"] if fingerprint else [])]
    document = {**status.to_dict(), "fingerprint": fingerprint}
    tell(View(title, notes=tuple(notes)), document, as_json)


def _load_study(url: str, identity: Path, passphrase_file: Path | None) -> es.Study:
    return es.Study(
        url, identity, passphrase=None if passphrase_file is None else first_line(passphrase_file)
    )


def _print_status(study: es.Study, done: str = "") -> None:
    """Print what was done, what was refused, and who is next."""
    status = study.status()
    lines = [f"refused: {why}" for why in status.to_dict()["refused"]]
    lines += [f"next: {who}, encryptedstats study {what}" for who, what in status.next]
    if not status.next:
        lines.append(status.ended.capitalize())
    for line in [*([done] if done else []), *lines]:
        typer.echo(printable(line))


def _write_result(folder: Path, name: str, result: Any, force: bool) -> str:
    """Write a result to a file that open reads, or, without totals to read it from, as CSV or JSON;
    keep one that was written before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    is_result = isinstance(result, Result)
    has_totals = result.source is not None if is_result else hasattr(result, "save")
    is_table = hasattr(result, "to_csv") and not is_result
    suffix = "csv" if is_table else "opened" if has_totals else "json"
    path = folder / f"{name}.{suffix}"
    if path.exists() and not force:
        return f"{path} exists already and was not touched: --force replaces it"
    if suffix == "opened":
        save(result, path, force=force)
    elif suffix == "csv":
        table = result.frame() if hasattr(result, "frame") else result
        write_text(path, table.to_csv(lineterminator="\n"), force=force)
    elif is_result:
        write_text(path, result.to_json(), force=force)
    else:
        found = result.to_dict() if hasattr(result, "to_dict") else result
        write_text(path, json.dumps(found, default=str) + "\n", force=force)
    return f"Wrote {path}"


def _read_identified(path: Path, on: list[str]) -> Any:
    """Read a CSV or Parquet file, with identifiers as they are written: zeros in front stay."""
    from encryptedstats.studies.identifiers import read_identified  # which loads pandas

    return read_identified(path, on)
