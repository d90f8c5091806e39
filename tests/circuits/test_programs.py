"""Programs: nothing is in one twice, every step says what it really is, and how often
it is taken.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from circuit_samples import (
    FORMS,
    SCHEMES,
    SEEDS,
    MemorySource,
    circuits,
    computed,
    lab_of,
    lowered,
    row_pools,
    source_of,
    unless_refused,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import encryptedstats as es
from effort import examples
from encryptedstats.circuits import Expression, Layout, column, linear
from encryptedstats.circuits.expressions import Marks, encrypted_constant, pack_total
from encryptedstats.circuits.lowering import (
    FLAT,
    LEVELLED,
    Lowering,
    Schedule,
    Setting,
    Strategy,
    lower,
)
from encryptedstats.circuits.noise import NoiseRules
from encryptedstats.circuits.program import (
    ADD_UP,
    COLUMN,
    EXPAND,
    GIVEN,
    HERE,
    MASK,
    MOVE,
    MULTIPLY,
    PACK,
    RELINEARISE,
    ROTATE,
    SUM,
    SWITCH,
    Program,
    Step,
    program_digest,
)
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.packing import packed_noise, packing_model, packing_primes
from error_codes import error

A, B, C, Y, W, N = (column(name) for name in ("a0", "b1", "a1", "y0", "w", "n"))
MANY = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
STRATEGIES = pytest.mark.parametrize("strategy", [FLAT, LEVELLED], ids=["flat", "levelled"])
LAYOUT = Layout(2100, 1024)


def program_of(
    outputs: list[Expression],
    scheme: str,
    strategy: Strategy,
    form: str,
    *,
    level: int = 0,
    secret: bool = True,
) -> Program:
    """Whether or not there is a proof."""
    p = lab_of(scheme).parameters
    rules = NoiseRules(p, with_secret_key=secret)
    given_noise = {
        "model": rules.model.switch(rules.model.fresh(with_secret_key=True), level).times(1024)
    }
    setting = Setting(p, LAYOUT, secret, form, tuple(given_noise.items()))
    return lower(outputs, setting, Schedule(strategy, level, 4))


# ----------------------------------------------------------------------------------------------
# what a step says of itself


def noises_again(
    program: Program, *, secret: bool, given_noise: Noise | None = None
) -> dict[Step, Noise]:
    """The rules once more, over the program as it is: what is done to whom, and in how
    many chunks.
    """
    p, found = program.parameters, dict[Step, Noise]()
    rules = NoiseRules(p, with_secret_key=secret)
    small = packing_model(p, packing_primes(p))
    for step in program.steps:
        args = [found[arg] for arg in step.args]
        if step.op == COLUMN:
            noise = rules.column
        elif step.op == HERE:
            noise = rules.constant
        elif step.op == GIVEN:
            assert given_noise is not None
            noise = given_noise
        elif step.op == EXPAND:
            noise = rules.expand(args[0])
        elif step.op == ADD_UP:
            assert len({arg.level for arg in args}) == 1
            noise = rules.add_up(step.data[0], args, step.data[1])
        elif step.op == MULTIPLY:
            assert args[0].level == args[1].level
            noise = rules.multiply(*args)
        elif step.op == RELINEARISE:
            assert args[0].size > 2
            noise = rules.relinearise(args[0])
        elif step.op == SWITCH:
            assert args[0].level < step.data
            noise = rules.switch(args[0], step.data)
        elif step.op == ROTATE:
            assert args[0].size == 2  # keys are for two polynomials
            noise = rules.model.key_switch(args[0])
        elif step.op == MASK:
            noise = rules.model.multiply_plain(args[0], rules.model.message())
        elif step.op == MOVE:
            (noise,) = args
        elif step.op == SUM:
            chunks = step.args[0].chunks
            noise = rules.sum(args[0], program.layout.n_chunks if chunks is None else len(chunks))
        else:
            assert step.op == PACK
            assert {(arg.size, arg.level) for arg in args} == {
                (2, len(p.data_moduli) - packing_primes(p))
            }
            noise = packed_noise(
                small, Noise(max(arg.flat for arg in args), max(arg.peak for arg in args))
            )
        found[step] = noise
    return found


@STRATEGIES
@pytest.mark.parametrize("scheme", SCHEMES)
@MANY
@given(
    outputs=circuits(max_depth=3),
    form=st.sampled_from(FORMS),
    secret=st.booleans(),
    level=st.integers(0, 2),
)
def test_steps_carry_the_noise_that_the_rules_give(scheme, strategy, outputs, form, secret, level):
    program = unless_refused(
        lambda: program_of(outputs, scheme, strategy, form, level=level, secret=secret)
    )
    if program is not None:
        assert noises_again(program, secret=secret) == {step: step.noise for step in program.steps}


@STRATEGIES
def test_so_do_those_of_marked_moved_and_given_rows(strategy):
    marked = linear([(1, N.mask(Marks(0, [1]))), (-2, (N * W).mask(Marks(2, [3])))])
    landed = marked.move(1, 5, True).mask(Marks(1, [2]))
    totals = [marked.total(), landed.total(), (marked * Y).total(), (landed * marked + N).total()]
    program = program_of(totals, "bgv", strategy, "packed")
    assert noises_again(program, secret=True) == {step: step.noise for step in program.steps}
    rows = [pack_total("model", 3) * A + pack_total("model", 4), A * B - N]
    program = program_of(rows, "bgv", strategy, "rows", level=1)
    (noise,) = {step.noise for step in program.steps if step.op == GIVEN}
    assert noises_again(program, secret=True, given_noise=noise) == {
        step: step.noise for step in program.steps
    }


def lowered_rows(outputs, held):
    p = lab_of("bgv").parameters
    rules = NoiseRules(p, with_secret_key=True)
    setting = Setting(p, LAYOUT, form="rows", packs=(("model", rules.column.at(1)),))
    return lower(outputs, setting, Schedule(FLAT, 1), held=held)


def test_expanding_is_an_instruction_of_its_own():
    program = lowered_rows([pack_total("model", 3) * A + pack_total("model", 4)], 1 << 30)
    packs, *others = [step for step in program.steps if step.op in (GIVEN, EXPAND)]
    assert (packs.op, packs.data, packs.args) == (GIVEN, ("model", 0), ())
    assert [(step.op, step.data, step.args, step.level) for step in others] == [
        (EXPAND, 3, (packs,), 1),
        (EXPAND, 4, (packs,), 1),
    ]
    assert others[0].noise.flat > packs.noise.flat


def test_a_program_says_what_is_computed_at_a_time():
    """Of many given totals some, in the order of their packs; what batches bring is added up by
    instructions.
    """
    first = linear([(k % 5 + 1, pack_total("model", k) * A) for k in range(40)], 7)
    second = pack_total("model", 39) * Y
    (whole,) = lowered_rows([first, second], 1 << 30).batches
    assert whole.steps == whole.sums
    program = lowered_rows([first, second], 0)
    assert [[step.data for step in batch.expanded] for batch in program.batches] == [
        [*range(16)],
        [*range(16, 32)],
        [*range(32, 40)],
    ]
    assert [
        step.data[1] for batch in program.batches for step in batch.steps if step.op == ADD_UP
    ] == [7, 0, 0]
    assert program.batches[0].sums == program.batches[0].steps
    for before, now in pairwise(program.batches):
        assert now.sums[0].op == ADD_UP
        assert now.sums[0].args == (before.sums[0], now.steps[0])
    assert program.needed_after(0) >= {program.batches[0].sums[0]}
    assert program.needed_after(2) == set(program.batches[2].sums)
    proven = noises_again(program, secret=True, given_noise=lowered_rows([first], 0).steps[0].noise)
    assert proven == {step: step.noise for step in program.steps}


def test_steps_do_not_show_what_is_encrypted_on_the_spot():
    program = program_of([(encrypted_constant(77, "answer") * A).total()], "bgv", FLAT, "slots")
    shown = " ".join(map(repr, program.steps))
    assert "<here answer of 0, level 0, 2 polynomials>" in shown
    assert "77" not in shown


# ----------------------------------------------------------------------------------------------
# nothing twice


@STRATEGIES
@MANY
@given(outputs=circuits(max_depth=3), form=st.sampled_from(FORMS))
def test_no_two_steps_are_alike(strategy, outputs, form):
    program = unless_refused(lambda: program_of(outputs, "bgv", strategy, form))
    if program is not None:
        assert len(program.steps) == len(set(program.steps))
        same = Counter((step.op, step.args, step.data) for step in program.steps if step.op != PACK)
        assert set(same.values()) == {1}


def test_steps_that_outputs_share_are_one():
    product = A * B
    outputs = [
        (product * Y).total(),
        (product * W).total(),
        product.total(),
        product.total(),
        product.total() + 3,
    ]
    program = program_of(outputs, "bgv", LEVELLED, "slots")
    ops = Counter(step.op for step in program.steps)
    assert (ops[COLUMN], ops[MULTIPLY], ops[SUM]) == (4, 3, 3)
    relinearised = [step for step in program.steps if step.op == RELINEARISE and not step.is_total]
    assert [step.args[0].op for step in relinearised] == [MULTIPLY]  # once, for both products
    assert program.outputs[2].step is program.outputs[3].step is not program.outputs[4].step
    assert (program.outputs[3].offset, program.outputs[4].offset) == (0, 3)
    square = program_of([(product**2).total()], "bgv", LEVELLED, "slots")
    (multiplied,) = [
        step for step in square.steps if step.op == MULTIPLY and step.args[0].op != COLUMN
    ]
    assert multiplied.args[0] is multiplied.args[1]


def test_what_is_alike_in_all_chunks_is_computed_once():
    """A replicated total needs no chunk, nor does what is computed from such alone,
    moved or not.
    """
    a, b = A.total().replicate(), B.total().replicate()
    program = program_of([((a * b - 3).resample(SEEDS[1]) * Y).total()], "bgv", FLAT, "slots")
    over_rows = [step for step in program.steps if not step.is_total]
    assert {step.op for step in over_rows} == {COLUMN, MULTIPLY}
    assert not any(step.op == MOVE for step in program.steps)
    assert sorted(program.stages[total] for total in program.sums) == [0, 0, 1]


# ----------------------------------------------------------------------------------------------
# how many times


def assert_runs(program: Program, source: MemorySource) -> None:
    found = unless_refused(lambda: computed(program, source))
    if found is not None:
        taken = Counter(step for step, _ in found[1].taken)
        assert taken == {step: count for step, count in program.runs().items() if count}


@STRATEGIES
@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(outputs=circuits(max_depth=2), counts=st.sampled_from([(5,), (700, 1024, 300)]))
def test_steps_are_taken_as_often_as_is_said(scheme, strategy, outputs, counts):
    source = source_of(scheme, 0, counts)
    assert_runs(lowered(outputs, source, strategy), source)


@pytest.mark.parametrize(
    "name", ["moved and not", "stages", "moved twice", "shared by stages", "spread for both stages"]
)
def test_what_is_needed_of_other_chunks_or_again_later(bgv, name):
    rows = A * B
    total = (rows * Y).total()
    outputs = {
        "moved and not": [(rows.move(1, 0, False) * rows).total(), rows.total()],
        "stages": [(total.replicate() * rows).total(), total],
        "moved twice": [(rows.move(1, 1, False).move(1, 0, True) * rows.move(1, 2, False)).total()],
        "shared by stages": [(total * total), ((total * total).replicate() * N).total(), total + 1],
        "spread for both stages": [total * total, (W.total().replicate() * N).total() * total],
    }[name]
    source = bgv.source((20, 9, 5))
    for strategy in (FLAT, LEVELLED):
        program = lowered(outputs, source, strategy)
        assert_runs(program, source)
        (multiplied,) = [
            step for step in program.steps if step.op == MULTIPLY and step.args[0].op == COLUMN
        ]
        assert program.runs()[multiplied] == (3 if "both" in name or "shared" in name else 6)
    assert source.encrypted(outputs, form="slots", workers=1) == source.clear(outputs)


def test_steps_over_rows_are_taken_where_there_are_marks(bgv):
    source = bgv.source((30, 20, 10))
    marked = N.mask(Marks(0, [1])) + (W * Y).mask(Marks(2, [3]))
    runs = lowered([(marked * A).total()], source, FLAT).runs()
    by_op = {
        (step.op, step.data): count for step, count in runs.items() if step.op in (COLUMN, MULTIPLY)
    }
    assert by_op == {
        **dict.fromkeys([(COLUMN, "n"), (COLUMN, "w"), (COLUMN, "y0")], 1),
        (COLUMN, "a0"): 2,
        (MULTIPLY, None): 2,
    }
    assert sorted(runs[step] for step in runs if step.op == MULTIPLY) == [1, 2]


@MANY
@given(pool=row_pools(max_depth=2, resample=False))
def test_rows_that_are_asked_for_are_taken_in_every_chunk(pool):
    program = program_of(pool, "bgv", FLAT, "rows")
    assert set(program.runs().values()) == {3}


# ----------------------------------------------------------------------------------------------
# digests


def test_digests_tell_programs_apart():
    def digest(*outputs: Expression, strategy: Strategy = FLAT, level: int = 0) -> str:
        program = program_of(list(outputs), "bgv", strategy, "slots", level=level)
        return program_digest([output.step for output in program.outputs])

    product = (A * B).total()
    assert digest(product) == digest(product) == digest((A * B).total())
    marked = [
        A.mask(Marks(chunk, slots)).total() for chunk, slots in ((0, [1]), (0, [2]), (1, [1]))
    ]
    different: list[Any] = [
        digest(product),
        digest(product, strategy=LEVELLED, level=1),
        digest(product, product),
        digest((A * C).total()),
        digest((A * B + 1).total()),
        digest((2 * A * B).total()),
        digest(N.resample(1).total()),
        digest(N.resample(2).total()),
        *map(digest, marked),
    ]
    assert len(set(different)) == len(different)


# ----------------------------------------------------------------------------------------------
# forms


@pytest.mark.parametrize("form", FORMS)
def test_outputs_are_in_their_form(form):
    """Two polynomials each; packs hold as many as the way says, at the level of the packing
    context.
    """
    outputs = [
        (A * B * Y).total(),
        (A * B).total() * Y.total(),
        N.total() - 4,
        *((k * A + B).total() for k in range(1, 4)),
    ]
    program = program_of(outputs, "bgv", FLAT, form)
    assert {output.step.size for output in program.outputs} == {2}
    assert [output.each for output in program.outputs] == [
        form == "replicated" or k == 1 for k in range(6)
    ]
    assert [len(pack.args) for pack in program.packs] == ([4, 2] if form == "packed" else [])
    assert program.steps[-1] in {*program.packs, *(output.step for output in program.outputs)}


def test_what_cannot_be_lowered_is_said():
    rules = NoiseRules(lab_of("bgv").parameters, with_secret_key=True)
    lowering = Lowering(rules, Setting(rules.parameters, LAYOUT), Schedule(FLAT))
    found = lowering.outputs([(linear([(1 << 400, A)])).total()])
    with pytest.raises(es.NoiseError, check=error("not-packable")):
        lowering.finish("packed", found)
