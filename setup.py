"""The optional kernels in C: whichever sources are there are built; where there is no compiler, the library does without them."""

from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("src/encryptedstats/_native")
# No -march=native: kernels choose at run time what the processor has. Never -ffast-math: products in doubles rely on exact
# rounding. Compilers do not vectorise rounding unless errno and traps are out of the way, nor some loops where signed integers wrap
# (-fwrapv, which Python passes on); contraction would merge steps that must stay apart.
FLAGS = [
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fno-wrapv",
    "-fvisibility=hidden",
]

setup(
    ext_modules=[
        Extension(
            f"encryptedstats._{source.stem}",
            [source.as_posix()],
            depends=sorted(header.as_posix() for header in NATIVE.glob("*.h")),
            extra_compile_args=FLAGS,
            optional=True,
        )
        for source in sorted(NATIVE.glob("*.c"))
    ]
)
