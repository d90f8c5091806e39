"""The program: its commands, by who uses them.

A new family of commands is a module of its own with functions; they are added to the list of a role at the end.
"""

from __future__ import annotations

from collections.abc import Callable

from encryptedstats.cli import (
    bench,
    calibrate,
    cluster,
    decrypt,
    doctor,
    draw,
    encrypt,
    evaluate,
    info,
    keygen,
    models,
    plan,
    predict,
    schema,
    statistics,
)
from encryptedstats.cli._help import register
from encryptedstats.cli._program import Program, new_program

_HELP = """Statistics on encrypted data: encrypt, let somebody else compute, and open the result yourself.

The owner has the data and makes the keys. A worker gets the encrypted table, computes, and learns nothing but sizes. Others may
encrypt rows for the owner, with the public keys, and cannot open even their own again.
"""

_STORY = """\
# the owner
encryptedstats schema patients.csv --target ill -o schema.json
encryptedstats plan --schema schema.json --rows 683 --model forest --trees 100 -o plan.json
encryptedstats keygen secret.key public.keys --plan plan.json
encryptedstats encrypt patients.csv patients.enc --schema schema.json --key secret.key
# the worker, who has patients.enc and nothing else
encryptedstats counts patients.enc v0 --by class -o age.enc
encryptedstats fit patients.enc -o forest.enc --model forest --trees 100
# the owner, who gets age.enc and forest.enc back
encryptedstats decrypt age.enc --key secret.key --schema schema.json -o age.csv
encryptedstats decrypt forest.enc --key secret.key --schema schema.json -o forest.opened
encryptedstats predict forest.opened new.csv -o predicted.csv"""


class _Program(Program):
    """The library's own, whose help ends with the whole story."""

    story = _STORY


app = new_program(_HELP, _Program)

_ROLES: dict[str, tuple[Callable[..., None], ...]] = {
    "Owner: has the data, and alone the secret key": (
        schema.schema,
        plan.plan,
        keygen.keygen,
        encrypt.encrypt,
        decrypt.decrypt,
        predict.predict,
        evaluate.evaluate,
        calibrate.calibrate,
    ),
    "Worker: computes on what it cannot read": (
        info.info,
        statistics.counts,
        statistics.crosstab,
        statistics.moments,
        statistics.ask,
        models.fit,
        models.combine,
        draw.draw,
        cluster.worker,
        cluster.queue,
    ),
    "To look around": (
        doctor.doctor,
        bench.bench,
    ),
}
for role, commands in _ROLES.items():
    for command in commands:
        register(app, command, role)
