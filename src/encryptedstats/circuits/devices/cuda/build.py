"""Compile the kernels for all GPUs by NVRTC, without a GPU or toolkit: ``python -m
encryptedstats...cuda.build``.

The result lies beside the sources and is shipped. Only authors of kernels and tests run this:
``nvidia-cuda-nvrtc`` is in none of the packages that users install.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from encryptedstats.circuits.devices.cuda.gpu import BUILT

SOURCES: Final = ("kernels.cu", "arithmetic.h")
#: What is shipped: machine code for existing GPUs, and an intermediate form that drivers
#: compile for others.
ARCHITECTURES: Final = ("sm_80", "sm_90", "sm_100", "compute_80")
#: Products of doubles rely on exact rounding: contraction would merge steps that must stay apart.
OPTIONS: Final = ("--fmad=false", "--std=c++17")


def digest() -> str:
    """Return a hash of all sources of the shipped files."""
    folder = Path(__file__).parent
    content = b"\0".join(
        [*((folder / name).read_bytes() for name in SOURCES), *(o.encode() for o in OPTIONS)]
    )
    return hashlib.sha256(content).hexdigest()


def compile_kernels(architecture: str) -> bytes:
    """Return the kernels for one architecture."""
    from cuda.bindings import nvrtc

    def done(result: tuple[Any, ...]) -> Any:
        if result[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise RuntimeError(result[0].name)
        return result[1] if len(result) > 1 else None

    folder = Path(__file__).parent
    source, header = ((folder / name).read_bytes() for name in SOURCES)
    program = done(nvrtc.nvrtcCreateProgram(source, b"kernels.cu", 1, [header], [b"arithmetic.h"]))
    options = [
        f"--gpu-architecture={architecture}".encode(),
        *(option.encode() for option in OPTIONS),
    ]
    result = nvrtc.nvrtcCompileProgram(program, len(options), options)
    log = b" " * done(nvrtc.nvrtcGetProgramLogSize(program))
    done(nvrtc.nvrtcGetProgramLog(program, log))
    if result[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(log.decode(errors="replace"))
    if architecture.startswith("compute"):
        code = bytes(b" " * done(nvrtc.nvrtcGetPTXSize(program)))
        done(nvrtc.nvrtcGetPTX(program, code))
        return code.rstrip(b"\0")
    code = bytes(b" " * done(nvrtc.nvrtcGetCUBINSize(program)))
    done(nvrtc.nvrtcGetCUBIN(program, code))
    return code


def version() -> str:
    """Return the version of NVRTC."""
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"


def path_of(architecture: str) -> Path:
    """Return the path of the code for an architecture."""
    return BUILT / f"{architecture}.{'ptx' if architecture.startswith('compute') else 'cubin'}"


def main() -> None:
    """Compile all, and print the sources' hash."""
    BUILT.mkdir(exist_ok=True)
    made = {}
    for architecture in ARCHITECTURES:
        code = compile_kernels(architecture)
        path_of(architecture).write_bytes(code)
        made[architecture] = hashlib.sha256(code).hexdigest()
    facts = {"sources": digest(), "nvrtc": version(), "made": made}
    (BUILT / "made.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
