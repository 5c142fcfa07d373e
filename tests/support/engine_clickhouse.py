"""ClickHouse for the tests."""
import http.client
import urllib.parse

from engine import Engine, EngineError, free_port, program

CONFIG = """<yandex>
    <logger><level>warning</level><console>1</console></logger>
    <http_port>{port}</http_port>
    <tcp_port>{native_port}</tcp_port>
    <listen_host>127.0.0.1</listen_host>
    <path>{folder}/data/</path>
    <tmp_path>{folder}/tmp/</tmp_path>
    <users_config>{folder}/users.xml</users_config>
    <default_profile>default</default_profile>
    <default_database>default</default_database>
    <mark_cache_size>67108864</mark_cache_size>
</yandex>
"""
USERS = """<yandex>
    <profiles><default><max_memory_usage>4000000000</max_memory_usage></default></profiles>
    <users><default>
        <password></password>
        <networks><ip>127.0.0.1</ip></networks>
        <profile>default</profile>
        <quota>default</quota>
    </default></users>
    <quotas><default><interval>
        <duration>3600</duration><queries>0</queries><errors>0</errors><result_rows>0</result_rows><read_rows>0</read_rows>
        <execution_time>0</execution_time>
    </interval></default></quotas>
</yandex>
"""


class ClickHouse(Engine):
    """ClickHouse 18.16, alone; its user is `default` and has no password."""

    kind = "clickhouse"
    lowers = False  # it does not mind, and runs as who owns its data

    def __init__(self, engines, name):
        super().__init__(engines, name)
        (self.folder / "config.xml").write_text(CONFIG.format(port=self.port, native_port=free_port(), folder=self.folder))
        (self.folder / "users.xml").write_text(USERS)

    def command(self):
        return [program("usr/sbin/clickhouse-server"), f"--config-file={self.folder / 'config.xml'}"]

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def is_ready(self):
        try:
            return self.ask("GET", "/ping") == (200, "Ok.\n")
        except (OSError, http.client.HTTPException):
            return False

    def sql(self, text):
        """Rows of texts."""
        status, answer = self.ask("POST", "/?" + urllib.parse.urlencode({"wait_end_of_query": 1}), text.encode())
        if status != 200:
            raise EngineError(answer)
        return [line.split("\t") for line in answer.splitlines()]

    def url(self, database="curt"):
        return f"clickhouse://{self.address}/{database}"
