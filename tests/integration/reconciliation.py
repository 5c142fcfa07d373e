"""Clicks and impressions as the server counts them, and as the ledgers of the load client do."""
import collections
import json
import sqlite3

from harness import until


def reconcile(server, deep=False):
    response = server.get("/api/v1/reconcile" + ("?deep=true" if deep else ""))
    assert response.status_code == 200, response.text
    return response.json()


def settled(server, deep=True, seconds=None):
    """The counts once everything that was logged is counted. They must agree, at all times."""
    def look():
        now = reconcile(server, deep)
        assert now["difference"] == 0, now
        return now if now["clicks_pending"] == now["impressions_pending"] == 0 and \
            now["orphans_logged"] == now["orphans_in_rollups"] else None
    if seconds is None:
        return until(look, "everything that was logged is counted")
    return until(look, "everything that was logged is counted", seconds)


def link_stats(server, key, query=""):
    response = server.get(f"/api/v1/links/{key}/stats{query}")
    assert response.status_code == 200, response.text
    return response.json()


def overview(server, query=""):
    response = server.get(f"/api/v1/stats{query}")
    assert response.status_code == 200, response.text
    return response.json()


def window(server, minutes=60):
    """Impressions of each ad."""
    response = server.get(f"/stats?timeWindowMinutes={minutes}", key=None)
    assert response.status_code == 200, response.text
    return response.json()


def visits(server, key, limit=1000, query=""):
    """All visits of a link, page by page; key None: the orphans."""
    path = f"/api/v1/links/{key}/visits" if key else "/api/v1/orphans"
    found, cursor = [], None
    while True:
        response = server.get(f"{path}?limit={limit}{query}" + (f"&cursor={cursor}" if cursor else ""))
        assert response.status_code == 200, response.text
        page = response.json()
        assert set(page) == {"visits", "next"} and len(page["visits"]) <= limit
        found += page["visits"]
        cursor = page["next"]
        if cursor is None:
            return found


def post_events(server, events):
    """A batch; all of them must be taken."""
    body = "\n".join(json.dumps(event) for event in events)
    response = server.post("/event", key=None, data=body.encode(), headers={"Content-Type": "application/x-ndjson"})
    assert response.status_code == 200, response.text
    assert response.json() == {"accepted": len(events), "rejected": []}


class Stuck:
    """While this lasts, the sink cannot write: somebody else holds its lock."""

    def __init__(self, server):
        self.database = sqlite3.connect(server.data / "stats.db", isolation_level=None, timeout=60)

    def __enter__(self):
        self.database.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, *_):
        self.database.execute("ROLLBACK")
        self.database.close()


# What the load client has seen

class Clicks:
    """By key: how many redirects were answered, and how many were asked for in vain."""

    def __init__(self):
        self.answered = collections.Counter()
        self.doubtful = collections.Counter()

    def read(self, ledger):
        with open(ledger) as lines:
            for line in lines:
                key, answered, doubtful = line.split()
                self.answered[key] += int(answered)
                self.doubtful[key] += int(doubtful)

    def assert_counted(self, counted):
        """`counted` is by key. An answered redirect counts once; a doubtful one once or not at all."""
        off = {key: (clicks, self.answered[key], self.doubtful[key]) for key, clicks in counted.items()
               if not self.answered[key] <= clicks <= self.answered[key] + self.doubtful[key]}
        assert not off, f"counted, answered, doubtful: {off}"
        assert set(self.answered) <= set(counted)


class Impressions:
    """Ids and their ads, by what became of them."""

    def __init__(self):
        self.ads = {"ok": {}, "refused": {}, "doubtful": {}}

    def read(self, ledger):
        with open(ledger) as lines:
            for line in lines:
                event, ad, what = line.split()
                assert event not in self.ads[what], f"{event} was answered twice"
                self.ads[what][event] = ad

    def read_again(self, ledger):
        """Of who has sent the same events once more: one that was taken from either was taken."""
        with open(ledger) as lines:
            for line in lines:
                event, ad, what = line.split()
                known = next((known for known, ads in self.ads.items() if event in ads), None)
                if known and what != "ok":
                    continue
                if known:
                    del self.ads[known][event]
                self.ads[what][event] = ad

    @property
    def taken(self):
        return self.ads["ok"]

    def assert_counted(self, counted):
        sums = {what: collections.Counter(ads.values()) for what, ads in self.ads.items()}
        off = {ad: (counted.get(ad, 0), sums["ok"][ad], sums["refused"][ad], sums["doubtful"][ad])
               for ad in set(counted) | set(sums["ok"])
               if not sums["ok"][ad] <= counted.get(ad, 0) <= sum(of[ad] for of in sums.values())}
        assert not off, f"counted, acknowledged, refused, doubtful: {off}"
