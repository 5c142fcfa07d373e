#!/usr/bin/python3
"""What a million users with a million API keys cost: bench/accounts.py [COUNT]

Fills a SQLite store directly, and tells how long a server takes until it is ready, how much memory it holds compared
with a server on an empty store, what a change of an account costs the writer, and what a viewer who makes keys in a
loop costs somebody else's creates.
"""
import contextlib
import hashlib
import multiprocessing
import os
import pathlib
import signal
import sqlite3
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
for folder in ("integration", "support"):
    sys.path.insert(0, str(ROOT / "tests" / folder))

import requests  # noqa: E402

from nursery import Nursery  # noqa: E402
from people import make_person  # noqa: E402

CHANGES = 1000
SAMPLE = 20000  # keys that are used, each once
CREATES = 100  # in each turn
TURNS = 12


def fill(path, count):
    db = sqlite3.connect(path)
    db.execute("PRAGMA synchronous = OFF")
    first = db.execute("SELECT max(id) FROM user").fetchone()[0] + 1
    db.executemany("INSERT INTO user VALUES (?, ?, 'A', NULL, 'Name', 2, 1, NULL, 1, 1, 1)",
                   ((first + i, f"filled{i}@example.com") for i in range(count)))
    columns = [row[1] for row in db.execute("PRAGMA table_info(api_key)")]
    known = {"name": "a key", "rights": 15, "created_ms": 1}
    places = ", ".join("?" for _ in columns)
    db.executemany(f"INSERT INTO api_key ({', '.join(columns)}) VALUES ({places})",
                   ([{"id": first + i, "user_id": first + i, "digest": digest(i)}.get(c, known.get(c, 0)) for c in columns]
                    for i in range(count)))
    db.commit()
    db.close()


def text(i):
    return f"ck_bench_{i}"


def digest(i):
    return hashlib.blake2b(text(i).encode(), digest_size=32).digest()


def rss_mb(server):
    for line in pathlib.Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024


def cpu_s(server, thread):
    total = 0
    for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
        with contextlib.suppress(OSError):
            if (task / "comm").read_text().strip() == thread:
                stat = (task / "schedstat").read_text().split()
                total += int(stat[0]) / 1e9
    return total


def changes(server, person):
    """CPU of the writer for one change of an account, in milliseconds: create and revoke a key, in turns."""
    before, began = cpu_s(server, "accounts"), time.monotonic()
    for _ in range(CHANGES // 2):
        made = person.post("/api/v1/keys", json={"name": "x"})
        assert made.status_code == 201, made.text
        assert person.delete(f"/api/v1/keys/{made.json()['id']}").status_code == 204
    return (cpu_s(server, "accounts") - before) * 1000 / CHANGES, (time.monotonic() - began) * 1000 / CHANGES


def creates(server, count):
    """Milliseconds of each create."""
    times = []
    for _ in range(count):
        began = time.monotonic()
        server.create("https://example.com/")
        times.append((time.monotonic() - began) * 1000)
    return times


def ask_in_a_loop(url, headers, made):
    """In a process of its own: only what the server has to do is to slow others down."""
    session = requests.Session()
    while True:
        status = session.post(f"{url}/api/v1/keys", json={"name": "x"}, headers=headers).status_code
        assert status in (201, 401, 409), status
        made.value += 1


def creates_beside_loops(server, all_headers):
    """Median milliseconds of a create, and the requests of the loop in a second, beside each of the loops in turns."""
    mades = [multiprocessing.Value("Q", 0) for _ in all_headers]
    loops = [multiprocessing.Process(target=ask_in_a_loop, args=(server.url, headers, made), daemon=True)
             for headers, made in zip(all_headers, mades)]
    times, rates = [[] for _ in loops], [0] * len(loops)
    for loop, made in zip(loops, mades):
        loop.start()
        while made.value < 200:  # as many keys as the viewer may have are made by then
            time.sleep(0.01)
        os.kill(loop.pid, signal.SIGSTOP)
    for turn in range(TURNS * len(loops)):
        i = turn % len(loops)
        os.kill(loops[i].pid, signal.SIGCONT)
        before, began = mades[i].value, time.monotonic()
        times[i] += creates(server, CREATES)
        rates[i] += (mades[i].value - before) / (time.monotonic() - began) / TURNS
        os.kill(loops[i].pid, signal.SIGSTOP)
    for loop in loops:
        loop.kill()
        loop.join()
    return [(statistics.median(t), rate) for t, rate in zip(times, rates)]


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        nursery = Nursery(pathlib.Path(folder))
        empty = nursery("--workers", "1")
        make_person(empty)
        base = rss_mb(empty)
        nursery.finish()
        server = nursery.server("--workers", "1", data=pathlib.Path(folder) / "full").start()
        server.stop()
        fill(server.data / "links.db", count)
        began = time.monotonic()
        server.start()
        ready_ms = (time.monotonic() - began) * 1000
        person = make_person(server, "viewer")
        start_mb = rss_mb(server)
        began = time.monotonic()
        for i in range(0, count, max(count // SAMPLE, 1)):
            assert server.get("/api/v1/session", key=text(i)).status_code == 200
        uses = min(SAMPLE, count)
        use_ms = (time.monotonic() - began) * 1000 / uses
        used_mb = rss_mb(server)
        cpu_ms, wall_ms = changes(server, person)
        viewer = {"Cookie": f"curt_session={person.cookie}", "X-CSRF-Token": person.csrf}
        (control, control_rate), (beside, rate) = creates_beside_loops(server, [{}, viewer])
        print(f"{count} users, {count} API keys")
        print(f"ready after                       {ready_ms:8.0f} ms")
        print(f"memory, empty store               {base:8.1f} MB")
        print(f"memory, at the start              {start_mb:8.1f} MB ({start_mb - base:+.1f})")
        print(f"memory, after {uses:6} keys were used {used_mb:6.1f} MB ({used_mb - base:+.1f}); {use_ms:.2f} ms each")
        print(f"CPU of the writer for one change  {cpu_ms:8.3f} ms ({wall_ms:.2f} ms with the answer)")
        print(f"a create beside a stranger's loop {control:8.2f} ms ({control_rate:.0f} requests/s, all 401)")
        print(f"a create beside a viewer's loop   {beside:8.2f} ms ({rate:.0f} requests/s for keys; "
              f"{100 * beside / control - 100:+.0f} % against the stranger's)")
        nursery.finish()


if __name__ == "__main__":
    main()
