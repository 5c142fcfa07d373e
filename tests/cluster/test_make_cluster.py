"""`make cluster`, as a person uses it."""
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import time
import urllib.request

import pytest

import harness
from engines import is_alive

STARTS_S = 120


def read_until(process, text):
    """What it prints, up to and with that text."""
    said, deadline = "", time.monotonic() + STARTS_S
    while text not in said:
        ready, _, _ = select.select([process.stdout], [], [], max(deadline - time.monotonic(), 0))
        piece = os.read(process.stdout.fileno(), 65536).decode() if ready else ""
        assert piece, f"it ended or stood still before it said '{text}':\n{said}"
        said += piece
    return said


@pytest.fixture(scope="module")
def clusters():
    """Two of them, which start at the same time."""
    env = harness.clean_env(CURT_BUILD=harness.BUILD)
    processes = [harness.spawn([harness.ROOT / "tools" / "cluster"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                 for _ in range(2)]
    yield processes
    for process in processes:
        harness.kill_group(process.pid)
        process.wait()


@pytest.mark.parametrize("which, number", [(0, signal.SIGINT), (1, signal.SIGTERM)])
def test_a_cluster_starts_serves_and_leaves_nothing_behind(clusters, which, number):
    process = clusters[which]
    said = read_until(process, "Ctrl-C stops everything.")
    front = re.search(r"^HAProxy +\S+ +(\S+) +\d+$", said, re.MULTILINE).group(1)
    key = re.search(r"^admin key +(\S+)$", said, re.MULTILINE).group(1)
    folder = pathlib.Path(re.search(r"^logs, data +(\S+)", said, re.MULTILINE).group(1))
    pids = [int(pid) for pid in re.findall(r" (\d+)$", said, re.MULTILINE)]
    assert len(pids) == 29 and all(is_alive(pid) for pid in pids) and folder.is_dir()

    order = urllib.request.Request(f"http://{front}/api/v1/links", method="POST",
                                   data=json.dumps({"original_url": "https://example.com/", "alias": "hello"}).encode(),
                                   headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(order, timeout=STARTS_S) as answer:
        assert answer.status == 201 and json.load(answer)["short_url"] == f"http://{front}/hello"
    client = harness.Client(f"http://{front}")
    assert client.target("hello") == "https://example.com/"
    assert client.post("/event", json={"id": "1", "ts": int(time.time()), "userId": "u", "adId": "a"}, key=None).status_code == 204
    stats = "/api/v1/links/hello/stats"
    harness.until(lambda: client.get(stats, key=key).json()["clicks"] == 1, "the click is counted")
    harness.until(lambda: client.get("/stats?timeWindowMinutes=60", key=None).json() == {"a": 1}, "and the impression")
    client.close()

    process.send_signal(number)
    rest, _ = process.communicate(timeout=STARTS_S)
    assert process.returncode == 0, rest.decode()
    assert "stopped" in rest.decode()
    assert [pid for pid in pids if is_alive(pid)] == [] and not folder.exists()
