"""Damage to the event log is found and named, and never reaches the counts; `curt stats` in the terminal."""
import contextlib
import json
import random
import re
import sqlite3
import time

import pytest

from reconciliation import Stuck, link_stats, settled, window
from harness import curt, hammer, scaled

KEYS = 5


class Frozen:
    """A data folder whose log holds events that were never counted: the server was killed while its sink was stuck."""

    def __init__(self, server, folder, events=300):
        self.server = server
        self.keys = [server.create(f"https://example.com/{n}")["key"] for n in range(KEYS)]
        settled(server)
        with Stuck(server):
            for number in range(events):
                self.one(number)
            server.kill()
        self.log = max((server.data / "events").glob("*.log"), key=lambda path: path.stat().st_size)
        self.whole = self.log.read_bytes()

    def one(self, number):
        if number % 3 == 2:
            body = {"id": f"i-{number}", "ts": int(time.time() * 1000), "userId": "u", "adId": "ad"}
            assert self.server.post("/event", json=body, key=None).status_code == 204
        else:
            key = self.keys[number % KEYS]
            assert self.server.get(f"/{key}", key=None, headers={"User-Agent": f"agent {number % 7}"}).status_code == 302

    def records(self, data=None):
        """(position, length, kind) of each record, as docs/internals/eventlog-format.md has it."""
        data, at = data or self.whole, 64
        while at < len(data):
            length = int.from_bytes(data[at + 4:at + 6], "little")
            yield at, length, data[at + 6]
            at += length

    def counts_before(self, place):
        """Clicks and impressions whose records end before the place."""
        kinds = [kind for at, length, kind in self.records() if at + length <= place]
        return kinds.count(2), kinds.count(3)

    def begin_of(self, place):
        """Where the record at that place begins."""
        return max(at for at, _, _ in self.records() if at <= place)

    def verify(self):
        done = self.server.curt("verify")
        said = re.search(rf"^{re.escape(str(self.log))}: (.*)$", done.stdout, re.MULTILINE)
        return done.returncode, said[1] if said else "", done.stdout


@pytest.fixture
def frozen(serve, tmp_path):
    return Frozen(serve("--workers", "1", "--worker-interval-ms", "5"), tmp_path)


def test_a_log_that_a_killed_server_left_is_sound(frozen):
    status, said, everything = frozen.verify()
    assert (status, everything.splitlines()[-1]) == (0, "no damage found")
    assert said.startswith("200 clicks, 0 orphan visits, 100 impressions; not closed")


def test_verify_changes_nothing(frozen):
    before = {path: path.read_bytes() for path in (frozen.server.data / "events").iterdir()}
    frozen.verify()
    assert {path: path.read_bytes() for path in (frozen.server.data / "events").iterdir()} == before


def test_verify_works_beside_a_running_server(server):
    server.create(alias="here")
    for _ in range(10):
        server.target("here")
    done = server.curt("verify")
    assert done.returncode == 0 and "being written" in done.stdout and done.stdout.endswith("no damage found\n")
    assert server.target("here")


def test_verify_says_what_is_not_there(tmp_path, server):
    done = curt("verify", "--data", tmp_path / "none")
    assert done.returncode == 1 and "no data folder" in done.stderr
    server.stop()
    done = server.curt("verify")
    assert done.returncode == 0 and "events: no segments" in done.stdout


def flip(data, place, chance):
    return data[:place] + bytes([data[place] ^ (1 << chance.randrange(8))]) + data[place + 1:]


def serve_damaged(frozen, place):
    """The server starts on what is left and serves; it counts what stands before the place, and nothing behind it."""
    server = frozen.server.start()
    assert server.target(frozen.keys[0])
    now = settled(server)
    clicks, impressions = frozen.counts_before(place)
    assert now["clicks_in_rollups"] == clicks + 1
    assert window(server).get("ad", 0) == impressions == now["impressions_counted"]
    assert sum(link_stats(server, key)["clicks"] for key in frozen.keys) == clicks + 1
    server.stop()


@pytest.mark.parametrize("seed", range(2 + scaled(6)))
def test_a_flipped_bit_is_named_and_nothing_behind_it_counts(frozen, seed):
    chance = random.Random(seed)
    last = max(at for at, _, _ in frozen.records())
    place = chance.randrange(64, last)
    damaged = flip(frozen.whole, place, chance)
    frozen.log.write_bytes(damaged)
    status, said, everything = frozen.verify()
    assert status == 1 and everything.splitlines()[-1] == "1 damaged"
    assert f"DAMAGED at byte {frozen.begin_of(place)}:" in said, said
    serve_damaged(frozen, place)
    assert frozen.log.read_bytes() == damaged, "it stays as it is, for people to look at"
    assert frozen.verify()[0] == 1


@pytest.mark.parametrize("seed", range(1 + scaled(3)))
def test_bytes_that_are_missing_in_the_middle_are_named_and_nothing_behind_them_counts(frozen, seed):
    """Records know their place, so none behind the gap is valid: that is what a torn last write looks like, too."""
    chance = random.Random(seed)
    place = chance.randrange(64, max(at for at, _, _ in frozen.records()))
    damaged = frozen.whole[:place] + frozen.whole[place + chance.randrange(1, 100):]
    frozen.log.write_bytes(damaged)
    where = next(at for at, (a, b) in enumerate(zip(frozen.whole, damaged)) if a != b)
    _, said, _ = frozen.verify()
    assert f" at byte {frozen.begin_of(where)}:" in said, said
    serve_damaged(frozen, where)


def test_bytes_that_are_missing_before_the_end_of_a_closed_segment_are_damage(serve, tmp_path):
    server = serve("--workers", "1", "--events-segment-bytes", "64k")
    server.create(alias="here")
    keys = tmp_path / "keys"
    keys.write_text("here\n")
    hammer("redirect", port=server.port, keys=keys, connections=4, count=3000)
    settled(server)
    server.stop()
    first = min((server.data / "events").glob("*.log"))
    whole = first.read_bytes()
    first.write_bytes(whole[:1000] + whole[1003:])
    done = server.curt("verify")
    assert done.returncode == 1
    place = re.search(rf"{first.name}: .*DAMAGED at byte (\d+):", done.stdout)
    assert 1000 - 200 < int(place[1]) <= 1000
    server.start()
    assert settled(server)["clicks_in_rollups"] == 3000, "it was read before it was damaged"


@pytest.mark.parametrize("seed", range(1 + scaled(3)))
def test_zeroed_bytes_are_named(frozen, seed):
    chance = random.Random(seed)
    places = [at for at, _, _ in frozen.records()]
    place = chance.choice(places[:-10]) + chance.randrange(0, 8)
    damaged = frozen.whole[:place] + bytes(64) + frozen.whole[place + 64:]
    frozen.log.write_bytes(damaged)
    where = next(at for at, (a, b) in enumerate(zip(frozen.whole, damaged)) if a != b)
    status, said, _ = frozen.verify()
    assert status == 1 and f"DAMAGED at byte {frozen.begin_of(where)}:" in said, said
    serve_damaged(frozen, where)


@pytest.mark.parametrize("seed", range(1 + scaled(3)))
def test_a_log_that_was_cut_off_counts_up_to_there(frozen, seed):
    """A torn last write looks the same: nobody was told about it, so it is no damage."""
    place = random.Random(seed).randrange(64, len(frozen.whole))
    frozen.log.write_bytes(frozen.whole[:place])
    status, said, _ = frozen.verify()
    at_a_border = place in [at for at, _, _ in frozen.records()]
    assert status == 0 and (("not closed" if at_a_border else f"torn at byte {frozen.begin_of(place)}:") in said), said
    serve_damaged(frozen, place)
    status, said, _ = frozen.verify()
    assert status == 0 and "whole (closed by recovery)" in said, said


@pytest.mark.parametrize("place", [0, 8, 12, 16, 24, 63])
def test_a_damaged_header_loses_the_segment_and_says_so(frozen, place):
    frozen.log.write_bytes(flip(frozen.whole, place, random.Random(place)))
    status, said, _ = frozen.verify()
    assert status == 1 and "DAMAGED at byte 0: its header is not valid" in said
    serve_damaged(frozen, 64)


def test_a_record_that_was_copied_is_not_counted_again(frozen):
    at, length, _ = [record for record in frozen.records() if record[2] == 2][-1]
    frozen.log.write_bytes(frozen.whole + frozen.whole[at:at + length])
    status, said, _ = frozen.verify()
    assert status == 0 and f"torn at byte {len(frozen.whole)}:" in said, said
    serve_damaged(frozen, len(frozen.whole))


def test_a_segment_under_another_name_is_not_counted(frozen):
    other = frozen.log.with_name(frozen.log.name.replace("-000000.log", "-000001.log"))
    other.write_bytes(frozen.whole)
    assert frozen.verify()[0] == 1
    serve_damaged(frozen, len(frozen.whole))


def test_nonsense_in_the_folder_is_left_alone(frozen):
    folder = frozen.server.data / "events"
    (folder / "notes.txt").write_text("mine")
    (folder / "00000001-00-zzzzzz.log").write_bytes(b"junk")
    serve_damaged(frozen, len(frozen.whole))
    assert (folder / "notes.txt").read_text() == "mine"


# Every file of the folder

def fill(server):
    for number in range(30):
        server.create(f"https://example.com/{number}", alias=f"alias-{number}", tags=["a"])
    for number in range(60):
        server.get(f"/alias-{number % 40}", key=None, headers={"User-Agent": f"agent {number % 7}"})
    body = [{"id": f"i-{n}", "ts": int(time.time() * 1000), "userId": "u", "adId": "ad"} for n in range(20)]
    assert server.post("/event", json=body, key=None).status_code == 200
    settled(server)


def assert_found(server, path, places, chance):
    """verify names the file for a flip at each of these places, and is content with the whole one."""
    whole = path.read_bytes()
    named = str(path.parent if path.name == "curt.folder" else path)  # it may be another format of the folder
    for place in places:
        path.write_bytes(flip(whole, place, chance))
        done = server.curt("verify")
        assert done.returncode == 1 and named in done.stdout + done.stderr, (path.name, place, done.stdout, done.stderr)
        assert done.stderr or done.stdout.splitlines()[-1].endswith(" damaged")
    path.write_bytes(whole)


def structure(data, page=4096):
    """Where a SQLite file's header, its schema, and the headers and pointers of its pages are. Rows are left out: SQLite
    has no checksums, so a changed letter in a text that has no index is not found, nor one in unused space."""
    free, trunk = set(), int.from_bytes(data[32:36], "big")
    while trunk:
        start = (trunk - 1) * page
        count = int.from_bytes(data[start + 4:start + 8], "big")
        free |= {trunk, *(int.from_bytes(data[start + 8 + 4 * n:start + 12 + 4 * n], "big") for n in range(count))}
        trunk = int.from_bytes(data[start:start + 4], "big")
    changing = {*range(24, 28), *range(40, 44), *range(92, 100)}  # counters, and the version of SQLite
    places = [place for place in range(100) if place not in changing]
    for number in range(1, len(data) // page + 1):
        start = (number - 1) * page
        at = start + (100 if number == 1 else 0)
        if number in free or data[at] not in (2, 5, 10, 13):
            continue
        cells = int.from_bytes(data[at + 3:at + 5], "big")
        places += range(at, at + (12 if data[at] < 6 else 8) + 2 * cells)
    return places


@pytest.mark.embedded("it is about SQLite's files")
def test_a_flipped_bit_in_any_file_is_found(server):
    fill(server)
    server.stop()
    before = {path: path.read_bytes() for path in server.data.rglob("*") if path.is_file()}
    assert server.curt("verify").returncode == 0
    chance = random.Random(4)
    for path, data in sorted(before.items()):
        if path.suffix == ".log":
            places = [0, 8, 16, 40, 63, 64, 70, len(data) // 2, len(data) - 17]
            path.write_bytes(flip(data, len(data) - 1, chance))  # a bad last record looks like a torn write
            assert f"{path}: " in (said := server.curt("verify").stdout) and "torn at byte" in said
            path.write_bytes(data)
        elif path.suffix == ".db":
            every = structure(data)
            places = [0, 16, 21, 60, 68, 80, every[-1], *chance.sample(every, 12 + scaled(100))]
        elif path.name == "curt.folder":
            places = range(len(data))
        elif path.name == "boot":  # its digits may be others, but not those of the node
            places = [0, 4, 5, 12, 20, 21, 26, len(data) - 1]
        elif path.name == "base_url":
            places = range(len("http://"))
        elif path.name == "salt":  # a digit may be another
            places = [4, 7, 10, len(data) - 1]
        else:
            assert data == b"", f"what is {path}?"
            path.write_bytes(b"x")
            assert server.curt("verify").returncode == 1
            path.write_bytes(b"")
            continue
        assert_found(server, path, places, chance)
    assert {path: path.read_bytes() for path in server.data.rglob("*") if path.is_file()} == before


@pytest.mark.embedded("it is about SQLite's files")
def test_a_flipped_bit_in_the_log_of_a_database_is_found(server):
    """SQLite itself ignores a bad frame and all after it without a word. The last frame may be a torn write."""
    fill(server)
    server.kill()
    assert server.curt("verify").returncode == 0
    chance = random.Random(5)
    for name in ("links.db-wal", "stats.db-wal"):
        path = server.data / name
        data = path.read_bytes()
        salts = data[16:24]
        frames = [at for at in range(32, len(data) - 4119, 4120) if data[at + 8:at + 16] == salts]
        assert len(frames) > 3
        places = [0, 8, 17, 25, *(chance.choice(frames[:-1]) + chance.randrange(4120) for _ in range(8 + scaled(50)))]
        for place in places:
            path.write_bytes(flip(data, place, chance))
            done = server.curt("verify")
            assert done.returncode == 1 and f"{name} is damaged" in done.stdout, (place, done.stdout)
        path.write_bytes(data)
    assert server.curt("verify").returncode == 0


@pytest.mark.embedded("it is about SQLite's files")
def test_rows_that_contradict_each_other_are_found(server):
    fill(server)
    server.stop()
    for name, change, said in [
            ("links.db", "UPDATE link SET url = 'gopher://x' WHERE alias = 'alias-3'", "a row of a link has values"),
            ("links.db", "UPDATE link SET tags = '[\"a\"}' WHERE alias = 'alias-3'", "a row of a link has values"),
            ("links.db", "UPDATE link SET alias = 'other' WHERE alias = 'alias-3'", "do not name each other"),
            ("links.db", "DELETE FROM alias WHERE name = 'alias-3'", "do not name each other"),
            ("links.db", "DROP INDEX link_by_owner", "its tables are not those of layout"),
            ("stats.db", "UPDATE text SET text = 'x' WHERE id = 1", "a row with a text contradicts itself"),
            ("stats.db", "UPDATE shape SET device = 'x' WHERE id = 1", "a row with a dimension set contradicts itself"),
            ("stats.db", "UPDATE ad_cell SET count = count + 1", "a row with the counts of ads contradicts itself"),
            ("stats.db", "UPDATE book SET clicks = clicks + 1", "the counts do not add up"),
            ("stats.db", "PRAGMA user_version = 99", "was written by a newer version of curt (layout 99"),
            ("links.db", "PRAGMA application_id = 7", "is a database of another program")]:
        path = server.data / name
        whole = path.read_bytes()
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute(change)
            db.commit()
        done = server.curt("verify")
        assert done.returncode == 1 and said in done.stdout, (change, done.stdout)
        path.write_bytes(whole)
        assert server.curt("verify").returncode == 0
    (server.data / "stats.db").unlink()
    done = server.curt("verify")
    assert done.returncode == 1 and "stats.db: MISSING" in done.stdout


def test_a_folder_of_another_kind_gets_a_clear_message(tmp_path, server):
    server.stop()
    marker = server.data / "curt.folder"
    ours = marker.read_text()
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "cat.jpg").write_bytes(b"cat")
    cases = [(tmp_path / "none", ours, "there is no data folder"), (tmp_path / "empty", ours, "there is no data folder"),
             (tmp_path / "other", ours, "is not a data folder of curt"),
             (server.data, ours.replace("format 1", "format 9"), "made by a newer version of curt (format 9, this version reads 1)"),
             (server.data, ours.replace("format 1", "format 0"), "curt.folder is damaged"),
             (server.data, ours + "more", "curt.folder is damaged"), (server.data, "", "curt.folder is damaged")]
    for folder, text, said in cases:
        marker.write_text(text)
        before = folder_names(folder)
        done = curt("verify", "--data", folder)
        assert (done.returncode, done.stdout) == (1, "") and said in done.stderr, done.stderr
        report = json.loads(curt("verify", "--data", folder, "--json").stdout)
        assert report["sound"] is False and said in report["checks"][-1]["detail"]
        assert folder_names(folder) == before
    marker.write_text(ours)


def folder_names(folder):
    return sorted(str(path) for path in folder.rglob("*"))


def test_files_that_are_not_ours_and_leftovers_are_named(server):
    server.kill()
    (server.data / "notes.txt").write_text("mine")
    (server.data / "events" / "00000001-00-zzzzzz.log").write_bytes(b"junk")
    (server.data / "events" / "boot.123.tmp").write_bytes(b"half")
    done = server.curt("verify")
    assert done.returncode == 0, done.stdout
    for name, said in [("notes.txt", "not a file of curt"), ("00000001-00-zzzzzz.log", "not a file of curt"),
                       ("boot.123.tmp", "may be deleted"), ("server.json", "left by a server that was killed")]:
        assert re.search(rf"/{re.escape(name)}: .*{said}", done.stdout), done.stdout


def test_verify_as_json(server):
    server.stop()
    done = server.curt("verify", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["sound"]) == (0, True)
    assert {"name": str(server.data / "curt.folder"), "status": "ok", "detail": "sound"} in report["checks"]
    (server.data / "events" / "boot").write_text("node")
    done = server.curt("verify", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["sound"]) == (1, False)
    assert [check["name"] for check in report["checks"] if check["status"] == "bad"] == [str(server.data / "events" / "boot")]


@pytest.mark.embedded("it is about SQLite's files")
def test_damage_to_a_database_is_found(server, tmp_path):
    server.create(alias="here")
    keys = tmp_path / "keys"
    keys.write_text("here\n")
    hammer("redirect", port=server.port, keys=keys, connections=4, count=scaled(20_000) + 2000)
    settled(server)
    server.stop()
    assert server.curt("verify").returncode == 0
    data = bytearray((server.data / "stats.db").read_bytes())
    for at in range(4096 * 2, len(data), 4096):
        data[at:at + 64] = b"\xff" * 64
    (server.data / "stats.db").write_bytes(data)
    done = server.curt("verify")
    assert done.returncode == 1 and "stats.db: DAMAGED" in done.stdout
    assert "links.db: sound" in done.stdout


# curt stats

@pytest.fixture(params=["through the server", "straight"])
def told(request, server):
    """told(*args): what `curt stats` says, with a server and without."""
    server.create(alias="here", tags=["spring"])
    for number in range(6):
        server.get("/here", key=None, headers={"User-Agent": "curl/8.5.0", "Referer": f"https://host{number % 2}.example/"})
    server.head("/here", key=None)
    server.get("/nowhere", key=None)
    body = [{"id": f"i-{n}", "ts": int(time.time() * 1000), "userId": "u", "adId": "spring"} for n in range(12)]
    assert server.post("/event", json=body, key=None).status_code == 200
    settled(server)
    if request.param == "straight":
        server.kill()

    def ask(*args):
        return server.curt("stats", *args)
    return ask


def test_stats_of_a_link_are_a_table_and_bars(told):
    done = told("here")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^link +here$", done.stdout, re.MULTILINE)
    assert re.search(r"^clicks +6, of them 6 by bots$", done.stdout, re.MULTILINE)
    assert re.search(r"^visitors +about 1$", done.stdout, re.MULTILINE)
    assert re.search(r"^not counted +1 HEAD, 0 prefetch$", done.stdout, re.MULTILINE)
    assert re.search(r"^clicks by day\n  \d{4}-\d\d-\d\d +6  █{40}$", done.stdout, re.MULTILINE)
    assert re.search(r"^referrer\n  host0.example +3  50.0 %  █{20}\n  host1.example +3  50.0 %  █{20}$", done.stdout,
                     re.MULTILINE), done.stdout


def test_stats_with_a_filter_say_what_they_do_not_know(told):
    for args, visitors in {("--bots", "exclude"): "about 0", ("--bots", "only"): "about 1",
                           ("--where", "browser=curl"): "not known with this filter"}.items():
        done = told("here", *args)
        assert re.search(rf"^visitors +{visitors}$", done.stdout, re.MULTILINE), (args, done.stdout)


def test_stats_of_everything_tell_links_and_ads(told):
    done = told()
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^clicks +6, of them 6 by bots$", done.stdout, re.MULTILINE)
    assert re.search(r"^orphan visits +1 at unknown keys, 0 at the root$", done.stdout, re.MULTILINE)
    assert re.search(r"^impressions +12$", done.stdout, re.MULTILINE)
    assert re.search(r"^links\n  http://\S+/here +6$", done.stdout, re.MULTILINE)
    assert re.search(r"^  spring +12 +6 +50.00 %$", done.stdout, re.MULTILINE)


def test_stats_as_json_are_what_the_api_says(told):
    answer = json.loads(told("here", "--json").stdout)
    assert (answer["key"], answer["clicks"], answer["heads"]) == ("here", 6, 1)
    assert json.loads(told("--json").stdout)["top_ads"][0]["click_through"] == 0.5


def test_options_of_stats_choose(told):
    assert json.loads(told("here", "--json", "--where", "referrer=host1.example").stdout)["clicks"] == 3
    assert json.loads(told("here", "--json", "--bots", "exclude").stdout)["clicks"] == 0
    assert json.loads(told("here", "--json", "--where", "source=qr", "--where", "os=Other").stdout)["clicks"] == 0
    assert len(json.loads(told("here", "--json", "--limit", "1").stdout)["by"]["referrer"]) == 1
    answer = json.loads(told("here", "--json", "--step", "hour", "--from", "2026-01-01", "--to", "2026-01-02").stdout)
    assert (answer["step"], len(answer["series"]), answer["clicks"]) == ("hour", 24, 0)


REFUSED = [
    (["nowhere"], "no link"), (["here", "--from", "x"], "--from"), (["here", "--limit", "0"], "--limit"),
    (["here", "--from", "2026-02-01", "--to", "2026-01-01"], "--from must be earlier than --to"),
    (["here", "--from", "2025-01-01", "--step", "minute"], "(--step month)"),
]
WRONG = [
    (["here", "--where", "browser"], "NAME=VALUE"), (["here", "--nonsense"], "nonsense"), (["here", "there"], "takes [KEY]"),
    (["here", "--from"], "--from"), (["here", "--bots", "some"], "--bots"), (["here", "--step", "eon"], "eon"),
]


def test_wrong_options_of_stats_end_with_a_sentence_and_a_status(told):
    for args, word, status in [*[(*row, 1) for row in REFUSED], *[(*row, 2) for row in WRONG]]:
        done = told(*args)
        assert (done.returncode, done.stdout) == (status, ""), args
        assert word in done.stderr, done.stderr


def test_stats_without_a_server_count_what_a_killed_one_left(server):
    server.create(alias="here")
    settled(server)
    with Stuck(server):
        for _ in range(20):
            server.target("here")
        server.kill()
    done = server.curt("stats", "here", "--json")
    assert json.loads(done.stdout)["clicks"] == 20
