"""OpenSSH's sshd on a port of this machine, for a user `pi` who exists only there."""

import os
import pathlib
import signal
import socket
import subprocess
import time

SSHD = "/usr/sbin/sshd"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def children_of(pid):
    """The processes below `pid`, as (pid, name)."""
    parents = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = folder.joinpath("stat").read_text().partition("(")[2].rpartition(")")
            parents[int(folder.name)] = (int(rest.split()[1]), name)
        except (OSError, IndexError):
            continue  # it has just ended
    found, below = [], {pid}
    while True:
        new = {p for p, (parent, _) in parents.items() if parent in below} - below
        if not new:
            return found
        found += [(p, parents[p][1]) for p in new]
        below |= new


class Server:
    """Keys, configuration and home lie in `folder`. In a namespace of its own the server is a plain
    user, who needs no account of the system."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.home = self.folder / "home"
        self.home.mkdir()
        self.port = free_port()
        self.process = None
        for name in ("host", "user", "stranger"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name], check=True)
        (self.folder / "authorized").write_text((self.folder / "user.pub").read_text())
        (self.folder / "passwd").write_text(f"pi:x:1000:1000::{self.home}:/bin/sh\n")
        host_key = " ".join((self.folder / "host.pub").read_text().split()[:2])
        (self.folder / "known").write_text(f"[127.0.0.1]:{self.port} {host_key}\n")
        (self.folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host\n"
            f"AuthorizedKeysFile {self.folder}/authorized\nPidFile none\nUsePAM no\nStrictModes no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        )
        self.write_client("config", "user", "known")

    def write_client(self, name, key, known):
        (self.folder / name).write_text(
            f"Host device\n HostName 127.0.0.1\n Port {self.port}\n User pi\n"
            f" IdentityFile {self.folder}/{key}\n IdentitiesOnly yes\n IdentityAgent none\n"
            f" UserKnownHostsFile {self.folder}/{known}\n GlobalKnownHostsFile none\n"
            " StrictHostKeyChecking yes\n"
        )
        return str(self.folder / name)

    def start(self):
        script = (
            'mount --bind "$1/passwd" /etc/passwd && '
            'exec unshare --user --map-user=1000 --map-group=1000 "$2" -D -e -f "$1/sshd_config"'
        )
        log = open(self.folder / "sshd.log", "ab")
        self.process = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "_", self.folder, SSHD],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        log.close()
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError("sshd does not start: " + (self.folder / "sshd.log").read_text())

    def break_connections(self):
        """Ends those that there are, as a network does that is gone; the server goes on."""
        for pid, name in children_of(self.process.pid):
            if name.startswith("sshd-"):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def stop(self):
        if self.process is None:
            return
        self.break_connections()
        self.process.terminate()
        self.process.wait()
        self.process = None
