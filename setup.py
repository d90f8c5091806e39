"""The optional kernels in C: whichever sources are there are built; where there is no compiler, the
library does without them.
"""

import shutil
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("src/encryptedstats/_native")
# No -march=native: kernels choose at run time what the processor has. Never -ffast-math: products
# in doubles rely on exact rounding. Compilers do not vectorise rounding unless errno and traps are
# out of the way, nor some loops where signed integers wrap (-fwrapv, which Python passes on);
# contraction would merge steps that must stay apart.
FLAGS = [
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fno-wrapv",
    "-fvisibility=hidden",
]


class BuildKernels(build_ext):
    """On Windows clang-cl compiles: Microsoft's compiler has neither 128-bit integers nor functions
    for one kind of processor.
    """

    def build_extensions(self) -> None:
        """Setuptools', by clang-cl on Windows."""
        clang = shutil.which("clang-cl") if self.compiler.compiler_type == "msvc" else None
        if clang:
            self.compiler.initialize()
            self.compiler.cc = clang
            for extension in self.extensions:
                extension.extra_compile_args = [
                    f"/clang:{flag}" for flag in FLAGS if flag != "-fvisibility=hidden"
                ]
                extension.extra_link_args = compiler_runtime(clang)
        super().build_extensions()


def compiler_runtime(clang: str) -> list[str]:
    """Clang's own library, which divides 128-bit integers and asks the processor what it has;
    Microsoft's linker has to be told.
    """
    asked = [str(Path(clang).with_name("clang")), "--print-resource-dir"]
    folder = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    return [
        str(path)
        for path in sorted(folder.rglob("clang_rt.builtins*.lib"))
        if "x86_64" in str(path)
    ][:1]


setup(
    cmdclass={"build_ext": BuildKernels},
    ext_modules=[
        Extension(
            f"encryptedstats._{source.stem}",
            [source.as_posix()],
            depends=sorted(header.as_posix() for header in NATIVE.glob("*.h")),
            extra_compile_args=FLAGS,
            optional=True,
        )
        for source in sorted(NATIVE.glob("*.c"))
    ],
)
