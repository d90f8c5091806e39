"""Write the stored table, its keys and the digests of the results; run only to pin a new version on
purpose.

python tests/golden/make_golden.py digests    # after a deliberate change of packing
python tests/golden/make_golden.py table      # a new key and table, then new digests
python tests/golden/make_golden.py genome     # a new genome table, then new digests
"""

from __future__ import annotations

import json
import sys
import warnings

from golden_questions import (
    DEVICES,
    STORED,
    STORED_ANSWERS,
    digest_result,
    make_frame,
    make_genome,
    make_questions,
    make_scans,
    make_schema,
    read_totals,
)

import encryptedstats as es


def write_table() -> None:
    STORED.mkdir(exist_ok=True)
    schema = make_schema(frame := make_frame())
    owner = es.Owner(es.Parameters.from_bits("bgv", 1024, 1 << 21, (46,) * 5, allow_insecure=True))
    owner.save(STORED / "insecure.key", overwrite=True)
    owner.encrypt(schema.table(frame, folds=2)).save(STORED / "table", overwrite=True)
    (STORED / "schema.json").unlink(missing_ok=True)
    schema.save(STORED / "schema.json")
    table, questions = es.load(STORED / "table"), make_questions()
    for file, name in STORED_ANSWERS.items():
        table.ask(questions[name], workers=1).save(STORED / file, overwrite=True)
    opened = {file: read_totals(owner.open(STORED / file, schema)) for file in STORED_ANSWERS}
    (STORED / "opened.json").write_text(json.dumps(opened, indent=1) + "\n")


def write_genome() -> None:
    owner = es.Owner.load(STORED / "insecure.key")
    owner.encrypt(make_genome()).save(STORED / "genome", overwrite=True)
    for keys in (STORED / "genome").glob("*.keys"):
        keys.unlink()  # those of the other table


def write_digests() -> None:
    table = es.load(STORED / "table")
    digests = {
        name: {
            device: digest_result(table.ask(question, device=device, workers=1))
            for device in DEVICES
        }
        for name, question in make_questions().items()
    }
    (STORED / "digests.json").write_text(json.dumps(digests, indent=1) + "\n")
    genome = es.load(STORED / "genome", table.public_keys())
    scans = {
        name: {
            device: digest_result(genome.ask(question, device=device, workers=1))
            for device in DEVICES
        }
        for name, question in make_scans().items()
    }
    (STORED / "scans.json").write_text(json.dumps(scans, indent=1) + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore", es.InsecureParametersWarning)
    {"table": write_table, "genome": write_genome, "digests": write_digests}[sys.argv[1]]()
