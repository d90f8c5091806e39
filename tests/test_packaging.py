"""What is said of the package in several places is said alike: pyproject.toml, the conda recipe,
the container, R, workflows.
"""

from __future__ import annotations

import importlib.util
import io
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

import encryptedstats as es

tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
ROOT = Path(__file__).parents[1]
RECIPE = (ROOT / "packaging" / "conda" / "meta.yaml").read_text(encoding="utf-8")
CONTAINER = (ROOT / "Containerfile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def about() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def section(name: str) -> set[str]:
    """The items of a list of the recipe."""
    (found,) = re.findall(rf"^  {name}:\n((?:    - .*\n)+)", RECIPE, re.MULTILINE)
    return {line.removeprefix("    - ").replace(" ", "") for line in found.splitlines()}


def test_the_recipe_needs_what_the_package_needs(about: dict[str, Any]) -> None:
    project = about["project"]
    needed = {*project["dependencies"], *project["optional-dependencies"]["cli"]}
    assert section("run") == {"python", *needed}
    assert section("host") == {"python", "pip", *about["build-system"]["requires"]}


def test_the_recipe_is_of_this_version(about: dict[str, Any]) -> None:
    project = about["project"]
    assert f'{{% set version = "{project["version"]}" %}}' in RECIPE
    assert project["version"] == es.__version__
    assert f"license: {project['license']}\n" in RECIPE
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {project['version']}\n" in citation
    ((command, function),) = project["scripts"].items()
    assert section("entry_points") == {f"{command}={function}"}
    assert f'ENTRYPOINT ["{command}"]' in CONTAINER
    assert f"Version: {project['version']}\n" in (ROOT / "r" / "DESCRIPTION").read_text(
        encoding="utf-8"
    )


def test_the_container_has_extras_that_there_are(about: dict[str, Any]) -> None:
    (extras,) = re.findall(r"\*\.whl\)\[([a-z,]+)\]", CONTAINER)
    assert set(extras.split(",")) <= set(about["project"]["optional-dependencies"])
    copied = {
        name
        for line in re.findall(r"^COPY ([^-].*) \S+$", CONTAINER, re.MULTILINE)
        for name in line.split()
    }
    assert copied == {
        "pyproject.toml",
        "setup.py",
        "src",
        about["project"]["readme"],
        *about["project"]["license-files"],
    }


def test_the_same_versions_of_python_everywhere(about: dict[str, Any]) -> None:
    kinds = about["project"]["classifiers"]
    said = {
        found[1]
        for kind in kinds
        if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", kind))
    }
    built = {
        f"3.{minor}" for minor in re.findall(r"cp3(\d+)-", about["tool"]["cibuildwheel"]["build"])
    }
    tried = set(
        re.findall(
            r'"(3\.\d+)"',
            (ROOT / "packaging" / "try_wheel.py").read_text().split("PYTHONS =")[1].split("\n")[0],
        )
    )
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    assert said == built == tried == set(re.findall(r"^ +(3\.\d+)$", workflow, re.MULTILINE))
    low, high = (min(said, key=minor), max(said, key=minor))
    assert about["project"]["requires-python"] == f">={low},<3.{minor(high) + 1}"


def minor(version: str) -> int:
    return int(version.partition(".")[2])


def test_actions_are_pinned_by_hash() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        used = re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
        assert used
        assert [one for one in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one)] == []


def test_source_packages_of_one_commit_have_the_same_bytes() -> None:
    """Neither the order of files nor their times, users and modes are in a release."""
    spec = importlib.util.spec_from_file_location("release", ROOT / "packaging/make_release.py")
    assert spec is not None
    assert spec.loader is not None
    release = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(release)

    def archive(names: list[str], mtime: int) -> bytes:
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as file:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size, member.mtime, member.uid, member.mode = 4, mtime, mtime, 0o664
                file.addfile(member, io.BytesIO(name.encode()))
        return content.getvalue()

    first, second = archive(["a.py", "b.py"], 1), archive(["b.py", "a.py"], 2)
    assert first != second
    assert release.normalised(first, 3) == release.normalised(second, 3)
    assert release.normalised(first, 3) != release.normalised(first, 4)
    with tarfile.open(fileobj=io.BytesIO(release.normalised(second, 3))) as file:
        found = [(one.name, file.extractfile(one).read()) for one in file]  # type: ignore[union-attr]  # files
    assert found == [("a.py", b"a.py"), ("b.py", b"b.py")]
