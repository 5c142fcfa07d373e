"""POST /event: what is taken, what is refused and why, and that what is taken counts exactly once."""
import datetime
import itertools
import json
import time

import pytest

from reconciliation import reconcile, settled, window
from harness import assert_problem, hammer, scaled, until
from wire import chunked, request

numbers = itertools.count()
HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS


def now_ms():
    return int(time.time() * 1000)


def event(**changes):
    """A good event with an id of its own; a change to None leaves the field out."""
    whole = {"id": f"e-{next(numbers)}", "ts": now_ms(), "userId": "u-1", "adId": "an-ad", **changes}
    return {name: value for name, value in whole.items() if value is not None}


def send(server, body, content_type="application/json"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": content_type} if content_type else {}
    return server.post("/event", key=None, data=data, headers=headers)


@pytest.fixture
def ad():
    """The name of an ad that nobody else uses."""
    return f"ad-{next(numbers)}"


def counted(server, ad, minutes=60):
    settled(server, deep=False)
    return window(server, minutes).get(ad, 0)


# Taken

def test_a_single_event_gets_204_and_counts(counting, ad):
    response = send(counting, event(adId=ad))
    assert (response.status_code, response.content) == (204, b"")
    assert counted(counting, ad) == 1


def test_an_event_needs_no_key_and_no_content_type(counting, ad):
    for content_type in (None, "text/plain", "application/x-www-form-urlencoded"):
        assert send(counting, event(adId=ad), content_type).status_code == 204
    assert counted(counting, ad) == 3


def test_an_array_is_a_batch(counting, ad):
    response = send(counting, [event(adId=ad) for _ in range(3)])
    assert (response.status_code, response.json()) == (200, {"accepted": 3, "rejected": []})
    assert response.headers["Content-Type"] == "application/json"
    assert counted(counting, ad) == 3


def test_an_array_of_one_is_a_batch_too(counting, ad):
    assert send(counting, [event(adId=ad)]).json() == {"accepted": 1, "rejected": []}


def test_an_empty_array_is_a_batch_of_nothing(counting):
    response = send(counting, [])
    assert (response.status_code, response.json()) == (200, {"accepted": 0, "rejected": []})


LINES = {
    "plain": (b"\n", b"\n"),
    "last line open": (b"\n", b""),
    "CRLF": (b"\r\n", b"\r\n"),
    "CRLF, last line open": (b"\r\n", b""),
    "blank lines": (b"\n\n  \n\r\n", b"\n\n"),
}


@pytest.mark.parametrize("content_type", ["application/x-ndjson", "application/ndjson; charset=utf-8", "application/jsonl",
                                          "application/json", None], ids=str)
@pytest.mark.parametrize("between, last", LINES.values(), ids=LINES)
def test_lines_are_a_batch_whatever_they_are_called(counting, ad, between, last, content_type):
    lines = [json.dumps(event(adId=ad)).encode() for _ in range(3)]
    response = send(counting, between.join(lines) + last, content_type)
    assert (response.status_code, response.json()) == (200, {"accepted": 3, "rejected": []})
    assert counted(counting, ad) == 3


def test_blank_lines_may_come_first(counting, ad):
    body = b"\n \n" + b"\n".join(json.dumps(event(adId=ad)).encode() for _ in range(2))
    assert send(counting, body).json()["accepted"] == 2


def test_one_line_is_a_batch_when_it_is_called_lines_and_a_single_event_otherwise(counting, ad):
    line = json.dumps(event(adId=ad)).encode() + b"\n"
    assert send(counting, line, "application/x-ndjson").json() == {"accepted": 1, "rejected": []}
    assert send(counting, json.dumps(event(adId=ad)).encode() + b"\n").status_code == 204
    assert send(counting, json.dumps(event(adId=ad), indent=2).encode()).status_code == 204
    assert counted(counting, ad) == 3


def test_fields_that_nobody_knows_are_passed_over(counting, ad):
    assert send(counting, event(adId=ad, campaign={"a": [1, 2, None]}, adid="x")).status_code == 204
    assert counted(counting, ad) == 1


def test_ts_is_milliseconds_or_seconds(counting, ad):
    for ts in (now_ms(), now_ms() // 1000, now_ms() - 50 * 60 * 1000, now_ms() // 1000 - 50 * 60):
        assert send(counting, event(adId=ad, ts=ts)).status_code == 204
    assert counted(counting, ad) == 4
    assert counted(counting, ad, minutes=40) == 2


def test_a_clock_that_is_a_little_ahead_is_no_reason_to_refuse(counting, ad):
    assert send(counting, event(adId=ad, ts=now_ms() + HOUR_MS - 60_000)).status_code == 204
    assert counted(counting, ad) == 0, "it is not yet in the window"
    assert settled(counting)["difference"] == 0


def test_an_event_that_is_nearly_too_old_is_taken(counting, ad):
    assert send(counting, event(adId=ad, ts=now_ms() - 35 * DAY_MS + 60_000)).status_code == 204
    assert counted(counting, ad, minutes=36 * 24 * 60) == 1
    assert counted(counting, ad, minutes=34 * 24 * 60) == 0


@pytest.mark.parametrize("text", ["ключ", "鍵🔑", "a\nb", '"\\', "=1+1", "x" * 256], ids=lambda text: repr(text[:9]))
def test_ids_users_and_ads_are_any_text(counting, text):
    unique = f"{next(numbers)}"
    name = (text + unique)[-256:]
    if len(name.encode()) > 256:
        name = name.encode()[:256].decode(errors="ignore")
    assert send(counting, event(id=name, userId=name, adId=name)).status_code == 204
    assert send(counting, event(id=name, userId=name, adId=name)).status_code == 204, "again: taken, but not counted"
    assert counted(counting, name) == 1


# Refused

WRONG = {
    "no id": (dict(id=None), "id is missing"),
    "no ts": (dict(ts=None), "ts is missing"),
    "no userId": (dict(userId=None), "userId is missing"),
    "no adId": (dict(adId=None), "adId is missing"),
    "id a number": (dict(id=7), "id must be a string"),
    "id a list": (dict(id=["x"]), "id must be a string"),
    "userId true": (dict(userId=True), "userId must be a string"),
    "adId an object": (dict(adId={}), "adId must be a string"),
    "empty id": (dict(id=""), "id must not be empty"),
    "empty userId": (dict(userId=""), "userId must not be empty"),
    "empty adId": (dict(adId=""), "adId must not be empty"),
    "long id": (dict(id="x" * 257), "id is longer than 256 bytes"),
    "long userId": (dict(userId="x" * 10_000), "userId is longer than 256 bytes"),
    "adId long in bytes": (dict(adId="ä" * 129), "adId is longer than 256 bytes"),
    "ts a string": (dict(ts="soon"), "ts is not a time"),
    "ts true": (dict(ts=True), "ts is not a time"),
    "ts a list": (dict(ts=[]), "ts is not a time"),
    "ts negative": (dict(ts=-1700000000000), "ts is not a time"),
    "ts in microseconds": (dict(ts=1_700_000_000_000_000), "ts is not a time"),
    "ts from 1973": (dict(ts=100_000_000), "ts is older than"),
}


@pytest.mark.parametrize("changes, reason", WRONG.values(), ids=WRONG)
def test_a_wrong_event_gets_400_with_the_reason_and_does_not_count(counting, changes, reason):
    before = settled(counting, deep=False)
    assert_problem(send(counting, event(**changes)), 400, reason)
    after = reconcile(counting)
    assert after["impressions_accepted"] == before["impressions_accepted"]
    assert after["rejected"] == before["rejected"] + 1


@pytest.mark.parametrize("field", ["id", "ts", "userId", "adId"])
def test_null_is_no_value(counting, field):
    wrong = event()
    wrong[field] = None
    assert_problem(send(counting, wrong), 400, "ts is not a time" if field == "ts" else f"{field} must be")


def test_a_text_with_a_zero_character_is_json_and_refused(counting):
    for field in ("id", "userId", "adId"):
        assert_problem(send(counting, event(**{field: "a\0b"})), 400, f"{field} must not contain a NUL character")


@pytest.mark.parametrize("form", ["{}.0", "{}e0", "{}000e-3"])
def test_a_time_is_an_integer_however_it_is_written(counting, ad, form):
    text = json.dumps(event(adId=ad, ts=0)).replace('"ts": 0', '"ts": ' + form.format(now_ms()))
    assert send(counting, text.encode()).status_code == 204
    assert counted(counting, ad) == 1


def test_a_body_that_is_not_json_says_where(counting):
    assert_problem(send(counting, b'{"id": "x",\n "ts": }'), 400, "line 2, column 8, a value was expected")
    assert_problem(send(counting, b'[{}] x'), 400, "column 6, the text must end after the value")


def test_the_edges_of_time(counting):
    assert_problem(send(counting, event(ts=now_ms() + HOUR_MS + 60_000)), 400, "future")
    assert_problem(send(counting, event(ts=now_ms() - 35 * DAY_MS - 60_000)), 400, "older than")
    assert_problem(send(counting, event(ts=0)), 400, "older than")
    for ts in (2**63 - 1, -2**63, -1, 1, 3600, 20261231, 1.5, "", "1e9", "2026-02-30", {}):
        assert_problem(send(counting, event(ts=ts)), 400, "ts is not a time", "seconds or milliseconds since 1970")


def test_an_event_takes_a_time_in_every_form(counting, ad):
    now = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=2)  # a window ends now
    seconds = int(now.timestamp())
    forms = [seconds, seconds * 1000 + 123, str(seconds), now.strftime("%Y-%m-%dT%H:%M:%SZ"), now.strftime("%Y-%m-%d"),
             now.astimezone(datetime.timezone(datetime.timedelta(hours=5))).isoformat(timespec="milliseconds")]
    for ts in forms:
        assert send(counting, event(adId=ad, ts=ts)).status_code == 204, ts
    settled(counting, deep=False)
    assert counting.get("/stats?timeWindowMinutes=5000", key=None).json()[ad] == len(forms)


BAD_BODIES = {
    "empty": b"",
    "blank": b"   ",
    "not JSON": b"hello",
    "cut off": b'{"id":"x","ts":1',
    "an array that is cut off": b'[{"id":"x"',
    "two fields of the same name": b'{"id":"x","id":"y","ts":1,"userId":"u","adId":"a"}',
    "not UTF-8": b'{"id":"\xff","ts":1,"userId":"u","adId":"a"}',
    "a lone surrogate": b'{"id":"\\ud800","ts":1,"userId":"u","adId":"a"}',
    "a zero byte": b'{"id":"\\u0000","ts":1,"userId":"u","adId":"a"}',
    "ts beyond all numbers": b'{"id":"x","ts":' + b"9" * 400 + b',"userId":"u","adId":"a"}',
    "a number": b"7",
    "a string": b'"text"',
    "null": b"null",
    "true": b"true",
    "nested too deep": b"[" * 100_000,
    "nested too deep in a field": b'{"id":' + b'{"x":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_body_that_is_no_event_gets_400(counting, body):
    before = reconcile(counting)["impressions_accepted"]
    assert_problem(send(counting, body), 400)
    assert reconcile(counting)["impressions_accepted"] == before


def test_a_batch_takes_what_is_good_and_says_what_is_not(counting, ad):
    before = settled(counting, deep=False)
    batch = [event(adId=ad), 7, event(adId=ad, ts="now"), None, event(adId=ad), [], event(adId=None)]
    answer = send(counting, batch).json()
    assert answer["accepted"] == 2
    assert [item["index"] for item in answer["rejected"]] == [1, 2, 3, 5, 6]
    assert all(set(item) == {"index", "error"} and item["error"].endswith(".") for item in answer["rejected"])
    assert "ts is not a time" in answer["rejected"][1]["error"]
    assert counted(counting, ad) == 2
    assert reconcile(counting)["rejected"] == before["rejected"] + 5


def test_a_line_that_is_no_json_spoils_nobody_elses(counting, ad):
    lines = [json.dumps(event(adId=ad)).encode(), b"nonsense", b'{"id":', json.dumps(event(adId=ad)).encode(), b"\xff"]
    answer = send(counting, b"\n".join(lines), "application/x-ndjson").json()
    assert answer["accepted"] == 2
    assert [item["index"] for item in answer["rejected"]] == [1, 2, 4]
    assert counted(counting, ad) == 2


def test_other_methods_get_405(counting):
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        response = counting.request(method, "/event", key=None)
        assert_problem(response, 405)
        assert response.headers["Allow"] == "POST, OPTIONS"
    assert counting.head("/event", key=None).status_code == 405


def test_a_body_beyond_the_limit_gets_413_and_does_not_count(serve):
    server = serve("--limits-body-bytes", "64k")
    assert_problem(send(server, [event(campaign="x" * 2000) for _ in range(100)]), 413)
    assert reconcile(server)["impressions_accepted"] == 0


# Counted once

def test_duplicates_in_one_body_count_once(counting, ad):
    before = settled(counting)
    twice = event(adId=ad)
    assert send(counting, [twice, twice, event(adId=ad), twice]).json()["accepted"] == 4
    assert counted(counting, ad) == 2
    assert reconcile(counting)["duplicates"] == before["duplicates"] + 2


def test_duplicates_in_later_bodies_count_once(counting, ad):
    before = settled(counting)
    again = event(adId=ad)
    for _ in range(3):
        assert send(counting, again).status_code == 204
        settled(counting)
    assert send(counting, dict(again, userId="other", ts=now_ms() - 5000)).status_code == 204, "the id alone decides"
    assert counted(counting, ad) == 1
    assert reconcile(counting)["duplicates"] == before["duplicates"] + 3


def test_a_duplicate_counts_for_the_ad_that_it_named_first(counting, ad):
    name = f"same-{next(numbers)}"
    send(counting, event(id=name, adId=ad))
    settled(counting)
    send(counting, event(id=name, adId=ad + "-other"))
    assert counted(counting, ad) == 1 and counted(counting, ad + "-other") == 0


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_duplicates_are_known_after_a_restart(server, ad, end):
    again = event(adId=ad)
    send(server, [again, event(adId=ad)])
    getattr(server, end)()
    server.start()
    send(server, again)
    assert counted(server, ad) == 2
    now = settled(server)
    assert (now["duplicates"], now["impressions_accepted"]) == (1, 3)


def test_with_the_tuple_as_key_only_the_very_same_event_is_a_duplicate(serve, ad):
    server = serve("--workers", "2", "--worker-dedup-key", "tuple")
    first = event(adId=ad)
    send(server, [first, dict(first, userId="u-2"), dict(first, ts=first["ts"] - 1), dict(first, adId=ad + "x"), first])
    settled(server)
    send(server, first)
    assert counted(server, ad) == 3 and counted(server, ad + "x") == 1
    assert settled(server)["duplicates"] == 2


def test_an_id_may_come_again_when_the_window_is_over(serve, ad):
    server = serve("--workers", "2", "--seen-window", "2s")
    again = event(adId=ad)
    send(server, again)
    send(server, again)
    begun = time.monotonic()
    assert counted(server, ad) == 1

    def counts_again():
        send(server, again)
        return counted(server, ad) == 2
    until(counts_again, "the id is forgotten")
    assert time.monotonic() - begun > 1.5
    assert settled(server)["difference"] == 0


# Many

@pytest.mark.parametrize("form", ["array", "lines"])
def test_a_body_of_ten_thousand_events_is_fine(counting, ad, form):
    events = [event(adId=ad) for _ in range(10_000)]
    if form == "array":
        response = send(counting, json.dumps(events, separators=(",", ":")).encode())
    else:
        response = send(counting, b"\n".join(json.dumps(one).encode() for one in events), "application/x-ndjson")
    assert (response.status_code, response.json()) == (200, {"accepted": 10_000, "rejected": []})
    assert counted(counting, ad) == 10_000


def test_pipelined_events_are_answered_in_order(counting, ad):
    wire = counting.connect()
    bodies = [event(adId=ad), event(adId=ad, ts="x"), [event(adId=ad)], event(adId=ad)]
    wire.send(b"".join(request("POST", "/event", body=json.dumps(body)) for body in bodies))
    assert [wire.read().status for _ in bodies] == [204, 400, 200, 204]
    assert counted(counting, ad) == 3


def test_events_and_redirects_share_a_connection(server, ad):
    server.create(alias="here")
    wire = server.connect()
    wire.send(request("POST", "/event", body=json.dumps(event(adId=ad))) + request("GET", "/here") +
              request("POST", "/event", body=json.dumps(event(adId=ad))) + request("GET", "/nowhere"))
    assert [wire.read().status for _ in range(4)] == [204, 302, 204, 404]
    now = settled(server)
    assert (now["clicks_in_rollups"], now["orphans_in_rollups"], now["impressions_counted"]) == (1, 1, 2)


def test_a_chunked_body_is_as_good(counting, ad):
    body = json.dumps(event(adId=ad)).encode()
    wire = counting.connect()
    wire.send(request("POST", "/event", "Transfer-Encoding: chunked") + chunked(body[:10], body[10:]))
    assert wire.read().status == 204
    assert counted(counting, ad) == 1


def test_a_client_that_leaves_before_its_answer_hurts_nobody(counting, ad):
    """What it had sent whole may count; half of it never does."""
    whole = request("POST", "/event", body=json.dumps(event(adId=ad)))
    for _ in range(20):
        for data in (whole, whole[:-5], whole + whole[:30]):
            wire = counting.connect()
            wire.send(data)
            wire.close()
    assert send(counting, event(adId=ad)).status_code == 204
    assert counted(counting, ad) in (1, 2), "all of them had one id"
    assert settled(counting)["difference"] == 0


@pytest.mark.parametrize("durability", ["flush", "sync"])
def test_a_load_of_events_counts_to_the_last(serve, tmp_path, durability):
    server = serve("--workers", "2", "--events-durability", durability)
    ledger = tmp_path / "ledger"
    one = hammer("events", port=server.port, ledger=ledger, prefix="one", connections=32, count=scaled(20_000), ads=3)
    many = hammer("events", port=server.port, ledger=ledger, prefix="many", connections=8, batch=100,
                  count=scaled(2000), ads=3)
    for report in (one, many):
        assert (report["wrong"], report["broken"]) == (0, 0), report["first_wrong"]
    now = settled(server)
    assert now["impressions_counted"] == one["acknowledged"] + many["acknowledged"] == sum(window(server).values())
    assert now["impression_rows"] == now["impressions_counted"] and now["duplicates"] == 0


def test_events_are_taken_when_visits_are_not_recorded(serve, ad):
    server = serve("--workers", "2", "--events-visits", "false")
    server.create(alias="here")
    assert server.target("here") and server.target("nowhere") is None
    assert send(server, event(adId=ad)).status_code == 204
    assert counted(server, ad) == 1
    now = settled(server)
    assert (now["redirects_served"], now["clicks_logged"], now["orphans_logged"], now["visit_rows"]) == (0, 0, 0, 0)


def test_only_the_first_thousand_that_are_wrong_are_listed(server):
    answer = server.post("/event", data="[" + ",".join(["1"] * 3000) + "]", key=None)
    assert answer.status_code == 200
    assert len(answer.json()["rejected"]) == 1000 and answer.json()["rejected_count"] == 3000
    assert settled(server)["rejected"] == 3000


@pytest.mark.parametrize("body", ["[" + ",".join(["1"] * 50_001) + "]", "1\n" * 50_001, "{}\n" * 50_001],
                         ids=["array", "numbers", "lines"])
def test_a_body_with_too_many_events_is_refused_whole(server, body):
    answer = server.post("/event", data=body, key=None, headers={"Content-Type": "application/x-ndjson"} if body[0] != "[" else {})
    assert_problem(answer, 413, "50000")


def test_a_name_that_only_begins_like_a_field_is_another_name(server):
    event = '{"i\\u0064XXXXXXXXXXXXXXXXXXXXXXXXXX": "n", "ts": %d, "userId": "u", "adId": "a"}' % time.time()
    assert_problem(server.post("/event", data=event, key=None), 400, "id is missing")
