"""A server process of the tests: how each kind of them starts, dies and comes back. See engines.py for what there is."""
import contextlib
import os
import pathlib
import random
import signal
import socket
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNPACKED = ROOT / "build" / "engines"
PATIENCE_S = 60
SLICES = 64  # of the ports


class EngineError(Exception):
    pass


def until(condition, what, seconds=PATIENCE_S):
    """Waits for the condition to say something true, and returns that."""
    deadline = time.monotonic() + seconds
    pause_s = 0.002
    while True:
        outcome = condition()
        if outcome:
            return outcome
        if time.monotonic() > deadline:
            raise EngineError(f"waited {seconds} s in vain until {what}")
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.05)


_given = set()


def free_port():
    """A port that nobody has, below those that the system gives to outgoing connections: a server that is started again
    must find its port free, whatever clients do meanwhile."""
    top = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    low, top = (10000, top) if top > 12000 else (61000, 65536)
    width = (top - low) // SLICES
    own = low + os.getpid() % SLICES * width
    for attempt in range(1000):
        # First where processes that look at the same time do not look.
        port = random.SystemRandom().randrange(*((own, own + width) if attempt < 500 else (low, top)))
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            return port
    raise EngineError(f"no free port between {low} and {top}")


def program(path):
    """A program of a Debian package: the installed one, or the one that was unpacked."""
    for place in (pathlib.Path("/") / path, UNPACKED / path):
        if place.exists():
            return place
    raise EngineError(f"/{path} is missing: run 'tools/install-packages test'")


def descendants(pid):
    found = []
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def send(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Engine:
    """One server process, through any number of lives on the same port and with the same data."""

    kind = None
    polite = signal.SIGTERM
    last = None  # the signal for when its data goes with it, if that is another
    lowers = True  # to nobody, when we are root
    ends_well = False  # SIGTERM must end it with status 0

    def __init__(self, engines, name):
        self.engines = engines
        self.name = name
        self.folder = engines.new_folder(name, self.lowers)
        self.log = engines.folder / f"{name}.log"
        self.port = free_port()
        self.process = None

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self):
        return self.process.pid if self.process else None

    def command(self):
        raise NotImplementedError

    def env(self):
        return self.engines.env

    def is_ready(self):
        raise NotImplementedError

    def launch(self):
        """Starts the process without waiting until it answers."""
        assert self.process is None, f"{self.name} runs already"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.engines.bound(self.command(), self.lowers), cwd=self.folder, env=self.env(),
                                            start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def wait_ready(self):
        def look():
            if self.process.poll() is not None:
                raise EngineError(f"{self.name} ended with status {self.process.returncode}:\n{self.tail()}")
            return self.is_ready()
        try:
            until(look, f"{self.name} answers")
        except EngineError:
            self.kill()
            raise
        return self

    def start(self):
        return self.launch().wait_ready()

    def stop(self, number=None):
        """As an operator does it; waits for the end, which must be a good one where that is promised."""
        if self.process is None:
            return
        self.resume()
        self.process.send_signal(number or self.polite)
        try:
            status = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            status = f"none within {PATIENCE_S} s"
        self.kill()
        if self.ends_well and status != 0:
            raise EngineError(f"{self.name} was to end with status 0, and has {status}:\n{self.tail()}")

    def kill(self):
        """SIGKILL, to it and to its children, as when a machine dies."""
        if self.process is None:
            return
        children = descendants(self.process.pid)
        send([self.process.pid, *children], signal.SIGKILL)
        self.process.wait()
        until(lambda: not any(is_alive(pid) for pid in children), f"the children of {self.name} are gone")
        self.process = None

    def pause(self):
        """All of it stands still, but its connections stay."""
        send([self.process.pid, *descendants(self.process.pid)], signal.SIGSTOP)

    def resume(self):
        send([*descendants(self.process.pid), self.process.pid], signal.SIGCONT)

    def restart(self):
        self.stop()
        return self.start()

    def tail(self, lines=20):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
