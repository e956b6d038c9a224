# SPDX-License-Identifier: BSD-3-Clause
"""The demo's processes: in their own network if the system allows, and always stopped in the end."""

import ctypes
import fcntl
import os
import pathlib
import secrets
import signal
import socket
import struct
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
INSIDE = "WINNOW_DEMO_NAMESPACE"
PR_SET_PDEATHSIG = 1
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1

_prctl = ctypes.CDLL(None, use_errno=True).prctl


class DemoError(RuntimeError):
    """Ends the demo, with one line."""


def enter_namespace():
    """Runs this program again in a network namespace. Returns True inside one, and False if there can be none."""
    if os.environ.get(INSIDE):
        loopback_up()
        return True
    for options in (["-n"], ["-rn"]):  # as root; as a user, if the system allows it
        command = ["unshare", *options]
        try:
            trial = subprocess.run([*command, "true"], capture_output=True)
        except FileNotFoundError:
            return False
        if trial.returncode == 0:
            environment = {**os.environ, INSIDE: "1"}
            os.execvpe("unshare", [*command, sys.executable, *sys.argv], environment)
    return False


def loopback_up():
    with socket.socket() as any_socket:
        request = struct.pack("16sh22x", b"lo", 0)
        name, flags = struct.unpack("16sh22x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", name, flags | IFF_UP))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def draw_key():
    """Puts a new key into the environment of all children, because every user of the machine can reach loopback."""
    for name in ("WINNOW_KEY_FILE", "WINNOW_INSECURE_NO_KEY"):
        os.environ.pop(name, None)
    os.environ["WINNOW_KEY"] = secrets.token_hex(32)


def stop_on_signals():
    """Turns signals that end a program into exceptions, so that children are stopped."""

    def stop(number, _):
        raise DemoError(f"stopped by {signal.Signals(number).name}")

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


def run(main):
    """Runs main() and returns the exit status. A DemoError prints one line."""
    stop_on_signals()
    draw_key()
    try:
        main()
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def arguments(parser, out):
    parser.add_argument("--build", default=HERE.parents[2] / "build", type=pathlib.Path, help="where winnowd is [build]")
    parser.add_argument("--out", type=pathlib.Path, help=f"where {out} [the build folder]")
    given = parser.parse_args()
    given.build = given.build.resolve()
    given.out = (given.out or given.build).resolve()
    return given


def environment(build):
    """Returns the environment of a worker."""
    return {
        "PYTHONPATH": f"{HERE.parent}:{HERE}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "WINNOW_LIBRARY": str(build / "libwinnow.so"),
        "OMP_NUM_THREADS": "1",
    }


class Processes:
    """Children that end with stop(), or with this process however it ends."""

    def __init__(self, directory):
        self._directory = pathlib.Path(directory)
        self._children = []  # (name, process, its stderr)

    def start(self, name, command, **environment):
        errors = self._directory / f"{name.replace(' ', '-')}.err"
        parent = os.getpid()

        def with_parent():
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        with open(errors, "w") as stderr:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stderr=stderr,
                env={**os.environ, **environment},
                start_new_session=True,  # Ctrl-C only goes to this process
                preexec_fn=with_parent,
            )
        self._children.append((name, process, errors))
        return process

    def kill(self, process):
        """Kills a process, whose end is then not an error."""
        process.kill()
        self._children = [child for child in self._children if child[1] is not process]

    def wait(self, wanted, seconds, holds=None, what="is this machine busy? Try --steps 20"):
        """Waits until the processes `wanted` have ended well, or until `holds`. DemoError if a child fails or time is up."""
        until = time.monotonic() + seconds
        holds = holds or (lambda: all(process.poll() is not None for process in wanted))
        while not holds():
            self._check(wanted)
            if time.monotonic() > until:
                raise DemoError(f"not done after {seconds:.0f} s: {what}")
            time.sleep(0.02)
        self._check(wanted)

    def _check(self, wanted):
        ended = [(n, p, e) for n, p, e in self._children if p.poll() or (p.poll() == 0 and p not in wanted)]
        if not ended:
            return
        # Others may have failed because of the first, which is the one with a signal or with the oldest output.
        name, process, errors = min(ended, key=lambda child: (child[1].returncode >= 0, _changed(child[2])))
        raise DemoError(f"{name} {_ending(process.returncode)}{_last_line(errors)}")

    def stop(self):
        for _, process, _ in self._children:
            if process.poll() is None:
                process.terminate()
        until = time.monotonic() + 2
        for _, process, _ in self._children:
            try:
                process.wait(max(until - time.monotonic(), 0.01))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _changed(path):
    return path.stat().st_mtime_ns


def _ending(status):
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def _last_line(path):
    lines = path.read_text(errors="replace").strip().splitlines()
    return f": {lines[-1]}" if lines else ""
