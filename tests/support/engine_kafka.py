"""A Kafka broker for the tests: the real one where `tools/install-packages test` could get it, otherwise librdkafka's mock
cluster in a process of its own, which says so."""
import socket
import struct

from engine import ROOT, UNPACKED, Engine, EngineError, free_port, program

JARS = UNPACKED / "kafka"
MOCK = ROOT / "build" / "tests" / "support" / "kafka_mock"
CLUSTER = "Y3VydC10ZXN0LWNsdXN0ZXI"

PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
num.partitions=4
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.cleaner.dedupe.buffer.size=4194304
"""


def has_real_one():
    return any(JARS.glob("kafka-clients-*.jar"))


class Kafka(Engine):
    """Kafka 3 in KRaft mode, broker and controller in one process. The mock cannot be started again: it has another port
    then, and has lost everything."""

    kind = "kafka"
    lowers = False

    def __init__(self, engines, name):
        super().__init__(engines, name)
        self.is_real = has_real_one()
        self.mock_port = self.folder / "port"
        if self.is_real:
            self.properties = self.folder / "server.properties"
            self.properties.write_text(PROPERTIES.format(port=self.port, controller_port=free_port(), folder=self.folder))
            engines.run(self.java("64m", "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", self.properties), lowers=False)
        else:
            print("Kafka's jars could not be had: librdkafka's mock cluster stands in for the broker", flush=True)

    def java(self, heap, *words):
        return [program("usr/bin/java"), f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
                "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true", "-cp", f"{JARS}/*", *words]

    def command(self):
        if not self.is_real:
            if self.mock_port.exists():
                raise EngineError("the mock of a Kafka broker cannot be started again")
            return [MOCK, self.mock_port]
        return self.java("512m", "kafka.Kafka", self.properties)

    def is_ready(self):
        """It counts itself among its brokers."""
        if not self.is_real:
            if not self.mock_port.exists():
                return False
            self.port = int(self.mock_port.read_text())
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2) as s, s.makefile("rb") as answer:
                # Metadata, version 1, about no topic.
                request = struct.pack(">hhihi", 3, 1, 1, -1, 0)
                s.sendall(struct.pack(">i", len(request)) + request)
                _, _, brokers = struct.unpack(">iii", answer.read(12))
                return brokers > 0
        except (OSError, struct.error):
            return False

    def url(self):
        return f"kafka://{self.address}"
