"""HTTP/1.1 on bare sockets: framing, limits, slow and silent clients, and running out of descriptors."""
import json
import random
import resource
import select
import socket
import time

import pytest

import prometheus
from reconciliation import settled
from harness import ADMIN_KEY, PATIENCE_S, VARIANT, scaled, unchanged, until
from nursery import Nursery
from prometheus import metric
from wire import Closed, chunked, request

BODY = '{"original_url": "https://example.com/made"}'
CREATE = request("POST", "/api/v1/links", key=ADMIN_KEY, body=BODY)
CREATE_CHUNKED = request("POST", "/api/v1/links", "Transfer-Encoding: chunked", key=ADMIN_KEY)
NEXT = request("GET", "/healthz")


def head(*lines):
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def get(*fields):
    return head("GET /known HTTP/1.1", "Host: curt.test", *fields)


def post(*fields):
    return head("POST /api/v1/links HTTP/1.1", "Host: curt.test", f"Authorization: Bearer {ADMIN_KEY}", *fields)


@pytest.fixture(scope="module")
def known(shared):
    shared.create("https://example.com/known", alias="known")
    return shared


# What is refused: the status, and what was sent. The connection closes after it. A row for each part that refuses;
# tests/unit/http/request_test.c and chunked_test.c have all that each of them refuses.
REFUSED = {
    "Content-Length with Transfer-Encoding":
        (400, post("Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n"),
    "a bare LF in the head": (400, b"GET /known HTTP/1.1\r\nHost: curt.test\nX-Field: x\r\n\r\n"),
    "no Host": (400, head("GET /known HTTP/1.1")),
    "a TLS greeting": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and more\r\n\r\n"),
    "HTTP/2": (505, head("GET /known HTTP/2.0", "Host: curt.test")),
    "CONNECT": (405, head("CONNECT curt.test:443 HTTP/1.1", "Host: curt.test")),
    "an expectation that nobody knows": (417, post("Expect: 200-maybe", "Content-Length: 5") + b"hello"),
    "a chunk size that is no number": (400, CREATE_CHUNKED + b"5g\r\nhello\r\n0\r\n\r\n"),
    "a trailer that is no field": (400, CREATE_CHUNKED + b"0\r\nbad trailer\r\n\r\n"),
    "a request line that is too long": (414, head("GET /" + "x" * 9000 + " HTTP/1.1", "Host: curt.test")),
    "header fields that are too long": (431, get("X-Field: " + "x" * 33_000)),
    "too many header fields": (431, get(*[f"X-{i}: x" for i in range(100)])),
    "a body that is too large": (413, post("Content-Length: 4194305")),
    "a chunk that is too large": (413, CREATE_CHUNKED + b"400001\r\n"),
}

# What is fine: the status, and what was sent. The connection stays open.
FINE = {
    "a plain request": (302, get()),
    "an absolute target": (302, head("GET http://curt.test/known HTTP/1.1", "Host: curt.test")),
    "empty lines before the request": (302, b"\r\n\r\n" + get()),
    "a GET with a body": (302, request("GET", "/known", body="hello")),
    "a GET with a chunked body": (302, request("GET", "/known", "Transfer-Encoding: chunked") + chunked(b"hello")),
    "no body at all": (400, request("POST", "/api/v1/links", key=ADMIN_KEY)),
    "a create": (201, CREATE),
    "a chunked create": (201, CREATE_CHUNKED + chunked(BODY[:7].encode(), BODY[7:20].encode(), BODY[20:].encode())),
    "chunks of a byte each": (201, CREATE_CHUNKED + chunked(*[bytes([byte]) for byte in BODY.encode()])),
    "an unknown method": (405, request("BREW", "/known")),
    "a missing link": (404, request("GET", "/missing")),
    "a hundred header fields": (302, get(*[f"X-{i}: x" for i in range(99)])),
}
assert len(BODY) == 44


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_proxy_might_read_differently_is_refused_and_no_later_byte_is_read(known, name):
    status, data = REFUSED[name]
    with unchanged(known):
        wire = known.connect()
        wire.send_until_closed(data + CREATE + NEXT)
        answer, = wire.answers_until_closed()
        assert answer.status == status, answer
        assert answer["Connection"] == "close" and answer["Content-Type"] == "application/problem+json"
        problem = json.loads(answer.body)
        assert problem["status"] == status and problem["title"] == answer.reason and problem["detail"]


@pytest.mark.parametrize("name", FINE)
def test_what_is_well_formed_is_answered_and_the_connection_goes_on(known, name):
    status, data = FINE[name]
    wire = known.connect()
    answer = wire.ask(data + NEXT)
    assert answer.status == status, answer
    assert answer["Connection"] is None
    assert wire.read().body == b'{"status":"alive"}\n'


def pieces_of(data, chance):
    while data:
        size = chance.choice((1, 1, 2, 3, 5, 8, 20, 100, 5000))
        yield data[:size]
        data = data[size:]


def verdicts(server, pieces):
    wire = server.connect()
    for piece in pieces:
        wire.send_until_closed(piece)
    wire.half_close_if_open()
    return [answer.verdict for answer in wire.answers_until_closed()]


@pytest.mark.parametrize("name", [*REFUSED, *FINE])
def test_the_verdict_does_not_depend_on_how_the_bytes_arrive(known, name):
    _, data = {**REFUSED, **FINE}[name]
    data += NEXT
    whole = verdicts(known, [data])
    assert whole
    if len(data) < 2000:
        assert verdicts(known, [data[i:i + 1] for i in range(len(data))]) == whole, "byte by byte"
    chance = random.Random(name)
    for _ in range(4):
        assert verdicts(known, pieces_of(data, chance)) == whole, "split at random"


def test_damaged_requests_get_whole_answers_and_do_no_harm(known):
    chance = random.Random(4)
    sound = [data for _, data in FINE.values()]
    for _ in range(scaled(3000) + 100):
        data = bytearray(b"".join(chance.choices(sound, k=chance.randrange(1, 4))))
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(data) + 1)
            kind = chance.randrange(4)
            if kind == 0:
                data[at:at + 1] = [chance.randrange(256)]
            elif kind == 1:
                data[at:at] = chance.choice((b"\r\n", b"\n", b"\0", b" ", b":", b"Content-Length: 7\r\n", b"\xff" * 40))
            elif kind == 2:
                del data[at:at + chance.randrange(1, 30)]
            else:
                data[at:at] = data[at:at + chance.randrange(1, 60)]
        wire = known.connect()
        wire.send_until_closed(bytes(data))
        wire.half_close_if_open()
        for answer in wire.answers_until_closed():  # which reads them strictly
            assert answer.status < 500 or answer.status in (501, 505)
        wire.close()
    assert known.target("known") == "https://example.com/known"


# One connection, many requests

def test_a_hundred_mixed_pipelined_requests_are_answered_in_order(server):
    chance = random.Random(3)
    server.create("https://example.com/known", alias="known")
    kinds = {
        "hit": (lambda i: request("GET", "/known"), 302),
        "miss": (lambda i: request("GET", f"/missing-{i}"), 404),
        "create": (lambda i: request("POST", "/api/v1/links", key=ADMIN_KEY,
                                     body=f'{{"original_url": "https://example.com/{i}", "alias": "made-{i}"}}'), 201),
        "create in chunks": (lambda i: CREATE_CHUNKED + chunked(
            b'{"original_url": "https://example.com/', b'%d", "alias": "chunked-%d"}' % (i, i)), 201),
        "bad create": (lambda i: request("POST", "/api/v1/links", key=ADMIN_KEY, body=f'{{"wrong-{i}": 1}}'), 400),
        "stranger": (lambda i: request("POST", "/api/v1/links", body=BODY), 401),
        "head": (lambda i: request("HEAD", "/known"), 302),
        "patch": (lambda i: request("PATCH", "/api/v1/links/known", key=ADMIN_KEY, body=f'{{"title": "{i}"}}'), 200),
        "delete": (lambda i: request("DELETE", f"/api/v1/links/nothing-{i}", key=ADMIN_KEY), 404),
        "alive": (lambda i: request("GET", "/healthz"), 200),
        "wrong method": (lambda i: request("PUT", "/known"), 405),
        "list": (lambda i: request("GET", "/api/v1/links?limit=1", key=ADMIN_KEY), 200),
    }
    sequence = list(kinds) * 8 + chance.choices(list(kinds), k=4)
    chance.shuffle(sequence)
    assert len(sequence) == 100
    wire = server.connect()
    wire.send(b"".join(kinds[kind][0](i) for i, kind in enumerate(sequence)))
    for i, kind in enumerate(sequence):
        answer = wire.read("HEAD" if kind == "head" else "GET")
        assert answer.status == kinds[kind][1], (i, kind, answer)
        if kind in ("create", "create in chunks"):
            alias = f"made-{i}" if kind == "create" else f"chunked-{i}"
            assert json.loads(answer.body)["key"] == alias
        elif kind == "bad create":
            assert f"wrong-{i}" in json.loads(answer.body)["detail"]
        elif kind == "patch":
            assert json.loads(answer.body)["title"] == str(i)
    assert wire.get("/healthz").status == 200, "and nothing is left over"


def test_a_create_is_seen_by_the_next_pipelined_request(server):
    wire = server.connect()
    wire.send(b"".join(request("GET", f"/next-{i}") + request(
        "POST", "/api/v1/links", key=ADMIN_KEY, body=f'{{"original_url": "https://example.com/", "alias": "next-{i}"}}')
        + request("GET", f"/next-{i}") for i in range(30)))
    assert [wire.read().status for _ in range(90)] == [404, 201, 302] * 30


def test_a_client_that_asks_for_it_is_answered_and_closed(known):
    wire = known.connect()
    wire.send(get("Connection: close") + NEXT)
    answer, = wire.answers_until_closed()
    assert answer.status == 302 and answer["Connection"] == "close"


def test_http_1_0_closes_after_the_answer(known):
    wire = known.connect()
    wire.send(b"GET /known HTTP/1.0\r\n\r\n" * 2)
    answer, = wire.answers_until_closed()
    assert answer.status == 302 and answer["Connection"] == "close"


def test_http_1_0_stays_when_it_asks_to(known):
    wire = known.connect()
    for path in ("/known", "/healthz", "/missing"):
        answer = wire.ask(f"GET {path} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".encode())
        assert answer["Connection"] == "keep-alive"
    assert wire.ask(b"GET /known HTTP/1.0\r\n\r\n")["Connection"] == "close"
    assert wire.is_closed()


# Bodies on their way

@pytest.mark.parametrize("framing", ["Content-Length", "chunked"])
def test_a_client_that_expects_100_continue_is_told_to_go_on(known, framing):
    wire = known.connect()
    if framing == "chunked":
        wire.send(CREATE_CHUNKED[:-2] + b"Expect: 100-continue\r\n\r\n")
    else:
        wire.send(post("Expect: 100-Continue", "Content-Length: 44"))
    go_on = wire.read()
    assert (go_on.status, go_on.fields) == (100, [])
    wire.send(chunked(BODY.encode()) if framing == "chunked" else BODY.encode())
    assert wire.read().status == 201
    assert wire.get("/known").status == 302


def test_a_client_that_expects_100_continue_is_refused_before_it_sends_too_much(known):
    wire = known.connect()
    wire.send(post("Expect: 100-continue", "Content-Length: 4194305"))
    answer, = wire.answers_until_closed()
    assert answer.status == 413


# Limits

def test_limits_can_be_set(serve):
    server = serve("--limits-line-bytes", "256", "--limits-headers-bytes", "1k", "--limits-headers", "8",
                   "--limits-body-bytes", "1k")
    assert server.connect().get("/" + "x" * 300).status == 414
    assert server.connect().get("/", "X-Field: " + "x" * 1100).status == 431
    assert server.connect().get("/", *[f"X-{i}: x" for i in range(8)]).status == 431
    assert server.connect().ask(request("POST", "/api/v1/links", key=ADMIN_KEY, body="x" * 1025)).status == 413


# Slow clients

@pytest.fixture(scope="module")
def hurried(tmp_path_factory):
    """A server without patience."""
    nursery = Nursery(tmp_path_factory.mktemp("hurried"))
    server = nursery("--workers", "2", "--limits-head-time", "500ms", "--limits-byte-rate", "10k")
    server.create("https://example.com/known", alias="known")
    yield server
    nursery.finish()


def begin(server, data):
    """A connection on which this much is there before its time begins."""
    with server.frozen():
        wire = server.connect()
        wire.send(data)
    return wire


def trickle(wire, data, pause_s=0.02):
    """A byte now and then, until there is an answer or none will come."""
    deadline = time.monotonic() + PATIENCE_S
    for i in range(len(data)):
        if select.select([wire.sock], [], [], pause_s)[0]:
            return
        wire.send_until_closed(data[i:i + 1])
        assert time.monotonic() < deadline
    assert select.select([wire.sock], [], [], PATIENCE_S)[0]


def test_a_head_that_stops_halfway_gets_408(hurried):
    wire = begin(hurried, b"GET /known HTTP/1.1\r\nHo")
    answer, = wire.answers_until_closed()
    assert answer.status == 408 and answer["Connection"] == "close"
    assert answer["Content-Type"] == "application/problem+json"


def test_a_body_that_stops_halfway_gets_408_and_makes_nothing(hurried):
    with unchanged(hurried):
        wire = begin(hurried, CREATE[:-10])
        answer, = wire.answers_until_closed()
        assert answer.status == 408


@pytest.mark.parametrize("framing", ["Content-Length", "chunked"])
def test_a_body_below_the_least_rate_gets_408_though_bytes_keep_coming(hurried, framing):
    body = b'{"original_url": "https://example.com/' + b"x" * 50_000 + b'"}'
    with unchanged(hurried):
        if framing == "chunked":
            wire = begin(hurried, CREATE_CHUNKED)
            trickle(wire, chunked(body))
        else:
            wire = begin(hurried, post(f"Content-Length: {len(body)}"))
            trickle(wire, body)
        answer, = wire.answers_until_closed()
        assert answer.status == 408


def test_a_connection_that_never_says_a_word_is_closed(hurried):
    assert hurried.connect().is_closed()


def test_a_connection_that_is_idle_between_requests_is_closed_without_a_word(serve):
    wire = serve("--limits-idle-time", "300ms").connect()
    assert wire.get("/healthz").status == 200
    assert wire.is_closed()


def test_an_honest_client_is_not_disturbed_by_slow_ones(hurried):
    with hurried.frozen():  # or the time of the first might be over before the last one comes
        slow = [hurried.connect() for _ in range(50)]
        honest = hurried.connect()
        for wire in slow:
            wire.send(b"GET /known HT")
        honest.send(request("GET", "/known"))
    assert honest.read().status == 302
    for _ in range(200):
        assert honest.get("/known").status == 302
    for wire in slow:
        answer, = wire.answers_until_closed()
        assert answer.status == 408


def test_a_client_that_never_reads_its_answers_is_cut(serve):
    server = serve("--limits-head-time", "300ms", "--limits-byte-rate", "100m")
    wire = server.connect(receive_buffer=4096)
    flood = request("GET", "/") * 500
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        while True:
            wire.send(flood)
    other = begin(server, request("GET", "/metrics"))
    assert prometheus.parse(other.read().body.decode())["curt_connections_timed_out_total"] >= 1


# Large bodies that do not end

@pytest.mark.parametrize("framing", ["Content-Length", "chunked"])
def test_bodies_that_do_not_end_do_not_fill_the_memory(serve, framing):
    server = serve("--workers", "1", "--limits-head-time", "10m")
    server.create("https://example.com/known", alias="known")
    before = server.status_field("VmRSS")
    size, count = 4 << 20, 200
    begin = post(f"Content-Length: {size}") if framing == "Content-Length" else CREATE_CHUNKED + b"%x\r\n" % size
    wires = []
    for number in range(count):
        wires.append(server.connect())
        wires[-1].send(begin)
        wires[-1].send_until_closed(b" " * (size - 1))
        if number % 20 == 0:
            assert server.connect().get("/known").status == 302
            assert server.connect().ask(CREATE).status == 201
            event = json.dumps({"id": f"e-{number}", "ts": int(time.time() * 1000), "userId": "u", "adId": "a"})
            assert server.connect().ask(request("POST", "/event", body=event)).status == 204
    heard = select.poll()
    for wire in wires:
        heard.register(wire.sock, select.POLLIN)
    until(lambda: len(heard.poll(0)) >= count - 20, "most have been refused")
    if VARIANT == "release":  # sanitizers hold on to what was freed
        assert server.status_field("VmHWM") - before < 2 * (64 << 10), "KiB; all of it would be 800 MiB"
    refused = {descriptor for descriptor, _ in heard.poll(0)}
    assert metric(server, "curt_http_bodies_refused_total") >= len(refused)
    for wire in wires:
        if wire.sock.fileno() in refused:
            answer, = wire.answers_until_closed()
            assert (answer.status, answer["Retry-After"], answer["Connection"]) == (503, "1", "close")
            assert json.loads(answer.body)["detail"].startswith("Too many large request bodies")
        wire.close()
    until(lambda: server.connect().ask(post(f"Content-Length: {size}") + BODY.encode() + b" " * (size - 44)).status == 201,
          "there is room again")


# A proxy that nobody named

def test_a_proxy_that_is_not_trusted_is_reported_once(serve):
    hint = "limits count the proxy as one visitor; add it to serve.trusted_proxies"
    server = serve("--workers", "2")
    for number in range(3):
        assert server.connect().get(f"/missing-{number}").status == 404
    assert hint not in server.stderr
    for number in range(20):
        assert server.connect().get(f"/unknown-{number}", "X-Forwarded-For: 203.0.113.9").status == 404
    until(lambda: hint in server.stderr, "it is logged")
    server.stop()
    assert server.stderr.count(hint) == 1


def test_with_a_trusted_proxy_there_is_nothing_to_tell(serve):
    server = serve("--trusted-proxies", "192.0.2.7")
    assert server.connect().get("/missing", "X-Forwarded-For: 203.0.113.9").status == 404
    server.stop()
    assert "trusted_proxies" not in server.stderr


# Half-closed clients

HALF_CLOSED = {
    "a hit": (request("GET", "/known"), [302]), "a miss": (request("GET", "/not-asked-for-before"), [404]),
    "a create": (CREATE, [201]), "a chunked create": (CREATE_CHUNKED + chunked(BODY.encode()), [201]),
    "three requests": (request("GET", "/known") + CREATE + request("GET", "/known"), [302, 201, 302]),
    "one and a half": (request("GET", "/known") + b"GET /kno", [302]), "half a body": (CREATE[:-5], []),
    "nothing": (b"", []),
}


@pytest.mark.parametrize("name", HALF_CLOSED)
def test_a_client_that_sends_no_more_still_gets_its_answers(known, name):
    data, statuses = HALF_CLOSED[name]
    wire = known.connect()
    wire.send(data)
    wire.half_close()
    assert [answer.status for answer in wire.answers_until_closed()] == statuses


def test_a_client_that_leaves_without_waiting_does_no_harm(server):
    for i in range(scaled(400)):
        wire = server.connect()
        wire.send(request("POST", "/api/v1/links", key=ADMIN_KEY,
                          body=f'{{"original_url": "https://example.com/{i}", "alias": "left-{i}"}}') + get())
        if i % 2:  # with a reset
            wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        wire.close()
    until(lambda: metric(server, "curt_connections_accepted_total") - metric(server, "curt_connections_closed_total")
          <= 1, "all are gone")
    assert server.get("/healthz").status_code == 200


# Many connections

@pytest.fixture
def many_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_two_thousand_idle_connections_do_not_disturb_others(serve, many_descriptors):
    server = serve("--workers", "2", "--limits-head-time", "10m", "--limits-idle-time", "10m")
    server.create("https://example.com/known", alias="known")
    idle = [server.connect() for _ in range(2000)]
    for i, wire in enumerate(idle):
        if i % 4 == 1:
            assert wire.get("/known").status == 302
        elif i % 4 == 2:
            wire.send(get()[:20])
        elif i % 4 == 3:
            wire.send(CREATE[:-20])
    until(lambda: metric(server, "curt_connections_accepted_total") == 2001, "all are accepted")
    honest = server.connect()
    for _ in range(scaled(2000)):
        assert honest.get("/known").status == 302
    server.create("https://example.com/meanwhile")
    for i, wire in enumerate(idle):
        wire.send({2: get()[20:], 3: CREATE[-20:]}.get(i % 4, get()))
    for i, wire in enumerate(idle):
        assert wire.read().status == (201 if i % 4 == 3 else 302)


def test_connections_beyond_the_limit_wait_until_there_is_room(serve):
    server = serve("--workers", "1", "--limits-connections", "16", "--limits-head-time", "10m")
    first = [server.connect() for _ in range(16)]
    for wire in first:
        assert wire.get("/healthz").status == 200
    late = server.connect()
    late.send(get())
    assert not select.select([late.sock], [], [], 0.2)[0], "it is not served yet"
    assert first[0].get("/healthz").status == 200
    first[1].close()
    assert late.read().status == 404


@pytest.mark.parametrize("descriptors, said", [(80, "limits.connections lowered"),
                                               (56, "out of descriptors")])
def test_a_server_without_descriptors_serves_whom_it_has_and_recovers(serve, many_descriptors, descriptors, said):
    server = serve("--workers", "2", wrapper=["prlimit", f"--nofile={descriptors}:{descriptors}"])
    server.create("https://example.com/known", alias="known")
    old = [server.connect() for _ in range(8)]
    for wire in old:
        assert wire.get("/known").status == 302
    flood = []
    for _ in range(150):
        flood.append(server.connect())
    until(lambda: said in server.stderr, "it says that it has few, or has run out")
    for _ in range(20):
        for wire in old:
            assert wire.get("/known").status == 302
            assert wire.get("/never-asked-for").status == 404
    assert old[0].ask(CREATE).status == 201, "the store needs no new descriptor"
    for wire in flood:
        wire.close()
    fresh = until(lambda: can_be_served(server), "new connections are served again")
    assert fresh.get("/known").status == 302
    for wire in old:
        assert wire.get("/known").status == 302


def test_idle_connections_leave_descriptors_for_the_events(serve, many_descriptors):
    """Segments of the log are small here: new ones are needed all the time, and each is a descriptor."""
    server = serve("--workers", "2", "--events-segment-bytes", "64k", "--limits-head-time", "10m",
                   wrapper=["prlimit", "--nofile=128:128"])
    server.create("https://example.com/known", alias="known")
    old = [server.connect() for _ in range(8)]
    for wire in old:
        assert wire.get("/known").status == 302
    idle = [server.connect() for _ in range(200)]
    until(lambda: metric(server, "curt_connections_accepted_total") >= 2 * 24, "those that fit have been accepted")
    clicks = 0
    for wire in old:
        wire.send(get() * scaled(4000))
        for _ in range(scaled(4000)):
            assert wire.read().status == 302
            clicks += 1
    for number, wire in enumerate(old):
        event = json.dumps({"id": f"e-{number}", "ts": int(time.time() * 1000), "userId": "u", "adId": "a"})
        assert wire.ask(request("POST", "/event", body=event)).status == 204
    for wire in idle:
        wire.close()
    now = settled(server)
    assert now["dropped"] == now["difference"] == 0 and now["clicks_in_rollups"] == clicks + 8
    assert "out of descriptors" not in server.stderr


def can_be_served(server):
    wire = server.connect()
    try:
        assert wire.get("/healthz").status == 200
        return wire
    except (Closed, ConnectionError):
        wire.close()
        return None
