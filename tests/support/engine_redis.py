"""Redis and Sentinel for the tests, and as much of a client as tests need."""
import contextlib
import secrets
import socket

from engine import Engine, until


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
        self.id = secrets.token_hex(20)

    def introduce(self, replicas, others):
        """Before it starts: what it would find out by and by."""
        with self.config.open("a") as config:
            config.write(f"sentinel myid {self.id}\n")
            for node in replicas:
                config.write(f"sentinel known-replica {self.primary_name} 127.0.0.1 {node.port}\n")
            for other in others:
                config.write(f"sentinel known-sentinel {self.primary_name} 127.0.0.1 {other.port} {other.id}\n")

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
        self.nodes = [first, *(engines.add(Redis(engines, f"{name}-{i + 2}", primary=first)) for i in range(replicas))]
        self.sentinels = [engines.add(Sentinel(engines, f"{name}-sentinel-{i + 1}", name, first, down_ms))
                          for i in range(sentinels)]
        for sentinel in self.sentinels:
            sentinel.introduce(self.nodes[1:], [other for other in self.sentinels if other is not sentinel])
        others = [*self.nodes[1:], *self.sentinels]
        for engine in others:
            engine.launch()
        for engine in others:
            engine.wait_ready()
        until(self.is_whole, f"the Sentinels of {name} know everybody")

    def is_whole(self):
        """All run, all Sentinels know all, and every replica follows the primary."""
        return all(s.is_informed(len(self.nodes) - 1, len(self.sentinels)) for s in self.sentinels) and \
            self.primary() is not None and [node.role() for node in self.nodes].count("primary") == 1 and \
            sum("master_link_status:up" in node.ask("INFO", "replication") for node in self.nodes) == len(self.nodes) - 1

    def rejoin(self, node):
        """Starts a node that was killed as a replica of the current primary."""
        node.settings["replicaof"] = f"127.0.0.1 {until(self.primary, 'there is a primary').port}"
        return node.start()

    def primary(self):
        """Whom the Sentinels call the primary, once it calls itself so too; None while they do not agree."""
        ports = {s.primary_port() for s in self.sentinels if s.process}
        found = [node for node in self.nodes if node.process and node.port in ports and node.role() == "primary"]
        return found[0] if len(ports) == 1 and found else None

    def url(self, db=0):
        return f"redis+sentinel://{','.join(s.address for s in self.sentinels)}/{self.name}/{db}"
