"""The noise of joint keys against its rules, calibrated as that of an owner's keys is, with the sum
of all secrets in hand.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from joint_samples import JointLab, joint_parameters, made
from noise_samples import Ratios, constant

from encryptedstats.circuits.devices.seal import relinearise_any
from encryptedstats.crypto.flooding import flooded_noise
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.packing import (
    encrypted_zero_noise,
    packed_noise,
    packing_model,
    packing_primes,
)

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")


@pytest.fixture(scope="module", params=[2, pytest.param(5, marks=pytest.mark.slow)])
def labs(request, tmp_path_factory) -> list[JointLab]:
    """Key-switching primes so small that errors of keys show."""
    home = tmp_path_factory.mktemp("labs")
    plan = type(
        "Planned",
        (),
        {"parameters": joint_parameters(request.param, (60, 60, 60, 42), None), "rotations": [1]},
    )
    return [JointLab(made(home / str(key), plan), key) for key in range(2)]


def test_the_secret_of_all(labs):
    spread = np.mean([np.mean(np.square(lab.secret.astype(float))) for lab in labs])
    assert spread / (labs[0].parameters.members * 2 / 3) == pytest.approx(1, abs=0.15)
    model = labs[0].typical
    roots = np.sqrt(np.mean([lab.secret_at_roots**2 for lab in labs]))
    assert roots / model._secret == pytest.approx(1, abs=0.15)


def test_rotations_of_a_joint_key(labs):
    ratios, digits = Ratios(), math.sqrt(3)
    for lab in labs:
        ratios.add(
            lab.noise(lab.keys.evaluator.rotate(lab.made(constant(0)), 1)),
            lab.typical.key_switch(Noise(0.0)),
        )
    assert 0.8 / digits < ratios.everywhere < 1.15 / digits, ratios


@pytest.mark.parametrize("size", [3, 4])
def test_relinearisation_of_a_joint_key(labs, size):
    """The model adds s e0 and u e1, which are independent: 1/sqrt(2) of the sum."""
    ratios, digits = Ratios(), math.sqrt(3) * math.sqrt(2)
    for lab in labs:
        small = relinearise_any(lab.keys, lab.made(constant(0), size=size))
        ratios.add(lab.noise(small), lab.typical.relinearise(Noise(0.0, size=size)))
    assert 0.6 / digits < ratios.everywhere < 1.4 / digits, ratios


def test_encryption_under_a_joint_key(labs):
    ratios = Ratios()
    for lab in labs:
        for value in (0, 1):
            fresh = lab.encrypted(lab.engine.encode_integer(value), with_secret_key=False)
            ratios.add(lab.noise(fresh), lab.typical.fresh(with_secret_key=False, constant=True))
    assert 0.5 < ratios.everywhere < 1.15, ratios


def test_the_public_key_has_the_errors_of_all_members(labs):
    """It is an encryption of 0 too, the same for everybody."""
    ratios = Ratios()
    for lab in labs:
        ratios.add(
            lab.noise(lab.keys.public_zero), lab.typical.fresh(with_secret_key=True, constant=True)
        )
    assert 0.85 < ratios.everywhere < 1.1, ratios


def test_every_member_takes_of_the_room():
    """Flooding adds up over the members, and what they flood is larger the more they are."""
    budgets = []
    for members in (1, 2, 4, 8):
        parameters = joint_parameters(members)
        model = packing_model(parameters, packing_primes(parameters))
        least = packed_noise(model, model.rounding(2))
        budgets.append(model.budget(flooded_noise(model, least, encrypted_zero_noise(parameters))))
    assert all(before - after >= 1 for before, after in pairwise(budgets)), budgets
