"""Encrypted integers and arrays against plain NumPy, under both schemes, and what they refuse, by
message.
"""

from __future__ import annotations

import copy
import io
import math
import operator
import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import encryptedstats as es
from effort import examples, one_scheme
from encryptedstats.arrays import array
from error_codes import error

FEW = settings(
    max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
SOME = settings(FEW, max_examples=examples(20))

SMALL = st.integers(-9, 9)
PLAIN_TYPES = st.sampled_from([np.int64, np.int8, np.uint8, np.uint64, np.int32, np.bool_])


def integers(shape: Any, low: int = -9, high: int = 9) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.int64, shape, elements=st.integers(low, high))


def shapes(min_dims: int = 1, max_dims: int = 3) -> st.SearchStrategy[tuple[int, ...]]:
    return hnp.array_shapes(min_dims=min_dims, max_dims=max_dims, max_side=3)


def plain_operand(shape: Any) -> st.SearchStrategy[np.ndarray]:
    """Integers of every NumPy type that has some, each to its own limits as far as sums of them
    stay small.
    """

    def of(kind: Any) -> st.SearchStrategy[np.ndarray]:
        if kind is np.bool_:
            return hnp.arrays(kind, shape)
        info = np.iinfo(kind)
        return hnp.arrays(
            kind, shape, elements=st.integers(max(info.min, -128), min(info.max, 255))
        )

    return PLAIN_TYPES.flatmap(of)


def opened(owner: es.Owner, value: Any) -> Any:
    """The decrypted value, after checking that it is what arrays promise to hold and within what it
    promises to be.
    """
    assert isinstance(value, (es.EncryptedArray, es.EncryptedInteger)), (
        f"{type(value)} is not encrypted"
    )
    if isinstance(value, es.EncryptedArray):
        assert all(type(item) is es.EncryptedInteger for item in np.asarray(value).flat)
    plain = owner.open(value)
    assert np.abs(plain).max(initial=0) <= value.bound <= owner.parameters.max_value
    return plain


def assert_same(owner: es.Owner, encrypted: Any, expected: Any) -> None:
    """Equal in value, shape and kind: arrays for arrays, single integers for NumPy's scalars."""
    plain = opened(owner, encrypted)
    if isinstance(encrypted, es.EncryptedInteger):
        assert type(plain) is int
        assert np.ndim(expected) == 0
    else:
        assert plain.dtype == np.int64
        assert encrypted.shape == plain.shape == np.shape(expected)
    np.testing.assert_array_equal(plain, expected)


# -- known answers, with real parameters
# --------------------------------------------------------------------------------


def test_the_known_answer(owner: es.Owner) -> None:
    x, y, z = (
        owner.encrypt(2),
        owner.encrypt([1, 2, 3]),
        owner.encrypt([[1, 4, 7], [2, 5, 8], [3, 6, 9]]),
    )
    assert owner.open(x + y @ z.T @ z).tolist() == [230, 554, 878]


def test_the_known_answer_by_a_worker_who_has_only_public_keys(owner: es.Owner) -> None:
    worker = owner.public_keys()
    x, y, z = (
        worker.encrypt(2),
        worker.encrypt([1, 2, 3]),
        worker.encrypt([[1, 4, 7], [2, 5, 8], [3, 6, 9]]),
    )
    assert owner.open(x + y @ z.T @ z).tolist() == [230, 554, 878]


@FEW
@given(value=st.integers(-65_536, 65_536))
def test_every_value_in_range_comes_back(owner: es.Owner, value: int) -> None:
    assert owner.open(owner.encrypt(value)) == value
    assert owner.open(owner.public_keys().encrypt(value)) == value


def test_the_ends_of_the_range_come_back(owner: es.Owner) -> None:
    limit = owner.parameters.max_value
    assert owner.open(owner.encrypt([limit, -limit, 0])).tolist() == [limit, -limit, 0]
    assert owner.open(owner.encrypt(limit - 1, bound=limit - 1) + 1) == limit
    assert owner.open(owner.encrypt(1 - limit, bound=limit - 1) - 1) == -limit


# -- operators
# ------------------------------------------------------------------------------------------------

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


@pytest.mark.parametrize("symbol", OPERATORS)
@SOME
@given(data=st.data())
def test_operators_broadcast_between_encrypted_arrays(
    toy: es.Owner, symbol: str, data: st.DataObject
) -> None:
    ours, theirs = data.draw(
        hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3)
    ).input_shapes
    a, b = data.draw(integers(ours)), data.draw(integers(theirs))
    apply = OPERATORS[symbol]
    assert_same(toy, apply(toy.encrypt(a), toy.encrypt(b)), apply(a, b))


@pytest.mark.parametrize("symbol", OPERATORS)
@SOME
@given(data=st.data())
def test_operators_take_plain_arrays_of_any_integer_type_on_either_side(
    toy: es.Owner, symbol: str, data: st.DataObject
) -> None:
    ours, theirs = data.draw(
        hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3)
    ).input_shapes
    a, b = data.draw(integers(ours)), data.draw(plain_operand(theirs))
    encrypted, exact, apply = toy.encrypt(a), b.astype(np.int64), OPERATORS[symbol]
    assert_same(toy, apply(encrypted, b), apply(a, exact))
    assert_same(toy, apply(b, encrypted), apply(exact, a))


@one_scheme
@pytest.mark.parametrize("symbol", OPERATORS)
@SOME
@given(a=SMALL, data=st.data())
def test_a_single_integer_meets_plain_and_encrypted_arrays(
    toy: es.Owner, symbol: str, a: int, data: st.DataObject
) -> None:
    shape = data.draw(shapes(min_dims=0, max_dims=2))
    b, c = data.draw(plain_operand(shape)), data.draw(integers(shape))
    single, exact, apply = toy.encrypt(a), b.astype(np.int64), OPERATORS[symbol]
    assert_same(toy, apply(single, b), apply(a, exact))
    assert_same(toy, apply(b, single), apply(exact, a))
    assert_same(toy, apply(single, toy.encrypt(c)), apply(a, c))
    assert_same(toy, apply(toy.encrypt(c), single), apply(c, a))


@pytest.mark.parametrize("symbol", OPERATORS)
@SOME
@given(a=SMALL, b=SMALL, kind=st.sampled_from([int, np.int64, np.int8, np.int32]))
def test_single_integers_meet_each_other_and_plain_ones(
    toy: es.Owner, symbol: str, a: int, b: int, kind: Any
) -> None:
    x, apply = toy.encrypt(a), OPERATORS[symbol]
    assert_same(toy, apply(x, toy.encrypt(b)), apply(a, b))
    assert_same(toy, apply(x, kind(b)), apply(a, b))
    assert_same(toy, apply(kind(b), x), apply(b, a))


@one_scheme
@pytest.mark.parametrize("symbol", OPERATORS)
@FEW
@given(a=integers((2, 3)), b=st.lists(SMALL, min_size=3, max_size=3), c=SMALL)
def test_lists_and_single_numbers_are_recycled_as_numpy_does(
    toy: es.Owner, symbol: str, a: np.ndarray, b: list[int], c: int
) -> None:
    encrypted, apply = toy.encrypt(a), OPERATORS[symbol]
    assert_same(toy, apply(encrypted, b), apply(a, b))
    assert_same(toy, apply(b, encrypted), apply(b, a))
    for number in (c, np.int64(c), np.int8(c), bool(c)):
        assert_same(toy, apply(encrypted, number), apply(a, int(number)))
        assert_same(toy, apply(number, encrypted), apply(int(number), a))


@pytest.mark.parametrize("symbol", OPERATORS)
def test_a_single_integer_meets_lists_as_it_meets_arrays(toy: es.Owner, symbol: str) -> None:
    x, apply = toy.encrypt(5), OPERATORS[symbol]
    assert_same(toy, apply(x, [1, -2]), apply(5, np.array([1, -2])))
    assert_same(toy, apply([[1], [-2]], x), apply(np.array([[1], [-2]]), 5))


def test_shapes_that_do_not_fit_are_refused_as_numpy_does(toy: es.Owner) -> None:
    with pytest.raises(ValueError, match="broadcast"):
        toy.encrypt([1, 2, 3]) + toy.encrypt([1, 2])
    with pytest.raises(ValueError, match="broadcast"):
        toy.encrypt([1, 2, 3]) * [1, 2]


@FEW
@given(a=shapes().flatmap(integers))
def test_signs(toy: es.Owner, a: np.ndarray) -> None:
    assert_same(toy, -toy.encrypt(a), -a)
    assert_same(toy, +toy.encrypt(a), a)
    assert_same(toy, +(-(+(-toy.encrypt(a)))), a)
    assert_same(toy, -toy.encrypt(int(a.flat[0])), -a.flat[0])


@FEW
@given(a=integers(3, -5, 5), exponent=st.integers(0, 5))
def test_powers(toy: es.Owner, a: np.ndarray, exponent: int) -> None:
    encrypted = toy.encrypt(a, bound=5)
    assert_same(toy, encrypted**exponent, a**exponent)
    assert_same(toy, encrypted ** np.int64(exponent), a**exponent)
    assert_same(toy, encrypted[0] ** exponent, a[0] ** exponent)
    assert_same(toy, encrypted ** [0, 1, exponent], a ** [0, 1, exponent])
    assert (encrypted**exponent).depth == (math.ceil(math.log2(exponent)) if exponent else 0)


@FEW
@given(a=integers((2, 2)), b=integers((2, 2)))
def test_in_place_operators_change_the_array_they_are_applied_to(
    toy: es.Owner, a: np.ndarray, b: np.ndarray
) -> None:
    for apply in (operator.iadd, operator.isub, operator.imul):
        encrypted, plain = toy.encrypt(a), a.copy()
        alias, row = encrypted, encrypted[1]
        for operand in (b, 3):
            encrypted = apply(encrypted, operand)
            plain = apply(plain, operand)
        encrypted[:1] = apply(encrypted[:1], toy.encrypt(b[0]))
        plain[:1] = apply(plain[:1], b[0])
        assert_same(toy, encrypted, plain)
        assert_same(toy, alias, plain)
        assert_same(toy, row, plain[1])


def test_in_place_on_a_single_integer_makes_a_new_one(toy: es.Owner) -> None:
    x = y = toy.encrypt(5)
    x += 2
    x *= x
    assert (toy.open(x), toy.open(y)) == (49, 5)


def test_an_in_place_operation_that_is_refused_changes_nothing(toy: es.Owner) -> None:
    a = es.EncryptedArray([toy.encrypt(1), toy.encrypt(2, bound=toy.parameters.max_value)])
    with pytest.raises(OverflowError):
        a += 1
    assert toy.open(a).tolist() == [1, 2]


@FEW
@given(a=integers((2, 3)))
def test_a_matrix_minus_itself_is_zero_and_can_be_computed_with(
    toy: es.Owner, a: np.ndarray
) -> None:
    encrypted = toy.encrypt(a)
    for zero in (
        encrypted - encrypted,
        encrypted + -encrypted,
        encrypted * 2 - encrypted - encrypted,
        0 * encrypted,
    ):
        assert_same(toy, zero, np.zeros_like(a))
        assert_same(toy, zero + 7, np.full_like(a, 7))
        assert_same(toy, zero * encrypted + encrypted, a)
        assert_same(toy, 3 - zero - encrypted, 3 - a)
        assert_same(toy, zero @ encrypted.T, np.zeros((2, 2)))


def test_known_zeros_cost_no_bound(toy: es.Owner) -> None:
    x = toy.encrypt(5, bound=5)
    assert (x - x).bound == 0
    assert (x + (x - x)).bound == 5
    assert (x * 0).bound == 0
    assert ((x - x) * toy.encrypt(1, bound=toy.parameters.max_value)).bound == 0


def test_products_that_are_added_are_as_good_as_those_that_are_not(toy: es.Owner) -> None:
    """Sums mix what was multiplied (three polynomials, lower level) with what is fresh."""
    x, y = toy.encrypt(7), toy.encrypt(-3)
    mixed = x * y + x - y * y * y + 5 * (x - x * x)
    assert toy.open(mixed) == 7 * -3 + 7 + 27 + 5 * (7 - 49)
    assert toy.open(mixed * x) == toy.open(x * mixed) == 7 * (7 * -3 + 7 + 27 + 5 * (7 - 49))
    assert (mixed * x).depth == 3


# -- products of matrices
# ------------------------------------------------------------------------------------------------

SIDES = st.integers(1, 3)


@pytest.mark.parametrize(
    "form", ["vec @ vec", "mat @ vec", "vec @ mat", "mat @ mat", "stack @ mat"]
)
@FEW
@given(data=st.data(), n=SIDES, k=SIDES, m=SIDES)
def test_matmul(toy: es.Owner, form: str, data: st.DataObject, n: int, k: int, m: int) -> None:
    left = {"vec": (k,), "mat": (n, k), "stack": (2, n, k)}[form.split(" @ ")[0]]
    right = {"vec": (k,), "mat": (k, m)}[form.split(" @ ")[1]]
    a, b = data.draw(integers(left)), data.draw(integers(right))
    x, y = toy.encrypt(a), toy.encrypt(b)
    assert_same(toy, x @ y, a @ b)
    assert_same(toy, a @ y, a @ b)
    assert_same(toy, x @ b, a @ b)
    assert_same(toy, x @ b.tolist(), a @ b)
    assert_same(toy, a.tolist() @ y, a @ b)
    assert_same(toy, np.matmul(x, y), a @ b)
    assert_same(toy, np.dot(x, y), np.dot(a, b))
    assert_same(toy, x.dot(b), np.dot(a, b))
    assert_same(toy, np.dot(a, y), np.dot(a, b))


def test_matmul_with_plain_zeros(toy: es.Owner) -> None:
    """Multiplying by zero would make a ciphertext that hides nothing, which SEAL
    refuses to make.
    """
    z = toy.encrypt([[1, 2], [3, 4]])
    assert_same(toy, z @ np.zeros((2, 2), dtype=int), np.zeros((2, 2)))
    assert_same(toy, np.eye(2, dtype=int) @ z, [[1, 2], [3, 4]])
    assert_same(toy, z @ [0, 1], [2, 4])
    assert_same(toy, [0, 0] @ z @ [0, 0], 0)


def test_matmul_shapes_that_do_not_fit(toy: es.Owner) -> None:
    with pytest.raises(ValueError, match="matmul"):
        toy.encrypt([[1, 2], [3, 4]]) @ toy.encrypt([1, 2, 3])


# -- sums, products, NumPy's functions
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sum", "prod", "cumsum"])
@SOME
@given(data=st.data(), shape=shapes(max_dims=2))
def test_reductions_over_any_axis(
    toy: es.Owner, name: str, data: st.DataObject, shape: tuple[int, ...]
) -> None:
    a = data.draw(integers(shape, -3, 3))
    axis = data.draw(st.sampled_from([None, *range(-len(shape), len(shape))]))
    encrypted = toy.encrypt(a, bound=3)
    method, function = operator.methodcaller(name, axis=axis), getattr(np, name)
    assert_same(toy, method(encrypted), method(a))
    assert_same(toy, function(encrypted, axis=axis), function(a, axis=axis))
    if axis is None:
        assert_same(toy, getattr(encrypted, name)(), getattr(a, name)())
        assert_same(toy, function(encrypted), function(a))


@pytest.mark.parametrize("count", range(1, 10))
def test_a_product_of_n_values_is_only_log2_n_deep(toy: es.Owner, count: int) -> None:
    product = toy.encrypt([2] * count, bound=2).prod()
    assert (product.depth, product.bound) == (math.ceil(math.log2(count)), 2**count)
    assert toy.open(product) == 2**count


def test_a_product_never_shares_memory_with_its_factors(toy: es.Owner) -> None:
    a = toy.encrypt([[3, 4]])
    product = a.prod(axis=0)
    product[0] = 77
    assert toy.open(a).tolist() == [[3, 4]]


def test_python_sum_works_too(toy: es.Owner) -> None:
    assert toy.open(sum(toy.encrypt([1, 2, 3]))) == 6


def test_row_and_column_sums(toy: es.Owner) -> None:
    z = toy.encrypt([[1, 2, 3], [4, 5, 6]])
    assert_same(toy, z.row_sums(), [6, 15])
    assert_same(toy, z.col_sums(), [5, 7, 9])


def test_sum_keeps_dimensions_and_takes_a_start(toy: es.Owner) -> None:
    z = toy.encrypt([[1, 2, 3], [4, 5, 6]])
    assert_same(toy, z.sum(axis=1, keepdims=True), [[6], [15]])
    assert_same(toy, z.sum(axis=(0, 1)), 21)
    assert_same(toy, z.sum(initial=100), 121)


# Each takes a matrix a and a vector v; the result must be the same for encrypted and plain ones.
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "T": lambda a, v: a.T,
    "transpose": lambda a, v: np.transpose(a),
    "swapaxes": lambda a, v: np.swapaxes(a, 0, 1),
    "reshape": lambda a, v: np.reshape(a, (3, 2)),
    "reshape method": lambda a, v: a.reshape(-1),
    "ravel": lambda a, v: np.ravel(a),
    "flatten": lambda a, v: a.flatten(),
    "flip": lambda a, v: np.flip(a),
    "flip axis": lambda a, v: np.flip(a, axis=1),
    "roll": lambda a, v: np.roll(a, 1),
    "roll axis": lambda a, v: np.roll(a, -2, axis=1),
    "trace": lambda a, v: np.trace(a),
    "trace offset": lambda a, v: np.trace(a, offset=1),
    "diag of a matrix": lambda a, v: np.diag(a),
    "diag above": lambda a, v: np.diag(a, 1),
    "diag below": lambda a, v: np.diag(a, -1),
    "diag of a vector": lambda a, v: np.diag(v),
    "diag of a vector, above": lambda a, v: np.diag(v, 2),
    "diag @": lambda a, v: a @ np.diag(v),
    "outer": lambda a, v: np.outer(v, v),
    "outer, plain": lambda a, v: np.outer(v, [1, 0, -1]),
    "outer, plain first": lambda a, v: np.outer([1, 0], v),
    "dot": lambda a, v: np.dot(a, v),
    "dot, plain": lambda a, v: np.dot([1, -1], a),
    "inner": lambda a, v: np.inner(a, v),
    "tensordot": lambda a, v: np.tensordot(a, v, axes=1),
    "kron": lambda a, v: np.kron(a, v),
    "einsum": lambda a, v: np.einsum("ij,j->i", a, v),
    "stack": lambda a, v: np.stack([v, a[0], v]),
    "stack, axis 1": lambda a, v: np.stack([v, v], axis=1),
    "stack with plain": lambda a, v: np.stack([v, [7, 8, 9]]),
    "vstack": lambda a, v: np.vstack([a, v, a]),
    "vstack with plain": lambda a, v: np.vstack([np.array([[1, 2, 3]]), a]),
    "hstack": lambda a, v: np.hstack([v, v]),
    "hstack with plain": lambda a, v: np.hstack([[0], v, 5]),
    "concatenate": lambda a, v: np.concatenate([a, a], axis=1),
    "concatenate with plain": lambda a, v: np.concatenate([v, [1, -2]]),
    "concatenate with nothing": lambda a, v: np.concatenate([v[:0], v]),
    "column_stack": lambda a, v: np.column_stack([v, v, [1, 2, 3]]),
    "append": lambda a, v: np.append(v, 4),
    "insert": lambda a, v: np.insert(v, 1, 4),
    "delete": lambda a, v: np.delete(v, 1),
    "pad": lambda a, v: np.pad(v, 1),
    "repeat": lambda a, v: np.repeat(v, 2),
    "tile": lambda a, v: np.tile(v, (2, 1)),
    "take": lambda a, v: np.take(v, [2, 0, 0]),
    "where": lambda a, v: np.where([True, False, True], v, 0),
    "where, both": lambda a, v: np.where([True, False, True], v, a[1]),
    "tril": lambda a, v: np.tril(a),
    "diff": lambda a, v: np.diff(v),
    "squeeze": lambda a, v: np.squeeze(v[None, :]),
    "expand_dims": lambda a, v: np.expand_dims(v, 0),
    "broadcast": lambda a, v: a - v[None, :] + a[:, :1],
    "square": lambda a, v: np.square(v),
    "add.reduce": lambda a, v: np.add.reduce(a),
    "multiply.outer": lambda a, v: np.multiply.outer(v, v),
    "zeros_like": lambda a, v: np.zeros_like(v),
    "ones_like": lambda a, v: np.ones_like(v),
    "full_like": lambda a, v: np.full_like(a, 3),
}


@one_scheme
@pytest.mark.parametrize("name", FUNCTIONS)
@settings(FEW, max_examples=examples(2))
@given(a=integers((2, 3)), v=integers(3))
def test_numpy_functions(toy: es.Owner, name: str, a: np.ndarray, v: np.ndarray) -> None:
    function = FUNCTIONS[name]
    assert_same(toy, function(toy.encrypt(a), toy.encrypt(v)), function(a, v))


def test_split_gives_encrypted_parts(toy: es.Owner) -> None:
    left, right = np.split(toy.encrypt([1, 2, 3, 4]), 2)
    assert_same(toy, left, [1, 2])
    assert_same(toy, right, [3, 4])


def test_diag_method_is_numpys(toy: es.Owner) -> None:
    assert_same(toy, toy.encrypt([1, 2]).diag(1), np.diag([1, 2], 1))
    assert_same(toy, toy.encrypt([[1, 2], [3, 4]]).diag(), [1, 4])


# -- indexing, assignment
# ------------------------------------------------------------------------------------------------


@SOME
@given(data=st.data(), shape=shapes())
def test_indexing_and_slicing(toy: es.Owner, data: st.DataObject, shape: tuple[int, ...]) -> None:
    a, index = (
        np.arange(math.prod(shape)).reshape(shape),
        data.draw(hnp.basic_indices(shape, allow_newaxis=True)),
    )
    part = toy.encrypt(a)[index]
    assert_same(toy, part, a[index])
    assert isinstance(part, es.EncryptedInteger) == isinstance(a[index], np.integer)


@FEW
@given(data=st.data(), shape=shapes(max_dims=2))
def test_boolean_masks(toy: es.Owner, data: st.DataObject, shape: tuple[int, ...]) -> None:
    a, mask = data.draw(integers(shape)), data.draw(hnp.arrays(np.bool_, shape))
    assert_same(toy, toy.encrypt(a)[mask], a[mask])
    rows = mask.reshape(shape[0], -1)[:, 0]
    assert_same(toy, toy.encrypt(a)[rows], a[rows])


@FEW
@given(data=st.data(), shape=shapes(max_dims=2))
def test_fancy_indexing(toy: es.Owner, data: st.DataObject, shape: tuple[int, ...]) -> None:
    a, index = data.draw(integers(shape)), data.draw(hnp.integer_array_indices(shape))
    assert_same(toy, toy.encrypt(a)[index], a[index])


def test_indices_out_of_range_are_numpys_errors(toy: es.Owner) -> None:
    a = toy.encrypt([1, 2])
    with pytest.raises(IndexError):
        a[2]
    with pytest.raises(IndexError):
        a[0, 0]
    with pytest.raises(IndexError):
        a[[True, False, True]]


def test_nobody_can_index_by_what_is_encrypted(toy: es.Owner) -> None:
    a = toy.encrypt([1, 0])
    with pytest.raises(TypeError, check=error("still-encrypted")):
        [10, 20][a[0]]
    with pytest.raises((TypeError, IndexError)):
        np.array([10, 20])[a]


@FEW
@given(data=st.data(), shape=shapes(max_dims=2))
def test_assignment_of_plain_and_encrypted_values(
    toy: es.Owner, data: st.DataObject, shape: tuple[int, ...]
) -> None:
    index = data.draw(
        hnp.basic_indices(shape) | hnp.arrays(np.bool_, shape) | hnp.integer_array_indices(shape)
    )
    a = data.draw(integers(shape))
    target = np.shape(a[index])
    values = data.draw(integers(target) | SMALL)
    listed = (
        np.array(values).tolist() if np.size(values) else values
    )  # a list of no lists has lost its shape
    for value in (values, toy.encrypt(values), listed):
        encrypted, plain = toy.encrypt(a), a.copy()
        encrypted[index] = value
        plain[index] = values
        assert_same(toy, encrypted, plain)


def test_assignment_through_a_view_changes_the_whole(toy: es.Owner) -> None:
    z = toy.encrypt([[1, 2], [3, 4]])
    z[1][0] = 30
    z.T[1, :] = toy.encrypt([20, 40])
    z[0, 0] += 9
    assert_same(toy, z, [[10, 20], [30, 40]])


def test_assignment_of_lists_that_mix_plain_and_encrypted(toy: es.Owner) -> None:
    a, x = toy.encrypt([1, 2, 3]), toy.encrypt(9)
    a[:2] = [x, 5]
    assert_same(toy, a, [9, 5, 3])
    a[1:] = [x, x]
    assert_same(toy, a, [9, 9, 9])


def test_assignment_of_nothing_to_nothing(toy: es.Owner) -> None:
    a = toy.encrypt([1, 2, 3])
    nowhere = np.array([False, False, False])
    a[nowhere] = a[nowhere]
    a[:0] = toy.encrypt([])
    a[nowhere] = 5
    assert_same(toy, a, [1, 2, 3])


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (2.5, TypeError, "assignment with 2.5: only integers are exact here"),
        (np.float64(2), TypeError, "only integers are exact here"),
        ([1, 2.5, 3], TypeError, r"value at \(1,\) with 2.5: only integers are exact here"),
        ("7", TypeError, "type str"),
        (None, TypeError, "type NoneType"),
        ([1, 2], ValueError, "broadcast"),
        (2**21, OverflowError, r"choose parameters with max_value=2097152"),
    ],
)
def test_assignment_refuses_what_is_no_integer(
    toy: es.Owner, value: Any, error: type, message: str
) -> None:
    a = toy.encrypt([1, 2, 3])
    with pytest.raises(error, match=message):
        a[:] = value
    assert_same(toy, a, [1, 2, 3])


BACK_DOORS: dict[str, Callable[[Any, Any], Any]] = {
    "fill": lambda a, value: a.fill(value),
    "flat": lambda a, value: a.flat.__setitem__(0, value),
    "put": lambda a, value: a.put([0], [value]),
    "np.put": lambda a, value: np.put(a, [0], [value]),
    "np.copyto": lambda a, value: np.copyto(a, value),
    "np.place": lambda a, value: np.place(a, [True, False, False], [value]),
    "np.putmask": lambda a, value: np.putmask(a, [True, False, False], value),
    "np.fill_diagonal": lambda a, value: np.fill_diagonal(a.reshape(1, -1), value),
    "np.put_along_axis": lambda a, value: np.put_along_axis(a, np.array([0]), value, 0),
    "np.add, out": lambda a, value: np.add(value, 0, out=a),
}


@pytest.mark.parametrize("door", BACK_DOORS)
def test_nothing_plain_gets_into_an_array_through_a_back_door(toy: es.Owner, door: str) -> None:
    """NumPy has more ways to write than ``a[i] = v``. Each must encrypt what it is given, or
    refuse.
    """
    a = toy.encrypt([1, 2, 3])
    try:
        BACK_DOORS[door](a, 1)
    except (TypeError, ValueError):
        assert_same(toy, a, [1, 2, 3])
    else:
        assert opened(toy, a)[0] == 1


@pytest.mark.parametrize("door", BACK_DOORS)
def test_nothing_of_another_key_gets_into_an_array_through_a_back_door(
    toy: es.Owner, toy_stranger: es.Owner, door: str
) -> None:
    a = toy.encrypt([1, 2, 3])
    with pytest.raises((TypeError, ValueError)):
        BACK_DOORS[door](a, toy_stranger.encrypt(5))
    assert_same(toy, a, [1, 2, 3])


# -- looking at arrays
# ------------------------------------------------------------------------------------------------


def test_length_iteration_and_lists(toy: es.Owner) -> None:
    z = toy.encrypt([[1, 2, 3], [4, 5, 6]])
    assert (len(z), z.shape, z.ndim, z.size) == (2, (2, 3), 2, 6)
    assert [toy.open(row).tolist() for row in z] == [[1, 2, 3], [4, 5, 6]]
    assert all(isinstance(row, es.EncryptedArray) for row in z)
    assert [toy.open(item) for item in z[0]] == [1, 2, 3]
    assert toy.open(z.tolist()[1][2]) == 6
    first, *rest = z[1]
    assert (toy.open(first), len(rest)) == (4, 2)
    with pytest.raises(TypeError):
        len(z[0, 0])


def test_an_array_from_single_integers_and_plain_ones(toy: es.Owner) -> None:
    x = toy.encrypt(7)
    assert_same(toy, es.EncryptedArray([[x, 1], [0, -x]]), [[7, 1], [0, -7]])
    assert_same(toy, es.EncryptedArray(x), np.array(7))
    with pytest.raises(TypeError, check=error("no-encrypted-value")):
        es.EncryptedArray([1, 2])
    with pytest.raises(TypeError, check=error("not-an-integer")):
        es.EncryptedArray([x, 2.5])


def test_arrays_without_dimensions(toy: es.Owner) -> None:
    a = toy.encrypt(np.array(5))
    assert a.shape == ()
    assert_same(toy, a, np.array(5))
    assert_same(toy, a[()], 5)
    assert_same(toy, a + 1, 6)
    assert_same(toy, a * toy.encrypt([1, 2]), [5, 10])
    assert_same(toy, a.sum(), 5)
    assert_same(toy, a.prod(), 5)
    a[()] = 8
    assert_same(toy, a, np.array(8))
    b = toy.encrypt([1, 2])
    b[0] = np.array(5)
    b[1:] = np.array(6)
    assert_same(toy, b, [5, 6])


EMPTY: dict[str, Callable[[Any, Any], Any]] = {
    "+ plain": lambda a, b: a + 1,
    "plain -": lambda a, b: 1 - a,
    "* encrypted": lambda a, b: a * a,
    "* one encrypted": lambda a, b: a * b[0],
    "unary minus": lambda a, b: -a,
    "power": lambda a, b: a**2,
    "reshape": lambda a, b: a.reshape(0, 2),
    "concatenate": lambda a, b: np.concatenate([a, a]),
    "copy": lambda a, b: a.copy(),
    "cumsum": lambda a, b: a.cumsum(),
    "broadcast": lambda a, b: a[:, None] + b,
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_slices_stay_empty(toy: es.Owner, name: str) -> None:
    b = np.array([1, 2, 3])
    expected = EMPTY[name](b[:0], b)
    encrypted = EMPTY[name](toy.encrypt(b)[:0], toy.encrypt(b))
    assert isinstance(encrypted, es.EncryptedArray)
    assert toy.open(encrypted).tolist() == expected.tolist()
    assert encrypted.shape == expected.shape


def test_an_empty_array_can_be_encrypted_and_shown(toy: es.Owner) -> None:
    nothing = toy.encrypt([])
    assert (len(nothing), nothing.bound, nothing.depth) == (0, 0, 0)
    assert repr(nothing) == "EncryptedArray(shape=(0,))"
    assert toy.open(nothing).tolist() == []
    with pytest.raises(ValueError, check=error("empty-product")):
        nothing.prod()
    with pytest.raises(ValueError, check=error("empty-array")):
        _ = nothing.keys


def test_representations_say_what_is_public_and_nothing_else(owner: es.Owner) -> None:
    x, z = owner.encrypt(12_345), owner.encrypt([[12_345, 2]])
    for text in (repr(x), str(x), repr(z), str(z), f"{z}"):
        assert "12345" not in text.replace(owner.key_id, "").replace(",", "")
        assert "±16,384" in text
        assert owner.key_id in text
        assert owner.parameters.scheme in text
    assert "shape=(1, 2)" in repr(z)
    assert "depth 1" in repr(owner.encrypt(3) * owner.encrypt(4))


# -- bounds
# ------------------------------------------------------------------------------------------------


@SOME
@given(value=st.integers(-(1 << 20), 1 << 20))
def test_the_default_bound_says_no_more_than_a_power_of_two(toy: es.Owner, value: int) -> None:
    bound = toy.encrypt(value).bound
    assert bound >= max(16, abs(value))
    assert bound & (bound - 1) == 0 or bound == toy.parameters.max_value
    assert bound == 16 or bound < 2 * abs(value)
    assert toy.encrypt([value, 0, 0]).bound == bound
    assert {item.bound for item in toy.encrypt([value, 0, 1])} == {bound}, (
        "single values must not be told apart"
    )


def test_a_given_bound_is_kept(toy: es.Owner) -> None:
    assert toy.encrypt(3, bound=100).bound == 100
    assert toy.encrypt([3, -3], bound=np.int64(3)).bound == 3
    assert toy.public_keys().encrypt(3, bound=5).bound == 5


@pytest.mark.parametrize(
    ("bound", "error", "message"),
    [
        (6, OverflowError, "a value of 7 in absolute terms is beyond the bound=6"),
        (0, ValueError, "bound=0: it must be a positive integer"),
        (-20, ValueError, "bound=-20: it must be a positive integer"),
        (7.0, ValueError, "bound=7.0: it must be a positive integer"),
        ("7", ValueError, "bound='7': it must be a positive integer"),
        (True, ValueError, "bound=True: it must be a positive integer"),
        (10**9, OverflowError, r"exact up to ±[\d,]+: choose parameters with max_value=1000000000"),
    ],
)
def test_bounds_that_cannot_be(toy: es.Owner, bound: Any, error: type, message: str) -> None:
    for value in (7, -7, [7, 1], np.array([[-7]])):
        with pytest.raises(error, match=message):
            toy.encrypt(value, bound=bound)


@FEW
@given(a=integers(3), b=integers(3))
def test_bounds_follow_the_arithmetic(toy: es.Owner, a: np.ndarray, b: np.ndarray) -> None:
    x, y = toy.encrypt(a, bound=9), toy.encrypt(b, bound=9)
    assert (x + y).bound == 18
    assert (x - 4).bound == (4 - x).bound == 13
    assert (x * y).bound == 81
    assert (-3 * x).bound == 27
    assert (x @ y).bound == x.dot(y).bound == 243
    assert x.sum().bound == 27
    assert (x**3).bound == 729


# -- what is refused
# ------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "mean": (lambda x, a: a.mean(), r"no mean: take the sum, and divide after decryption"),
    "np.mean": (lambda x, a: np.mean(a), "no mean"),
    "np.average": (lambda x, a: np.average(a), "no mean"),
    "median": (lambda x, a: np.median(a), "median of an encrypted array is not possible"),
    "var": (lambda x, a: a.var(), "var of an encrypted array is not possible"),
    "np.std": (lambda x, a: np.std(a), "std of an encrypted array is not possible"),
    "max": (lambda x, a: a.max(), "max of an encrypted array is not possible"),
    "np.min": (lambda x, a: np.min(a), "min of an encrypted array is not possible"),
    "argmax": (lambda x, a: a.argmax(), "argmax of an encrypted array is not possible"),
    "np.argmax": (lambda x, a: np.argmax(a), "not possible|cannot be compared"),
    "np.sort": (lambda x, a: np.sort(a), "sort of an encrypted array is not possible"),
    "sorted": (lambda x, a: sorted(a), "cannot be compared"),
    "builtin max": (lambda x, a: max(a), "cannot be compared"),
    "np.unique": (lambda x, a: np.unique(a), "unique of an encrypted array is not possible"),
    "any": (lambda x, a: a.any(), "any of an encrypted array is not possible"),
    "astype": (lambda x, a: a.astype(int), "astype of an encrypted array is not possible"),
    "np.round": (lambda x, a: np.round(a), "not possible|no plain number|compare"),
    "np.abs": (lambda x, a: np.abs(a), "no plain number"),
    "as an int array": (lambda x, a: np.asarray(a, dtype=np.int64), r"owner\.open"),
    "as a float array": (lambda x, a: np.array(a, dtype=float), r"owner\.open"),
    "/": (lambda x, a: x / 2, "cannot be divided. Multiply everything by the denominator"),
    "plain /": (lambda x, a: 2 / x, "cannot be divided"),
    "array /": (lambda x, a: a / 2, "cannot be divided"),
    "plain / array": (lambda x, a: [1, 2] / a, "cannot be divided"),
    "//": (lambda x, a: a // x, "cannot be divided"),
    "%": (lambda x, a: x % 2, "cannot be divided"),
    "array %": (lambda x, a: a % 2, "cannot be divided"),
    "divmod": (lambda x, a: divmod(x, 2), "cannot be divided"),
    "array divmod": (lambda x, a: divmod(a, 2), ("cannot be divided|divmod of an encrypted array " "is not possible")),
    "/=": (lambda x, a: operator.itruediv(a, 2), "cannot be divided"),
    "==": (lambda x, a: x == 5, "cannot be compared: the worker cannot see them"),
    "plain ==": (lambda x, a: operator.eq(5, x), "cannot be compared"),
    "!=": (lambda x, a: x != x, "cannot be compared"),
    "array ==": (lambda x, a: a == a, "cannot be compared"),
    "array <": (lambda x, a: a < 3, "cannot be compared"),
    ">=": (lambda x, a: x >= a, "cannot be compared"),
    "in": (lambda x, a: x in a, "cannot be compared"),
    "hash": (lambda x, a: hash(x), "unhashable"),
    "int": (lambda x, a: int(x), r"no plain number: open it first, with owner\.open"),
    "float": (lambda x, a: float(x), r"with owner\.open"),
    "complex": (lambda x, a: complex(x), r"with owner\.open"),
    "abs": (lambda x, a: abs(x), r"with owner\.open"),
    "index": (lambda x, a: operator.index(x), r"with owner\.open"),
    "range": (lambda x, a: range(x), r"with owner\.open"),
    "np.int64": (lambda x, a: np.int64(x), r"with owner\.open"),
    "bool": (lambda x, a: bool(x), "zero cannot be known"),
    "if": (lambda x, a: 1 if x else 0, "zero cannot be known"),
    "bool of one value": (lambda x, a: bool(a[:1]), "zero cannot be known"),
    "+ float": (lambda x, a: x + 0.5, (r"addition with 0\.5: only integers are exact here. Scale " r"it to an integer first")),
    "float -": (lambda x, a: 0.5 - x, r"subtraction with 0\.5: only integers are exact here"),
    "* whole float": (lambda x, a: x * 2.0, (r"multiplication with 2\.0: only integers are exact " r"here")),
    "+ NumPy float": (lambda x, a: np.float64(1) + x, "only integers are exact here"),
    "array + float": (lambda x, a: a + 0.5, "only integers are exact here"),
    "array * float array": (lambda x, a: a * np.array([1.0, 2.0]), "only integers are exact here"),
    "float array * one": (lambda x, a: np.array([1.0, 2.0]) * x, "only integers are exact here"),
    "float list": (lambda x, a: operator.add(a, [0.5, 1]), "only integers are exact here"),
    "@ float": (lambda x, a: a @ np.array([0.5, 1]), "only integers are exact here"),
    "float @": (lambda x, a: [0.5, 1] @ a, "only integers are exact here"),
    "dot float": (lambda x, a: np.dot(np.array([0.5, 1]), a), "only integers are exact here"),
    "stacking floats": (lambda x, a: np.concatenate([a, [0.5]]), "only integers are exact here"),
    "** float": (lambda x, a: x**0.5, r"power with 0\.5: only integers are exact here"),
    "** encrypted": (lambda x, a: x**x, "power"),
    "+ str": (lambda x, a: x + "1", "type str: plain operands must be integers"),
    "+ None": (lambda x, a: x + None, "type NoneType: plain operands must be integers"),
    "+ complex": (lambda x, a: x + 1j, "type complex: plain operands must be integers"),
    "array + complex array": (lambda x, a: a + np.array([1j, 1]), "only integers are exact here"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_explained(toy: es.Owner, what: str) -> None:
    operation, message = REFUSED[what]
    with pytest.raises(TypeError, match=message):
        operation(toy.encrypt(5), toy.encrypt([1, 2]))


def test_powers_that_cannot_be(toy: es.Owner) -> None:
    x = toy.encrypt(1, bound=1)
    for exponent in (-1, 1 << 17):
        with pytest.raises(ValueError, check=error("power-out-of-range", exponent)):
            x**exponent


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (
            1.0,
            TypeError,
            r"encryption with 1\.0: only integers are exact here. This is a whole number in a "
            r"float: give 1 ",
        ),
        (3e9, TypeError, "only integers are exact here"),
        (np.float32(2), TypeError, "only integers are exact here"),
        ([1, 2.5], TypeError, r"value at \(1,\) with 2\.5: only integers are exact here"),
        (np.array([[1.0, 2.0]]), TypeError, r"value at \(0, 0\) with 1\.0: only integers"),
        (float("nan"), TypeError, "only integers are exact here"),
        ("7", TypeError, "type str cannot be encrypted: give integers"),
        (["7"], TypeError, r"value at \(0,\) with an object of type str"),
        (None, TypeError, "type NoneType cannot be encrypted"),
        ([1, None], TypeError, r"value at \(1,\) with an object of type NoneType"),
        (1j, TypeError, "type complex cannot be encrypted"),
        ({1, 2}, TypeError, "type set cannot be encrypted"),
        (b"12", TypeError, "type bytes cannot be encrypted"),
        ([[1, 2], [3]], TypeError, "these values do not form an array"),
        (
            3_000_000_000,
            OverflowError,
            r"values up to ±4,294,967,296 do not fit .* max_value=4294967296 or more",
        ),
        ([1, -3_000_000_000], OverflowError, "max_value=4294967296 or more"),
        (2**70, OverflowError, "do not fit these parameters"),
        ([2**70], OverflowError, "do not fit these parameters"),
        ([2**63, -1], OverflowError, "do not fit these parameters"),
        (np.array([2**64 - 1], dtype=np.uint64), OverflowError, "do not fit these parameters"),
        (np.int64(-(2**63)), OverflowError, "do not fit these parameters"),
    ],
    ids=repr,
)
def test_what_cannot_be_encrypted(toy: es.Owner, value: Any, error: type, message: str) -> None:
    for encrypt in (toy.encrypt, toy.public_keys().encrypt):
        with pytest.raises(error, match=message):
            encrypt(value)


def test_what_is_encrypted_is_not_encrypted_again(toy: es.Owner) -> None:
    x, a = toy.encrypt(1), toy.encrypt([1, 2])
    with pytest.raises(TypeError, check=error("not-encryptable")):
        toy.encrypt(x)
    with pytest.raises(TypeError, check=error("already-encrypted", "0")):
        toy.encrypt(a)
    with pytest.raises(TypeError, check=error("already-encrypted", "1")):
        toy.encrypt([1, x])
    with pytest.raises(TypeError, check=error("already-encrypted", "0", "1")):
        toy.encrypt([[1, x]])


@pytest.mark.parametrize("value", [3, [1, 2], np.array([1]), None], ids=repr)
def test_what_is_plain_is_not_decrypted(toy: es.Owner, value: Any) -> None:
    with pytest.raises(TypeError, check=error("not-encrypted")):
        toy.open(value)


def test_truth_values_are_integers(toy: es.Owner) -> None:
    assert toy.open(toy.encrypt(True)) == 1
    assert toy.open(toy.encrypt(np.bool_(False))) == 0
    assert_same(toy, toy.encrypt([True, False]), [1, 0])
    assert_same(toy, toy.encrypt(np.array([[True], [False]])), [[1], [0]])


@pytest.mark.parametrize(
    "kind", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
)
def test_every_integer_type_can_be_encrypted(toy: es.Owner, kind: Any) -> None:
    numbers = [max(np.iinfo(kind).min, -100_000), min(np.iinfo(kind).max, 100_000)]
    assert_same(toy, toy.encrypt(np.array(numbers, dtype=kind)), numbers)
    assert_same(toy, toy.encrypt(kind(numbers[0])), numbers[0])
    assert_same(toy, toy.encrypt(tuple(numbers)), numbers)


# -- overflow and noise: before anything is computed, and with a cure that cures
# ---------------------------------------------


class Counting:
    """SEAL's evaluator, counting what it is asked to do."""

    def __init__(self, evaluator: Any) -> None:
        self.evaluator, self.calls = evaluator, 0

    def __getattr__(self, name: str) -> Any:
        self.calls += 1
        return getattr(self.evaluator, name)


@pytest.fixture
def counting(toy: es.Owner, monkeypatch: pytest.MonkeyPatch) -> Counting:
    engine = toy.public_keys().engine
    counter = Counting(engine.evaluator)
    monkeypatch.setattr(engine, "evaluator", counter)
    return counter


def test_the_counter_counts(toy: es.Owner, counting: Counting) -> None:
    x = toy.encrypt(3) + toy.encrypt(4)
    assert counting.calls == 1
    assert toy.open(x * x * x) == 343
    assert counting.calls > 3


OVERFLOWING: dict[str, tuple[Callable[[Any, int], Any], str]] = {
    "+ encrypted": (lambda x, limit: x + x, "addition"),
    "+ plain": (lambda x, limit: x + limit, "addition"),
    "plain +": (lambda x, limit: limit + x, "addition"),
    "- encrypted": (lambda x, limit: x - (x + 0), "subtraction"),
    "- plain": (lambda x, limit: x - limit, "subtraction"),
    "plain -": (lambda x, limit: limit - x, "subtraction"),
    "* encrypted": (lambda x, limit: x * x, "multiplication"),
    "* plain": (lambda x, limit: x * -2, "multiplication"),
    "power": (lambda x, limit: x**2, "multiplication"),
    "array": (lambda x, limit: es.EncryptedArray([x, x]) + es.EncryptedArray([x, x]), "addition"),
    "array, plain": (lambda x, limit: [limit, 1] - es.EncryptedArray([x, x]), "subtraction"),
    "one - array": (lambda x, limit: x - es.EncryptedArray([x, x]), "subtraction"),
    "matmul": (lambda x, limit: es.EncryptedArray([x]) @ es.EncryptedArray([x]), "multiplication"),
    "sum": (lambda x, limit: es.EncryptedArray([x, x]).sum(), "addition"),
}


@pytest.mark.parametrize("what", OVERFLOWING)
def test_what_could_overflow_is_refused_before_it_is_computed(
    toy: es.Owner, counting: Counting, what: str
) -> None:
    operation, name = OVERFLOWING[what]
    limit = toy.parameters.max_value
    x = toy.encrypt(1, bound=limit - 1)
    with pytest.raises(
        OverflowError, match=rf"this {name} could reach ±[\d,]+, .* exact up to ±{limit:,}\."
    ):
        operation(x, limit)
    assert counting.calls == 0


def _raises(kind: type[Exception], call: Callable[[], Any]) -> bool:
    try:
        call()
    except kind:
        return True
    return False


def test_what_could_drown_is_refused_before_it_is_computed(
    toy: es.Owner, counting: Counting
) -> None:
    x = toy.encrypt(1, bound=1)
    while x.depth < toy.parameters.depth or not _raises(es.NoiseError, lambda x=x: x * x):
        assert x.depth < 64, "so many products in a row on a small ring: nobody can carry that"
        x = x * x
    before = counting.calls
    with pytest.raises(es.NoiseError, check=error("not-proven", x.depth + 1)):
        x * x
    assert counting.calls == before
    assert toy.open(x) == 1


def cured(error: pytest.ExceptionInfo[Any], parameters: es.Parameters, **wish: Any) -> es.Owner:
    """An owner with the parameters that the message names."""
    named = {k: int(v) for k, v in re.findall(r"(max_value|depth|terms)=(\d+)", str(error.value))}
    assert named, f"the message names no parameters: {error.value}"
    base = {"max_value": parameters.max_value, "depth": parameters.depth, "terms": parameters.terms}
    return es.Owner(es.Parameters.choose(**{**base, **wish, **named}, scheme=parameters.scheme))


CURABLE: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "encryption": lambda encrypt: encrypt(3_000_000_000),
    "encryption of an array": lambda encrypt: encrypt([[1, -500_000]]),
    "declared bound": lambda encrypt: encrypt(1, bound=10**6),
    "addition": lambda encrypt: encrypt(50_000) + encrypt(30_000),
    "addition of a plain number": lambda encrypt: encrypt(7) + 10**6,
    "multiplication": lambda encrypt: encrypt(1000) * encrypt(-1000),
    "multiplication by a plain number": lambda encrypt: 99_999 * encrypt(9),
    "matmul": lambda encrypt: encrypt([200, 200]) @ encrypt([200, -100]),
    "power": lambda encrypt: encrypt(50) ** 3,
}


@pytest.mark.parametrize("what", CURABLE)
def test_parameters_named_by_an_overflow_allow_it(owner: es.Owner, what: str) -> None:
    """Each message names what that step needs; a computation of several steps gets there in as
    many.
    """
    current = owner
    for _ in range(4):
        try:
            result = CURABLE[what](current.encrypt)
        except OverflowError as error:
            last = error
        else:
            break
        named = int(re.findall(r"max_value=(\d+)", str(last))[-1])
        assert named > current.parameters.max_value
        wish = es.Parameters.choose(max_value=named, depth=2, scheme=owner.parameters.scheme)
        current = es.Owner(wish)
    else:
        pytest.fail(f"still refused: {last}")
    assert current is not owner, "the operation was meant to overflow first"
    numbers = CURABLE[what](lambda value, bound=None: np.array(value) if np.ndim(value) else value)
    np.testing.assert_array_equal(current.open(result), numbers)


@pytest.mark.parametrize("value", [2**70, [2**70]], ids=repr)
def test_a_value_that_no_parameters_can_hold_is_not_answered_with_parameters(
    toy: es.Owner, value: Any
) -> None:
    with pytest.raises(OverflowError) as error:
        toy.encrypt(value)
    for named in re.findall(r"max_value=(\d+)", str(error.value)):
        es.Parameters.choose(max_value=int(named), depth=0, scheme=toy.parameters.scheme)


def test_parameters_named_by_a_noise_error_allow_more_depth(owner: es.Owner) -> None:
    def chain(who: es.Owner) -> Any:
        x = who.public_keys().encrypt(1, bound=1)
        for _ in range(depth):
            x = x * x
        return x

    depth = owner.parameters.depth
    for _ in range(4):  # the promise is a floor: single integers may reach further than it says
        depth += 1
        try:
            chain(owner)
        except es.NoiseError:
            break
    with pytest.raises(
        es.NoiseError, check=error("not-proven", depth, owner.parameters.depth)
    ) as raised:
        chain(owner)
    better = cured(raised, owner.parameters)
    assert better.open(chain(better)) == 1


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_parameters_named_by_a_noise_error_allow_larger_sums(scheme: str, depth: int) -> None:
    """Sums that are wider than promised: the message asks for more ``terms``, and with them the sum
    is possible.
    """

    def doublings(who: es.Owner, count: int) -> Any:
        x = who.public_keys().encrypt(1, bound=1)
        for _ in range(depth):
            x = x * x
        for _ in range(count):
            x = x + x
        return x

    poor = es.Owner(es.Parameters.choose(max_value=1 << 18, depth=depth, terms=1, scheme=scheme))
    possible = next(
        n for n in range(1, 18) if _raises(es.NoiseError, lambda n=n: doublings(poor, n))
    )
    with pytest.raises(es.NoiseError, check=error("not-proven", "1")) as raised:
        doublings(poor, possible)
    better = cured(raised, poor.parameters, max_value=1 << 18, depth=depth)
    assert better.open(doublings(better, possible)) == 1 << possible


@pytest.mark.parametrize("depth", [0, 1])
def test_the_promised_number_of_terms_can_be_added(scheme: str, depth: int) -> None:
    """``terms`` values, or products, added up: that is what the parameters were chosen for."""
    who = es.Owner(es.Parameters.choose(max_value=1 << 30, depth=depth, terms=64, scheme=scheme))
    x = who.public_keys().encrypt(-3, bound=3)
    for _ in range(depth):
        x = x * x
    for _ in range(6):
        x = x + x
    assert who.open(x) == 64 * (-3) ** (2**depth)


# -- keys
# ------------------------------------------------------------------------------------------------

ACROSS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "@": lambda a, b: a @ b,
    "one + one": lambda a, b: a[0] + b[0],
    "one * array": lambda a, b: a[0] * b,
    "array - one": lambda a, b: a - b[0],
    "stack": lambda a, b: np.stack([a, b]),
    "concatenate": lambda a, b: np.concatenate([[1], a, b]),
    "where": lambda a, b: np.where([True, False], a, b),
    "outer": lambda a, b: np.outer(a, b),
    "an array of both": lambda a, b: es.EncryptedArray([a[0], b[0]]),
    "an array of both and plain": lambda a, b: es.EncryptedArray([1, a[0], b[0]]),
    "assignment of an array": lambda a, b: a.__setitem__(slice(None), b),
    "assignment of one": lambda a, b: a.__setitem__(0, b[0]),
    "+=": operator.iadd,
    "a zero of the other": lambda a, b: a + (b - b),
    "times a zero of the other": lambda a, b: (a - a) * b,
}


@pytest.mark.parametrize("what", ACROSS)
def test_nothing_is_computed_across_keys(toy: es.Owner, toy_stranger: es.Owner, what: str) -> None:
    a, b = toy.encrypt([1, 2]), toy_stranger.encrypt([3, 4])
    with pytest.raises(es.KeyMismatchError, check=error("other-key")) as raised:
        ACROSS[what](a, b)
    assert toy.key_id in str(raised.value)
    assert toy_stranger.key_id in str(raised.value)
    assert_same(toy, a, [1, 2])
    assert_same(toy_stranger, b, [3, 4])


def test_nobody_else_decrypts(owner: es.Owner, stranger: es.Owner) -> None:
    for value in (owner.encrypt(1), owner.encrypt([1, 2]), owner.public_keys().encrypt(3)):
        with pytest.raises(es.KeyMismatchError, check=error("load-the-key")):
            stranger.open(value)


def test_keys_of_other_parameters_do_not_mix_either(owner: es.Owner, toy: es.Owner) -> None:
    with pytest.raises(es.KeyMismatchError, check=error("other-key")):
        owner.encrypt(1) + toy.encrypt(1)
    with pytest.raises(es.KeyMismatchError, check=error("load-the-key")):
        owner.open(toy.encrypt([1]))


# -- weight, copies, pickles
# ------------------------------------------------------------------------------------------------


def test_heavy_arrays_say_so_where_they_are_made(
    toy: es.Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = toy.parameters.ciphertext_bytes()
    monkeypatch.setattr(array, "HEAVY_BYTES", 3 * weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        toy.encrypt([1, 2, 3])
    for encrypt in (toy.encrypt, toy.public_keys().encrypt):
        with pytest.warns(
            es.HeavyArrayWarning, match=r"takes 0\.0 GB here; .* encrypted table"
        ) as caught:
            encrypt([1, 2, 3, 4])
        assert [str(w.filename) for w in caught] == [__file__]


def test_a_thousand_values_are_heavy_with_real_parameters(owner: es.Owner) -> None:
    assert 1000 * owner.parameters.ciphertext_bytes() > array.HEAVY_BYTES
    assert owner.encrypt(1).nbytes == owner.parameters.ciphertext_bytes()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_is_pickled(toy: es.Owner, protocol: int) -> None:
    for value in (toy, toy.public_keys(), toy.encrypt(1), toy.encrypt([1]), [toy.encrypt(1)]):
        with pytest.raises(TypeError, check=error("not-pickled")):
            pickle.dumps(value, protocol)


def test_numpys_own_files_are_pickles_and_refused_too(toy: es.Owner) -> None:
    for write in (np.save, np.savez):
        with pytest.raises(TypeError, check=error("not-pickled")):
            write(io.BytesIO(), toy.encrypt([1]))
    with pytest.raises(TypeError, check=error("not-pickled")):
        toy.encrypt([1]).dumps()


def test_copies_are_independent_arrays_of_the_same_values(toy: es.Owner) -> None:
    """An encrypted integer never changes and holds no secret, so it is its own copy, as
    an int is.
    """
    a = toy.encrypt([1, 2])
    for duplicate in (a.copy(), copy.copy(a), copy.deepcopy(a)):
        duplicate[0] = 5
        assert_same(toy, a, [1, 2])
        assert_same(toy, duplicate, [5, 2])
    x = toy.encrypt(7)
    assert toy.open(copy.copy(x)) == toy.open(copy.deepcopy(x)) == 7


def test_the_secret_key_is_not_copied(toy: es.Owner) -> None:
    for duplicate in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, check=error("not-pickled")):
            duplicate(toy)
