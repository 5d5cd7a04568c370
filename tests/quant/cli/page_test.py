#!/usr/bin/env python3
"""The report's page in a browser without a screen: phone and desktop, light and dark.

Needs Debian's chromium-headless-shell (or chromium): `./platforms/run test-page` installs it. Where there
is none, this says so and exits 77, which CTest shows as skipped; with SLUICE_NEEDS_BROWSER set, that is
a failure. Screenshots go to the folder SLUICE_SCREENSHOTS, if it is set, to be looked at.
"""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import unittest

import support
from support import CALIBRATION, TINY, run

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser")
BROWSER = next((path for name in BROWSERS if (path := shutil.which(name))), None)
SKIPPED = 77

WIDTHS = {"phone": 390, "desktop": 1280}
SCHEMES = {"dark": 0, "light": 1}  # Blink's preferredColorScheme

# Shows the page in a frame, and writes what it measures into its own document. Checks of layout, so
# that they are of the whole page and not of what a screenshot happens to show.
PROBE = """<!doctype html><meta charset="utf-8"><style>body {{ margin: 0 }}</style>
<iframe src="{page}" style="width: {width}px; height: 900px; border: 0"></iframe>
<pre id="out"></pre><script>
document.querySelector("iframe").onload = (event) => {{
  const view = event.target.contentWindow, page = view.document;
  const lowest = (found, e) => Math.min(found, parseFloat(view.getComputedStyle(e).fontSize));
  const seen = [...page.querySelectorAll("svg")].filter((e) => e.getClientRects().length);
  document.getElementById("out").textContent = JSON.stringify({{
    width: page.documentElement.clientWidth,
    content: page.documentElement.scrollWidth,
    background: view.getComputedStyle(page.body).backgroundColor,
    ink: view.getComputedStyle(page.body).color,
    smallest: [...page.querySelectorAll("p, span, td, th, li, dd, code")].reduce(lowest, 99),
    charts: seen.map((e) => [e.clientWidth, e.clientHeight]),
    polylines: page.querySelectorAll("polyline").length,
    loaded: view.performance.getEntriesByType("resource").map((e) => e.name),
  }});
}};
</script>"""


class Page(support.CommandTest):
    @classmethod
    def setUpClass(cls):
        folder = os.environ.get("SLUICE_SCREENSHOTS")
        cls.screenshots = pathlib.Path(folder) if folder else None
        if folder:
            cls.screenshots.mkdir(parents=True, exist_ok=True)

    def pages(self):
        """A report of one file with its loss, and of two side by side."""
        files = [self.quantize("--weights", w, name=f"{w}.safetensors") for w in ("qb4w:32", "qc8w")]
        text, evaluation = self.dir / "text", self.dir / "eval.json"
        text.write_bytes((TINY / "heldout.txt").read_bytes()[:2048])
        run("eval", TINY, *files, "--text", text, "--context", 256, "--json", evaluation, "--quiet")
        one, two = self.dir / "one.html", self.dir / "two.html"
        options = ["--calibration", CALIBRATION, "--eval", evaluation, "--quiet", "--html"]
        run("report", TINY, files[0], *options, one)
        run("report", TINY, *files, *options, two)
        return one, two

    def browse(self, target, scheme, width, *options):
        """What the browser printed; what it complained about is an error."""
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += ["--allow-file-access-from-files", "--enable-logging=stderr", "--v=0"]
        # Whatever the page asks of the network fails; the probe says what it was.
        command += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={self.dir}/profile"]
        command += [f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}"]
        command += [f"--window-size={width},{2400}", *options, f"file://{target}"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        complaints = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
        self.assertEqual(complaints, [])
        return result.stdout

    def probe(self, page, scheme, width):
        probe = self.dir / "probe.html"
        probe.write_text(PROBE.format(page=page.name, width=width), encoding="utf-8")
        dom = self.browse(probe, scheme, 1600, "--dump-dom", "--virtual-time-budget=5000")
        found = dom.split('<pre id="out">')[1].split("</pre>")[0]
        return json.loads(found)

    def screenshot(self, page, scheme, name, width):
        path = (self.screenshots or self.dir) / f"{page.stem}-{name}-{scheme}.png"
        self.browse(page, scheme, width, f"--screenshot={path}")
        header = path.read_bytes()[:24]
        self.assertEqual(struct.unpack(">II", header[16:24])[0], width)
        # A picture of nothing compresses to a few thousand bytes.
        self.assertGreater(path.stat().st_size, 50000)

    def test_phone_and_desktop_light_and_dark(self):
        for page in self.pages():
            for name, width in WIDTHS.items():
                for scheme in SCHEMES:
                    with self.subTest(page=page.stem, width=name, scheme=scheme):
                        self.check(self.probe(page, scheme, width), scheme, width)
                        self.screenshot(page, scheme, name, width)

    def check(self, found, scheme, width):
        self.assertEqual(found["width"], width)
        self.assertLessEqual(found["content"], width, "the page scrolls sideways")
        self.assertEqual(found["loaded"], [])
        self.assertGreaterEqual(found["smallest"], 11, "text too small to read")
        self.assertGreaterEqual(len(found["charts"]), 2)
        for chart in found["charts"]:
            self.assertGreater(min(chart), 50, found["charts"])
        self.assertGreater(found["polylines"], 4)
        lightness = {key: sum(channels(found[key])) for key in ("background", "ink")}
        self.assertEqual(lightness["background"] < lightness["ink"], scheme == "dark", found)

    def test_the_browser_would_complain(self):
        """A page with each fault that the others must not have."""
        page = self.dir / "faulty.html"
        page.write_text("<body><script>undefined_name()</script>", encoding="utf-8")
        with self.assertRaisesRegex(AssertionError, "CONSOLE"):
            self.browse(page, "light", 390, "--dump-dom")
        page.write_text('<body><img src="http://example.invalid/x.png">', encoding="utf-8")
        found = self.probe(page, "light", 390)
        self.assertEqual(found["loaded"], ["http://example.invalid/x.png"])
        page.write_text('<body style="width: 900px"><p style="font-size: 7px">small', encoding="utf-8")
        found = self.probe(page, "light", 390)
        self.assertGreater(found["content"], 390)
        self.assertEqual(found["smallest"], 7)
        with self.assertRaises(AssertionError):
            self.check(found, "light", 390)


def channels(color):
    """The red, green and blue of "rgb(1, 2, 3)"."""
    return [int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(",")]


if __name__ == "__main__":
    if BROWSER is None:
        told = "no browser was found: ./platforms/run test-page installs one"
        if os.environ.get("SLUICE_NEEDS_BROWSER"):
            sys.exit(told)
        print(f"skipped: {told}")
        sys.exit(SKIPPED)
    support.main()
