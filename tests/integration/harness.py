"""Real processes for the tests: servers, commands, the load client, and how to wait for them.

Everything runs from the build that CURT_BUILD names (build/ otherwise; CURT_VARIANT says which kind it is), with its
data in the test's own folder and on a port that the system chooses. Nothing outlives the tests: a process gets SIGKILL
when we die, and its whole group when its owner here is done with it.
"""
import atexit
import contextlib
import datetime
import http.cookiejar
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import time

import requests

import stores
from wire import assert_challenge, Wire

ROOT = pathlib.Path(__file__).resolve().parents[2]
VARIANT = os.environ.get("CURT_VARIANT", "release")
BUILD = pathlib.Path(os.environ.get("CURT_BUILD", ROOT / "build" / ("" if VARIANT == "release" else VARIANT)))
LONG = "CURT_TEST_LONG" in os.environ  # `make test-long`: all that otherwise would take too long
CURT = BUILD / "curt"
HAMMER = BUILD / "tests" / "support" / "hammer"
PROBE = BUILD / "tests" / "support" / "probe.so"

ADMIN_KEY = "ck_the-admin-key-of-the-integration-tests"

# How long a condition may take to come true before the test gives up: never how fast something must be.
PATIENCE_S = {"release": 60, "asan": 120, "tsan": 120}[VARIANT]

SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:check_initialization_order=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}
# What /readyz says when all is well.
WELL = {"store": "ok", "event_log": "ok", "stats_worker": "ok", "sink": "ok", **({"shared_cache": "ok"} if stores.CACHED else {})}
TCP_ESTABLISHED = "01"  # in /proc/net/tcp
COMPLAINTS = re.compile(r"Sanitizer|runtime error|bug:")
READY = re.compile(r"^listening on http://(\S+):(\d+)$", re.MULTILINE)


def scaled(n):
    """So much work in the release build; a share of it under a sanitizer, or on a store that is not the embedded one."""
    return max(1, n // {"release": 1 if stores.EMBEDDED else 10, "asan": 10, "tsan": 20}[VARIANT])


def until(condition, what, seconds=PATIENCE_S):
    """Waits for the condition to say something true, and returns that."""
    deadline = time.monotonic() + seconds
    pause_s = 0.001
    while True:
        outcome = condition()
        if outcome:
            return outcome
        assert time.monotonic() < deadline, f"waited {seconds} s in vain until {what}"
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.02)


def until_status(ask, status):
    """Asks again and again until the answer has that status, and returns it. (A response with an error is false.)"""
    def look():
        response = ask()
        return (response,) if response.status_code == status else None
    return until(look, f"the answer is {status}")[0]


def wait_out(headers, at_most_s):
    """Waits exactly as long as a refusal's Retry-After names: that there is room afterwards is the promise."""
    wait_s = int(headers["Retry-After"])
    assert 1 <= wait_s <= at_most_s
    time.sleep(wait_s)


def soon(milliseconds):
    """That moment, as the API writes it."""
    then = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(milliseconds=milliseconds)
    return then.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def in_time(ask, milliseconds):
    """What comes of ask(moment), with a moment so soon; a later one whenever it was past before the server heard of it."""
    while True:
        response = ask(soon(milliseconds))
        if response.status_code < 300:
            return response.json()
        assert_problem(response, 400, "past")
        milliseconds *= 2


def moment(text):
    """A moment as the API writes it: with milliseconds or, when they are 0, without; so the text itself does not compare."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def is_over(text, milliseconds=0):
    """Has that moment come, so long ago?"""
    return moment(soon(-milliseconds)) >= moment(text)


def unread_bytes():
    """By local and remote port of each connection: how much has come that was not read yet."""
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {tuple(int(address.split(":")[1], 16) for address in row[1:3]): int(row[4].split(":")[1], 16)
            for row in rows if row[3] == TCP_ESTABLISHED}


def clean_env(**more):
    """Our own environment without settings of curt: the server refuses those that it does not know."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("CURT_") and not k.lower().endswith("_proxy")}
    for name, value in SANITIZERS.items():
        env.setdefault(name, value)
    env.update({k: str(v) for k, v in more.items() if v is not None})
    return env


def assert_no_complaints(text, whose):
    assert not COMPLAINTS.search(text), f"{whose} complained:\n{text}"


# Processes

_groups = set()


def _kill_groups():
    for pid in list(_groups):
        kill_group(pid)


atexit.register(_kill_groups)


def kill_group(pid):
    _groups.discard(pid)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def spawn(command, **kwargs):
    """Starts a process group that dies with us. (It dies with the thread that starts it, too.)"""
    words = [word if isinstance(word, bytes) else str(word) for word in command]
    process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *words], start_new_session=True,
                               stdin=subprocess.DEVNULL, **kwargs)
    _groups.add(process.pid)
    return process


def run(command, env=None, cwd=None):
    """Runs a command to its end. On a data folder it works with the store that belongs to it."""
    env = env or clean_env()
    if "--data" in command:
        data = command[command.index("--data") + 1]
        command = stores.translated(command, data)
        env = {**stores.settings_of(data), **env}
    process = spawn(command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
    finally:
        kill_group(process.pid)
        process.wait()
    done = subprocess.CompletedProcess(command, process.returncode, stdout.decode(), stderr.decode(errors="replace"))
    assert_no_complaints(done.stderr, f"curt {command[1:]}")
    return done


def curt(*args, env=None, cwd=None):
    return run([CURT, *args], env=clean_env(**(env or {})), cwd=cwd)


# What a client of the API does

class Client:
    """One keep-alive connection's worth of requests, with an API key. One thread uses it at a time."""

    def __init__(self, url, key=ADMIN_KEY):
        self.url = url
        self.key = key
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.cookies.set_policy(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))  # a test that sends one says so

    def request(self, method, path, key=True, headers=None, **kwargs):
        headers = dict(headers or {})
        if key is True:
            key = self.key
        if key:
            headers.setdefault("Authorization", f"Bearer {key}")
        response = self.session.request(method, self.url + path, headers=headers, allow_redirects=False,
                                        timeout=PATIENCE_S, **kwargs)
        assert_challenge(response.status_code, response.headers.get("WWW-Authenticate"))
        return response

    def get(self, path, **kwargs):
        return self.request("GET", path, **kwargs)

    def head(self, path, **kwargs):
        return self.request("HEAD", path, **kwargs)

    def post(self, path, json=None, **kwargs):
        return self.request("POST", path, json=json, **kwargs)

    def patch(self, path, json=None, **kwargs):
        return self.request("PATCH", path, json=json, **kwargs)

    def delete(self, path, **kwargs):
        return self.request("DELETE", path, **kwargs)

    def create(self, original_url="https://example.com/", headers=None, **fields):
        """A link that must come to be."""
        response = self.post("/api/v1/links", json=dict(original_url=original_url, **fields), headers=headers)
        assert response.status_code == 201, response.text
        return response.json()

    def create_ending(self, milliseconds, original_url="https://example.com/", **fields):
        """A link that ends so soon, or not much later: see its expires_at."""
        return in_time(lambda end: self.post("/api/v1/links", json=dict(original_url=original_url, expires_at=end, **fields)),
                       milliseconds)

    def end_soon(self, key, milliseconds):
        """Likewise, of a link that is there."""
        return in_time(lambda end: self.patch(f"/api/v1/links/{key}", json={"expires_at": end}), milliseconds)

    def link(self, key):
        """The link as the API tells it; None when there is none."""
        response = self.get(f"/api/v1/links/{key}")
        assert response.status_code in (200, 404), response.text
        return response.json() if response.status_code == 200 else None

    def change(self, key, **fields):
        response = self.patch(f"/api/v1/links/{key}", json=fields)
        assert response.status_code == 200, response.text
        return response.json()

    def remove(self, key):
        response = self.delete(f"/api/v1/links/{key}")
        assert response.status_code == 204, response.text

    def target(self, key):
        """Where the short link leads; None when nowhere."""
        response = self.get(f"/{key}", key=None)
        if response.status_code == 404:
            return None
        assert response.status_code in (301, 302, 307, 308), response.text
        return response.headers["Location"]

    def pages(self, limit=100):
        """The list of links, page by page."""
        cursor = ""
        while cursor is not None:
            response = self.get(f"/api/v1/links?limit={limit}" + (f"&cursor={cursor}" if cursor else ""))
            assert response.status_code == 200, response.text
            page = response.json()
            assert set(page) == {"links", "next"}
            yield page["links"]
            cursor = page["next"]

    def links(self):
        return [link for page in self.pages(1000) for link in page]

    def make_key_ending(self, milliseconds, name="somebody", **fields):
        return in_time(lambda end: self.post("/api/v1/keys", json=dict(name=name, expires_at=end, **fields)), milliseconds)

    def make_key(self, name="somebody", **fields):
        response = self.post("/api/v1/keys", json=dict(name=name, **fields))
        assert response.status_code == 201, response.text
        return response.json()

    def keys(self):
        response = self.get("/api/v1/keys")
        assert response.status_code == 200, response.text
        return response.json()["keys"]

    def keys_as_made(self):
        """Without what changes by using them."""
        return [dict(key, last_used_at=None) for key in self.keys()]

    def users(self):
        response = self.get("/api/v1/users?limit=1000")
        assert response.status_code == 200, response.text
        return response.json()["users"]

    def close(self):
        self.session.close()


class Server(Client):
    """A server process and its data folder, through any number of lives. Also a client of itself."""

    def __init__(self, data, *flags, env=None, wrapper=(), listen="127.0.0.1:0", admin_key=ADMIN_KEY):
        super().__init__(None, admin_key or ADMIN_KEY)
        self.data = pathlib.Path(data)
        self.flags = [str(flag) for flag in flags]
        # Tests ask for links that are not there as often as they like, unless that is what they are about: env =
        # {"CURT_LIMITS_MISSES": None} is the program's own default.
        self.env = clean_env(**{"CURT_ADMIN_KEY": admin_key, "CURT_LIMITS_MISSES": 0, **stores.settings_of(data), **(env or {})})
        self.wrapper = list(wrapper)
        self.listen = listen
        self.stdout_path = self.data.with_name(self.data.name + ".stdout")
        self.stderr_path = self.data.with_name(self.data.name + ".stderr")
        self.process = None
        self.port = None
        self.clients = []

    # Life and death

    def launch(self):
        """Starts the process without waiting for it to be ready."""
        assert self.process is None
        with open(self.stderr_path, "ab") as stderr:
            self.process = spawn([*self.wrapper, CURT, "serve", "--data", self.data, "--listen", self.listen,
                                  *stores.translated(self.flags, self.data)], env=self.env, stdout=subprocess.PIPE,
                                 stderr=stderr)
        return self

    def wait_ready(self):
        deadline = time.monotonic() + PATIENCE_S
        said = b""
        while not READY.search(said.decode()):
            ready, _, _ = select.select([self.process.stdout], [], [], max(deadline - time.monotonic(), 0))
            piece = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not piece:
                self.kill()
                raise AssertionError(f"the server did not become ready:\n{said.decode()}\n{self.stderr}")
            said += piece
        with open(self.stdout_path, "ab") as stdout:
            stdout.write(said)
        host, port = READY.search(said.decode()).groups()
        self.port = int(port)
        self.url = f"http://127.0.0.1:{port}" if host in ("0.0.0.0", "127.0.0.1") else f"http://{host}:{port}"
        return self

    def start(self, *flags):
        """With other flags from now on, when there are some."""
        if flags:
            self.flags = [str(flag) for flag in flags]
        return self.launch().wait_ready()

    def signal(self, number):
        self.process.send_signal(number)

    def freeze(self):
        """Makes every thread stand still where it is; `thaw` lets them go on."""
        self.signal(signal.SIGSTOP)
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task")
        until(lambda: all((task / "stat").read_text().rsplit(")", 1)[1].split()[0] == "T" for task in tasks.iterdir()),
              "every thread stands still")

    def thaw(self):
        self.signal(signal.SIGCONT)

    @contextlib.contextmanager
    def frozen(self):
        """What is sent inside is all there when the server goes on."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def wait_end(self):
        """The exit status, once it has ended by itself."""
        try:
            rest, _ = self.process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server does not end:\n{self.stderr}") from None
        with open(self.stdout_path, "ab") as stdout:
            stdout.write(rest)
        return self._buried()

    def stop(self):
        """SIGTERM, as an operator does it. It must end well."""
        self.close()
        self.signal(signal.SIGTERM)
        status = self.wait_end()
        assert status == 0, f"SIGTERM ended in status {status}:\n{self.stderr}"

    def kill(self):
        """SIGKILL, as a crash does it."""
        self.process.kill()
        self.process.communicate()
        self._buried()
        self.close()

    def restart(self, *flags):
        if self.process:
            self.stop()
        return self.start(*flags)

    def _buried(self):
        status = self.process.returncode
        kill_group(self.process.pid)
        self.process = None
        return status

    def finish(self):
        """The end of the test: it must still be alive unless the test ended it, and it must have had no complaints."""
        try:
            if self.process:
                assert self.process.poll() is None, f"the server died with {self.process.returncode}:\n{self.stderr}"
                self.stop()
        finally:
            if self.process:
                self.kill()
            self.close()
        assert_no_complaints(self.stderr, "the server")

    # What it says

    @property
    def stdout(self):
        return self.stdout_path.read_text() if self.stdout_path.exists() else ""

    @property
    def stderr(self):
        return self.stderr_path.read_text(errors="replace") if self.stderr_path.exists() else ""

    def status_field(self, name):
        """A number of /proc/PID/status, in its own unit."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE).group(1))

    def has_read(self, wire):
        """Has it read all that was sent over that connection?"""
        return unread_bytes().get((self.port, wire.sock.getsockname()[1])) == 0

    def is_heard(self):
        """Have all clients read all that it has sent?"""
        return not any(count for (_, remote), count in unread_bytes().items() if remote == self.port)

    # Ways in

    def client(self, key=ADMIN_KEY):
        client = Client(self.url, key)
        self.clients.append(client)
        return client

    def connect(self, **kwargs):
        """A bare connection."""
        wire = Wire(self.port, PATIENCE_S, **kwargs)
        self.clients.append(wire)
        return wire

    def close(self):
        """Our ends of the connections: a stopping server waits a while for clients to let go."""
        super().close()
        for client in self.clients:
            client.close()
        self.clients = []

    def curt(self, *args, env=None):
        """The command line, on the same data folder."""
        return curt(*args, "--data", self.data, env=env)


def hammer(mode, **options):
    """The load client; its report."""
    return hammer_end(hammer_start(mode, **options))


def hammer_start(mode, **options):
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    return spawn([HAMMER, mode, *flags], env=clean_env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def hammer_end(process, seconds=600):
    try:
        stdout, stderr = process.communicate(timeout=seconds)
    finally:
        kill_group(process.pid)
        process.wait()
    assert_no_complaints(stderr.decode(), "the load client")
    assert process.returncode == 0, stderr.decode()
    return json.loads(stdout)


# Judging answers

def assert_problem(response, status, *words):
    """Every error has this shape, and a sentence that names what is wrong."""
    assert response.status_code == status, f"{response.status_code}: {response.text}"
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert set(problem) - {"field"} == {"type", "title", "status", "detail"}
    assert problem["type"] != "urn:curt:invalid-field" or "field" in problem
    assert problem["type"] != "urn:curt:invalid-body" or "field" not in problem
    assert problem["type"].startswith("urn:curt:")
    assert problem["title"] == response.reason
    assert problem["status"] == status
    assert problem["detail"].endswith((".", "!", "?")) and not problem["detail"][0].islower()
    for word in words:
        assert word in problem["detail"], problem["detail"]
    return problem


class unchanged:
    """What happens inside leaves the links (but for how often they were followed, which is stored later), the keys (but
    for when they were used) and the users as they are."""

    def __init__(self, client):
        self.client = client

    def look(self):
        return [dict(link, clicks=None) for link in self.client.links()], self.client.keys_as_made(), self.client.users()

    def __enter__(self):
        self.before = self.look()

    def __exit__(self, kind, value, trace):
        if kind is None:
            assert self.look() == self.before


def folder_bytes(folder):
    """Every file below the folder and what is in it. A process that works there may remove one meanwhile."""
    folder, found = pathlib.Path(folder), {}
    for path in sorted(folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                found[str(path.relative_to(folder))] = path.read_bytes()
    return found
