"""Questions about clicks and impressions: exact answers, clear refusals, and nobody sees what is not theirs."""
import datetime
import itertools
import socket
import time

import pytest

from reconciliation import link_stats, overview, post_events, reconcile, settled, visits, window
from harness import ADMIN_KEY, assert_problem, until
from wire import request

numbers = itertools.count()
MINUTE_MS = 60_000
EDGE_MS = 60_000  # of events at the edge of a window: more than it takes to ask often enough
STEP_MS = 12
DIMS = ("referrer", "country", "browser", "os", "device", "language", "source", "bot")

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:125.0) Gecko/20100101 Firefox/125.0"
IPHONE = ("Mozilla/5.0 (iPhone; CPU iPhone OS 17_4_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
          "Version/17.4.1 Mobile/15E148 Safari/604.1")
GOOGLEBOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"


def now_ms():
    return int(time.time() * 1000)


def follow(server, key, times=1, agent=FIREFOX, method="GET", query="", **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    for _ in range(times):
        response = server.request(method, f"/{key}{query}", key=None, headers={"User-Agent": agent, **headers})
        assert response.status_code == 302


def shares(stats, dim):
    return {row["value"]: row["clicks"] for row in stats["by"][dim]}


@pytest.fixture
def key(counting):
    """A link that nobody else uses."""
    return counting.create(f"https://example.com/{next(numbers)}")["key"]


# Windows of impressions

def impressions(server, times_ms, ad=None):
    ad = ad or f"ad-{next(numbers)}"
    post_events(server, [{"id": f"i-{next(numbers)}", "ts": ms, "userId": "u", "adId": ad} for ms in times_ms])
    settled(server, deep=False)
    return ad


def test_a_window_ends_now(counting):
    begun = now_ms()
    times = [begun + later for later in range(0, EDGE_MS, STEP_MS)]
    ad = impressions(counting, times)
    seen = set()
    while len(seen) < 100:
        before = now_ms()
        assert before < begun + EDGE_MS, "it was asked at too few moments"
        count = window(counting, 1).get(ad, 0)
        after = now_ms()
        assert sum(ms <= before for ms in times) <= count <= sum(ms <= after for ms in times)
        seen.add(count)


def test_an_ad_without_impressions_in_the_window_is_not_told(counting):
    ad = impressions(counting, [now_ms() - 10 * MINUTE_MS])
    assert ad not in window(counting, 5) and window(counting, 15)[ad] == 1


@pytest.mark.parametrize("query, word", [
    ("", "missing"), ("?timewindowminutes=5", "did you mean"), ("?timeWindowMinutes=", "whole number"),
    ("?timeWindowMinutes=abc", "whole number"), ("?timeWindowMinutes=0", "whole number"),
    ("?timeWindowMinutes=-1", "whole number"), ("?timeWindowMinutes=1.5", "whole number"),
    ("?timeWindowMinutes=1e3", "whole number"), ("?timeWindowMinutes=%35x", "whole number"),
    ("?timeWindowMinutes=99999999999999999999", "whole number"), ("?timeWindowMinutes=0x10", "whole number")])
def test_an_invalid_window_gets_400(counting, query, word):
    assert_problem(counting.get(f"/stats{query}", key=None), 400, "timeWindowMinutes", word)


# A link's statistics

def test_a_link_that_nobody_followed_has_none(counting, key):
    stats = link_stats(counting, key)
    assert set(stats) == {"key", "from", "to", "clicks", "unique_visitors", "bots", "heads", "prefetches", "step", "series",
                          "by"}
    assert stats["key"] == key
    assert (stats["clicks"], stats["unique_visitors"], stats["bots"], stats["heads"], stats["prefetches"]) == (0,) * 5
    assert stats["step"] == "day" and all(point["clicks"] == 0 for point in stats["series"])
    assert 30 <= len(stats["series"]) <= 31
    assert stats["by"] == {dim: [] for dim in DIMS}


def test_clicks_are_reported_by_what_is_known_about_them(counting, key):
    follow(counting, key, 3, FIREFOX, Referer="https://www.example.org/page?x=1", Accept_Language="de-CH, de;q=0.9")
    follow(counting, key, 2, IPHONE, Accept_Language="fr")
    follow(counting, key, 1, GOOGLEBOT)
    follow(counting, key, 4, FIREFOX, query="?source=qr")
    settled(counting, deep=False)
    stats = link_stats(counting, key)
    assert (stats["clicks"], stats["bots"]) == (10, 1)
    assert shares(stats, "browser")["Firefox"] == 7 and shares(stats, "browser")["Mobile Safari"] == 2
    assert shares(stats, "os")["Linux"] == 7 and shares(stats, "os")["iOS"] == 2
    assert shares(stats, "device")["Desktop"] == 7 and shares(stats, "device")["Mobile"] == 2
    assert shares(stats, "source") == {"link": 6, "qr": 4}
    referrers = shares(stats, "referrer")
    assert referrers.pop(None) == 7 and list(referrers.values()) == [3] and "example.org" in list(referrers)[0]
    languages = shares(stats, "language")
    assert languages[None] == 5 and sorted(languages.values()) == [2, 3, 5]
    assert sum(shares(stats, "bot").values()) in (1, 10)
    assert stats["unique_visitors"] == 3
    for dim in set(DIMS) - {"bot"}:
        assert sum(shares(stats, dim).values()) == 10, dim


def test_heads_and_prefetches_are_no_clicks(counting, key):
    follow(counting, key, 2)
    follow(counting, key, 3, method="HEAD")
    for name, value in (("Purpose", "prefetch"), ("Sec-Purpose", "prefetch;prerender"), ("X-Moz", "prefetch"),
                        ("X-Purpose", "preview")):
        follow(counting, key, 1, **{name: value})
    follow(counting, key, 1, Sec_Purpose="navigate")
    now = settled(counting)
    stats = link_stats(counting, key)
    assert (stats["clicks"], stats["heads"], stats["prefetches"]) == (3, 3, 4)
    assert now["difference"] == 0
    assert sorted(visit["kind"] for visit in visits(counting, key)) == ["click"] * 3 + ["head"] * 3 + ["prefetch"] * 4


def test_a_preview_page_is_no_visit(counting, key):
    assert counting.get(f"/{key}+", key=None).status_code == 200
    settled(counting, deep=False)
    assert visits(counting, key) == []


def test_filters_hold_together(counting, key):
    follow(counting, key, 3, FIREFOX, Accept_Language="de")
    follow(counting, key, 2, FIREFOX, Accept_Language="fr", query="?source=qr")
    follow(counting, key, 1, IPHONE, Accept_Language="de", query="?a=b&source=qr")
    settled(counting, deep=False)
    for query, clicks in {"browser=Firefox": 5, "language=de": 4, "source=qr": 3, "browser=Firefox&language=de": 3,
                          "browser=Firefox&source=qr&language=fr": 2, "browser=Opera": 0, "country=": 6,
                          "browser=": 0, "os=iOS&browser=Mobile+Safari": 1, "os=iOS&browser=Mobile%20Safari": 1}.items():
        stats = link_stats(counting, key, f"?{query}")
        assert stats["clicks"] == clicks, query
        assert stats["unique_visitors"] is None
        assert sum(point["clicks"] for point in stats["series"]) == clicks
        for dim in set(DIMS) - {"bot"}:
            assert sum(shares(stats, dim).values()) == clicks, (query, dim)


def test_bots_may_be_left_out_or_looked_at_alone(counting, key):
    follow(counting, key, 3, FIREFOX)
    follow(counting, key, 2, GOOGLEBOT)
    settled(counting, deep=False)
    counts = {which: link_stats(counting, key, f"?bots={which}") for which in ("include", "exclude", "only")}
    assert {which: stats["clicks"] for which, stats in counts.items()} == {"include": 5, "exclude": 3, "only": 2}
    assert {which: stats["unique_visitors"] for which, stats in counts.items()} == {"include": 2, "exclude": 1, "only": 1}
    assert {which: stats["bots"] for which, stats in counts.items()} == {"include": 2, "exclude": 0, "only": 2}
    for which, stats in counts.items():
        assert sum(point["clicks"] for point in stats["series"]) == stats["clicks"], which
        assert sum(shares(stats, "browser").values()) == stats["clicks"], which


@pytest.mark.parametrize("step, seconds", [("minute", 60), ("hour", 3600), ("day", 86400), ("week", 7 * 86400)])
def test_the_series_has_every_step_of_the_range(counting, key, step, seconds):
    follow(counting, key, 2)
    to = now_ms() + 1000
    settled(counting, deep=False)
    stats = link_stats(counting, key, f"?by={step}&from={to - 5 * seconds * 1000}&to={to}")
    assert stats["step"] == step and stats["by"] == {}
    times = [datetime.datetime.fromisoformat(point["t"].replace("Z", "+00:00")) for point in stats["series"]]
    assert len(times) in (5, 6) and all((b - a).total_seconds() == seconds for a, b in zip(times, times[1:]))
    assert [point["clicks"] for point in stats["series"]][-2:] in ([0, 2], [1, 1], [2, 0])
    assert stats["clicks"] == 2


def test_by_chooses_what_is_reported(counting, key):
    stats = link_stats(counting, key, "?by=browser,os")
    assert set(stats["by"]) == {"browser", "os"} and "series" not in stats and "step" not in stats
    stats = link_stats(counting, key, "?by=month,country")
    assert set(stats["by"]) == {"country"} and stats["step"] == "month" and len(stats["series"]) in (1, 2)


def test_a_range_is_told_as_it_was_read(counting, key):
    stats = link_stats(counting, key, "?from=2026-01-02&to=2026-01-03T04:05:06Z")
    assert (stats["from"], stats["to"]) == ("2026-01-02T00:00:00Z", "2026-01-03T04:05:06Z")
    assert stats["step"] == "hour" and len(stats["series"]) == 29


def test_from_belongs_to_the_range_and_to_does_not(counting, key):
    follow(counting, key, 1)
    settled(counting, deep=False)
    moment, = [visit["t"] for visit in visits(counting, key)]
    ms = round(datetime.datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp() * 1000)
    seen = {(start, end): len(visits(counting, key, query=f"&from={ms + start}&to={ms + end}"))
            for start, end in ((0, 1), (-1, 1), (-5, 0), (1, 5))}
    assert seen == {(0, 1): 1, (-1, 1): 1, (-5, 0): 0, (1, 5): 0}


def test_limit_bounds_each_table(counting, key):
    for number in range(15):
        follow(counting, key, 1 + number % 3, Referer=f"https://host{number}.example/")
    settled(counting, deep=False)
    assert len(link_stats(counting, key)["by"]["referrer"]) == 10
    assert len(link_stats(counting, key, "?limit=100")["by"]["referrer"]) == 15
    rows = link_stats(counting, key, "?limit=3")["by"]["referrer"]
    assert [row["clicks"] for row in rows] == [3, 3, 3]


BAD = {
    "by=color": ("'by'", "unknown value 'color'"), "by=": ("'by'",), "by=day,,os": ("'by'",), "bots=some": ("'bots'",),
    "bots=": ("'bots'",), "limit=0": ("'limit'",), "limit=x": ("'limit'",), "limit=100000": ("'limit'",),
    "from=yesterday": ("'from' is not a time", "2027-01-31"), "to=32.13.2026": ("'to'",),
    "from=2026-02-01&to=2026-01-01": ("'from'", "earlier"),
    "from=2026-01-01&to=2026-01-01": ("'from'", "earlier"), "from=": ("'from'",),
    "by=minute&from=2020-01-01": ("steps", "larger"), "by=day,os,hour": ("'by'", "day and hour"),
    "brwser=Firefox": ("'brwser' is unknown", "did you mean browser?"), "colour=red": ("'colour' is unknown", "from, to, by,"),
    "browser=Firefox&browser=Chrome": ("'browser' appears twice",), "from=2026-01-01&from=": ("'from' appears twice",),
}


@pytest.mark.parametrize("query", BAD)
def test_a_question_that_makes_no_sense_gets_400(counting, key, query):
    assert_problem(counting.get(f"/api/v1/links/{key}/stats?{query}"), 400, *BAD[query])
    assert_problem(counting.get(f"/api/v1/stats?{query}"), 400, *BAD[query])


@pytest.mark.parametrize("name", ["browser", "from", "to", "by", "bots", "limit", "country"])
def test_a_malformed_escape_gets_400(counting, key, name):
    answer = counting.connect().ask(request("GET", f"/api/v1/links/{key}/stats?{name}=%zz", key=ADMIN_KEY))
    assert answer.status == 400 and f"'{name}' has a '%' without" in answer.body.decode()


def test_a_time_may_have_an_offset(counting, key):
    for plus in ("+", "%2B"):
        answer = counting.connect().ask(request("GET", f"/api/v1/links/{key}/stats?from=2026-01-02T03:04:05{plus}02:00&"
                                              "to=2026-01-03", key=ADMIN_KEY))
        assert answer.status == 200 and b'"from":"2026-01-02T01:04:05Z"' in answer.body


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "from=x", "to=x", "cursor=nonsense", "cursor=",
                                   "cursor=-1", "from=2026-02-01&to=2026-01-01"])
def test_a_list_that_makes_no_sense_gets_400(counting, key, query):
    for path in (f"/api/v1/links/{key}/visits", "/api/v1/orphans"):
        assert_problem(counting.get(f"{path}?{query}"), 400, f"'{query.split('=')[0]}'")


# Visits

def test_a_visit_tells_all_that_is_known(counting, key):
    follow(counting, key, 1, FIREFOX, Referer="https://www.example.org/page?x=1", Accept_Language="de-CH, de;q=0.9")
    settled(counting, deep=False)
    visit, = visits(counting, key)
    assert set(visit) == {"t", "kind", *DIMS, "region", "city", "address", "referrer_url", "user_agent"}
    assert (visit["kind"], visit["browser"], visit["os"], visit["device"]) == ("click", "Firefox", "Linux", "Desktop")
    assert visit["source"] == "link"
    assert all(visit[name] is None for name in ("bot", "country", "region", "city"))
    assert visit["referrer_url"] == "https://www.example.org/page?x=1" and visit["user_agent"] == FIREFOX
    assert visit["address"] == "127.0.0.0/24", "truncated before it is stored"


@pytest.mark.parametrize("limit", [1, 7, 50, 1000])
def test_the_cursor_walks_over_everything_once(counting, key, limit):
    for number in range(60):
        follow(counting, key, 1, Referer=f"https://host.example/{number}")
    settled(counting, deep=False)
    found = visits(counting, key, limit)
    assert len(found) == 60
    assert sorted(visit["referrer_url"] for visit in found) == sorted(f"https://host.example/{n}" for n in range(60))
    assert found == visits(counting, key), "the order does not depend on the pages"


def test_a_cursor_goes_on_where_it_was_while_new_visits_come(counting, key):
    for number in range(10):
        follow(counting, key, 1, Referer=f"https://host.example/{number}")
    settled(counting, deep=False)
    page = counting.get(f"/api/v1/links/{key}/visits?limit=4").json()
    follow(counting, key, 5, Referer="https://late.example/")
    settled(counting, deep=False)
    rest = counting.get(f"/api/v1/links/{key}/visits?limit=100&cursor={page['next']}").json()
    urls = [visit["referrer_url"] for visit in page["visits"] + rest["visits"] if "late" not in visit["referrer_url"]]
    assert sorted(urls) == sorted(f"https://host.example/{n}" for n in range(10))


def test_long_and_hostile_header_fields_are_kept_within_bounds_and_escaped(counting, key):
    hostile = '<script>alert("x")</script>\t\\"'
    follow(counting, key, 1, hostile, Referer="https://e.example/" + "x" * 3000, Accept_Language="x" * 300)
    follow(counting, key, 1, "agent " * 500, Referer="not a URL at all", Accept_Language=", ;q=")
    settled(counting, deep=False)
    found = {visit["user_agent"][:8]: visit for visit in visits(counting, key)}
    assert found["<script>"]["user_agent"] == hostile
    assert len(found["<script>"]["referrer_url"]) <= 2048 and len(found["<script>"]["language"] or "") <= 35
    assert len(found["agent ag"]["user_agent"]) <= 2048
    assert link_stats(counting, key)["clicks"] == 2


# Orphans

def test_orphans_are_their_own_kind(server):
    for path in ("/nowhere", "/no.key", "/nowhere", "/%25zz", "/"):
        server.get(path, key=None, headers={"User-Agent": FIREFOX})
    now = settled(server)
    assert (now["orphans_logged"], now["clicks_logged"], now["redirects_served"]) == (5, 0, 0)
    found = visits(server, None)
    assert sorted((visit["kind"], visit["path"] or "") for visit in found) == [
        ("root", ""), ("unknown", "%25zz"), ("unknown", "no.key"), ("unknown", "nowhere"), ("unknown", "nowhere")]
    everything = overview(server)
    assert everything["orphans"] == {"unknown": 4, "root": 1} and everything["clicks"] == 0
    assert len(visits(server, None, limit=2)) == 5


# The overview

def test_the_overview_of_an_empty_server(server):
    everything = overview(server)
    assert (everything["clicks"], everything["impressions"]) == (0, 0)
    assert everything["orphans"] == {"unknown": 0, "root": 0}
    assert everything["top_links"] == everything["top_ads"] == [] and everything["unique_visitors"] == 0


def test_the_overview_adds_everything_up_and_tells_the_top(server):
    keys = [server.create(f"https://example.com/{n}")["key"] for n in range(12)]
    for number, key in enumerate(keys):
        follow(server, key, number + 1)
    follow(server, keys[0], 2, method="HEAD")
    post_events(server, [{"id": f"e{a}-{n}", "ts": now_ms(), "userId": "u", "adId": f"ad{a:02}"} for a in range(12)
                         for n in range(a + 1)])
    settled(server)
    everything = overview(server)
    assert everything["clicks"] == sum(point["clicks"] for point in everything["series"]) == 78
    assert (everything["heads"], everything["impressions"]) == (2, 78)
    assert [(row["key"], row["clicks"]) for row in everything["top_links"]] == [
        (keys[n], n + 1) for n in range(11, 1, -1)]
    assert everything["top_links"][0]["short_url"].endswith("/" + keys[11])
    assert [(row["ad"], row["impressions"]) for row in everything["top_ads"]] == [
        (f"ad{n:02}", n + 1) for n in range(11, 1, -1)]
    assert all(row["clicks"] is None and row["click_through"] is None for row in everything["top_ads"])


def test_no_number_of_the_overview_ignores_a_filter(server):
    server.create(alias="seen")
    follow(server, "seen", 3, FIREFOX)
    follow(server, "seen", 2, GOOGLEBOT)
    post_events(server, [{"id": f"f{n}", "ts": now_ms(), "userId": "u", "adId": "seen"} for n in range(10)])
    settled(server)
    for query, clicks in {"": 5, "?bots=exclude": 3, "?bots=only": 2, "?browser=Firefox": 3}.items():
        everything = overview(server, query)
        assert everything["clicks"] == everything["top_ads"][0]["clicks"] == clicks, query
        assert everything["top_links"] == (None if query else [{"key": "seen", "short_url": f"{server.url}/seen",
                                                                "clicks": 5}])


def test_click_through_is_told_for_ads_that_are_keys_or_tags(server):
    server.create(alias="by-key")
    server.create(alias="tagged-1", tags=["spring"])
    server.create(alias="tagged-2", tags=["spring", "other"])
    follow(server, "by-key", 1)
    follow(server, "tagged-1", 2)
    follow(server, "tagged-2", 3)
    post_events(server, [{"id": f"{ad}{n}", "ts": now_ms(), "userId": "u", "adId": ad} for ad in
                         ("by-key", "spring", "other", "none of them") for n in range(10)])
    settled(server)
    ads = {row["ad"]: (row["clicks"], row["click_through"]) for row in overview(server)["top_ads"]}
    assert ads == {"by-key": (1, 0.1), "spring": (5, 0.5), "other": (3, 0.3), "none of them": (None, None)}


# Who may ask

def test_other_peoples_links_are_not_there(server):
    server.create(alias="admins")
    plain = server.client(server.make_key()["key"])
    plain.create(alias="own")
    for what in ("stats", "visits"):
        assert_problem(plain.get(f"/api/v1/links/admins/{what}"), 404)
        assert plain.get(f"/api/v1/links/own/{what}").status_code == 200
        assert server.get(f"/api/v1/links/own/{what}").status_code == 200, "an admin sees all"
        assert_problem(server.get(f"/api/v1/links/own/{what}", key=None), 401)
        assert_problem(server.get(f"/api/v1/links/own/{what}", key="ck_wrong"), 401)


@pytest.mark.parametrize("path", ["/api/v1/stats", "/api/v1/reconcile", "/api/v1/orphans", "/api/v1/live"])
def test_what_is_about_everybody_is_for_admins(server, path):
    plain = server.client(server.make_key()["key"])
    assert_problem(plain.get(path), 403)
    assert_problem(server.get(path, key=None), 401)
    assert server.head(path).status_code == 200


@pytest.mark.parametrize("what", ["stats", "visits"])
def test_links_that_are_not_there_have_no_statistics(server, what):
    assert_problem(server.get(f"/api/v1/links/nowhere/{what}"), 404)
    assert_problem(server.get(f"/api/v1/links/no.key/{what}"), 404)
    server.create(alias="gone")
    follow(server, "gone", 2)
    settled(server)
    server.remove("gone")
    assert_problem(server.get(f"/api/v1/links/gone/{what}"), 404)
    assert overview(server)["top_links"] == [] and overview(server)["clicks"] == 2


def test_a_new_link_with_an_old_name_starts_from_nothing(server):
    server.create(alias="again")
    follow(server, "again", 3)
    settled(server)
    server.remove("again")
    server.create("https://example.com/new", alias="again")
    follow(server, "again", 1)
    settled(server)
    assert link_stats(server, "again")["clicks"] == 1 and len(visits(server, "again")) == 1


# Totals

def test_totals_reach_the_link(serve):
    server = serve("--workers", "2", "--worker-totals-time", "20ms")
    server.create(alias="here")
    assert server.link("here")["clicks"] == 0
    follow(server, "here", 5)
    follow(server, "here", 3, method="HEAD")
    until(lambda: server.link("here")["clicks"] == 5, "the total is flushed")
    changed = server.link("here")
    follow(server, "here", 2)
    until(lambda: server.link("here")["clicks"] == 7, "the total is flushed again")
    assert dict(server.link("here"), clicks=5) == changed, "being followed is no change of the link"


def test_totals_are_flushed_when_the_server_stops(server):
    server.create(alias="here")
    follow(server, "here", 5)
    settled(server)
    server.restart()
    until(lambda: server.link("here")["clicks"] == 5, "the total is there after a restart")


# Addresses and countries

def proxied(serve, *flags):
    server = serve("--workers", "1", "--trusted-proxies", "loopback", *flags)
    server.create(alias="here")
    return server


@pytest.mark.parametrize("forwarded, address", [
    ("203.0.113.77", "203.0.113.0/24"), ("2001:db8:1234:5678:9abc::1", "2001:db8:1234::/48"),
    ("198.51.100.1, 203.0.113.77", "203.0.113.0/24"), ("203.0.113.77, 127.0.0.1", "203.0.113.0/24"),
    ("::ffff:203.0.113.77", "203.0.113.0/24"), ("nonsense", "127.0.0.0/24"), ("", "127.0.0.0/24")])
def test_addresses_are_truncated_and_come_from_trusted_proxies(serve, forwarded, address):
    server = proxied(serve)
    follow(server, "here", 1, X_Forwarded_For=forwarded)
    settled(server)
    assert [visit["address"] for visit in visits(server, "here")] == [address]


def has_ipv6():
    try:
        with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True):
            return True
    except (OSError, ValueError):
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 that takes IPv4 as well")
def test_a_visitor_of_ipv4_is_one_on_a_listener_of_ipv6_too(serve):
    server = serve("--workers", "1", listen="[::]:0")
    server.url = f"http://127.0.0.1:{server.port}"
    server.create(alias="here")
    follow(server, "here", 1)
    settled(server)
    assert [visit["address"] for visit in visits(server, "here")] == ["127.0.0.0/24"]


def test_a_country_is_believed_from_a_trusted_proxy_only(serve):
    server = proxied(serve)
    for country in ("CH", "DE", "DE", "XYZ", "D"):
        follow(server, "here", 1, CF_IPCountry=country)
    settled(server)
    assert shares(link_stats(server, "here"), "country") == {"CH": 1, "DE": 2, None: 2}
    assert link_stats(server, "here", "?country=DE")["clicks"] == 2


def test_without_trusted_proxies_nothing_that_anybody_sends_is_believed(counting, key):
    follow(counting, key, 1, X_Forwarded_For="203.0.113.77", CF_IPCountry="CH")
    settled(counting, deep=False)
    visit, = visits(counting, key)
    assert (visit["address"], visit["country"]) == ("127.0.0.0/24", None)


def test_the_country_header_has_the_name_that_was_set(serve):
    server = proxied(serve, "--events-country-header", "X-Country")
    follow(server, "here", 1, X_Country="SE", CF_IPCountry="CH")
    settled(server)
    assert [visit["country"] for visit in visits(server, "here")] == ["SE"]


def test_addresses_are_not_kept_on_request_but_visitors_are_still_distinguished(serve):
    server = proxied(serve, "--events-address", "none")
    for number in range(3):
        follow(server, "here", 2, X_Forwarded_For=f"203.0.113.{number}")
    settled(server)
    assert {visit["address"] for visit in visits(server, "here")} == {None}
    assert link_stats(server, "here")["unique_visitors"] == 3
    server.stop()
    for path in (server.data / "events").glob("*.log"):
        assert b"\xcb\x00\x71" not in path.read_bytes(), "nor in the log"


def test_visitors_are_distinguished_by_address_and_agent(serve):
    server = proxied(serve)
    for number in range(40):
        follow(server, "here", 2, FIREFOX, X_Forwarded_For=f"203.0.113.{number}")
        follow(server, "here", 1, IPHONE, X_Forwarded_For=f"203.0.113.{number}")
    settled(server)
    stats = link_stats(server, "here")
    assert stats["clicks"] == 120 and 75 <= stats["unique_visitors"] <= 85


def test_the_reconciliation_of_a_quiet_server_is_complete(server):
    assert set(reconcile(server)) == {
        "redirects_served", "clicks_logged", "clicks_consumed", "clicks_in_rollups", "clicks_pending",
        "impressions_accepted", "impressions_consumed", "impressions_counted", "impressions_pending", "orphans_logged",
        "orphans_in_rollups", "duplicates", "rejected", "dead_letters", "dropped", "damaged_bytes", "difference"}
    assert set(reconcile(server, deep=True)) - set(reconcile(server)) == {"visit_rows", "impression_rows"}
    assert all(value == 0 for value in reconcile(server, deep=True).values())


@pytest.mark.parametrize("query", ["from=5", "from=20260101", "to=3600", "from=-1", "to=99999999999999999",
                                   "to=4611686018427387903"])
def test_numbers_that_are_rather_something_else_than_a_time_are_refused(server, query):
    server.create(alias="here")
    assert_problem(server.get(f"/api/v1/links/here/stats?{query}"), 400, "is not a time", "seconds or milliseconds since 1970")


def test_a_range_may_begin_with_1970(server):
    server.create(alias="here")
    follow(server, "here", 1)
    settled(server)
    for query in ("from=0", "from=0&by=month", "from=1970-01-01&by=month"):
        stats = link_stats(server, "here", f"?{query}")
        assert stats["from"] == stats["series"][0]["t"] == "1970-01-01T00:00:00Z" and stats["clicks"] == 1
    assert_problem(server.get("/api/v1/links/here/stats?to=0"), 400, "'from' must be earlier")


def test_seconds_and_milliseconds_are_the_same_time(server):
    server.create(alias="here")
    now = int(time.time())
    ranges = {link_stats(server, "here", f"?from={form}&by=day")["from"] for form in (now, now * 1000, f"{now}000")}
    assert len(ranges) == 1 and abs(datetime.datetime.fromisoformat(ranges.pop().replace("Z", "+00:00")).timestamp() - now) < 1
