"""Mutants of the rules of studies, of joint keys and of the mark that tells these from others."""

from __future__ import annotations

from mutation.mutants import Mutant

STUDIES = "studies/"
RULES = ("tests/studies/test_message_rules.py",)
NONE = "if False:"


def _tests(file: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/{file}.py::test_{name}" for name in names)


def _by_role(*names: str) -> tuple[str, ...]:
    return _tests("studies/test_attacks_by_role", *names)


def _on_joint_keys(*names: str) -> tuple[str, ...]:
    return _tests("studies/test_attacks_on_joint_keys", *names)


def _threshold(*names: str) -> tuple[str, ...]:
    return _tests("crypto/test_threshold", *names)


def _rule(name: str, old: str, new: str = "") -> Mutant:
    return Mutant(f"studies: {name}", old, new, f"{STUDIES}transcript.py", RULES)


def _place(name: str, old: str, new: str, file: str, tests: tuple[str, ...]) -> Mutant:
    return Mutant(f"studies: {name}", old, new, file, tests)


_RULES = [
    _rule("a site claims the folder of another", 'f"rows/{said.by}/") and', '"rows/") and'),
    _rule("folders above the site's own", ' and ".." not in rows.folder', ""),
    _rule("rows sealed for anybody", " and set(found) == readers,", ","),
    _rule("rows after a coin was shown", "need(not state.coins,", "need(True,"),
    _rule("more rows than planned", "0 < rows.n_rows <= left,", "0 < rows.n_rows,"),
    _rule("messages without rows", "0 < rows.n_rows <= left,", "rows.n_rows <= left,"),
    _rule("rows brought twice", "said.by not in state.rows, f", "True, f"),
    _rule(
        "sites excluded from complete questions", 'has_complete_question,\n        "a', 'judged, "a'
    ),
    _rule("one site left", "len(state.sites) > least", "len(state.sites) >= least"),
    _rule("rounds that go on without a site", "= why\n    state.begin_rounds()\n", "= why\n"),
    _rule(
        "rounds that go on after a verdict",
        "in state.valid}\n    state.begin_rounds()\n",
        "in state.valid}\n",
    ),
    _rule("rounds under the masks of before", "Round(one.number + 1,", "Round(one.number,"),
    _rule(
        "members stay when totals are complete only",
        "bool(self.checks)\n            or any(",
        "any(",
    ),
    _rule(
        "members stay when all totals are complete",
        "or any(one.complete for",
        "or all(one.complete for",
    ),
    _rule(
        "excluded members", "self.good_sites if self.judged else self.sites", "self.document.sites"
    ),
    _rule("members with bad rows", "self.good_sites if self.judged else self.sites", "self.sites"),
    _rule("any number for a coin", "shown == state.parties[said.by].coin", "True"),
    _rule(
        "a receiver who tosses no coin", "((*self.sites, self.document.receiver))", "(self.sites)"
    ),
    _rule(
        "a coin of no rows",
        '[self.document.id, *(f"{s} {self.rows[s].manifest}" for s in self.sites)]',
        "[self.document.id]",
    ),
    _rule("a coin of no numbers", '[f"{name} {self.coins[name]}" for', '[f"{name}" for'),
    _rule("validity totals before the coin", "need(state.coin is not None,", "need(True,"),
    _rule("validity of some sites", "set(found) == set(state.checked),", "True,"),
    _rule("a second verdict", "need(not state.valid,", "need(True,"),
    _rule(
        "a verdict on some sites",
        "\n        and set(found) == set(state.checks)\n        and",
        " and",
    ),
    _rule(
        "answers from one site",
        "and len(self.good_sites) >= least",
        "and len(self.good_sites) > 0",
    ),
    _rule("answers before a verdict", "name in state.answerable,", "True,"),
    _rule("calls for anything", "known.get(name) == found,", "True,"),
    _rule("calls for validity again", "not (name.startswith(CHECK) and state.valid),", "True,"),
    _rule("shares for calls of before", ' and said.text("call") == call.hash,', ","),
    _rule("a second share", "said.by not in sent,", "True,"),
    _rule("openings of something else", 'answer == said.digest("object"),', "True,"),
    _rule("totals of rounds before", 'said.count("round") == now.number,', "True,"),
    _rule("totals before a verdict", "self.judged or not self.document.pools", "True"),
    _rule(
        "totals of sites that are not in the round", "need(said.by in now.members,", "need(True,"
    ),
    _rule("totals sent twice", "need(\n        said.by not in now.objects,", "need(True,"),
    _rule("the sum of one site", "need(\n        len(now.members) >= MIN_SITES,", "need(True,"),
    _rule("messages signed by others", "party is None or party.signing != key", "party is None"),
    _rule("messages in any role", "if role and role not in", "if not role and role not in"),
]

DOCUMENTS, MATERIAL = f"{STUDIES}documents.py", "crypto/material.py"
JOINT_MESSAGES, JOINT_OPENING = "joint/messages.py", "joint/opening.py"
_REFUSED = _by_role("documents_refuse_copies_and_less_than_128_bits")
_JOINT_REFUSED = _on_joint_keys("encrypted_totals_and_a_receiver_who_is_a_site_are_refused")
_ONE_OWNER = _by_role("keys_of_one_owner_are_never_those_of_members")
_FORKS = _by_role("receiver_and_host_get_no_second_sum_by_showing_two_chains")
_HOME = "studies/test_home_totals"

_DOCUMENTS = [
    _place("documents with copies", "if found.copies != 1:", NONE, DOCUMENTS, _REFUSED),
    _place(
        "documents of little security",
        "if found.security < MIN_SECURITY:",
        NONE,
        DOCUMENTS,
        _REFUSED,
    ),
    _place(
        "parameters of members without a joint key",
        "if found.members != expected:",
        NONE,
        DOCUMENTS,
        _REFUSED,
    ),
    _place(
        "ids of 128 bits",
        "ID_DIGITS: Final = 64",
        "ID_DIGITS: Final = 32",
        DOCUMENTS,
        _by_role("ids_of_studies_have_256_bits"),
    ),
    _place(
        "encrypted totals under a joint key",
        "if self.questions_in(TOTALS):",
        NONE,
        DOCUMENTS,
        _JOINT_REFUSED,
    ),
    _place(
        "a receiver who is a site",
        "if self.receiver in self.sites:",
        NONE,
        DOCUMENTS,
        _JOINT_REFUSED,
    ),
    _place(
        "rows sealed for all sites",
        "others = self.sites if self.key.kind == JOINT else ()",
        "others = self.sites",
        DOCUMENTS,
        _by_role("receiver_and_a_site_read_no_rows_of_another_site"),
    ),
    _place(
        "one opener of an escrow",
        "not 2 <= self.key.openers",
        "not 1 <= self.key.openers",
        DOCUMENTS,
        _by_role("worker_and_a_site_read_all_rows_where_one_site_unseals_the_key"),
    ),
]

_PARTIES = [
    _place(
        "totals stored before all are announced",
        "now.complete\n                and name in now.objects\n",
        "name in now.objects\n",
        f"{STUDIES}study.py",
        _by_role("totals_are_stored_when_all_members_have_announced_theirs"),
    ),
    _place(
        "announcements forgotten when totals are stored",
        "        self._remember()\n        for question, now in rounds",
        "        for question, now in rounds",
        f"{STUDIES}study.py",
        _FORKS,
    ),
    _place(
        "chains that were exchanged",
        "if object_exists(self._seen):",
        NONE,
        f"{STUDIES}study.py",
        _FORKS,
    ),
    _place(
        "objects stored before their message",
        '        self.post(kind, {**content, "object": digest})\n        '
        "self.store_announced(name, digest)\n",
        "        self.store_announced(name, digest)\n        self.post(kind, {**content, "
        '"object": digest})\n',
        f"{STUDIES}study.py",
        _by_role("nothing_is_stored_before_its_message_counts"),
    ),
    _place(
        "totals for all to see",
        "return seal_for(\n        worker.sealing, data, bind(",
        "return data or seal_for(worker.sealing, data, bind(",
        f"{STUDIES}totals.py",
        _by_role("receiver_opens_the_sum_of_encrypted_totals_and_no_site_s"),
    ),
    _place(
        "totals without masks",
        "(a + sign * b) % _MODULUS",
        "(a + 0 * b) % _MODULUS",
        f"{STUDIES}totals.py",
        _by_role("receiver_and_one_site_do_not_read_the_totals_of_another"),
    ),
    _place(
        "masks for any members",
        "*now.place, list(now.members), what",
        "*now.place, what",
        f"{STUDIES}totals.py",
        _tests(_HOME, "masks_are_for_one_study_question_round_and_list_of_members"),
    ),
    _place(
        "masks for any round",
        "*now.place, list(now.members), what",
        "list(now.members), what",
        f"{STUDIES}totals.py",
        _tests(_HOME, "masks_are_for_one_study_question_round_and_list_of_members"),
    ),
    _place(
        "totals with noise of a site's choice",
        " or any(\n        part.noise != fresh for part in answer.ciphertexts.parts\n    )",
        "",
        f"{STUDIES}totals.py",
        _tests(_HOME, "a_site_does_not_say_how_much_noise_its_totals_have"),
    ),
]

_JOINT_KEYS = [
    _place(
        "shares without a look at what is claimed",
        "if not own.equals(claimed):",
        NONE,
        f"{STUDIES}joint.py",
        _on_joint_keys("sites_share_for_no_ciphertext_that_the_worker_has_chosen"),
    ),
    _place(
        "rows for a key of the receiver's",
        "if made.key_id != keys.key_id:",
        NONE,
        f"{STUDIES}joint.py",
        _on_joint_keys("worker_and_receiver_read_rows_that_are_encrypted_for_a_key_of_hers"),
    ),
    _place(
        "shares that everybody can put together",
        "member.share_packs(own.packs(), statement, receiver)",
        "member.share_packs(own.packs(), statement, None)",
        f"{STUDIES}joint.py",
        _on_joint_keys("sites_do_not_read_validity_totals_from_the_shares_in_the_folder"),
    ),
    _place("joint keys of one owner", "if parameters.members < 2:", NONE, MATERIAL, _ONE_OWNER),
    _place(
        "joint keys of one owner, made",
        "check_joint_parameters(engine.parameters)",
        "pass",
        MATERIAL,
        _ONE_OWNER,
    ),
    _place(
        "joint keys of one owner, loaded",
        "check_joint_parameters(material.parameters)",
        "pass",
        "crypto/keyfiles.py",
        _ONE_OWNER,
    ),
    _place(
        "a mark switches flooding off",
        "with_flooding() if ready.floods else",
        "with_flooding() if ready.floods and not source.keys.joint else",
        "circuits/evaluate.py",
        _ONE_OWNER,
    ),
    _place(
        "contributions that were not committed to",
        "if digest_of(contributions[member]) != digests.get(member):",
        NONE,
        JOINT_MESSAGES,
        _threshold("contributions_are_what_was_committed_to"),
    ),
    _place(
        "a second share of a ciphertext",
        'if wanted <= set(seconds) or file.expect("receiver", str) != fields["receiver"]:',
        NONE,
        "joint/state.py",
        _threshold("the_same_bytes_again_and_never_another_share"),
    ),
    _place(
        "shares without flooding",
        "np.stack([flooding, residues[1]])",
        "np.stack([np.zeros_like(flooding), residues[1]])",
        JOINT_OPENING,
        _threshold("the_flooding_of_a_share"),
    ),
    _place(
        "shares for another receiver",
        'if message.fields["receiver"] != receiver:',
        NONE,
        "joint/key.py",
        _threshold("what_is_no_share_of_this_opening_is_refused_and_named"),
    ),
    _place(
        "residues that are not below their primes",
        "if (one >= moduli_column(moduli)).any():",
        NONE,
        JOINT_MESSAGES,
        _threshold("what_is_no_share_of_this_opening_is_refused_and_named"),
    ),
    _place(
        "shares without room for flooding",
        "if not model.decrypts(flooded_noise(",
        "if not model and not model.decrypts(flooded_noise(",
        JOINT_OPENING,
        _threshold("no_room_for_flooding_is_an_error"),
    ),
]


def _step(name: str, old: str, new: str = "True,") -> Mutant:
    return Mutant(f"rounds: {name}", old, new, f"{STUDIES}rounds.py", RULES)


def _on_rounds(name: str, old: str, new: str, file: str, *tests: str) -> Mutant:
    return _place(
        f"rounds, {name}", old, new, file, _tests("studies/test_attacks_on_rounds", *tests)
    )


_COURSE = "procedures/site_procedure.py"
_ROUNDS = [
    _rule(
        "sites excluded from procedures that have begun",
        "or any(one.begun for one in self.runs.values())",
        "",
    ),
    _rule(
        "procedures under the masks of before", "SiteRun(one.attempt + 1,", "SiteRun(one.attempt,"
    ),
    _step("two sites", "len(run.members) >= state.document.min_sites,"),
    _step("attempts of before", 'said.count("attempt") == run.attempt,'),
    _step("sites that are no members", "said.by in run.members,"),
    _step("steps after the end", "run.waits,"),
    _step("other steps", "number == now.number,"),
    _step("a second announcement", "said.by not in now.objects,"),
    _step("an end of nothing", "1 < number <= most + 1,"),
    _step("more rounds than agreed", "number <= most, f", "True, f"),
    _step("totals again", "digest not in sent,"),
    _step("a step that not all agree on", "if now.agreed and not now.is_end:", "if now.complete:"),
    _step("reasons in words", "is_word and code.isascii(),"),
    _on_rounds(
        "states of others",
        "if mark != own]",
        "if False]",
        f"{STUDIES}rounds.py",
        "a_state_that_does_not_follow_is_refused_by_every_site",
    ),
    _on_rounds(
        "objects of disputed steps",
        "return [step for step in self.steps if step.agreed and not step.is_end]",
        "return [step for step in self.steps if step.complete and not step.is_end]",
        f"{STUDIES}runs.py",
        "a_state_that_does_not_follow_is_refused_by_every_site",
    ),
    _on_rounds(
        "marks that anybody can make",
        "return hmac.new(key, course.digest.encode(), hashlib.sha256).hexdigest()",
        "return course.digest",
        f"{STUDIES}rounds.py",
        "marks_of_states_tell_readers_of_the_folder_nothing",
    ),
    _on_rounds(
        "rows that change",
        "if {kept, *said} != {own}:",
        NONE,
        f"{STUDIES}rounds.py",
        "rows_stay_the_same_in_all_rounds",
    ),
    _on_rounds(
        "masks of another round",
        "return [self.attempt, self.number, self.rows, *sorted(set(self.states.values()))]",
        "return [self.attempt]",
        f"{STUDIES}runs.py",
        "masks_are_new_in_every_round",
    ),
    _on_rounds(
        "another start",
        "if start_digest(own, self.schema) != one.start:",
        NONE,
        f"{STUDIES}documents.py",
        "the_start_is_in_the_document",
    ),
    _on_rounds(
        "two starts",
        "if first.name == second.name and is_same:",
        NONE,
        f"{STUDIES}documents.py",
        "a_procedure_runs_once_in_a_study",
    ),
    _on_rounds(
        "two sites in a document",
        "if len(self.sites) < MIN_ROUND_SITES:",
        NONE,
        f"{STUDIES}documents.py",
        "two_sites_have_no_rounds",
    ),
    _on_rounds(
        "few rows",
        "needed = limits.per_number * n_opened\n    if n_rows < needed:",
        "needed = 0\n    if n_rows < needed:",
        _COURSE,
        "more_numbers_than_rows_carry_are_not_opened",
    ),
    _on_rounds(
        "many parameters",
        "needed = limits.per_parameter * n_parameters\n    if n_rows < needed:",
        "needed = 0\n    if n_rows < needed:",
        _COURSE,
        "fewer_rows_than_three_for_a_parameter_are_not_opened",
    ),
    _on_rounds(
        "small counts",
        "if count < limits.minimum]",
        "if False]",
        _COURSE,
        "groups_of_few_are_not_summed",
    ),
    _on_rounds(
        "rounds without end",
        "if self.number > self.procedure.at_most:",
        NONE,
        _COURSE,
        "rounds_are_bounded",
    ),
    _on_rounds(
        "numbers without end",
        "if self.n_totals - 1 > self._left:",
        NONE,
        _COURSE,
        "rounds_are_bounded",
    ),
    _on_rounds(
        "sums of other rows",
        "if n_rows != self.n_rows:",
        NONE,
        _COURSE,
        "sums_of_another_number_of_rows_stop_the_procedure",
    ),
]

MUTANTS = [*_RULES, *_DOCUMENTS, *_PARTIES, *_JOINT_KEYS, *_ROUNDS]
