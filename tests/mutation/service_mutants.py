"""Mutants of the service, of the owner's page, of ``verify`` in shards and of the reading of CSV
files.
"""

from __future__ import annotations

from mutation.mutants import Mutant

ANSWERS, CLIENT = "workers/worker.py", "workers/service.py"
DOOR, RUNNING = "service/door.py", "service/running.py"
SERVER, CONTENTS, DESK = "service/server.py", "service/contents.py", "app/desk.py"
PASSPHRASES, ON_KEY = "app/passphrases.py", "app/steps/key.py"
ON_SEND, ON_ENCRYPT = "app/steps/send.py", "app/steps/encrypt.py"
SHARDING, DIALECTS = "tables/shards.py", "tables/rows/csv_format.py"
RULES = ("tests/service/test_service_rules.py",)
PAGE = ("tests/app/test_desk_rules.py",)
_SHARDS = "tests/cluster/test_verify_shards.py::"
SHARDS = (
    f"{_SHARDS}test_shards_are_all_blocks_and_totals_and_packs_decrypt",
    f"{_SHARDS}test_a_table_in_memory_verifies_too",
    f"{_SHARDS}test_another_question_is_refused",
)
KILLS = ("tests/app/test_encryption_kills.py::test_a_finished_table_of_other_rows_is_made_anew",)
CSV = ("tests/tables/test_csv_format.py", "tests/tables/test_headers.py")


def service(name: str, old: str, new: str, file: str, tests: tuple[str, ...] = RULES) -> Mutant:
    """Return a mutant of this area."""
    return Mutant(f"service: {name}", old, new, file, tests)


MUTANTS = [
    # what the client accepts and sends
    service(
        "an answer of another key", "if file.key_id != job.table.key_id:", "if False:", ANSWERS
    ),
    service(
        "an answer of other rows",
        "set(read_block_ids(file)) != set(job.table.block_ids)",
        "len(read_block_ids(file)) > len(job.table.block_ids)",
        ANSWERS,
    ),
    service("an answer of fewer rows", "if job.kind != COMBINE and", "if False and", ANSWERS),
    service(
        "an answer to another question",
        "if job.question is not None and (",
        "if False and (",
        ANSWERS,
    ),
    service(
        "totals as a prediction",
        "(file.kind == PREDICTION_KIND) != (job.kind == PREDICT)",
        "False",
        ANSWERS,
    ),
    service(
        "the client sends anything",
        "if found is None or refusal is not None or",
        "if found is None or",
        CLIENT,
    ),
    # what comes in
    service(
        "any kind of file",
        "if found.kind not in WELCOME or known is None:",
        "if known is None:",
        DOOR,
    ),
    service("unknown sections", "    if strange:\n", "    if False:\n", DOOR),
    service(
        "another hash than the name",
        "self._hash.hexdigest() != self.sha256\n            or ",
        "",
        DOOR,
    ),
    service(
        "another name than the tail", "or self._tail.hex() != self.sha256\n        ):", "):", DOOR
    ),
    service("a body that is cut short", "if self.received != self.size:", "if False:", DOOR),
    service("a body that is too long", "if self.received > self.size:", "if False:", DOOR),
    service("a quota that is ignored", "if used + amount > quota:", "if False:", DOOR),
    service(
        "bodies on their way are not counted",
        " + sum(hold.bytes for hold in account.held.values())",
        "",
        DOOR,
    ),
    service("objects of any size", "if size > self.limits.object_bytes:", "if False:", DOOR),
    service(
        "paths in messages",
        'replace(self.store.where("").rstrip("/"), "(storage)")',
        "strip()",
        DOOR,
    ),
    service("unknown fields", "    if strange:\n", "    if False:\n", CONTENTS),
    service(
        "large fields of blocks", "return len(value) <= _LONGEST_FIELD", "return True", CONTENTS
    ),
    service(
        "a key in a section",
        "            if is_seal_object(",
        "            if False and is_seal_object(",
        CONTENTS,
    ),
    service(
        "a key in the second section", "            start += length", "            pass", CONTENTS
    ),
    # tokens, sessions and rates
    service(
        "sessions that never end", "if time.time() < until else None", "", "service/sessions.py"
    ),
    service(
        "sessions of owners",
        " and holder.role == OPERATOR else None",
        " else None",
        "service/sessions.py",
    ),
    service(
        "sessions are never removed",
        "            if over:\n",
        "            if False:\n",
        "service/sessions.py",
    ),
    service(
        "a token's record under another name",
        "return holder if hmac.compare_digest(holder.sha256, digest) else None",
        "return holder",
        "service/tokens.py",
    ),
    service(
        "revoked tokens live on",
        "now - since < _KNOWN_SECONDS:",
        "now - since < float('inf'):",
        "service/tokens.py",
    ),
    service("tokens of another role", "if holder.role != role:", "if False:", SERVER),
    service(
        "addresses are punished first",
        "if token else None\n",
        "if token and not self.failures.take(address) else None\n",
        SERVER,
    ),
    service(
        "guesses at any pace",
        "            if self.failures.take(address):\n",
        "            if False:\n",
        SERVER,
    ),
    service("refused tokens are not logged", "if token or role == OPERATOR:", "if False:", SERVER),
    service("owners ask at any pace", "        if wait:\n", "        if False:\n", SERVER),
    service("a range behind the end", "if start >= size:", "if start > size:", SERVER),
    service(
        "two answers to predict by",
        'max_length=1, description="The model',
        'max_length=9, description="The model',
        "service/messages.py",
    ),
    service("rates are not spent", "bucket.left -= 1", "pass", "service/limits.py"),
    service(
        "rates grow without end",
        "min(self._burst, bucket.left + ",
        "max(0.0, bucket.left + ",
        "service/limits.py",
    ),
    # turns and connections
    service("two plans of an owner", "if owner in self._owners:", "if False:", "service/turns.py"),
    service("turns are kept", "self._owners.discard(owner)", "pass", "service/turns.py"),
    service("places are kept", "self._places.release()", "pass", "service/turns.py"),
    service(
        "connections without a limit",
        "self._open[address] >= self._limits.connections",
        "False",
        RUNNING,
    ),
    service(
        "idle connections without a limit",
        "len(same) > self._limits.idle_connections",
        "False",
        RUNNING,
    ),
    service(
        "the newest idle connection is closed",
        "self._close(same[0])",
        "self._close(same[-1])",
        RUNNING,
    ),
    service(
        "idle connections of all addresses", "len(self._idle) > _IDLE_IN_ALL", "False", RUNNING
    ),
    service("connections that ended still count", "self._open[address] -= 1", "pass", RUNNING),
    service("proxies are limited", 'bool(self._proxies & {address, "*"})', "False", RUNNING),
    service(
        "connections with a request are idle",
        '"""Note that a request comes."""\n        self._idle.pop(transport, None)',
        '"""Note that a request comes."""',
        RUNNING,
    ),
    # jobs
    service(
        "jobs without a limit",
        "if self._open_jobs(place) >= self.limits.jobs:",
        "if False:",
        "service/jobs.py",
    ),
    service(
        "answers that are not there",
        "if not place.has(what, name):",
        "if False:",
        "service/jobs.py",
    ),
    # the owner's page
    service("a short passphrase", "if len(text) < LEAST:", "if False:", PASSPHRASES, PAGE),
    service("two passphrases that differ", "if passphrase != again:", "if False:", ON_KEY, PAGE),
    service(
        "a key that is never locked",
        "IDLE_SECONDS - (time.monotonic() - found.used)",
        "IDLE_SECONDS",
        DESK,
        PAGE,
    ),
    service(
        "questions after the key",
        'if project.state.key is not None:\n            raise Refused(\n                "a key',
        'if False:\n            raise Refused(\n                "a key',
        DESK,
        PAGE,
    ),
    service(
        "a result of another key",
        "if project.state.key is None or key_id != project.state.key.key_id:",
        "if project.state.key is None:",
        ON_SEND,
        PAGE,
    ),
    service(
        "half a result is kept",
        "key_id = container.from_bytes(content).key_id",
        "key_id = project.state.key.key_id",
        ON_SEND,
        PAGE,
    ),
    service(
        "a finished table of fewer rows",
        "is_same and is_all and is_untouched and is_kept",
        "is_same and is_untouched and is_kept",
        ON_ENCRYPT,
        KILLS,
    ),
    # verify in shards
    service(
        "shards of fewer blocks",
        "cut.blocks[-1] != len(table.blocks.ids) or ",
        "",
        SHARDING,
        SHARDS,
    ),
    service("shards of fewer totals", " or cut.totals[-1] != len(outputs):", ":", SHARDING, SHARDS),
    service(
        "packs that do not decrypt",
        "if is_packed and cut.width > report.width:",
        "if False:",
        SHARDING,
        SHARDS,
    ),
    service(
        "shards are ignored",
        "if cut is None:",
        "if True:",
        SHARDING,
        SHARDS,
    ),
    service(
        "another question is verified",
        "claimed.question if question is None else question",
        "claimed.question",
        "tables/answers/verification.py",
        SHARDS,
    ),
    # CSV files
    service(
        "rows with more fields than names",
        "if len(row) > len(names) or is_title:",
        "if is_title:",
        DIALECTS,
        CSV,
    ),
    service(
        "titles above the names",
        "if len(row) > len(names) or is_title:",
        "if len(row) > len(names):",
        DIALECTS,
        CSV,
    ),
    service(
        "two separators",
        "    if len(best) > 1:\n        raise",
        "    if False:\n        raise",
        DIALECTS,
        CSV,
    ),
    service("two decimal marks", "if len(found.decimals) > 1:", "if False:", DIALECTS, CSV),
    service(
        "lines above the names do not count",
        "reader.line_num + skipped",
        "reader.line_num",
        DIALECTS,
        CSV,
    ),
    service(
        "dates in two readings",
        "            if example is not None:\n",
        "            if False:\n",
        DIALECTS,
        CSV,
    ),
]
