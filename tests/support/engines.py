"""Real servers for the tests and for tools/cluster: PostgreSQL, Redis with Sentinel, ZooKeeper, HAProxy.

They come from Debian's packages, listen on free loopback ports, and keep their data in one temporary folder, which goes
with them. No system service is touched or needed: `tools/install-packages test` installs what starts nothing by itself,
and unpacks the rest under build/engines/. Who is root runs them as nobody, since PostgreSQL refuses root.

    with Engines() as engines:
        shard = engines.postgres()
        print(shard.database("links"))      # postgres://postgres@127.0.0.1:20123/links
        shard.kill()
        shard.start()                       # on the same port, with what it has kept

Nothing outlives us: each server gets SIGKILL when the thread that started it ends, however that happens.
"""
import atexit
import contextlib
import itertools
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNPACKED = ROOT / "build" / "engines"
PATIENCE_S = 60
NOBODY = 65534


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
    for _ in range(1000):
        port = random.SystemRandom().randrange(low, top)
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
    lowers = True  # to nobody, when we are root

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

    def stop(self):
        """As an operator does it; waits for the end."""
        if self.process is None:
            return
        self.resume()
        self.process.send_signal(self.polite)
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            pass
        self.kill()

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


class Postgres(Engine):
    """PostgreSQL 15. `durable=False` leaves out fsync: what a killed process has written stays, a machine's crash is not
    the point of most tests."""

    kind = "postgres"
    polite = signal.SIGINT  # "fast": it ends connections instead of waiting for them

    def __init__(self, engines, name, durable=True, settings=None, primary=None):
        super().__init__(engines, name)
        self.primary = primary
        self.settings = {"fsync": "on" if durable else "off", "jit": "off", "listen_addresses": "127.0.0.1",
                         "unix_socket_directories": "", "max_connections": 200, "shared_buffers": "32MB",
                         "max_wal_size": "256MB", "wal_level": "replica", "autovacuum_naptime": "5s",
                         "log_checkpoints": "off", **(settings or {})}
        self.data = self.folder / "data"
        if primary is None:
            self.engines.run(["cp", "-a", self.engines.postgres_template(), self.data])
        else:
            self.engines.run([self.program("pg_basebackup"), "-h", "127.0.0.1", "-p", primary.port, "-U", "postgres", "-D",
                              self.data, "-R", "-X", "stream", "-c", "fast", "--no-sync"])

    def program(self, name):
        return self.engines.postgres_program(name)

    def command(self):
        flags = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        return [self.program("postgres"), "-D", self.data, "-p", self.port, *flags]

    def is_ready(self):
        return subprocess.run([str(self.program("pg_isready")), "-q", "-h", "127.0.0.1", "-p", str(self.port)],
                              check=False).returncode == 0

    def url(self, database="postgres"):
        return f"postgres://postgres@{self.address}/{database}"

    def sql(self, text, database="postgres"):
        """What the statements give: rows of columns, as text."""
        done = subprocess.run([str(self.program("psql")), "-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-c",
                               text, self.url(database)], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        if done.returncode != 0:
            raise EngineError(f"{self.name}: {done.stderr.strip()}")
        return [line.split("\t") for line in done.stdout.splitlines()]

    def database(self, name):
        """A new and empty database; its address."""
        self.sql(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def drop(self, name):
        self.sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def replica(self, name=None):
        """A streaming replica of this server, as it is now and from now on."""
        durable = self.settings["fsync"] == "on"
        return self.engines.postgres(name or f"{self.name}-replica", durable=durable, primary=self)

    def replayed(self, replica):
        """Has the replica all that this server has?"""
        position = self.sql("SELECT pg_current_wal_lsn()")[0][0]
        return replica.sql(f"SELECT pg_last_wal_replay_lsn() >= '{position}'")[0][0] == "t"


class RedisError(Exception):
    pass


class RedisConnection:
    """As much of a Redis client as tests need."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.file = self.socket.makefile("rb")

    def ask(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        self.socket.sendall(b"*%d\r\n%s" % (len(words), parts))
        return self.read()

    def read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("Redis has closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RedisError(rest.decode())
        if kind == b"+":
            return rest.decode()
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2].decode()
        return None if rest == b"-1" else [self.read() for _ in range(int(rest))]

    def close(self):
        self.file.close()
        self.socket.close()


class Redis(Engine):
    """Redis 7, nothing of it on disk: started again it is empty, as a cache may be."""

    kind = "redis"

    def __init__(self, engines, name, primary=None, settings=None):
        super().__init__(engines, name)
        self.settings = {"bind": "127.0.0.1", "port": self.port, "dir": self.folder, "save": "", "appendonly": "no",
                         "databases": 64, "repl-diskless-sync-delay": 0, "repl-ping-replica-period": 1,
                         **(settings or {})}
        if primary is not None:
            self.settings["replicaof"] = f"127.0.0.1 {primary.port}"

    def command(self):
        flags = [word for name, value in self.settings.items() for word in (f"--{name}", *(str(value).split(" ")))]
        return [self.engines.redis_program("redis-server"), *flags]

    def is_ready(self):
        try:
            return self.ask("PING") == "PONG"
        except (OSError, RedisError):
            return False

    def ask(self, *words):
        with contextlib.closing(RedisConnection(self.port)) as connection:
            return connection.ask(*words)

    def role(self):
        """primary, or replica; None when nobody answers."""
        try:
            return "primary" if self.ask("ROLE")[0] == "master" else "replica"
        except (OSError, RedisError):
            return None

    def url(self, db=0):
        return f"redis://{self.address}/{db}"


class Sentinel(Redis):
    kind = "sentinel"

    def __init__(self, engines, name, primary_name, primary, down_ms=500):
        Engine.__init__(self, engines, name)
        self.primary_name = primary_name
        self.config = self.folder / "sentinel.conf"
        self.config.write_text(f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\n"
                               f"sentinel monitor {primary_name} 127.0.0.1 {primary.port} 2\n"
                               f"sentinel down-after-milliseconds {primary_name} {down_ms}\n"
                               f"sentinel failover-timeout {primary_name} 3000\n"
                               f"sentinel parallel-syncs {primary_name} 2\n")
        self.engines.give(self.config)

    def command(self):
        return [self.engines.redis_program("redis-sentinel"), self.config]

    def primary_port(self):
        """Who is the primary, in this Sentinel's view."""
        return int(self.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.primary_name)[1])

    def is_informed(self, replicas, sentinels):
        """Does it know all the others?"""
        answer = self.ask("SENTINEL", "MASTER", self.primary_name)
        fields = dict(zip(answer[::2], answer[1::2]))
        return int(fields["num-slaves"]) >= replicas and int(fields["num-other-sentinels"]) >= sentinels - 1


class RedisSet:
    """A primary, its replicas, and the Sentinels that watch them and promote one of them."""

    def __init__(self, engines, name, replicas=2, sentinels=3, down_ms=500):
        self.name = name
        first = engines.redis(f"{name}-1")
        self.nodes = [first, *(engines.redis(f"{name}-{i + 2}", primary=first) for i in range(replicas))]
        self.sentinels = [engines.add(Sentinel(engines, f"{name}-sentinel-{i + 1}", name, first, down_ms)).start()
                          for i in range(sentinels)]
        until(self.is_whole, f"the Sentinels of {name} know everybody")

    def is_whole(self):
        """All run, all Sentinels know all, and every replica follows the primary."""
        return all(s.is_informed(len(self.nodes) - 1, len(self.sentinels)) for s in self.sentinels) and \
            self.primary() is not None and [node.role() for node in self.nodes].count("primary") == 1 and \
            sum("master_link_status:up" in node.ask("INFO", "replication") for node in self.nodes) == len(self.nodes) - 1

    def rejoin(self, node):
        """Starts a node that was killed as a replica of whoever is the primary now."""
        node.settings["replicaof"] = f"127.0.0.1 {until(self.primary, 'there is a primary').port}"
        return node.start()

    def primary(self):
        """Whom the Sentinels call the primary, once it calls itself so too; None while they do not agree."""
        ports = {s.primary_port() for s in self.sentinels if s.process}
        found = [node for node in self.nodes if node.process and node.port in ports and node.role() == "primary"]
        return found[0] if len(ports) == 1 and found else None

    def url(self, db=0):
        return f"redis+sentinel://{','.join(s.address for s in self.sentinels)}/{self.name}/{db}"


class ZooKeeper(Engine):
    """ZooKeeper 3.8, alone. Sessions may be as short as 400 ms."""

    kind = "zookeeper"

    def __init__(self, engines, name):
        super().__init__(engines, name)
        (self.folder / "zoo.cfg").write_text(
            f"dataDir={self.folder / 'data'}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\ntickTime=200\n"
            "minSessionTimeout=400\nmaxSessionTimeout=60000\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            "4lw.commands.whitelist=ruok,srvr,mntr\n")
        (self.folder / "log4j.properties").write_text(
            "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n\n")

    def command(self):
        # The jar names all others that it needs.
        return [program("usr/bin/java"), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
                "-Djava.net.preferIPv4Stack=true", "-Dzookeeper.jmx.log4j.disable=true", "-cp",
                f"{self.folder}:{program('usr/share/java/zookeeper.jar')}",
                "org.apache.zookeeper.server.quorum.QuorumPeerMain", self.folder / "zoo.cfg"]

    def four_letters(self, word):
        with socket.create_connection(("127.0.0.1", self.port), 5) as s:
            s.sendall(word.encode())
            with s.makefile() as answer:
                return answer.read()

    def is_ready(self):
        try:
            return self.four_letters("ruok") == "imok" and "Mode: standalone" in self.four_letters("srvr")
        except OSError:
            return False

    def url(self, path=""):
        return f"zookeeper://{self.address}{path}"


class HAProxy(Engine):
    """HAProxy with a settings file, which takes what differs from its environment (`values`)."""

    kind = "haproxy"

    def __init__(self, engines, name, config, values=None):
        super().__init__(engines, name)
        self.config = self.folder / "haproxy.cfg"
        shutil.copy(config, self.config)
        self.engines.give(self.config)
        self.values = {"CURT_FRONT": self.address, **(values or {})}

    def command(self):
        return [program("usr/sbin/haproxy"), "-db", "-f", self.config]

    def env(self):
        return {**self.engines.env, **self.values}

    def is_ready(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 5).close()
            return True
        except OSError:
            return False


class Engines:
    """All servers of a test or of a cluster, and the folder that they share."""

    def __init__(self, folder=None):
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="curt-engines-"))
        self.folder.mkdir(exist_ok=True)
        self.folder.chmod(0o711)  # nobody must be able to pass
        self.env = {name: value for name, value in os.environ.items()
                    if name in ("PATH", "LANG", "TZ") or name.startswith("LC_")}
        self.numbers = itertools.count()
        self.all = []
        atexit.register(self.end)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        """In the reverse order, so that nobody misses what he stands on."""
        atexit.unregister(self.end)
        for engine in reversed(self.all):
            engine.stop()
        self.all = []
        shutil.rmtree(self.folder, ignore_errors=True)

    # What the engines ask for

    def give(self, path):
        if os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)

    def new_folder(self, name, lowers=True):
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        if lowers:
            self.give(folder)
        return folder

    def bound(self, command, lowers=True):
        """The command as an ordinary user, ending when we end."""
        lower = ["--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"] if lowers and os.geteuid() == 0 else []
        return ["setpriv", *lower, "--pdeathsig", "KILL", *(str(word) for word in command)]

    def run(self, command):
        done = subprocess.run(self.bound(command), cwd=self.folder, env=self.env, capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise EngineError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")

    def postgres_program(self, name):
        place = program(f"usr/lib/postgresql/15/bin/{name}")
        if os.geteuid() != 0 or not place.is_relative_to(UNPACKED) or all_may_pass(place.parent):
            return place
        # Unpacked below a folder that is root's own: nobody gets a copy.
        copy = self.folder / "postgresql"
        if not copy.exists():
            copy.mkdir(mode=0o755)
            for part in ("usr/lib/postgresql", "usr/share/postgresql"):
                shutil.copytree(UNPACKED / part, copy / part, symlinks=True)
        return copy / place.relative_to(UNPACKED)

    def postgres_template(self):
        """initdb takes seconds, a copy does not."""
        template = self.folder / "postgres-template"
        if not template.exists():
            folder = self.new_folder("postgres-template.new")
            self.run([self.postgres_program("initdb"), "-D", folder, "-U", "postgres", "-A", "trust", "-E", "UTF8",
                      "--locale=C", "--no-sync", "--no-instructions"])
            folder.rename(template)
        return template

    def redis_program(self, name):
        """Debian's redis-tools has the server without the service; it goes by the name that it is called."""
        link = self.folder / name
        if not link.exists():
            link.symlink_to(program("usr/bin/redis-check-rdb"))
        return link

    # Engines

    def add(self, engine):
        self.all.append(engine)
        return engine

    def name(self, kind, name):
        return name or f"{kind}{next(self.numbers)}"

    def postgres(self, name=None, **kwargs):
        return self.add(Postgres(self, self.name("postgres", name), **kwargs)).start()

    def redis(self, name=None, **kwargs):
        return self.add(Redis(self, self.name("redis", name), **kwargs)).start()

    def redis_set(self, name=None, **kwargs):
        return RedisSet(self, self.name("set", name), **kwargs)

    def zookeeper(self, name=None):
        return self.add(ZooKeeper(self, self.name("zookeeper", name))).start()

    def haproxy(self, config, values=None, name=None):
        return self.add(HAProxy(self, self.name("haproxy", name), config, values)).start()


def all_may_pass(folder):
    return all(parent.stat().st_mode & 0o001 for parent in [folder, *folder.parents])


def main():
    """Starts one of each, says where the programs and their libraries come from, and ends them."""
    with Engines() as engines:
        started = time.monotonic()
        shard = engines.postgres(durable=False)
        engines.redis()
        engines.zookeeper()
        for engine in engines.all:
            binary = os.readlink(f"/proc/{engine.pid}/exe")
            maps = {line.split()[-1] for line in pathlib.Path(f"/proc/{engine.pid}/maps").read_text().splitlines()}
            libraries = sorted(path for path in maps if ".so" in path)
            print(f"{engine.kind} on {engine.address}: {binary}, {len(libraries)} libraries"
                  f"{''.join(f'{chr(10)}    {path}' for path in libraries if '-v' in sys.argv)}")
        print(shard.sql("SELECT version()")[0][0])
        print(f"all of it within {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
