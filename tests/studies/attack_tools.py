"""What attackers compute for themselves, with the files that they have and no rules to follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from study_samples import FRAMES, SCHEMA, World, bring_forged

import encryptedstats as es
from encryptedstats.crypto.engine import in_copies
from encryptedstats.crypto.residues import ciphertext_of, residues_of
from encryptedstats.storage.chains import Chain, first_hash
from encryptedstats.studies import holding
from encryptedstats.studies.parties import Identity
from encryptedstats.studies.transcript import MESSAGES
from encryptedstats.tables.encrypted_table import EncryptedTable
from encryptedstats.tables.facts import MemoryBlocks


def say(made: World, me: Identity, content: dict[str, Any], *, by: bytes = b"") -> None:
    """Post a message without asking the rules; ``by`` is the signing key that it claims."""
    document = es.Study(made.url).document
    chain = Chain(es.Study(made.url).store, MESSAGES, f"encryptedstats study {document.id}")
    chain.append(content, (by or me.signer.public_bytes).hex(), me.signer.sign)


def forget_messages(made: World, name: str) -> None:
    """Restore the file with the last message that a party has seen from the day when it joined."""
    topic = f"encryptedstats study {es.Study(made.url).document.id}"
    seen = made.identity(name).with_name(f"{name}.id.seen")
    seen.write_text(first_hash(topic) + "\n")


def bayes_totals(*frames: pd.DataFrame) -> list[int]:
    """Return the totals of the question over clear rows."""
    return [
        int(one)
        for one in es.MultinomialNB()
        .fit(SCHEMA.table(pd.concat(frames, ignore_index=True)))
        .totals_
    ]


def read_rows(owner: es.Owner, table: EncryptedTable) -> dict[str, list[int]]:
    """Decrypt every column of the first block of a table, row by row."""
    engine, block = owner.public_keys().engine, table.blocks.block(0)
    found = {}
    for place, column in enumerate(table.facts.columns):
        plain = owner._decryptor.decrypt(ciphertext_of(engine, block[place]))
        found[str(column)] = [
            int(one) for one in engine.encoder.decode(plain)[: table.blocks.rows[0]]
        ]
    return found


def clear_rows(site: str) -> dict[str, list[int]]:
    """Return what :func:`read_rows` finds in an honest table of the rows of a site."""
    owner = es.Owner(es.Parameters.choose(max_value=100, depth=0))
    return read_rows(owner, owner.encrypt(SCHEMA.table(FRAMES[site])))


def plain_tables(folder: Path) -> list[Path]:
    """Return the folders that hold encrypted tables which nobody sealed."""
    found = []
    for manifest in folder.rglob("table.manifest"):
        try:
            EncryptedTable.load(manifest.parent)
        except es.FileFormatError:
            continue
        found.append(manifest.parent)
    return sorted(found)


def answers_in(made: World, owner: es.Owner) -> list[list[int]]:
    """Return the totals of every object of the shared folder that opens with this key."""
    found = []
    for path in sorted(Path(made.url, "objects").iterdir()):
        try:
            answer = es.load(path, owner.public_keys())
            found.append([int(one) for one in owner.open(answer, schema=SCHEMA).totals_])
        except (es.EncryptedStatsError, AttributeError, TypeError):
            continue
    return found


def stored_objects(made: World) -> set[str]:
    """Return the names of everything in the shared folder but the messages."""
    root = Path(made.url)
    every = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return {name for name in every if not name.startswith(f"{MESSAGES}/")}


def bring_multiplied(made: World, site: str, rows: pd.DataFrame, factor: int) -> None:
    """Bring rows whose classes count several times."""
    party = made.as_(site)
    keys = party.public_keys()
    good = keys.encrypt(SCHEMA.table(rows))
    residues = good.blocks.block(0).copy()
    for place, column in enumerate(map(str, good.facts.columns)):
        if column.startswith("class"):
            plain = keys.engine.encoder.encode(np.full(keys.parameters.slots, factor))
            old = ciphertext_of(keys.engine, residues[place])
            residues[place] = residues_of(
                keys.engine, keys.engine.evaluator.multiply_plain(old, plain)
            )
    blocks = MemoryBlocks(good.blocks.ids, good.blocks.rows, (residues,))
    bring_forged(party, EncryptedTable(good.facts, blocks, keys))


def bring_unlike_copies(made: World, site: str, rows: pd.DataFrame) -> int:
    """Bring rows with one whose copies differ in class 0; return how often it counts."""
    party = made.as_(site)
    keys = party.public_keys()
    good = keys.encrypt(SCHEMA.table(rows))
    t, slots = keys.parameters.plain_modulus, keys.parameters.slots
    squares = np.arange(t, dtype=np.int64) ** 2 % t
    # x + y = 2 k and x^2 + y^2 = 2 k: x - k is a root of k - k^2.
    times, root = next(
        (k, int(at[0]))
        for k in range(5, 30)
        if len(at := np.flatnonzero(squares == (k - k * k) % t))
    )
    row = int(np.flatnonzero(rows["ill"] == "no")[0])
    added = in_copies(np.zeros(slots, dtype=np.int64), 2)
    first, second = np.flatnonzero(in_copies(np.arange(slots) == row, 2))
    added[first], added[second] = times + root - 1, times - root - 1
    place = [str(one) for one in good.facts.columns].index("class0")
    residues, encoder = good.blocks.block(0).copy(), keys.engine.encoder._encoder
    old = ciphertext_of(keys.engine, residues[place])
    plain = encoder.encode((added % t).astype(np.uint64))
    residues[place] = residues_of(keys.engine, keys.engine.evaluator.add_plain(old, plain))
    blocks = MemoryBlocks(good.blocks.ids, good.blocks.rows, (residues,))
    bring_forged(party, EncryptedTable(good.facts, blocks, keys))
    return times


def mark_as_joint(keys: es.PublicKeys) -> es.PublicKeys:
    """Write an owner's public keys as those that several members have made."""
    material = keys.material
    return es.PublicKeys.of_members(material.engine, material.public_key, material.evaluation)


def unseal_key(made: World, sites: tuple[str, ...]) -> es.Owner:
    """Put the escrowed key together from the shares that some sites were dealt."""
    parts, shares = es.Study(made.url).state().more["key parts"], []
    for site in sites:
        study = made.as_(site)
        sealed = study.transcript.read_object(parts[holding.SHARE + site])
        shares.append(study.me.reader.open(sealed, holding._bound_to(study, "deal", site)))
    secret = holding._combine_shares(shares)
    return holding._unseal(es.Study(made.url).transcript.read_object(parts[holding.SEALED]), secret)


def open_folder(made: World, party: str, site: str) -> EncryptedTable:
    """Open the sealed rows of a site with what a party has."""
    study = made.as_(party)
    state = study.state()
    return study._site(site, state, study._keys_of(state))
