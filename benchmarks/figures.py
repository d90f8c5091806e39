"""Write the figures of the documents from the result files: ``python -m benchmarks.figures``.

A page holds blocks between ``<!-- figures NAME -->`` and ``<!-- end of figures -->``. Each block is
generated from files in ``benchmarks/results`` and names their machine and version. It fails where a
file was measured with an older version of the library, and where a page has a time outside of a
block. ``--check`` changes nothing and also fails where a page differs from its files.
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
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
#: A time, or a comparison of times, in running text.
MEASURED = re.compile(
    r"\b\d[\d.,]*(?: to \d[\d.,]*)? (?:s|ms|µs)\b|\b\d[\d.,]* times (?:as fast|faster)"
)
Row = Sequence[str]
File = dict[str, Any]


def read_results(name: str) -> File | None:
    """Return a result file, or None if there is none."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def short(version: str) -> str:
    return ".".join(version.split(".")[:2])


def format_seconds(value: float) -> str:
    return f"{value * 1e3:.0f} ms" if value < 0.0995 else f"{value:.{2 if value < 1 else 1}f} s"


def busy(file: File) -> str:
    """Say so where other programs used the cores before the measurement."""
    machine = file["machine"]
    return " with other work to do" if machine["load_average"] > machine["usable_cores"] / 2 else ""


def format_table(heads: Row, rows: Sequence[Row], files: Sequence[File]) -> str:
    """Return a Markdown table and a line that says where its figures come from."""
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    origins = dict.fromkeys(
        f"{file['machine']['cpu']}, {file['machine']['usable_cores']} of "
        f"{file['machine']['cores']} cores{busy(file)} "
        f"({file['date'][:10]}, version {short(file['version'])})"
        for file in files
    )
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\n*Measured on {'; '.join(origins)}.*\n"


# -- blocks
# ------------------------------------------------------------------------------------------------


def make_start(files: list[File]) -> str:
    (table,) = (one for one in files[0]["results"]["tables"] if one["what"] == "bcw_o")
    ours, theirs = table["fit"][0], table["scikit_learn"][0]
    trees = files[0]["results"]["trees"]
    figures = [
        (size_text(table["upload_bytes"]), f"sent for {table['rows']} patients, 9 variables"),
        (
            format_seconds(ours),
            f"to fit {trees} trees; scikit-learn's, on plain rows, {format_seconds(theirs)}",
        ),
        (size_text(table["download_bytes"]), "come back: every count of the forest"),
    ]
    heads, rows = zip(*figures, strict=True)
    return format_table(heads, [rows], files).replace("---:", "---")


def make_plain(files: list[File]) -> str:
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


def make_instructions(files: list[File]) -> str:
    (file,) = files
    rows = []
    for table in file["results"]["tables"]:
        used, times = table["cpu_seconds"], table["times_plain"]
        rows.append(
            [
                f"{table['what']}, {table['rows']:,} rows",
                format_seconds(used["scikit-learn"]),
                *(
                    f"{format_seconds(used[level])} ({times[level]:.2f})" if level in used else ""
                    for level in ("avx2", "ifma")
                ),
                f"{table['goal']:.1f}",
            ]
        )
    heads = ["table", "scikit-learn", "`avx2` (ratio)", "`ifma` (ratio)", "goal with `avx2`"]
    return format_table(heads, rows, [file])


def make_predict(files: list[File]) -> str:
    (file,) = files
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


def make_products(files: list[File]) -> str:
    (file,) = files
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


def make_scan(files: list[File]) -> str:
    (file,) = files
    cases = file["results"]["cases"]
    rows = []
    for case in cases:
        of_all = case["snps"] / case["columns"]
        for step in ("encrypt", "scan", "open"):
            columns = of_all * case["seconds"][f"{step}, {case['columns']} columns"]
            shown = (case["seconds"][step], case["cpu_seconds"][step], columns)
            rows.append(["", step, *map(format_seconds, shown)])
        rows.append(["", "NumPy", format_seconds(case["seconds"]["NumPy"]), "", ""])
        rows[-4][0] = f"{case['people']:,} people, {case['snps']:,} variants"
    heads = ["three covariates", "", "time", "of processors", "a column for each variant"]
    return format_table(heads, rows, [file])


def make_spot_checks(files: list[File]) -> str:
    (file,) = files
    rows = [
        [
            f"{one['table']}, {one['rows']:,} rows",
            f"{one['owner_share_of_verify']:.1%}",
            f"{one['worker_share_of_fit']:.0%}",
            size_text(one["bytes_down_more"]),
            f"{one['bytes_kept'] / one['bytes_table']:.1%}",
        ]
        for one in file["results"]["tables"]
    ]
    heads = ["100 trees", "owner, of verifying", "worker, of the fit", "more down", "kept"]
    return format_table(heads, rows, [file])


def make_noise(files: list[File]) -> str:
    (file,) = files
    rows = []
    for case in file["results"]["cases"]:
        depth, level = case["promised_depth"], case["after_products"]
        if level not in {0, depth // 2, depth}:
            continue
        name = f"{case['scheme'].upper()}, {case['ring_degree']}, {depth}" if level == 0 else ""
        bits = [case[what] for what in ("least_measured_bits", "proven_bits", "slack_bits")]
        rows.append([name, str(level), f"{bits[0]:.0f}", f"{bits[1]:.1f}", f"{bits[2]:.1f}"])
    heads = [
        "scheme, N, promised depth", "after products", "measured, bits left",
        "proven, bits left", "slack",
    ]  # fmt: skip
    return format_table(heads, rows, [file])


def make_planning(files: list[File]) -> str:
    (file,) = files
    fits = {fit["table"]: fit for fit in file["results"]["fits"]}
    rows = []
    for plan in file["results"]["plans"]:
        fit = fits.get(plan["table"])
        rows.append(
            [
                plan["table"],
                format_seconds(plan["cpu_seconds"][1]),
                *(format_seconds(fit[what]) if fit else "" for what in ("first", "second")),
            ]
        )
    heads = ["table", "plan", "first fit of a process", "second fit"]
    return format_table(heads, rows, [file])


def make_estimates(files: list[File]) -> str:
    (file,) = files
    rows = []
    for one in file["results"]["questions"]:
        seconds = [format_seconds(value) for value in one["seconds"]]
        sizes = [size_text(value) for what in ("bytes_up", "bytes_down") for value in one[what]]
        rows.append([one["question"], *seconds, *sizes])
    heads = [
        "question", "seconds, planned", "measured", "up, planned", "measured",
        "down, planned", "measured",
    ]  # fmt: skip
    return format_table(heads, rows, [file])


def make_gpu(files: list[File]) -> str:
    (file,) = files
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


def make_models(files: list[File]) -> str:
    results = files[0]["results"]
    heads = "| model | encrypted rows | splits | mean AUC | near the best |"
    lines = [heads, "|---|---|---:|---:|---:|"]
    for one in sorted(results["models"], key=lambda one: -one["auc"]):
        near = one["near_the_best_of_ours"]
        own = f"`{one['model']}`" if one["model"].isidentifier() else one["model"]
        lines.append(
            f"| {own} | {'yes' if one['ours'] else 'no'} | {one['splits']} | {one['auc']:.3f} | "
            f"{'' if near is None else near} |"
        )
    return (
        "\n".join(lines)
        + f"\n\n*Means over {len(results['datasets'])} data sets and random splits of each "
        f"(version\n{short(files[0]['version'])}). Near the best: on how many data sets the mean is "
        "within 0.01 of the best that can be\nfitted to encrypted rows.*\n"
    )


def make_peers(files: list[File]) -> str:
    (file,) = files
    rows = []
    for case in file["results"]["cases"]:
        ours = case["entries"][0]["cpu_seconds"]
        for number, one in enumerate(case["entries"]):
            task = "" if number else f"{case['task']}, {case['rows']:,} rows"
            rows.append(
                [
                    task,
                    one["name"],
                    "yes" if one["encrypted"] else "no",
                    format_seconds(one["cpu_seconds"]),
                    f"{ratio:,.0f}" if (ratio := one["cpu_seconds"] / ours) > 9 else f"{ratio:.2g}",
                ]
            )
    heads = ["task", "by", "encrypted", "processor time", "times ours"]
    return format_table(heads, rows, [file])


BLOCKS: dict[str, tuple[Callable[[list[File]], str], tuple[str, ...]]] = {
    "start": (make_start, ("plain_2",)),
    "plain": (make_plain, ("plain_2", "plain_16")),
    "instructions": (make_instructions, ("instructions",)),
    "predict": (make_predict, ("predict_2",)),
    "products": (make_products, ("products",)),
    "scan": (make_scan, ("scan",)),
    "planning": (make_planning, ("planning",)),
    "estimates": (make_estimates, ("estimates",)),
    "spot_checks": (make_spot_checks, ("spotcheck",)),
    "noise": (make_noise, ("noise",)),
    "gpu": (make_gpu, ("gpu",)),
    "models": (make_models, ("models",)),
    "peers": (make_peers, ("peers",)),
}


def make_block(name: str) -> str:
    """Return a block, or a line that says that this version was not measured."""
    make, names = BLOCKS[name]
    files = [file for file in map(read_results, names) if file is not None]
    if not files:
        return f"*Not measured with version {short(__version__)} yet: `make bench` does it.*\n"
    return make(files)


def write_blocks(text: str) -> str:
    """Return a page with all of its blocks generated again."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{make_block(found[2])}\n{found[3]}", text)


def find_old_files() -> list[str]:
    """Return the result files that an older version of the library measured."""
    return [
        path.name
        for path in sorted(RESULTS.glob("*.json"))
        if short(json.loads(path.read_text()).get("version", "0.2")) != short(__version__)
    ]


def find_times(text: str) -> list[str]:
    """Return the times that stand in a page by hand: outside of its blocks and code."""
    return MEASURED.findall(CODE.sub("", BLOCK.sub("", text)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.figures", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if a page would")
    options = parser.parse_args(arguments)
    failed = False
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text()
        written = write_blocks(text)
        if written != text:
            print(f"{page.name}: {'differs from its files' if options.check else 'written'}")
            failed |= options.check
            if not options.check:
                page.write_text(written)
        if times := find_times(text):
            print(f"{page.name}: measured by hand: {', '.join(times)}")
            failed = True
    if old := find_old_files():
        print(f"measured with an older version than {__version__}: {', '.join(old)}")
        failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
