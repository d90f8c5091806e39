"""Models that converge over rounds of totals, which every site computes on its own clear rows.

``algebra`` solves small systems alike on every machine, ``scaling`` turns totals into integers,
``covariates`` has the columns of a formula, ``family_regression`` and ``cox_rounds`` the rounds
that several models share, ``penalties`` those of elastic nets. The models are one file each.
Nothing here knows studies, keys or messages. Imports statistics and what is below.
"""
