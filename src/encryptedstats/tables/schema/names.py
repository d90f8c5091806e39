"""Names and ids of variables and levels: owners use names, workers use ids.

A variable's id is ``v3``, that of the target ``class``, or ``target`` where it is a number. A
level's is ``bin2``, or ``class2``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from encryptedstats.checks import as_integer
from encryptedstats.errors import ArgumentTypeError, Cure, ParameterError, SchemaError
from encryptedstats.tables.schema.documents import quote
from encryptedstats.tables.schema.variables import TARGET, PublicSchema, as_level, id_position

if TYPE_CHECKING:
    from encryptedstats.tables.schema.schema import Schema

CLASS: Final = "class"
_IDS: Final = Cure(
    "name by ids",
    "write its id, v0, v1, ... (schema.index(name) tells its owner which), or "
    "question.in_ids(schema) before it leaves the owner",
)


def class_or_variable(variable: str | int, schema: Schema | PublicSchema) -> int:
    """Return the position of a variable, -1 for the target: by its name, or as class or target if
    no variable is called so.
    """
    target = None if isinstance(schema, PublicSchema) else schema.target
    if isinstance(variable, str) and variable == target:
        return -1
    if variable in (CLASS, TARGET):
        names = () if isinstance(schema, PublicSchema) else schema.names
        if variable not in names:
            return -1
        if target is not None:
            both = (
                f"the column {variable!r} is v{names.index(variable)}, and the target is {target!r}"
            )
            raise SchemaError(
                (
                    f"{variable} could be a column or the class of the rows: {both}; write one of "
                    "these"
                ),
                code="ambiguous-variable",
            )
    return schema.index(variable)


def position(schema: Schema | PublicSchema, variable: str | int) -> int:
    """Return the position of a variable by its id, -1 for the target.

    For questions in ids: see ``in_ids``.
    """
    return -1 if variable in (CLASS, TARGET) else schema.public().index(variable)


def choose_positions(schema: PublicSchema, variables: Sequence[str] | None) -> list[int]:
    """Return the positions of the variables with these ids; of all variables for None."""
    if variables is None:
        return list(range(len(schema.variables)))
    if isinstance(variables, str) or not isinstance(variables, Sequence):
        raise ArgumentTypeError(
            f"variables={variables!r}: a list of variables is needed", code="not-a-list"
        )
    found = [position(schema, variable) for variable in variables]
    if not found:
        raise ParameterError(
            "variables=[]: name at least one predictor, or leave variables out to use all",
            code="no-predictors",
        )
    if -1 in found:
        raise ParameterError(
            "variables: the target cannot be among its own predictors",
            code="target-among-predictors",
        )
    if len(set(found)) < len(found):
        raise ParameterError(
            f"variables={list(variables)!r}: a variable is named twice", code="duplicate-variables"
        )
    return found


def variable_id(schema: Schema | PublicSchema, variable: str | int) -> str:
    """Return the id of a variable that is given by name, id or position."""
    if (
        isinstance(schema, PublicSchema)
        and isinstance(variable, str)
        and not _is_id(schema, variable)
    ):
        ids = [
            *(one.id for one in schema.variables),
            *((target_id(schema),) if schema.has_target else ()),
        ]
        raise SchemaError(
            f"{variable!r} is no id of a variable, and a worker knows no names (the ids "
            f"are {quote(ids)}): ",
            _IDS,
            code="name-instead-of-id",
        )
    found = class_or_variable(variable, schema)
    if found == -1 and not schema.public().has_target:
        raise SchemaError(
            "the schema has no target: ", Cure("name the target", "infer it with target=")
        )
    return target_id(schema) if found == -1 else f"v{found}"


def target_id(schema: Schema | PublicSchema) -> str:
    """Return the id of the target."""
    return TARGET if schema.public().target_number is not None else CLASS


def _is_id(schema: PublicSchema, text: str) -> bool:
    return text in (CLASS, TARGET) or id_position(text, len(schema.variables)) is not None


def ids_of(value: Any, schema: Schema | PublicSchema) -> Any:
    """Replace names by ids: of one variable, of a list of them, or of a mapping by them; None
    stays.
    """
    return _each(value, lambda name: variable_id(schema, name))


def names_of(value: Any, schema: Schema) -> Any:
    return _each(value, lambda name: name_of(name, schema))


def _each(value: Any, renamed: Callable[[Any], Any]) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {renamed(name): one for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [renamed(one) for one in value]
    return renamed(value)


def name_of(variable: str | int, schema: Schema) -> str:
    """Return the owner's name of a variable for its id; a name stays."""
    if isinstance(variable, str) and not _is_id(schema.public(), variable):
        return variable
    where = position(schema, variable)
    return str(schema.target) if where == -1 else schema.variables[where].name


# -- levels ----------------------------------------------------------------------------------------


def n_levels(schema: Schema | PublicSchema, where: int) -> int:
    """Return how many bins the variable at a position has, or how many classes there are."""
    public = schema.public()
    return public.n_classes if where == -1 else public.variables[where].n_bins


def level_id(schema: Schema | PublicSchema, variable: str | int, level: Any) -> str:
    """Return the id of a level: its bin, ``bin2``, or the class, ``class1``.

    The owner gives the level itself, or the label of a bin; a worker gives the id, or the number
    of the bin.
    """
    where = class_or_variable(variable, schema)
    prefix, found = CLASS if where == -1 else "bin", None
    if not isinstance(schema, PublicSchema):
        levels = schema.classes if where == -1 else schema.variables[where].levels
        labels = tuple(map(str, levels)) if where == -1 else schema.variables[where].labels
        found = (
            _place(level, levels)
            if _place(level, levels) is not None
            else _place(str(level), labels)
        )
        known = quote(levels or labels)
    else:
        found, known = as_integer(level), f"numbers below {n_levels(schema, where)}"
    if found is None:
        found = _parse_number(level, prefix)
    if found is None or not 0 <= found < n_levels(schema, where):
        raise SchemaError(
            f"{variable!r} has no level {level!r}: there are {known or 'none'}",
            code="unknown-level",
        )
    return f"{prefix}{found}"


def level_number(schema: Schema | PublicSchema, variable: str | int, level: str | int) -> int:
    """Return the number of the bin or class that a level's id stands for.

    For questions in ids: see ``in_ids``.
    """
    where = position(schema, variable)
    number = (
        as_integer(level)
        if not isinstance(level, str)
        else _parse_number(level, CLASS if where == -1 else "bin")
    )
    if number is None or not 0 <= number < n_levels(schema, where):
        raise SchemaError(
            f"{variable!r} has no level {level!r}: it has {n_levels(schema, where)}",
            code="unknown-level",
        )
    return number


def levels_of(value: Any, variable: str | int, schema: Schema | PublicSchema) -> Any:
    """Replace levels by ids: one level of a variable, or a list of them; None stays."""
    return (
        value if variable is None else _each(value, lambda level: level_id(schema, variable, level))
    )


def level_name(schema: Schema, variable: str | int, level: str | int) -> Any:
    """Return the level itself, or the label of its bin, for its id; what is no id stays."""
    if isinstance(variable, str) and not _is_id(schema.public(), variable):
        return level
    where = position(schema, variable)
    number = _parse_number(level, CLASS if where == -1 else "bin")
    known = (
        schema.classes
        if where == -1
        else schema.variables[where].levels or schema.variables[where].labels
    )
    return level if number is None or number >= len(known) else known[number]


def level_names_of(value: Any, variable: str | int, schema: Schema) -> Any:
    return (
        value
        if variable is None
        else _each(value, lambda level: level_name(schema, variable, level))
    )


def _place(value: Any, among: tuple[Any, ...]) -> int | None:
    try:
        value = as_level(value)
    except SchemaError:
        return None
    return among.index(value) if value in among else None


def _parse_number(text: Any, prefix: str) -> int | None:
    number = text.removeprefix(prefix) if isinstance(text, str) and text.startswith(prefix) else ""
    return int(number) if number.isascii() and number.isdigit() and len(number) < 10 else None
