#!/usr/bin/env python3
"""platforms/raspberry-pi/bench against a real sshd on this machine.

    raspberry_pi_test.py BUILD [EMULATOR]

Once with the benchmarks of BUILD, which EMULATOR runs if they are another architecture's; the rest, all
that can happen on the way, with small scripts in their place.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import ssh_server

TREE = pathlib.Path(__file__).resolve().parents[2]
BENCH = TREE / "platforms/raspberry-pi/bench"
BUILD = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
EMULATOR = sys.argv[2] if len(sys.argv) > 2 else ""
LEFT = ".sluice-bench"

# Plays a benchmark: notes that it was called, waits while there is a file `hold`, writes a result.
FAKE = """#!/bin/sh
echo "$(basename "$0") $*" >>"$HOME/calls"
for word; do
  case $word in
    --benchmark_out=*) out=${word#*=} ;;
    --shapes=*) model=${word#*=} ;;
  esac
done
cat "$HOME/root/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor" >>"$HOME/governors" 2>/dev/null
while [ -e "$HOME/hold" ]; do sleep 0.05; done
if [ -e "$HOME/fail-$model" ]; then echo "out of cheese" >&2; exit 3; fi
cp "$HOME/result.json" "$out"
"""


def fake_result():
    device = json.loads((TREE / "tests/data/devices/pi5/expected.json").read_text(encoding="utf-8"))
    for sample in device["samples"]:
        sample |= {"seconds": 0.0, "measured_hz": 2.4e9}
    return {"context": {"date": "now", "device": device, "shapes": []}, "benchmarks": []}


class Device(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-kit.")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.server = ssh_server.Server(self.folder)
        self.addCleanup(self.server.stop)
        self.server.start()
        self.home = self.server.home
        self.out = self.folder / "out"

    def fake_bundle(self):
        """Scripts in place of programs, and of the loader that starts them."""
        bundle = self.folder / "bundle"
        for name, text in (("bin/ffn_bench", FAKE), ("bin/roofline_bench", FAKE),
                           ("lib/ld.so", '#!/bin/sh\nshift 2\nexec "$@"\n'), ("shapes/a.txt", "")):  # fmt: skip
            path = bundle / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        shutil.copy(TREE / "platforms/raspberry-pi/device.sh", bundle)
        (self.home / "result.json").write_text(json.dumps(fake_result()))
        return bundle

    def start(self, *options, config=None, **settings):
        environment = {
            **os.environ, "SLUICE_INSIDE": "1", "SLUICE_KIT_POLL": "0.2", "SLUICE_KIT_RECONNECT": "30",
            "SLUICE_KIT_MACHINE": os.uname().machine, "SLUICE_KIT_BUNDLE": str(self.folder / "bundle"), **settings,
        }  # fmt: skip
        command = [BENCH, "-F", config or str(self.folder / "config"), "--output", self.out, *options]
        return subprocess.Popen(command, env=environment, text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip

    def ended(self, process, status, timeout=120):
        stdout, stderr = process.communicate(timeout=timeout)
        self.assertEqual(process.returncode, status, stderr)
        return stdout, stderr

    def bench(self, *options, status=0, **settings):
        return self.ended(self.start("--models", "SmolLM2-135M,TinyLlama-1.1B", *options, "device", **settings), status)

    def wait_for(self, what, condition):
        for _ in range(600):
            if condition():
                return
            time.sleep(0.1)
        self.fail(f"waited in vain for {what}")

    def calls(self):
        path = self.home / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def assert_nothing_left(self):
        self.assertFalse((self.home / LEFT).exists())
        names = [name for _, name in ssh_server.children_of(os.getpid())]
        self.assertNotIn("ffn_bench", names)


class Whole(Device):
    def test_the_real_programs(self):
        emulator = EMULATOR.split()
        subprocess.run([TREE / "platforms/raspberry-pi/bundle.sh", BUILD / "bench", self.folder / "bundle", *emulator],
                       check=True)  # fmt: skip
        # There the loader of the bundle runs the program, so that no file of this system takes part.
        process = self.start(
            "--quick", "--models", "SmolLM2-135M", "device", SLUICE_KIT_EMULATOR=" ".join(emulator),
            SLUICE_KIT_FORMATS="qb4w:32", SLUICE_KIT_TOKENS="1,16", SLUICE_KIT_CACHE_MIB="0.5",
            SLUICE_KIT_ROOT=str(TREE / "tests/data/devices/pi5/root"),
        )  # fmt: skip
        stdout, stderr = self.ended(process, 0, timeout=600)
        self.assertEqual(stdout, f"{self.out}/report.md\n")
        self.assertEqual(sorted(p.name for p in self.out.iterdir()), ["SmolLM2-135M.json", "report.md", "roofline.json"])
        runs = json.loads((self.out / "SmolLM2-135M.json").read_text())
        self.assertEqual(runs["context"]["device"]["board"], "Raspberry Pi 5 Model B Rev 1.0")
        self.assertFalse([run for run in runs["benchmarks"] if run.get("error_occurred")], stderr)
        report = (self.out / "report.md").read_text()
        for words in ("# sluice on Raspberry Pi 5", "Valid: the device was not throttled", "| SmolLM2-135M |",
                      "## Prompts", "memory read by one core"):  # fmt: skip
            self.assertIn(words, report)
        self.assert_nothing_left()


class Way(Device):
    def setUp(self):
        super().setUp()
        self.fake_bundle()

    def test_each_model_once_and_nothing_left(self):
        _, stderr = self.bench()
        self.assertEqual([c.split()[0] for c in self.calls()], ["roofline_bench", "ffn_bench", "ffn_bench"])
        self.assertIn("measuring TinyLlama-1.1B", stderr)
        self.assertTrue((self.out / "TinyLlama-1.1B.json").exists())
        self.assert_nothing_left()

    def test_a_broken_connection_is_taken_up_again(self):
        (self.home / "hold").touch()
        process = self.start("--models", "SmolLM2-135M", "device")
        self.wait_for("the first program", self.calls)
        self.server.break_connections()
        time.sleep(0.5)
        self.server.break_connections()
        (self.home / "hold").unlink()
        self.ended(process, 0)
        self.assertEqual(len(self.calls()), 2)
        self.assert_nothing_left()

    def test_the_same_command_goes_on_after_a_long_break(self):
        (self.home / "hold").touch()
        process = self.start("--models", "SmolLM2-135M,TinyLlama-1.1B", "device", SLUICE_KIT_RECONNECT="1")
        self.wait_for("the first program", self.calls)
        self.server.stop()
        _, stderr = self.ended(process, 1)
        self.assertIn("the same command goes on with the run", stderr)
        self.assertIn("--clean", stderr)
        (self.home / "hold").unlink()  # the device goes on alone
        self.wait_for("the device", lambda: "done" in (self.home / LEFT / "progress").read_text())
        (self.home / LEFT / "bin/ffn_bench").write_text("damaged")
        self.server.start()
        _, stderr = self.bench()
        self.assertIn("going on with it", stderr)
        self.assertIn("copying 1 files", stderr)
        self.assertEqual(len(self.calls()), 3, "nothing was measured twice")
        self.assert_nothing_left()

    def test_ctrl_c_leaves_nothing(self):
        (self.home / "hold").touch()
        process = self.start("--models", "SmolLM2-135M", "device")
        self.wait_for("the first program", self.calls)
        process.send_signal(signal.SIGINT)
        self.ended(process, 130)
        self.assert_nothing_left()
        self.assertFalse(self.out.exists())

    def test_another_run_is_refused_and_clean_removes_it(self):
        (self.home / "hold").touch()
        process = self.start("--models", "SmolLM2-135M", "device", SLUICE_KIT_RECONNECT="1")
        self.wait_for("the first program", self.calls)
        _, stderr = self.bench(status=1)
        self.assertIn("another run is in progress", stderr)
        self.ended(self.start("--clean", "device"), 0)
        self.assert_nothing_left()
        self.assertEqual(process.wait(60), 1)
        process.communicate()

    def test_a_model_that_fails_is_told_and_the_others_go_on(self):
        (self.home / "fail-SmolLM2-135M").touch()
        _, stderr = self.bench()
        self.assertIn("SmolLM2-135M failed: out of cheese", stderr)
        report = (self.out / "report.md").read_text()
        self.assertIn("out of cheese", report)
        self.assertTrue((self.out / "TinyLlama-1.1B.json").exists())

    def test_the_governor_is_changed_and_set_back(self):
        shutil.copytree(TREE / "tests/data/devices/pi3/root", self.home / "root")
        files = list((self.home / "root").glob("sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"))
        self.bench("--governor", "performance", SLUICE_KIT_ROOT=str(self.home / "root"))
        self.assertEqual(set((self.home / "governors").read_text().split()), {"performance"})
        self.assertEqual({f.read_text() for f in files}, {"ondemand\n"})
        self.assertTrue(all("--governor-was=ondemand" in call for call in self.calls()))
        shutil.rmtree(self.home / "root")
        _, stderr = self.bench("--governor", "performance", "--output", str(self.out) + "2", status=1,
                               SLUICE_KIT_ROOT=str(self.home / "root"))  # fmt: skip
        self.assertIn("this device has no CPU governor", stderr)
        self.assert_nothing_left()

    def test_this_computer_itself(self):
        process = self.start("--models", "SmolLM2-135M", "--here", HOME=str(self.home))
        self.ended(process, 0)
        self.assertTrue((self.out / "report.md").exists())
        self.assert_nothing_left()


class Refusals(Device):
    def setUp(self):
        super().setUp()
        self.fake_bundle()

    def refused(self, words, *options, config=None, **settings):
        _, stderr = self.ended(self.start(*options, config=config, **settings), 1)
        errors = [line for line in stderr.splitlines() if "error:" in line]
        self.assertEqual(len(errors), 1, stderr)
        self.assertIn(words, errors[0])
        self.assertFalse(self.calls())
        self.assertFalse((self.home / LEFT).exists())

    def test_the_connection(self):
        (self.folder / "nobody").touch()
        self.refused("ssh-copy-id device", "device", config=self.server.write_client("c1", "stranger", "known"))
        self.refused("run once: ssh device", "device", config=self.server.write_client("c2", "user", "nobody"))
        self.refused("no computer called no.such.host.invalid", "no.such.host.invalid")
        self.server.stop()
        self.refused("has no ssh server running", "device")

    def test_the_device(self):
        self.refused(f"is a {os.uname().machine} computer", "device", SLUICE_KIT_MACHINE="aarch64x")
        self.out.mkdir()
        self.refused("is there already", "device")

    def test_wrong_usage(self):
        for wrong in ((), ("a", "b"), ("--here", "device"), ("--models", "NoSuch", "device"), ("--unknown",),
                      ("--governor", "x;y", "device"), ("--models",), ("--models", ",", "device")):  # fmt: skip
            self.assertIn("error:", self.ended(self.start(*wrong), 2)[1], wrong)
        stdout, _ = self.ended(self.start("--help"), 0)
        for option in ("--here", "--models", "--quick", "--governor", "--output", "--clean", "-p, -i, -F, -o"):
            self.assertIn(option, stdout)


if __name__ == "__main__":
    if BUILD is None:
        sys.exit(__doc__)
    if not os.path.exists(ssh_server.SSHD):
        sys.exit(f"{ssh_server.SSHD} is missing: ./platforms/run test-kit installs it")
    program = unittest.main(argv=sys.argv[:1] + sys.argv[3:], exit=False)
    result = program.result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed", flush=True)
    sys.exit(1 if bad else 0)
