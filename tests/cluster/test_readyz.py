"""/readyz says in time how a server is, whatever hangs."""
import concurrent.futures
import contextlib
import socket

ASKERS = 20


@contextlib.contextmanager
def mute():
    """Somebody who lets others connect, and says nothing: as a server that was stopped."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as door:
        yield f"127.0.0.1:{door.getsockname()[1]}"


def test_what_hangs_and_can_be_done_without_takes_no_server_out(nursery, database):
    with mute() as cache, mute() as limits, mute() as leases:
        server = nursery("--workers", "1", env={
            "CURT_STORE_URL": database, "CURT_CACHE_URL": f"redis://{cache}", "CURT_LIMITS_URL": f"redis://{limits}",
            "CURT_LEASE_URL": f"zookeeper://{leases}/curt"})
        with concurrent.futures.ThreadPoolExecutor(ASKERS) as pool:
            answers = list(pool.map(lambda _: server.get("/readyz"), range(ASKERS)))
        for answer in answers:
            said = answer.json()
            assert answer.status_code == 200 and said["status"] == "degraded"
            assert said["checks"]["store"] == "ok"
            assert said["checks"]["shared_cache"] != "ok" and said["checks"]["limits"] != "ok"
            assert "leases" not in said["checks"], "a server can do without them, and they are asked for only when it sweeps"
