"""The R package has a function and a help page for every question, made from the registry."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from encryptedstats.procedures.procedure import Procedure, procedure_class
from encryptedstats.tables.questions.question import question_class

R = Path(__file__).parent.parent / "r"
SPACE = (R / "NAMESPACE").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_questions", R / "make_questions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_functions_and_pages_are_those_of_the_registry(maker: ModuleType) -> None:
    for path, text in maker.files().items():
        assert path.read_text(encoding="utf-8") == text, "run python r/make_questions.py"
    mark = f"% {maker.MARK}"
    pages = {one for one in (R / "man").glob("*.Rd") if one.read_text().startswith(mark)}
    assert pages == set(maker.files()) & set((R / "man").glob("*.Rd"))


def test_a_function_has_the_parameters_of_its_question(maker: ModuleType) -> None:
    for name, question in maker.questions().items():
        text = maker.function_of(name, question)
        is_procedure = issubclass(question, Procedure)
        assert (procedure_class if is_procedure else question_class)(name) is question
        call = "procedure(" if is_procedure else "question("
        for parameter in inspect.signature(question).parameters:
            assert f"{parameter} = " in text.partition(call)[2], (name, parameter)


def test_every_function_has_a_help_page() -> None:
    exported = re.findall(r"[\w.]+", " ".join(re.findall(r"^export\((.*?)\)", SPACE, re.M | re.S)))
    pages = "".join(path.read_text(encoding="utf-8") for path in (R / "man").glob("*.Rd"))
    assert [name for name in exported if f"\\alias{{{name}}}" not in pages] == []
