"""Write the figures of the documents from the result files: ``python -m benchmarks.figures``.

A page holds blocks between ``<!-- figures NAME -->`` and ``<!-- end of figures -->``. Each block is
generated from one or several files in ``benchmarks/results`` and names their machine and version.
``--check`` changes nothing and fails where a page differs from its files; ``--current`` also fails
where a file was measured with an older version of the library than this one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from encryptedstats import __version__
from encryptedstats.words import size_text

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
BLOCK = re.compile(r"(<!-- figures (\w+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
#: Result files have named their version since 0.3.
UNNAMED = "0.2"
Row = Sequence[str]


def read_results(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def version_of(file: dict[str, Any]) -> str:
    return ".".join(file.get("version", UNNAMED).split(".")[:2])


def format_seconds(value: float) -> str:
    return f"{value * 1e3:.0f} ms" if value < 0.0995 else f"{value:.{2 if value < 1 else 1}f} s"


def format_table(heads: Row, rows: Sequence[Row], files: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table and a line that says where its figures come from."""
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    origins = dict.fromkeys(
        f"{file['machine']['cpu']}, {file['machine']['usable_cores']} of "
        f"{file['machine']['cores']} cores ({file['date'][:10]}, version {version_of(file)})"
        for file in files
    )
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\n*Measured on {'; '.join(origins)}.*\n"


# -- blocks
# ------------------------------------------------------------------------------------------------


def make_plain() -> str:
    files = [read_results(name) for name in ("plain_2_xeon", "plain_16")]
    rows = []
    for file in files:
        for table in file["results"]["tables"]:
            ours, theirs = table["fit"][0], table["scikit_learn"][0]
            rows.append(
                [
                    f"`{table['what']}`, {table['rows']:,} rows",
                    str(file["results"]["cores"]),
                    *(format_seconds(table[what][0]) for what in ("encrypt", "first", "fit")),
                    format_seconds(theirs),
                    f"{ours / theirs:.2f}",
                    size_text(table["upload_bytes"]),
                    size_text(table["download_bytes"]),
                ]
            )
    heads = [
        "table", "cores", "encrypt", "first fit", "fit", "scikit-learn", "ratio", "up", "down",
    ]  # fmt: skip
    return format_table(heads, rows, files)


def make_predict() -> str:
    file = read_results("predict_2_xeon")
    rows = [
        [
            f"{case['case']}, {case['new_rows']:,} new rows"
            + (f", M = {case['fraction']}" if case.get("fraction") else ""),
            *(format_seconds(case["seconds"][what]) for what in ("fit", "predict", "open")),
            size_text(case["peak_bytes"]),
        ]
        for case in file["results"]
    ]
    return format_table(["model", "fit", "predict", "open", "peak memory"], rows, [file])


def make_products() -> str:
    file = read_results("products")
    rows = [
        [
            f"{case['rows']:,} x {case['columns']}",
            str(case["bits"]),
            *(format_seconds(case[what]) for what in ("encrypt_s", "seconds", "open_s", "numpy_s")),
        ]
        for case in file["results"]["cases"]
    ]
    return format_table(
        ["rows x columns", "bits", "encrypt", "compute", "open", "NumPy"], rows, [file]
    )


def make_scan() -> str:
    file = read_results("scan")
    results = file["results"]
    rows = [[what, format_seconds(value)] for what, value in results["seconds"].items()]
    heads = [f"{results['people']:,} people, {results['snps']:,} variants", "time"]
    return format_table(heads, rows, [file])


def make_gpu() -> str:
    file = read_results("gpu")
    results = file["results"]

    def median(value: dict[str, float]) -> str:
        return f"{value['median_ms']:.1f} ms"

    rows = [
        [
            f"{results[name]['rows']:,} rows" + (f" (`{name}`)" if name != "million" else ""),
            median(results[name]["sums"]),
            median(results[name]["packed"]),
            median(results[name]["fit"]) if "fit" in results[name] else "",
            f"{results[name]['native_ms']:,.0f} ms",
        ]
        for name in ("bcw_o", "adult", "million")
    ]
    products = results["products"]
    what = f"X'X of {products['rows']:,} rows, {products['columns']} columns"
    rows.append([what, "", median(products["packed"]), "", f"{products['native_ms']:,.0f} ms"])
    card = results["card"]["name"]
    heads = [f"100 trees of depth 3, {card}", "sums", "packed", "`fit()`", "16 cores, first run"]
    return format_table(heads, rows, [file])


BLOCKS: dict[str, tuple[Callable[[], str], tuple[str, ...]]] = {
    "plain": (make_plain, ("plain_2_xeon", "plain_16")),
    "predict": (make_predict, ("predict_2_xeon",)),
    "products": (make_products, ("products",)),
    "scan": (make_scan, ("scan",)),
    "gpu": (make_gpu, ("gpu",)),
}


def write_blocks(text: str) -> str:
    """Return a page with all of its blocks generated again."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{BLOCKS[found[2]][0]()}\n{found[3]}", text)


def old_files() -> list[str]:
    """Return the result files that the documents cite and an older version measured."""
    current = ".".join(__version__.split(".")[:2])
    names = dict.fromkeys(name for _, files in BLOCKS.values() for name in files)
    return [name for name in names if version_of(read_results(name)) != current]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.figures", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if a page would")
    parser.add_argument(
        "--current", action="store_true", help="fail if a file is of an old version"
    )
    options = parser.parse_args()
    failed = False
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text()
        written = write_blocks(text)
        if written != text:
            print(f"{page.name}: {'differs from its files' if options.check else 'written'}")
            failed |= options.check
            if not options.check:
                page.write_text(written)
    if options.current and (old := old_files()):
        print(f"measured with an older version than {__version__}: {', '.join(old)}")
        failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
