"""A whole cluster on this machine, for tests and for tools/cluster:

    two PostgreSQL shards, the first with a replica      links (store.url, store.replicas) and keys (keys.db_url)
    four Redis servers                                   keys that are ready for use (keys.url)
    two Redis servers                                    the shared cache (cache.url)
    a Redis primary, two replicas, three Sentinels       leases and limits (lease.url, limits.url)
    ZooKeeper                                            the lease of keygen
    Kafka                                                events on their way (queue.url)
    a Redis server                                       what was counted lately, live clicks (seen.url)
    ClickHouse                                           statistics (sink.url)
    two each of curt keygen, curt keysync, curt worker, curt serve
    curt serve --role stats                              answers questions about statistics
    HAProxy                                              in front of the servers

The settings come from deploy/cluster.conf; the addresses, which differ from start to start, override it by environment
variables, as they may anywhere.
"""
import os
import pathlib
import secrets
import urllib.error
import urllib.request

from engines import ROOT, Engine, EngineError, Engines, HAProxy, until

BUILD = pathlib.Path(os.environ.get("CURT_BUILD", ROOT / "build"))
CONFIG = ROOT / "deploy" / "cluster.conf"
HAPROXY_CONFIG = ROOT / "deploy" / "haproxy.cfg"


class Curt(Engine):
    """A curt process: one of its services, with settings as environment variables."""

    kind = "curt"
    lowers = False
    ends_well = True

    def __init__(self, engines, name, service, settings, flags=()):
        super().__init__(engines, name)
        self.service = service
        self.settings = settings
        self.flags = flags
        self.began = 0  # of its log, with this life

    def command(self):
        place = {"serve": ["--data", self.folder / "data", "--listen", self.address],
                 "worker": ["--data", self.folder / "data", "--worker-listen", self.address]}.get(self.service, [])
        return [BUILD / "curt", self.service, *place, *self.flags]

    def launch(self):
        self.began = self.log.stat().st_size if self.log.exists() else 0
        return super().launch()

    def said(self):
        """In this life."""
        return self.log.read_bytes()[self.began:].decode(errors="replace")

    def env(self):
        return {**self.engines.env, **{name: str(value) for name, value in self.settings.items()}}

    @property
    def url(self):
        return f"http://{self.address}"

    def is_ready(self):
        if self.service != "serve":
            return f"{self.service}: ready" in self.said()
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False


class Cluster:
    """All of it. `settings` come on top of the file's for every curt process."""

    def __init__(self, engines=None, admin_key=None, settings=None, durable=True, say=lambda _: None):
        if not (BUILD / "curt").exists():
            raise EngineError(f"{BUILD / 'curt'} is missing: run 'make'")
        self.engines = engines or Engines()
        self.admin_key = admin_key or "ck_" + secrets.token_urlsafe(30)
        self.say = say
        self.start_databases(durable)
        self.start_redis()
        self.start_event_servers()
        self.settings = {**self.addresses(), "CURT_CONFIG": CONFIG, **(settings or {})}
        self.start_services()

    def start_databases(self, durable):
        self.say("PostgreSQL: two shards, and a replica of the first")
        self.shards = [self.engines.postgres(f"shard-{name}", durable=durable) for name in "ab"]
        for shard in self.shards:
            shard.database("links")
            shard.database("keys")
        self.replica = self.shards[0].replica("shard-a-replica")

    def start_redis(self):
        self.say("Redis: four for keys, two for the cache, one with replicas and Sentinels; ZooKeeper")
        self.key_shards = [self.engines.redis(f"keys-{number}") for number in range(1, 5)]
        self.caches = [self.engines.redis(f"cache-{number}") for number in range(1, 3)]
        self.leader = self.engines.redis_set("leader")
        self.zookeeper = self.engines.zookeeper("zookeeper")

    def start_event_servers(self):
        self.say("Kafka, ClickHouse, and a Redis for what was counted")
        self.kafka = self.engines.kafka("kafka")
        self.clickhouse = self.engines.clickhouse("clickhouse")
        self.seen = self.engines.redis("seen")

    def addresses(self):
        return {
            "CURT_STORE_URL": ",".join(shard.url("links") for shard in self.shards),
            "CURT_STORE_REPLICAS": self.replica.url("links"),
            "CURT_CACHE_URL": ",".join(cache.url() for cache in self.caches),
            "CURT_KEYS_URL": ",".join(shard.url() for shard in self.key_shards),
            "CURT_KEYS_DB_URL": ",".join(shard.url("keys") for shard in self.shards),
            "CURT_LEASE_URL": self.leader.url(),
            "CURT_LIMITS_URL": self.leader.url(),
            "CURT_QUEUE_URL": self.kafka.url(),
            "CURT_SINK_URL": self.clickhouse.url("curt"),
            "CURT_SEEN_URL": self.seen.url(),
        }

    def curt(self, name, service, *flags, **more):
        return self.engines.add(Curt(self.engines, name, service, {**self.settings, **more}, flags)).launch()

    def start_services(self):
        self.say("curt: two keygens, two keysyncs, two workers, two servers, one that answers questions; HAProxy")
        lease = self.zookeeper.url("/curt")
        self.keygens = [self.curt(f"keygen-{number}", "keygen", CURT_LEASE_URL=lease) for number in (1, 2)]
        self.keysyncs = [self.curt(f"keysync-{number}", "keysync") for number in (1, 2)]
        self.front = HAProxy(self.engines, "front", HAPROXY_CONFIG)
        self.url = f"http://{self.front.address}"
        own = {"CURT_ADMIN_KEY": self.admin_key, "CURT_BASE_URL": self.url}
        self.servers = [self.curt(f"server-{number}", "serve", **own) for number in (1, 2)]
        self.workers = [self.curt(f"worker-{number}", "worker") for number in (1, 2)]
        self.answers = self.curt("stats", "serve", "--role", "stats", **own)
        for process in [*self.keygens, *self.keysyncs, *self.servers, *self.workers, self.answers]:
            process.wait_ready()
        until(lambda: all(self.stock()), "every Redis server has keys")
        self.front.values |= {f"CURT_SERVER_{number}": server.address for number, server in enumerate(self.servers, 1)}
        self.front.values["CURT_STATS"] = self.answers.address
        self.engines.add(self.front).start()
        until(lambda: all(self.is_ready(url) for url in (self.url, self.answers.url, *(server.url for server in self.servers))),
              "all servers are ready")

    def stock(self):
        """How many keys wait on each Redis server."""
        return [shard.ask("LLEN", "curt:keys:available") for shard in self.key_shards]

    @staticmethod
    def is_ready(url):
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.HTTPError, OSError):
            return False

    def rows(self):
        """What runs where: (what, name, address, process id)."""
        return [(engine.kind, engine.name, engine.address if getattr(engine, "service", "serve") in ("serve", "worker") else "-", engine.pid)
                for engine in self.engines.all]

    def end(self):
        self.engines.end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
