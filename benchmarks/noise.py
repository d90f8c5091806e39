"""By how many bits the proven noise bound exceeds what SEAL measures, over fresh keys, at the
promised limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import seal

from benchmarks._common import Report, Settings, part
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.parameters import Parameters


def slack_at_each_depth(parameters: Parameters, seed: int) -> Iterator[tuple[float, float]]:
    """(bits measured, bits proven) left after encryption and after each level of the promised
    circuit, one new key.
    """
    engine, model = engine_for(parameters), parameters.noise
    generator = seal.KeyGenerator(engine.context)
    relin, decryptor = (
        generator.create_relin_keys(),
        seal.Decryptor(engine.context, generator.secret_key()),
    )
    t = parameters.plain_modulus
    values = np.random.default_rng(seed).integers(0, t, parameters.slots) - t // 2
    x = seal.Encryptor(engine.context, generator.create_public_key()).encrypt(
        engine.encoder.encode(values)
    )
    noise = model.fresh(with_secret_key=False)
    yield decryptor.invariant_noise_budget(x), model.budget(noise)
    for _ in range(parameters.depth):
        level = model.best_product_level(noise, noise)
        noise, x = (
            model.switch(noise, level),
            engine.evaluator.mod_switch_to(x, engine.level_ids[level]),
        )
        noise, x = model.multiply(noise, noise), engine.evaluator.square(x)
        for _ in range(int(math.log2(parameters.terms))):
            noise, x = model.add(noise, noise), engine.evaluator.add(x, x)
        noise, x = model.relinearise(noise), engine.evaluator.relinearize(x, relin)
        yield decryptor.invariant_noise_budget(x), model.budget(noise)


def run(quick: bool = False) -> list[dict[str, Any]]:
    """One row for each scheme, ring and depth: the smallest measured budget over the keys, and the
    proven one.
    """
    rows = []
    for scheme in ("bgv", "bfv"):
        for depth in (1, 3) if quick else (1, 3, 6):
            parameters = Parameters.choose(max_value=65_536, depth=depth, scheme=scheme)
            keys = 3 if quick else 20
            runs = np.array([list(slack_at_each_depth(parameters, key)) for key in range(keys)])
            for level, (measured, proven) in enumerate(
                zip(runs[:, :, 0].min(axis=0), runs[0, :, 1], strict=True)
            ):
                rows.append(
                    {
                        "scheme": scheme,
                        "ring_degree": parameters.ring_degree,
                        "promised_depth": depth,
                        "after_products": level,
                        "keys": keys,
                        "least_measured_bits": float(measured),
                        "proven_bits": round(float(proven), 1),
                        "slack_bits": round(float(measured - proven), 1),
                    }
                )
    return rows


@part("noise")
def noise(settings: Settings) -> Report:
    return Report(results={"cases": run(quick=settings.quick)})
