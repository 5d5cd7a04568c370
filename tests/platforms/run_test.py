#!/usr/bin/env python3
"""What `./platforms/run` does with its arguments, and with the private root.

The root's tools are played by small scripts (mmdebstrap, bwrap, unshare, df), so a root is made, found
half made, extended or refused within a second, and no network takes part. The real ones are tried by
environment_test.sh.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import textwrap
import time
import unittest

TREE = pathlib.Path(__file__).resolve().parents[2]
COMMANDS = "demo build test test-real test-kit test-page sluice package bench format lint train shell remove-root".split()

# Plays bwrap: notes its arguments, sets what it is told to set, becomes the command.
BWRAP = """
    import os, sys
    words = {"--ro-bind": 2, "--bind": 2, "--dev-bind": 2, "--symlink": 2, "--setenv": 2,
             "--unsetenv": 1, "--chdir": 1, "--die-with-parent": 0}
    arguments = sys.argv[1:]
    with open(os.environ["STUB_LOG"], "a") as log:
        print("bwrap", *arguments, file=log)
    if os.environ.get("STUB_BWRAP_FAILS"):
        sys.exit("bwrap: No permissions to create new namespace")
    while arguments[0] in words:
        option, count = arguments[0], words[arguments[0]]
        values, arguments = arguments[1 : 1 + count], arguments[1 + count :]
        if option == "--setenv" and values[0] != "PATH":
            os.environ[values[0]] = values[1]
        elif option == "--chdir":
            os.chdir(values[0])
    os.execvp(arguments[0], arguments)
"""

# Plays mmdebstrap: its last argument but the mirror is the root to make.
MMDEBSTRAP = """
    import os, pathlib, sys, time
    arguments = sys.argv[1:]
    with open(os.environ["STUB_LOG"], "a") as log:
        print("mmdebstrap", *arguments, file=log)
    root = pathlib.Path(arguments[arguments.index("trixie") + 1])
    for folder in ("usr/bin", "etc", "var/lib"):
        (root / folder).mkdir(parents=True)
    if os.environ.get("STUB_MMDEBSTRAP_SAYS"):
        sys.exit(os.environ["STUB_MMDEBSTRAP_SAYS"])
    time.sleep(float(os.environ.get("STUB_MMDEBSTRAP_TAKES", 0)))
    (root / "usr/bin/env").touch(mode=0o755)
"""

# Plays unshare: no namespace, just the command. Adding packages only notes which.
UNSHARE = """
    import os, sys
    arguments = sys.argv[1:]
    if arguments == ["--help"]:
        print("--map-auto")
        sys.exit(0)
    while arguments[0].startswith("--"):
        takes_value = arguments[0] in ("--setuid", "--setgid")
        arguments = arguments[2 if takes_value else 1 :]
    if arguments[0] == "bash":
        with open(os.environ["STUB_LOG"], "a") as log:
            print("add_packages", *arguments[2:], file=log)
        sys.exit(os.environ.get("STUB_ADD_SAYS", 0))
    os.execvp(arguments[0], arguments)
"""

DF = """
    import os
    print("Filesystem 1048576-blocks Used Available Capacity Mounted")
    print("/dev/sda 9 9", os.environ.get("STUB_FREE_MB", "99999"), "1% /")
"""


class Run(unittest.TestCase):
    """A copy of platforms/ on a system of its own: another os-release, stub tools, an empty cache."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.top = pathlib.Path(directory.name).resolve()
        self.run = self.top / "platforms/run"
        self.cache = self.top / "cache"
        self.root = self.cache / "sluice/debian13"
        self.log = self.top / "stub.log"
        shutil.copytree(TREE / "platforms", self.top / "platforms")
        self.os_release("fedora", "42")
        for name, text in [
            ("bwrap", BWRAP),
            ("mmdebstrap", MMDEBSTRAP),
            ("unshare", UNSHARE),
            ("df", DF),
            ("newuidmap", ""),
        ]:
            self.stub(name, text)
        self.subordinate_ids()

    def os_release(self, name, version):
        (self.top / "os-release").write_text(f'ID={name}\nVERSION_ID="{version}"\n')
        self.replace("host.sh", "/etc/os-release", str(self.top / "os-release"))

    def subordinate_ids(self):
        for kind in ("subuid", "subgid"):
            (self.top / kind).write_text(f"{os.geteuid()}:100000:65536\n")
            self.replace("root.sh", f"/etc/{kind}", str(self.top / kind))

    def replace(self, part, old, new):
        path = self.top / "platforms/lib" / part
        text = path.read_text()
        self.assertTrue(old in text or new in text, f"{part} no longer speaks of {old}")
        path.write_text(text.replace(old, new))

    def stub(self, name, text):
        path = self.top / "stubs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/usr/bin/python3\n" + textwrap.dedent(text))
        path.chmod(0o755)

    def environment(self, **extra):
        environment = {
            **os.environ,
            "PATH": f"{self.top}/stubs:/usr/bin:/bin",
            "XDG_CACHE_HOME": str(self.cache),
            "STUB_LOG": str(self.log),
        }
        for name in ("SLUICE_INSIDE", "SLUICE_PRESET", "SLUICE_MIRROR", "SLUICE_CMAKE_ARGS"):
            environment.pop(name, None)
        environment.update(extra)
        return environment

    def call(self, *arguments, cwd=None, stdin=None, **extra):
        return subprocess.run(
            [self.run, *arguments],
            cwd=cwd or self.top,
            input=stdin,
            env=self.environment(**extra),
            capture_output=True,
            text=True,
            timeout=60,
        )

    def calls_of(self, tool):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if line.startswith(tool + " ")]

    def assert_fails(self, result, sentence):
        """Status 1, nothing on stdout, and one sentence that begins with "run: error:"."""
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stdout, "")
        errors = [line for line in result.stderr.splitlines() if "error" in line]
        self.assertEqual(len(errors), 1, result.stderr)
        self.assertTrue(errors[0].startswith("run: error: "), errors)
        self.assertIn(sentence, errors[0])
        self.assertEqual(result.stderr.splitlines()[-1], errors[0])


class Arguments(Run):
    def test_help_names_every_command(self):
        for flag in ("--help", "-h"):
            result = self.call(flag)
            self.assertEqual(result.returncode, 0)
            for command in COMMANDS:
                self.assertRegex(result.stdout, rf"(?m)^  {command} ")

    def test_help_of_a_command_does_not_run_it(self):
        for command in ("demo", "build", "test-real", "format", "lint", "remove-root"):
            result = self.call(command, "--help")
            self.assertEqual(result.returncode, 0)
            self.assertRegex(result.stdout, rf"(?m)^  {command} ")

    def test_what_is_wrong_is_named_before_anything_is_done(self):
        for arguments, named in [
            ([], "no command"),
            (["frobnicate"], "frobnicate"),
            (["--frob", "test"], "--frob"),
            (["--arch"], "--arch"),
            (["--arch", "mips", "test"], "mips"),
            (["--arch=mips", "test"], "mips"),
            (["--cpu", "max", "test"], "--cpu needs --arch"),
            (["--arch", "armhf", "demo"], "demo does not take --arch"),
        ]:
            result = self.call(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertEqual(result.stdout, "")
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertIn(named, result.stderr)
        self.assertFalse(self.log.exists(), "a tool was started")
        self.assertFalse(self.cache.exists())


class Inside(Run):
    """The command itself, once the environment is there."""

    def test_status_streams_directory_and_arguments_are_the_commands(self):
        with tempfile.TemporaryDirectory() as elsewhere:
            script = 'cat; pwd; printf "%s|" "$@"; echo err >&2; exit 37'
            result = self.call(
                "shell", "bash", "-c", script, "_", "a b", "", "--help", "*",
                cwd=elsewhere, stdin="in\n", XDG_CACHE_HOME=str(self.cache),
            )
            self.assertEqual(result.returncode, 37)
            where = os.path.realpath(elsewhere)
            self.assertEqual(result.stdout, f"in\n{where}\na b||--help|*|")
            self.assertIn("err\n", result.stderr)
            again = self.call("shell", "bash", "-c", script, "_", cwd=elsewhere, stdin="")
            self.assertEqual(again.stderr, "err\n", "run says something when nothing is to do")

    def test_a_death_by_signal_is_told(self):
        result = self.call("shell", "bash", "-c", "kill -SEGV $$")
        self.assertEqual(result.returncode, 128 + signal.SIGSEGV)

    def test_a_signal_reaches_the_command(self):
        self.call("shell", "true")
        script = 'trap "echo caught; exit 5" TERM INT HUP; echo ready; for i in {1..100}; do sleep 0.1; done'
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with subprocess.Popen(
                [self.run, "shell", "bash", "-c", script],
                env=self.environment(),
                cwd=self.top,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            ) as process:
                self.assertEqual(process.stdout.readline(), "ready\n")
                process.send_signal(number)
                self.assertEqual(process.stdout.read(), "caught\n")
                self.assertEqual(process.wait(), 5)


class PrivateRoot(Run):
    def test_it_is_made_once_and_reused(self):
        first = self.call("shell", "true")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("making a private Debian 13", first.stderr)
        self.assertTrue((self.root / "usr/bin/env").exists())
        second = self.call("shell", "true")
        self.assertEqual((second.returncode, second.stdout, second.stderr), (0, "", ""))
        self.assertEqual(len(self.calls_of("mmdebstrap")), 1)
        self.assertEqual(self.calls_of("add_packages"), [])

    def test_it_has_the_packages_of_the_list_and_no_mirror_of_ours(self):
        self.call("shell", "true")
        call = self.calls_of("mmdebstrap")[0].split()
        include = [word for word in call if word.startswith("--include=")][0]
        packages = include.removeprefix("--include=").split(",")
        self.assertIn("libhwy-dev", packages)
        self.assertEqual([name for name in packages if not name.replace("+", "").isascii()], [])
        self.assertFalse([name for name in packages if " " in name or "#" in name or not name])
        self.assertNotIn("://", self.calls_of("mmdebstrap")[0])

    def test_a_mirror_may_be_named(self):
        self.call("shell", "true", SLUICE_MIRROR="mirror.example")
        self.assertTrue(self.calls_of("mmdebstrap")[0].endswith(" mirror.example"))

    def test_half_made_is_made_again(self):
        # What an interrupted run leaves, under the temporary name; and a root without its end.
        (self.cache / "sluice/debian13.new.123/usr").mkdir(parents=True)
        (self.root / "usr/bin").mkdir(parents=True)
        result = self.call("shell", "true")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(self.calls_of("mmdebstrap")), 1)
        self.assertEqual(list(self.root.parent.glob("*.new.*")), [])
        self.assertTrue((self.root / "usr/bin/env").exists())

    def test_a_longer_list_adds_packages(self):
        self.call("shell", "true")
        with open(self.top / "platforms/packages/base.txt", "a", encoding="utf-8") as packages:
            packages.write("a-new-one   # for a reason\n")
        result = self.call("shell", "true")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(self.calls_of("mmdebstrap")), 1, "it started over")
        self.assertEqual(len(self.calls_of("add_packages")), 1)
        self.assertTrue(self.calls_of("add_packages")[0].endswith(" a-new-one"))
        self.assertEqual(self.call("shell", "true").stderr, "")

    def test_another_architecture_is_added_once(self):
        foreign = "arm64" if os.uname().machine != "aarch64" else "armhf"
        for _ in range(2):
            result = self.call("--arch", foreign, "shell", "true")
            self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(self.calls_of("add_packages")), 1)
        self.assertIn(f" {foreign} ", self.calls_of("add_packages")[0])
        self.assertIn(f"libhwy-dev:{foreign}", self.calls_of("add_packages")[0])

    def test_a_spoiled_root_is_made_anew_but_not_for_want_of_a_network(self):
        self.call("shell", "true")
        foreign = "arm64" if os.uname().machine != "aarch64" else "armhf"
        result = self.call(
            "--arch", foreign, "shell", "true", STUB_ADD_SAYS="E: Failed to fetch something"
        )
        self.assert_fails(result, "mirror cannot be reached")
        self.assertEqual(len(self.calls_of("mmdebstrap")), 1)
        self.call("--arch", foreign, "shell", "true", STUB_ADD_SAYS="dpkg: error: status corrupt")
        self.assertEqual(len(self.calls_of("mmdebstrap")), 2)

    def test_failures_are_one_sentence_and_leave_nothing_behind(self):
        for says, sentence in [
            ("E: Temporary failure resolving 'somewhere'", "mirror cannot be reached"),
            ("tar: write error: No space left on device", "no space is left on the disk"),
            ("E: Unable to locate package frobnicate", "frobnicate"),
            ("E: something else", "something else"),
        ]:
            self.assert_fails(self.call("shell", "true", STUB_MMDEBSTRAP_SAYS=says), sentence)
            self.assertEqual(
                sorted(path.name for path in self.root.parent.iterdir()), ["debian13.log", "lock"]
            )

    def test_a_full_disk_is_noticed_beforehand(self):
        self.assert_fails(self.call("shell", "true", STUB_FREE_MB="500"), "where 500 MB are free")
        self.assertEqual(self.calls_of("mmdebstrap"), [])

    def test_missing_tools_are_named(self):
        self.replace("host.sh", "command -v apt-get", "command -v no-such-apt-get")
        self.replace("host.sh", "command -v bwrap", "command -v no-such-bwrap")
        self.assert_fails(self.call("shell", "true"), "needs bubblewrap")
        self.assertEqual(self.calls_of("mmdebstrap"), [])

    def test_namespaces_that_are_forbidden(self):
        self.assert_fails(
            self.call("shell", "true", STUB_BWRAP_FAILS="1"), "No permissions to create"
        )

    def test_a_relative_cache(self):
        self.assert_fails(self.call("shell", "true", XDG_CACHE_HOME="here"), "absolute")

    def test_two_runs_at_once_make_one_root(self):
        environment = self.environment(STUB_MMDEBSTRAP_TAKES="1")
        runs = [
            subprocess.Popen(
                [self.run, "shell", "true"], env=environment, cwd=self.top, stderr=subprocess.PIPE
            )
            for _ in range(2)
        ]
        errors = [process.communicate(timeout=60)[1].decode() for process in runs]
        self.assertEqual([process.returncode for process in runs], [0, 0], errors)
        self.assertEqual(len(self.calls_of("mmdebstrap")), 1)
        self.assertIn("waiting for it", "".join(errors))

    def test_an_interrupt_leaves_nothing_behind(self):
        process = subprocess.Popen(
            [self.run, "shell", "true"],
            env=self.environment(STUB_MMDEBSTRAP_TAKES="60"),
            cwd=self.top,
            stderr=subprocess.PIPE,
        )
        deadline = time.monotonic() + 30
        while not list(self.root.parent.glob("*.new.*/usr/bin")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[1]
        self.assertEqual(process.returncode, 130, said)
        self.assertEqual(
            sorted(path.name for path in self.root.parent.iterdir()), ["debian13.log", "lock"]
        )

    def test_it_can_be_removed(self):
        self.assert_fails(self.call("remove-root"), "no private Debian 13")
        self.call("shell", "true")
        self.assertEqual(self.call("remove-root").returncode, 0)
        self.assertFalse(self.root.parent.exists())

    def test_the_hosts_files_are_inside_and_its_system_is_not(self):
        self.call("shell", "true")
        (self.root / "etc/resolv.conf").touch()
        self.call("shell", "true")
        words = self.calls_of("bwrap")[-1].split()
        own = {words[i + 2] for i, word in enumerate(words) if word == "--ro-bind"}
        hosts = {words[i + 2] for i, word in enumerate(words) if word == "--bind"}
        self.assertIn("/usr", own)
        self.assertIn("/tmp", hosts)
        self.assertFalse(hosts & {"/usr", "/etc", "/bin", "/lib"}, hosts)
        home = os.path.realpath(os.path.expanduser("~"))
        self.assertIn("/" + home.split("/")[1], hosts)

    def test_a_working_directory_of_the_system_is_refused(self):
        self.call("shell", "true")
        self.assert_fails(self.call("shell", "true", cwd="/usr/bin"), "/usr/bin")

    def test_debian_13_and_later_need_no_root(self):
        for name, version, direct in [
            ("debian", "13", True),
            ("raspbian", "13", True),
            ("debian", "14.1", True),
            ("debian", "", True),  # testing and unstable have none
            ("debian", "12", False),
            ("ubuntu", "25.04", False),
            ("fedora", "42", False),
        ]:
            (self.top / "os-release").write_text(f'ID={name}\nVERSION_ID="{version}"\n')
            script = f'source "{self.top}/platforms/lib/host.sh"; host_is_debian_13'
            result = subprocess.run(["bash", "-c", script], check=False)
            self.assertEqual(result.returncode == 0, direct, (name, version))


if __name__ == "__main__":
    unittest.main()
