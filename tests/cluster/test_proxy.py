"""What deploy/haproxy.cfg does with questions that take long. Its times are made short; what stands behind it only counts."""
import http.server
import threading
import urllib.error
import urllib.request

import pytest

from cluster import HAPROXY_CONFIG
from engines import HAProxy
from harness import until


class Backend(http.server.ThreadingHTTPServer):
    """Is always ready; answers anything else when it is let go."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.asked, self.go = [], threading.Event()
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()

    @property
    def address(self):
        return f"127.0.0.1:{self.server_port}"

    def end(self):
        self.go.set()
        self.shutdown()
        self.thread.join()
        self.server_close()


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path not in ("/readyz", "/healthz"):
            self.server.asked.append(self.path)
            self.server.go.wait()
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


@pytest.fixture
def proxied(engines, tmp_path):
    """Where to ask, the server for questions, and another one."""
    config = tmp_path / "haproxy.cfg"
    text = HAPROXY_CONFIG.read_text()
    assert text.count("timeout server 20s") == 1
    config.write_text(text.replace("timeout server 20s", "timeout server 300ms"))
    stats, other = Backend(), Backend()
    proxy = HAProxy(engines, engines.name("front", None), config)
    proxy.values |= {"CURT_SERVER_1": other.address, "CURT_SERVER_2": other.address, "CURT_STATS": stats.address}
    engines.add(proxy).start()
    yield f"http://{proxy.address}", stats, other
    proxy.kill()
    stats.end()
    other.end()


def test_a_question_that_takes_long_is_asked_once(proxied):
    url, stats, other = proxied
    threading.Timer(2, stats.go.set).start()  # much longer than the servers that redirect are waited for
    with urllib.request.urlopen(f"{url}/stats?timeWindowMinutes=5", timeout=60) as answer:
        assert answer.status == 200
    assert (len(stats.asked), other.asked) == (1, [])


def test_others_are_asked_when_the_one_for_questions_is_down(proxied):
    url, stats, other = proxied
    stats.end()
    other.go.set()

    def is_answered():
        try:
            with urllib.request.urlopen(f"{url}/api/v1/stats", timeout=60) as answer:
                return answer.status == 200
        except urllib.error.HTTPError:
            return False
    until(is_answered, "another server answers")
    assert other.asked
