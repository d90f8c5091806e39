"""What travels between a service and its clients, once for both sides: the server parses requests
and writes answers with these models, the client the other way round.

Imports pydantic and nothing of the library. Requests with unknown fields are refused; of answers
they are left out, so that a client can speak to a newer server.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

HEX64: Final = "^[0-9a-f]{64}$"
HEX32: Final = "^[0-9a-f]{32}$"
Sha256Text = Annotated[str, Field(pattern=HEX64)]
Named = Annotated[str, Field(pattern="^(job:[0-9a-f]{32}|object:[0-9a-f]{64})$")]
State = Literal["queued", "running", "done", "failed", "cancelled"]
JobKind = Literal["fit", "ask", "predict", "combine", "draw", "respond"]
_TABLE: Final = "3f" * 32
_JOB: Final = "9c1d2e3f405162738495a6b7c8d9eafb"


class StrictRequest(BaseModel):
    """A body that a client sends."""

    model_config = ConfigDict(extra="forbid")


class Reply(BaseModel):
    """A body that a server answers with."""

    model_config = ConfigDict(extra="ignore")


class Error(Reply):
    """What every refusal looks like."""

    what: str = Field(description="What was refused.", examples=["the object 3f2a90c1d4e5"])
    why: str = Field(
        description="The reason.", examples=["its bytes have another SHA-256 than its name"]
    )
    cure: str = Field(
        description="What to do about it.", examples=["send it again; nothing of it was kept"]
    )
    error: str = Field(
        default="",
        description="The class of the library's error, if it is one.",
        examples=["SchemaError"],
    )
    code: str = Field(
        default="", description="The code of the library's error.", examples=["unknown-variable"]
    )


class Health(Reply):
    """Whether the server answers."""

    ok: bool


class Offers(Reply):
    """What this worker is, and what it allows."""

    version: str = Field(examples=["0.3.0"])
    devices: list[str] = Field(description="What computes here.", examples=[["native", "seal"]])
    cores: int = Field(examples=[16])
    jobs: list[JobKind] = Field(examples=[["fit", "ask", "predict", "combine", "draw", "respond"]])
    object_bytes: int = Field(description="The largest object that is taken.")
    quota_bytes: int = Field(description="All that this owner may store.")
    used_bytes: int = Field(description="What she has stored.")
    unfinished_jobs: int = Field(description="How many jobs of hers may be unfinished at once.")
    requests_per_second: float = Field(description="How often she may ask, in the long run.")
    presigned: bool = Field(description="Whether objects can be uploaded straight to the storage.")


class Names(StrictRequest):
    """Names of objects."""

    sha256: list[Sha256Text] = Field(max_length=100_000, examples=[[_TABLE]])


class TableRequest(StrictRequest):
    """The objects that a table is put together from."""

    keys: Sha256Text = Field(
        description="The object with the public keys to compute with.", examples=["a0" * 32]
    )


class TableReply(Reply):
    """What this machine knows of a table."""

    table: str = Field(description="Its name: that of its manifest.", examples=[_TABLE])
    rows: int = Field(examples=[20000])
    blocks: int = Field(examples=[3])
    columns: int = Field(examples=[14])
    bytes: int = Field(examples=[50_331_648])
    key_id: str = Field(examples=["367282de957d36b5dd3478b65ea82f49"])


class _JobRequest(StrictRequest):
    table: Sha256Text = Field(description="The table.", examples=[_TABLE])


class AskRequest(_JobRequest):
    """Ask a question of a table, or fit a model to it."""

    kind: Literal["ask", "fit"]
    question: str = Field(
        max_length=200, description="A name of `GET /v1/questions`.", examples=["counts"]
    )
    params: dict[str, Any] = Field(
        description="Its parameters, as `GET /v1/questions` describes them; those with a default "
        "may be left out. Variables go by id: v0, v1, class.",
        examples=[{"variables": [0, -1]}],
    )
    rows_per_shard: int | None = Field(default=None, ge=1, description="Rows of a shard, at most.")
    trees_per_task: int | None = Field(default=None, ge=1, description="Forests: trees of a shard.")
    by_others: bool = Field(
        default=False, description="Compute on rows that others encrypted with the public keys."
    )


class PredictRequest(_JobRequest):
    """Predict the rows of a table by an encrypted model."""

    kind: Literal["predict"]
    answers: list[Named] = Field(
        min_length=1, max_length=1, description="The model: job:ID or object:SHA256.",
        examples=[[f"job:{_JOB}"]],
    )  # fmt: skip
    output: str | None = Field(
        default=None,
        max_length=100,
        description="How to answer, for models that can in several ways.",
    )
    rows_per_shard: int | None = Field(default=None, ge=1, description="Rows of a shard, at most.")


class DrawRequest(_JobRequest):
    """Draw the stochastic fraction of an encrypted forest."""

    kind: Literal["draw"]
    answers: list[Named] = Field(
        min_length=1, max_length=1, description="The forest: job:ID or object:SHA256.",
        examples=[[f"job:{_JOB}"]],
    )  # fmt: skip


class CombineRequest(_JobRequest):
    """Add encrypted answers of different rows up. The table is any one of the same keys."""

    kind: Literal["combine"]
    answers: list[Named] = Field(
        min_length=1, max_length=4096, description="Answers to add up: job:ID or object:SHA256.",
        examples=[[f"job:{_JOB}", f"object:{_TABLE}"]],
    )  # fmt: skip
    forget: list[Named] | None = Field(
        default=None, max_length=4096, description="Answers whose rows are taken out again."
    )


class RespondRequest(_JobRequest):
    """Answer a spot check: random combinations of the sums behind the totals of a question."""

    kind: Literal["respond"]
    question: str = Field(max_length=200, description="What was asked.", examples=["counts"])
    params: dict[str, Any] = Field(
        description="Its parameters, as it was asked.", examples=[{"variables": [0, -1]}]
    )
    seeds: list[Sha256Text] = Field(
        min_length=1,
        max_length=64,
        description="One for the weights of each combination.",
        examples=[["5e" * 32]],
    )
    weight_bits: int = Field(ge=1, le=16, description="Weights are from 1 to 2^weight_bits.")


JobRequest = Annotated[
    AskRequest | PredictRequest | DrawRequest | CombineRequest | RespondRequest,
    Field(discriminator="kind"),
]


def request_fields(request: BaseModel) -> dict[str, Any]:
    """Return what a request says, without what is left at its default: equal requests
    are one job.
    """
    said = request.model_dump(exclude_none=True, exclude_defaults=True)
    return {name: value for name, value in said.items() if value != []}


class JobPlan(Reply):
    """What a question would take."""

    core_seconds: float = Field(description="Of one core, by what this machine has measured.")
    rows: int
    totals: int
    products: int
    bytes_down: int = Field(description="The size of the answer.")


class JobFailure(Reply):
    """What could not be done, and why."""

    message: str
    error: str = Field(default="", description="The class of the library's error.")
    code: str = Field(default="", description="The code of the library's error.")


class JobReply(Reply):
    """How far a job is."""

    id: str = Field(examples=[_JOB])
    kind: JobKind = Field(examples=["fit"])
    state: State = Field(examples=["running"])
    made: str = Field(examples=["2026-11-19T03:45:00+00:00"])
    table: str | None
    question: str | None
    shards: int
    shards_done: int
    rows: int
    rows_done: int
    workers: int = Field(description="How many are at it now.")
    core_seconds: float = Field(description="That it has taken so far.")
    plan: JobPlan | None = Field(
        description="What it was expected to take, by what this machine has measured."
    )
    failures: list[JobFailure]
    result_bytes: int | None


class JobList(Reply):
    """Jobs of an owner, the latest first."""

    jobs: list[JobReply]


class Presigned(Reply):
    """Where the storage itself takes an object."""

    upload: str = Field(description="A name for this attempt, to say when it has arrived.")
    url: str = Field(description="PUT the bytes there, without the token.")
    seconds: int = Field(description="How long that is allowed.")


class QuestionReply(Reply):
    """A question that can be asked."""

    name: str = Field(examples=["counts"])
    about: str = Field(description="What it asks.")
    kind: Literal["ask", "fit"] = Field(description="The kind of its jobs.")
    parameters: dict[str, Any] = Field(description="The JSON Schema of `params`.")
    example: dict[str, Any] = Field(description="`params` to start from.")


class QuestionList(Reply):
    """All questions that can be asked here."""

    questions: list[QuestionReply]
