"""PostgreSQL for the tests."""
import contextlib
import signal
import subprocess

from engine import PATIENCE_S, Engine, EngineError


class Postgres(Engine):
    """PostgreSQL 15. `durable=False` leaves out fsync: what a killed process has written stays, a machine's crash is not
    the point of most tests."""

    kind = "postgres"
    polite = signal.SIGINT  # "fast": it ends connections instead of waiting for them
    last = signal.SIGQUIT  # "immediate": it writes nothing more

    def __init__(self, engines, name, durable=True, settings=None, primary=None):
        super().__init__(engines, name)
        self.primary = primary
        self.settings = {"fsync": "on" if durable else "off", "jit": "off", "listen_addresses": "127.0.0.1",
                         "unix_socket_directories": "", "max_connections": 200, "shared_buffers": "32MB",
                         "max_wal_size": "256MB", "wal_level": "replica", "autovacuum_naptime": "5s",
                         "log_checkpoints": "off", "wal_retrieve_retry_interval": "100ms",
                         # In its data folder: what a killed one leaves there goes with it.
                         "dynamic_shared_memory_type": "mmap", **(settings or {})}
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

    def kill(self):
        """As any engine; what the system keeps of a PostgreSQL that could not tidy up goes too."""
        super().kill()
        with contextlib.suppress(OSError):
            for line in (self.data / "postmaster.pid").read_text().splitlines()[6:7]:
                subprocess.run(["ipcrm", "-m", line.split()[1]], stderr=subprocess.DEVNULL, check=False)

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
