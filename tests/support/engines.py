"""Real servers for the tests and for tools/cluster: PostgreSQL, Redis with Sentinel, ZooKeeper, Kafka, ClickHouse, HAProxy.

They come from Debian's packages (Kafka from Maven's), listen on free loopback ports, and keep their data in one temporary folder, which goes
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
import itertools
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from engine import PATIENCE_S, ROOT, UNPACKED, Engine, EngineError, free_port, is_alive, program, until  # noqa: F401
from engine_clickhouse import ClickHouse
from engine_kafka import Kafka
from engine_postgres import Postgres
from engine_redis import Redis, RedisConnection, RedisError, RedisSet, Sentinel  # noqa: F401

NOBODY = 65534
TEMPLATE = "ENGINES_TEMPLATE"  # in the environment: a fresh data folder of PostgreSQL


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
                "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true", "-Dzookeeper.jmx.log4j.disable=true", "-cp",
                f"{self.folder}:{program('usr/share/java/zookeeper.jar')}",
                "org.apache.zookeeper.server.quorum.QuorumPeerMain", self.folder / "zoo.cfg"]

    def four_letters(self, word):
        with socket.create_connection(("127.0.0.1", self.port), 1) as s:
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

    def __init__(self, engines, name, config):
        super().__init__(engines, name)
        self.config = self.folder / "haproxy.cfg"
        shutil.copy(config, self.config)
        self.engines.give(self.config)
        self.values = {"CURT_FRONT": self.address}

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


def own_folder():
    """A new temporary folder with our pid in its name. Those of processes that were killed go first."""
    top = pathlib.Path(tempfile.gettempdir())
    for left in top.glob("curt-engines-*-*"):
        owner = left.name.split("-")[2]
        if owner.isdigit() and not is_alive(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"curt-engines-{os.getpid()}-", dir=top)


class Engines:
    """All servers of a test or of a cluster, and the folder that they share."""

    def __init__(self, folder=None):
        self.folder = pathlib.Path(folder or own_folder())
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
        """In the reverse order, so that nobody misses what he stands on. Those that do not end well are reported at the end."""
        atexit.unregister(self.end)
        complaints = []
        for engine in reversed(self.all):
            try:
                engine.stop(engine.last)
            except EngineError as complaint:
                complaints.append(str(complaint))
        self.all = []
        shutil.rmtree(self.folder, ignore_errors=True)
        if complaints:
            raise EngineError("\n".join(complaints))

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

    def run(self, command, lowers=True):
        done = subprocess.run(self.bound(command, lowers), cwd=self.folder, env=self.env, capture_output=True, text=True,
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
        """initdb takes seconds, a copy does not: one for us and for all processes that we start."""
        if not os.path.isdir(os.environ.get(TEMPLATE, "")):
            home = pathlib.Path(tempfile.mkdtemp(prefix="curt-template-"))
            atexit.register(shutil.rmtree, home, ignore_errors=True)
            home.chmod(0o711)
            template = home / "data"
            template.mkdir(mode=0o700)
            self.give(template)
            self.run([self.postgres_program("initdb"), "-D", template, "-U", "postgres", "-A", "trust", "-E", "UTF8",
                      "--locale=C", "--no-sync", "--no-instructions"])
            os.environ[TEMPLATE] = str(template)
        return os.environ[TEMPLATE]

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

    def launch(self, kind, name=None, **kwargs):
        """Starts one without waiting until it answers: for who starts several."""
        kinds = {"postgres": Postgres, "redis": Redis, "zookeeper": ZooKeeper, "kafka": Kafka, "clickhouse": ClickHouse}
        return self.add(kinds[kind](self, self.name(kind, name), **kwargs)).launch()

    def postgres(self, name=None, **kwargs):
        return self.launch("postgres", name, **kwargs).wait_ready()

    def redis(self, name=None, **kwargs):
        return self.launch("redis", name, **kwargs).wait_ready()

    def redis_set(self, name=None, **kwargs):
        return RedisSet(self, self.name("set", name), **kwargs)

    def zookeeper(self, name=None):
        return self.launch("zookeeper", name).wait_ready()

    def kafka(self, name=None):
        return self.launch("kafka", name).wait_ready()

    def clickhouse(self, name=None):
        return self.launch("clickhouse", name).wait_ready()


def all_may_pass(folder):
    return all(parent.stat().st_mode & 0o001 for parent in [folder, *folder.parents])


def main():
    """Starts one of each, says where the programs and their libraries come from, and ends them."""
    with Engines() as engines:
        started = time.monotonic()
        shard = engines.postgres(durable=False)
        engines.redis()
        engines.zookeeper()
        engines.kafka()
        engines.clickhouse()
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
