"""Mutants of what is published and released, of the ledger and of the report."""

from __future__ import annotations

from mutation.mutants import Mutant

SENSITIVITY, AUDIT = "publishing/sensitivity.py", "publishing/audit.py"
ENCODINGS = "tables/encodings.py"
LEDGER, RELEASE = "publishing/ledger.py", "publishing/release.py"
RULES, REPORT, UNITS = "publishing/rules.py", "publishing/report.py", "publishing/units.py"
MECHANISMS, OPENING = "publishing/mechanisms.py", "publishing/opening.py"
PUBLISH, TABLES = "publishing/publish.py", "publishing/tables.py"
PAGE, ON_PAGE = "app/showing.py", "tests/app/test_publishing_page.py"
WITHOUT = "if False:"


def _in(file: str, *tests: str) -> tuple[str, ...]:
    return tuple(f"tests/publishing/test_{file}.py::test_{test}" for test in tests)


BRUTE_FORCE = _in("sensitivity", "every_question_that_is_released_moves_as_far_as_brute_force_says")
OF_MEANS = _in("sensitivity", "t_tests_and_anova_are_bounded_for_every_row")
WEIGHT_0 = _in("sensitivity", "a_row_of_weight_0_adds_nothing")
BOUNDED = _in("release", "noise_is_for_the_weight_bound_that_travels_with_an_answer")
NO_ROWS = _in("release", "where_the_number_of_rows_is_not_public_no_entry_of_the_ledger_has_it")
EXACT_FIRST = _in(
    "release",
    "exact_openings_of_the_same_rows_are_the_first_thing_that_epsilon_does_not_cover",
)
_WEIGHTS = ("weight_bound=self.weight_bound,\n", "weight_bound=1,\n", BOUNDED)
SAME_ROWS = _in("attacks", "rows_that_were_encrypted_anew_are_compared")
PERHAPS_SAME = _in("attacks", "a_small_table_that_may_have_been_encrypted_anew_is_warned_of")
TOTALS = _in("release", "a_total_of_2_to_the_62_is_refused_before_anything_is_spent")
_NO_SENSITIVITY = 'raise ParameterError(\n            f"column {column} has the encoding'
REPORTED = _in("report", "it_says_what_epsilon_does_not_cover_exact_openings_first")

OF_SENSITIVITY = [
    (
        "rows of weight 0 move nothing",
        "ranges = np.maximum(ranges, size.max(axis=0))",
        "pass",
        WEIGHT_0,
    ),
    (
        "rows of weight 0 are as far as all others",
        "l1, l2_squared = max(l1, alone[0]), max(l2_squared, alone[1])",
        "pass",
        WEIGHT_0,
    ),
    (
        "squares of distances add up below 0",
        "both = 2 if (low >= 0).all() else 4",
        "both = 2",
        _in("sensitivity", "pairs_that_are_too_many_are_bounded_where_numbers_are_below_0"),
    ),
    (
        "weights move nothing",
        "found.ranges * int(max_weight)",
        "found.ranges",
        _in("sensitivity", "weights_move_totals_by_as_much_more"),
    ),
    (
        "a range of 2^62 is released",
        "largest = max(ranges, default=0)\n    if largest >= LARGEST_RANGE:",
        "largest = max(ranges, default=0)\n    if largest > LARGEST_RANGE:",
        _in("sensitivity", "a_range_of_2_to_the_62_is_refused"),
    ),
    (
        "ranges of 64 bits",
        "for value in values], dtype=object)\n\n\ndef _check",
        "for value in values], dtype=object).astype(np.int64)\n\n\ndef _check",
        _in(
            "sensitivity",
            "ranges_are_python_integers_that_floats_do_not_round",
            "a_range_of_2_to_the_62_is_refused",
        ),
    ),
    (
        "large ranges are rounded",
        "kind = float if largest < _EXACT_FLOAT else object",
        "kind = float",
        _in("sensitivity", "ranges_are_python_integers_that_floats_do_not_round"),
    ),
    (
        "a total of 2^62 is paid for",
        'if largest >= LARGEST_RANGE:\n        raise ParameterError(\n            f"a total',
        'if False:\n        raise ParameterError(\n            f"a total',
        TOTALS,
    ),
    ("weights make no total larger", "factor = n_rows * max_weight", "factor = n_rows", TOTALS),
    (
        "rows of exclusive indicators are 1 apart",
        "apart = 2.0 if relation == REPLACE and len(rows) > 1 else 1.0",
        "apart = 1.0",
        BRUTE_FORCE,
    ),
    (
        "groups do not add up",
        "l2_squared + found.l2**2",
        "max(l2_squared, found.l2**2)",
        BRUTE_FORCE,
    ),
    (
        "no value is missing",
        "gap = [RowState(bin=max(n_bins - 1, 0), n_bins=n_bins)] if known.missing_bin else []",
        "gap: list[RowState] = []",
        OF_MEANS,
    ),
    (
        "squares are nowhere 0",
        "reaches = args[0].low <= 0 <= args[0].high",
        "reaches = False",
        _in("sensitivity", "intervals_bound_what_is_too_much_to_try"),
    ),
]

OF_ENCODINGS = [
    (
        "any encoding is released",
        _NO_SENSITIVITY,
        f"return 1\n        {_NO_SENSITIVITY}",
        _in("release", "an_encoding_without_a_known_sensitivity_is_not_released"),
    ),
    (
        "cumulative codes are one-hot",
        "int(state.bin <= column.index)",
        "int(state.bin == column.index)",
        _in("sensitivity", "every_encoding_says_its_value_in_a_row"),
    ),
    ("what is missing is there", "int(state.number is not None)", "1", OF_MEANS),
]

OF_AUDIT = [
    (
        "rows that were encrypted anew are others",
        "{rows_id(block) for block in block_ids}",
        "set(block_ids)",
        SAME_ROWS,
    ),
    (
        "small tables are always others",
        "if _may_be_encrypted_anew(new,",
        "if False and _may_be_encrypted_anew(new,",
        PERHAPS_SAME,
    ),
    (
        "a few rows less are others",
        'abs(new.n_rows - int(said["rows"])) < max(min_count, 1)',
        'new.n_rows == int(said["rows"])',
        PERHAPS_SAME,
    ),
    (
        "weights add up to the rows",
        "0 if results[0].weighted else 1",
        "1",
        _in("attacks", "sums_of_weights_are_compared_without_the_number_of_rows"),
    ),
    (
        "a shard of few rows may be missing",
        "elif between < min_count:",
        "elif between < 0:",
        _in("attacks", "a_model_less_the_same_without_one_shard_is_refused"),
    ),
    (
        "only larger tables are compared",
        "0 < abs(a - b) < min_count",
        "0 < a - b < min_count",
        _in("audit", "counts_of_a_part_are_compared_in_both_orders"),
    ),
    (
        "rows that overlap in part are fine",
        "if not (own < others or others < own):",
        WITHOUT,
        _in("attacks", "results_of_rows_that_overlap_in_part_are_refused"),
    ),
    (
        "hidden counts may be computed",
        "return high - low < min_count - 1 and high > 0 and low < min_count",
        "return False",
        _in("attacks", "recoding_does_not_reveal_a_hidden_count", "sums_of_a_table_count_as_shown"),
    ),
    (
        "what cannot be solved is safe",
        "# not solved: nothing is concluded to be safe\n            return True",
        "# not solved\n            return False",
        _in("audit", "what_cannot_be_solved_is_not_taken_for_safe"),
    ),
    (
        "nested counts may differ by few",
        "(own - values > 0) & (own - values < min_count)",
        "(own - values < 0)",
        _in("attacks", "overlapping_tables_that_differ_by_few_rows_are_refused"),
    ),
    (
        "what was not tried is not told",
        "            if not found[1]:",
        "            if False:",
        _in("audit", "what_is_too_much_to_compare_is_warned_of"),
    ),
]

OF_LEDGERS = [
    (
        "budgets have no end",
        "if after > budget.epsilon * (1 + 1e-9):",
        WITHOUT,
        _in("ledger", "releases_are_spent_from_the_budget_until_it_is_empty"),
    ),
    (
        "releases of any unit",
        "if own is not None and unit != own:",
        WITHOUT,
        _in("ledger", "unit_and_relation_are_fixed_when_a_ledger_begins"),
    ),
    (
        "the relation is no part of the unit",
        "if own is not None and unit != own:",
        "if own is not None and unit.max_rows != own.max_rows:",
        _in("release", "a_release_of_another_unit_is_refused_before_anything_is_spent"),
    ),
    (
        "different units add up",
        "    if len(found) > 1:",
        "    if False:",
        _in("ledger", "an_older_ledger_of_different_units_is_read_and_not_added_up"),
    ),
    (
        "releases of older ledgers have no unit",
        'if said["what"] == RELEASED and "unit" in said:',
        WITHOUT,
        _in("ledger", "an_older_ledger_has_the_unit_of_its_releases"),
    ),
    (
        "a second ledger begins",
        "if others and not another:",
        WITHOUT,
        _in("ledger", "a_second_ledger_in_the_same_folder_is_noticed"),
    ),
    (
        "ledgers beside the key are not read",
        "        *_list_by_key(owner),\n",
        "",
        _in("ledger", "a_second_ledger_elsewhere_is_noticed_beside_the_key"),
    ),
    (
        "a deleted ledger begins again",
        "if _place(ledger.url) in _list_by_key(owner):",
        WITHOUT,
        _in("ledger", "a_ledger_that_was_thrown_away_is_still_noticed"),
    ),
    (
        "ledgers of another key are forgotten",
        "listed = _read_list(file)",
        "listed: dict[str, list[str]] = {}",
        _in("ledger", "the_list_beside_a_key_file_keeps_the_ledgers_of_a_key_that_lay_there"),
    ),
    (
        "ledgers around are not looked for",
        "for folder in own.parents]",
        "for folder in ()]",
        _in("ledger", "a_second_ledger_in_another_spelling_or_inside_the_first_is_noticed"),
    ),
    (
        "forged entries",
        "or any(\n            entry.by not in members for entry in found\n        )",
        "or False",
        _in("ledger", "who_is_no_member_cannot_write"),
    ),
    (
        "rows are always public",
        "any(unit.relation == ADD for",
        "any(False and unit.relation == ADD for",
        NO_ROWS,
    ),
    (
        "what was published comes first",
        "for what in (OPENED, PUBLISHED):",
        "for what in (PUBLISHED, OPENED):",
        REPORTED,
    ),
    ("all entries are of the same rows", " and own & _blocks(one)\n", "\n", EXACT_FIRST),
    (
        "openings of rows that were encrypted anew",
        "{rows_id(block) for block in blocks}",
        "set(blocks)",
        _in("release", "exact_openings_are_known_again_where_the_rows_were_encrypted_anew"),
    ),
    (
        "costs below 0 give budget back",
        "if any(one.rho < 0 or (one.pure_epsilon or 0) < 0 for one in spent):",
        WITHOUT,
        _in("ledger", "no_member_gives_budget_back"),
    ),
]

OF_UNITS = [
    (
        "persons have one row",
        "cls(1 if found is None else int(found[1]), relation)",
        "cls(1, relation)",
        _in("ledger", "an_older_ledger_has_the_unit_of_its_releases"),
    ),
    (
        "persons of no rows",
        "np.integer)) or rows < 1:",
        "np.integer)) or rows < 0:",
        _in("ledger", "an_impossible_unit_begins_no_ledger"),
    ),
    (
        "any relation",
        "if self.relation not in RELATIONS:",
        WITHOUT,
        _in("ledger", "an_impossible_unit_begins_no_ledger"),
    ),
]

OF_RELEASES = [
    (
        "totals are not looked at before",
        "check_totals(plan.rows, public, source.answer.n_rows, most)",
        "pass",
        TOTALS,
    ),
    (
        "entries name the rows",
        "source.facts(with_rows=unit.relation != ADD)",
        "source.facts(with_rows=True)",
        NO_ROWS,
    ),
    (
        "files name the rows",
        "return flat, n_rows if relation == REPLACE else rows",
        "return flat, n_rows",
        NO_ROWS,
    ),
    (
        "noisy counts add up to all rows",
        "public = n_rows if relation == REPLACE and max_weight == 1 else None",
        "public = n_rows",
        _in("release", "rows_may_be_added_or_left_out_instead"),
    ),
    (
        "files name the blocks",
        "Answer(asked, tuple(totals), source.answer.schema, n_rows),",
        "Answer(asked, tuple(totals), source.answer.schema, n_rows, source.answer.block_ids),",
        _in("release", "what_is_released_does_not_name_the_blocks_of_rows"),
    ),
    (
        "less weight than the bound",
        "if max_weight is not None and bound is not None and max_weight < bound:",
        WITHOUT,
        BOUNDED,
    ),
    (
        "no weight travels",
        "max_weight if max_weight is not None else bound or 1)",
        "max_weight if max_weight is not None else 1)",
        BOUNDED,
    ),
    (
        "answers of older versions have no weights",
        "if max_weight is None and bound is None:",
        WITHOUT,
        _in("release", "an_answer_that_names_no_weight_bound_needs_one"),
    ),
    (
        "any delta",
        "if plan.privacy.delta * source.answer.n_rows >= 1:",
        WITHOUT,
        _in("release", "predictions_and_large_deltas_are_refused"),
    ),
    (
        "exact openings come last",
        "(*_not_covered_by(book, source, n_others), *privacy.not_covered)",
        "(*privacy.not_covered, *_not_covered_by(book, source, n_others))",
        EXACT_FIRST,
    ),
    (
        "other ledgers are not told",
        "    if n_others:",
        "    if False:",
        _in("ledger", "another_ledger_can_be_begun_on_purpose_and_says_so"),
    ),
    (
        "no noise",
        "add_noise(np.array(exact, dtype=object), moved.ranges, chosen)",
        "np.array(exact, dtype=object)",
        _in("release", "what_is_released_is_not_what_is_true"),
    ),
    (
        "the unit of a row in any ledger",
        "own = ROW if book is None else book.unit or ROW",
        "own = ROW",
        _in("release", "the_unit_of_the_ledger_is_that_of_its_releases"),
    ),
    (
        "weights are not noticed",
        "if not each.low * n_rows <= counted <= each.high * n_rows:",
        WITHOUT,
        _in("release", "weights_are_refused_before_anything_is_spent"),
    ),
]

OF_NOISE = [
    (
        "persons take the noise of a row",
        "found.l1 * max_rows / epsilon",
        "found.l1 / epsilon",
        _in("release", "a_person_with_several_rows_takes_more_noise"),
    ),
    (
        "Gaussian noise of twice the cost",
        "math.sqrt(2 * rho) * _ABOVE",
        "math.sqrt(4 * rho) * _ABOVE",
        _in("mechanisms", "opendp_agrees_on_what_the_noise_costs"),
    ),
    (
        "one noise for all totals",
        "scale = mechanism.scale * size",
        "scale = mechanism.scale",
        _in("mechanisms", "noise_is_as_much_larger_as_a_row_moves_a_total"),
    ),
    (
        "totals beyond 64 bits",
        "if any(abs(value) >= _LARGEST for value in result):",
        WITHOUT,
        _in("mechanisms", "a_total_that_noise_of_64_bits_does_not_reach_is_refused"),
    ),
    (
        "an epsilon that no float counts with",
        "not least <= epsilon <= most\n",
        "not epsilon > 0\n",
        _in("mechanisms", "an_epsilon_that_floats_cannot_count_with_is_refused"),
    ),
]

OF_SOURCES = [
    (
        "the ledger has hashes of exact totals",
        'self.digest if answer.is_encrypted else ""',
        "self.digest",
        _in("release", "the_hash_of_a_file_with_exact_totals_is_not_in_the_ledger"),
    ),
    ("what is said always has the rows", "if with_rows else {}", "", NO_ROWS),
    ("openings name the rows", "with_rows=not hides_rows(before)", "with_rows=True", NO_ROWS),
]

OF_ENCRYPTED_ANSWERS = [("sealed answers bring no weights", *_WEIGHTS)]
OF_OPENED_ANSWERS = [
    (
        "opened results bring no weights",
        "schema=known, extra_totals=extra_totals)",
        "schema=known, extra_totals=extra_totals, weight_bound=1)",
        BOUNDED,
    ),
]
OF_CLEAR_ANSWERS = [("opened models bring no weights", *_WEIGHTS)]

OF_RULES = [
    (
        "weights do not dominate",
        "math.sqrt(weight_bound * square)",
        "math.sqrt(square)",
        _in("audit", "one_row_of_a_large_weight_may_dominate_a_sum"),
    ),
    (
        "all rows but one",
        "if any(0 < n < k or 0 < n_rows - n < k for n in counts):",
        "if any(0 < n < k for n in counts):",
        _in("attacks", "all_rows_but_one_are_as_telling_as_the_one"),
    ),
    (
        "more numbers than rows",
        "rules.rows_per_parameter * parameters > n_rows",
        "n_rows < 0",
        _in("attacks", "a_forest_of_more_counts_than_rows_is_not_shown"),
    ),
    (
        "columns of a single row",
        "spreads |= 0 < spread <",
        "spreads |= spread < 0 <",
        _in("attacks", "a_vector_that_is_one_in_a_single_row_is_not_regressed_on"),
    ),
]

OF_PUBLISHING = [
    (
        "a row of a large weight is many",
        "rules.min_count * (source.answer.weight_bound or 1)",
        "rules.min_count",
        ("tests/publishing/test_attackers.py",),
    ),
    (
        "differences are only warned of",
        "if more and made.rules.differencing == REFUSE:",
        WITHOUT,
        _in("attacks", "overlapping_tables_that_differ_by_few_rows_are_refused"),
    ),
    (
        "the ledger keeps what was not shown",
        "numbers = [None] * len(numbers)",
        "pass",
        _in("audit", "the_ledger_keeps_no_number_that_was_not_shown"),
    ),
    (
        "results are shown whole",
        "    if not findings:\n        result",
        "    if True:\n        result",
        _in("attacks", "what_is_read_from_small_counts_is_their_table_with_these_hidden"),
    ),
    (
        "remarks tell the reason",
        'if rules.concentration is not None:\n        reasons.append("groups of one kind")',
        'if rules.concentration is not None:\n        reasons.append("4 groups of one kind")',
        _in("inverse_search", "remarks_depend_on_the_profile_only"),
    ),
]

OF_REPORTS = [
    (
        "the number of rows is told",
        'return "not public" if hidden else f"{rows:,}"',
        'return f"{rows:,}"',
        _in("report", "the_number_of_rows_is_not_told_where_it_is_not_public"),
    ),
    (
        "exact openings are not told",
        "items = [*_without_noise(entries, released), *_opened_files(computed)]",
        "items = [*_opened_files(computed)]",
        REPORTED,
    ),
    ("opened files are not told", ", *_opened_files(computed)]", "]", REPORTED),
    (
        "released files are called exact",
        "if not one.released and one.facts",
        "if one.facts",
        REPORTED,
    ),
    (
        "files of any key",
        "if known and known != keys.key_id:",
        WITHOUT,
        _in("report", "files_of_another_key_are_refused"),
    ),
    (
        "hashes of exact totals are told",
        'digest = "" if has_exact_totals else',
        "digest =",
        _in("report", "hashes_of_files_with_exact_totals_are_not_told"),
    ),
]

OF_PAGES = [
    (
        "the page's text of a release has standard errors",
        'frame_text(written), "", *remarks]',
        'found.summary(), "", *remarks]',
        (f"{ON_PAGE}::test_what_others_may_see_of_a_release_has_no_standard_errors",),
    ),
]

OF_TABLES = [
    (
        "standard errors are written",
        "return table[[column for column in table.columns if column in names]]",
        "return table",
        _in("written_tables", "no_released_question_writes_what_knows_nothing_of_the_noise"),
    ),
    (
        "p-values are written",
        "return table.loc[[row for row in table.index if row in names]]",
        "return table",
        _in("written_tables", "no_released_question_writes_what_knows_nothing_of_the_noise"),
    ),
]

_LISTS = {
    SENSITIVITY: OF_SENSITIVITY,
    ENCODINGS: OF_ENCODINGS,
    AUDIT: OF_AUDIT,
    LEDGER: OF_LEDGERS,
    UNITS: OF_UNITS,
    RELEASE: OF_RELEASES,
    MECHANISMS: OF_NOISE,
    OPENING: OF_SOURCES,
    "tables/encrypted_table.py": OF_ENCRYPTED_ANSWERS,
    "tables/answers/schema_check.py": OF_OPENED_ANSWERS,
    "tables/table.py": OF_CLEAR_ANSWERS,
    RULES: OF_RULES,
    PUBLISH: OF_PUBLISHING,
    REPORT: OF_REPORTS,
    PAGE: OF_PAGES,
    TABLES: OF_TABLES,
}

MUTANTS = [
    Mutant(f"publishing: {name}", old, new, file, tests)
    for file, listed in _LISTS.items()
    for name, old, new, tests in listed
]
