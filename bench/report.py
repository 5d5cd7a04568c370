#!/usr/bin/env python3
"""A report of one device from what ffn_bench and roofline_bench wrote on it.

    report.py RESULT.json... [-o REPORT.md]

Markdown: the device and whether it was throttled, its limits, and for each model how fast its
feed-forward blocks are, how near the limit, and how many tokens a second they allow: a token passes
as many blocks as the model has layers, and nothing else of the model is counted.
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import results
import run

NOT_TOLD = "not told"
BUSY_CPUS = 0.2  # of others
SERIES_ROWS = 16  # of the temperature's and the clock's course


def device_of(data):
    return (data.get("context") or {}).get("device") or {}


def told(value, form="{}"):
    """A value for the reader, or that there is none."""
    if value is None or value == "":
        return NOT_TOLD
    if isinstance(value, bool):
        return "yes" if value else "no"
    return form.format(value)


def at(device, *keys):
    """A value deep in the device's record, or None."""
    for key in keys:
        device = device.get(key) if isinstance(device, dict) else None
    return device


def median_at(devices, *keys):
    values = [v for v in (at(device, *keys) for device in devices) if v is not None]
    return statistics.median(values) if values else None


def table(head, rows):
    """A Markdown table. Columns whose name begins with > are aligned to the right."""
    lines = ["| " + " | ".join(name.lstrip(">") for name in head) + " |"]
    lines.append("|" + "|".join("--:" if name.startswith(">") else "---" for name in head) + "|")
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def verdict(devices):
    """One sentence about throttling."""
    reasons = sorted({reason for d in devices for reason in d.get("invalid_because") or []})
    if reasons:
        return "**INVALID.** The device was throttled: " + ", ".join(reasons) + \
            ". Rows measured meanwhile are marked with (!)."
    known = [d.get("valid") for d in devices]
    if not known or None in known:
        return "The device does not tell whether it was throttled."
    seen = sorted({flag for d in devices for flag in at(d, "throttled", "seen_before") or []})
    if not seen:
        return "Valid: the device was not throttled."
    return "Valid as far as can be seen: the device was not throttled at any sample. Since its start " \
        "it had been before (" + ", ".join(seen) + "), so that the firmware's memory shows nothing new."


def busy(devices):
    """A sentence if other programs took CPUs away, or None."""
    others = [v for v in (at(d, "load", "other_cpus") for d in devices) if v is not None]
    if not others or max(others) < BUSY_CPUS:
        return None
    return f"**Other programs used up to {max(others):.1f} CPUs meanwhile**: the figures are not the device's " \
        "speed, least of all those on all threads."


def throttle_words(device):
    words = [told(at(device, "throttled", when, "word")) for when in ("before", "after")]
    if words[0] == NOT_TOLD:
        return NOT_TOLD
    return f"{words[0]} before, {words[1]} after"


def device_rows(devices):
    first = devices[0]
    governor = told(at(first, "governor", "before"))
    if at(first, "governor", "changed"):
        governor += f", changed from {told(at(first, 'governor', 'changed_from'))} for this run" \
            if at(first, "governor", "changed_from") else \
            f", then {told(at(first, 'governor', 'after'))}"
    elif governor != NOT_TOLD:
        governor += ", not changed"
    others = [v for v in (at(d, "load", "other_cpus") for d in devices) if v is not None]
    return [
        ("board", told(first.get("board"))),
        ("revision", told(first.get("revision"))),
        ("CPU", told(first.get("cpu"))),
        ("memory", told(first.get("memory_bytes") and first["memory_bytes"] / 1e9, "{:.3g} GB")),
        ("firmware", told(first.get("firmware"))),
        ("boot loader", told(first.get("bootloader"))),
        ("kernel", told(first.get("kernel"))),
        ("page size", told(first.get("page_bytes"), "{} bytes")),
        ("transparent huge pages", told(at(first, "huge_pages", "transparent"))),
        ("huge pages in use", told(mib(median_at(devices, "huge_pages", "in_use_bytes")), "{:.0f} MiB")),
        ("governor", governor),
        ("CPUs of the process", told(at(first, "threads", "cpus"))),
        ("CPU quota", told(at(first, "threads", "quota_cpus"), "{} CPUs")
         if at(first, "threads", "quota_cpus") is not None else "none"),
        ("threads by default", told(at(first, "threads", "default"))),
        ("throttle word", throttle_words(first) if len(devices) == 1 else
         "; ".join(dict.fromkeys(throttle_words(d) for d in devices))),
        ("other load", told(max(others) if others else None, "up to {:.2f} CPUs")),
    ]  # fmt: skip


def mib(value):
    return None if value is None else value / 2**20


def limit_rows(files, devices):
    rows = [
        ("memory read by one core", told(median_at(devices, "dram", "one_core_gb_per_s"), "{:.3g} GB/s")),
        (f"memory read by {told(median_at(devices, 'dram', 'threads'), '{:.0f}')} cores",
         told(median_at(devices, "dram", "all_cores_gb_per_s"), "{:.3g} GB/s")),
    ]  # fmt: skip
    best = {}  # (mix, threads) -> (rate, instruction)
    for data in files:
        for name, runs in results.repetitions(data).items():
            rate = results.median_of(runs, "GOP/s")
            if name.startswith("arithmetic/") and rate is not None:
                _, instruction, mix, threads = name.split("/")[:4]
                key = mix, int(threads.split(":")[1])
                best[key] = max(best.get(key, (0, "")), (rate, instruction))
    for (mix, threads), (rate, instruction) in best.items():
        what = f"{mix} by {instruction}, {threads} {'thread' if threads == 1 else 'threads'}"
        rows.append((what, f"{rate:.4g} GOP/s"))
    return rows


def models_of(data):
    """(d_model, d_ff) -> [(model, layers or None)]."""
    models = {}
    for shape in (data.get("context") or {}).get("shapes") or []:
        key = f"{shape['d_model']}x{shape['d_ff']}"
        models.setdefault(key, []).append((shape["model"] or key, shape["layers"]))
    return models


def block_rows(files):
    """run.row_of's rows of sluice, each for every model of its shape, with tokens a second."""
    rows = []
    for data in files:
        models, invalid, own_rows = models_of(data), device_of(data).get("valid") is False, []
        for name, runs in results.repetitions(data).items():
            row = run.row_of(name, runs)
            if row is None or row["library"] != "sluice":
                continue
            for model, layers in models.get(row["shape"], [(row["shape"], None)]):
                own = row | {"model": model, "layers": layers, "invalid": invalid}
                if layers and "error" not in row:
                    own["tokens_per_second"] = row["tokens"] / (layers * row["seconds"])
                own_rows.append(own)
        # Benchmarks took turns at random.
        rows += sorted(own_rows, key=lambda r: (r["model"], r["format"], r["cache"], r["tokens"], r["threads"]))
    return rows


def percent(value):
    return "" if value is None else f"{100 * value:.0f} %"


def spread(row):
    return f"{run.duration(row['seconds_min'])} – {run.duration(row['seconds_max'])}"


def decode_cells(row):
    return [
        row["model"] + (" (!)" if row["invalid"] else ""), row["shape"], row["layers"] or NOT_TOLD,
        row["format"], row["cache"], row["threads"], run.duration(row["seconds"]), spread(row),
        run.number(row["GB/s"]), percent(row["of_dram"]), run.number(row.get("tokens_per_second")),
    ]  # fmt: skip


def prompt_cells(row):
    return [
        row["model"] + (" (!)" if row["invalid"] else ""), row["format"], row["cache"], row["tokens"],
        row["threads"], run.duration(row["seconds"]), spread(row), run.number(row["GOP/s"]),
        percent(row["of_dots"]), percent(row["of_mix"]), run.number(row.get("tokens_per_second")),
    ]  # fmt: skip


DECODE = ["model", "block", ">layers", "weights", "cache", ">threads", ">median", ">min – max",
          ">GB/s", ">of memory", ">tokens/s"]  # fmt: skip
PROMPT = ["model", "weights", "cache", ">tokens", ">threads", ">median", ">min – max", ">GOP/s",
          ">of peak", ">of mix", ">tokens/s"]  # fmt: skip


def series(files):
    """Rows of the temperature and the clock over time, thinned to a few."""
    rows, passed = [], 0.0
    for data in files:
        samples = device_of(data).get("samples") or []
        for s in samples:
            rows.append([
                f"{passed + s['seconds']:.0f} s", told(s["celsius"], "{:.1f}"),
                *(told(s[key] and s[key] / 1e6, "{:.0f}") for key in ("measured_hz", "kernel_hz", "firmware_hz")),
                told(s["throttled"]),
            ])  # fmt: skip
        passed += samples[-1]["seconds"] if samples else 0
    step = max(1, -(-len(rows) // SERIES_ROWS))
    thinned = rows[::step]
    return thinned if not rows or thinned[-1] is rows[-1] else thinned + [rows[-1]]


def extremes(devices):
    """What the thinned table may not show."""
    lines = []
    for key, name, unit, scale in (("celsius", "Temperature", "°C", 1), ("measured_hz", "Measured clock", "MHz", 1e6)):
        values = [s[key] / scale for d in devices for s in d.get("samples") or [] if s[key] is not None]
        if values:
            lines.append(f"{name}: {min(values):.0f} to {max(values):.0f} {unit} in {len(values)} samples.")
    return " ".join(lines)


def report(files, lacking=()):
    """The Markdown text for results that results.read gave. `lacking` has the models whose program
    ended without a result, and why."""
    devices = [d for d in map(device_of, files) if d]
    if not devices:
        raise results.BadFile("none of the results has a device in its context")
    rows = block_rows(files)
    good = [row for row in rows if "error" not in row]
    decode = [decode_cells(row) for row in good if row["tokens"] == 1]
    prompt = [prompt_cells(row) for row in good if row["tokens"] > 1]
    failed = [(row["model"], row["format"], row["cache"], row["tokens"], row["threads"], row["error"])
              for row in rows if "error" in row]  # fmt: skip
    failed += [(model, "", "", "", "", reason) for model, reason in lacking]
    date = (files[0].get("context") or {}).get("date", "")
    parts = [
        f"# sluice on {told(devices[0].get('board') or devices[0].get('cpu'))}",
        "\n\n".join(filter(None, [verdict(devices), busy(devices), f"Measured from {date} on."])),
        "## Device", table(["", ""], device_rows(devices)),
        "## Limits, measured in the same runs", table(["", ">"], limit_rows(files, devices)),
    ]  # fmt: skip
    if decode:
        parts += ["## One token at a time", table(DECODE, decode),
                  "*of memory*: the fraction of what as many threads read from memory, measured directly before "
                  "each repetition; warm weights may lie in a cache, so they have none. *tokens/s*: if the model's "
                  "feed-forward blocks were all there is to it."]  # fmt: skip
    if prompt:
        parts += ["## Prompts", table(PROMPT, prompt),
                  "*of peak*: the fraction of the dot product's peak on as many threads; *of mix*: of the ceiling of "
                  "the instruction mix that the format needs."]  # fmt: skip
    if failed:
        parts += ["## Not measured",
                  table(["model", "weights", "cache", ">tokens", ">threads", "because"], failed)]  # fmt: skip
    parts += [
        "## Temperature and clock", extremes(devices),
        table([">after", ">°C", ">MHz measured", ">MHz by the kernel", ">MHz by the firmware", "throttle word"],
              series(files)),
        "The measured clock is that of one core directly after a measurement; the others may be wrong.",
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def write(path, text):
    """Under a temporary name first, so that nothing half-written remains."""
    path = pathlib.Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def main(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="+", metavar="RESULT.json")
    parser.add_argument("--failed", action="append", default=[], metavar="MODEL=REASON",
                        help="a model that there is no result of")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="REPORT.md", help="a file in place of the terminal")
    arguments = parser.parse_args(argv)
    try:
        lacking = [words.partition("=")[::2] for words in arguments.failed]
        text = report([results.read(path) for path in arguments.results], lacking)
        if arguments.output:
            write(arguments.output, text)
        else:
            sys.stdout.write(text)
    except (results.BadFile, OSError) as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
