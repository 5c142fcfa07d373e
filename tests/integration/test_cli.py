"""Every subcommand, in the three ways it can do its work: through the server of the data folder, straight on the folder
when there is none, and through a server elsewhere."""
import json
import re
import sqlite3

import pytest

from harness import ADMIN_KEY, CURT, ROOT, curt, folder_bytes, run
from prometheus import metric

URL = "https://example.com/"


class Way:
    """How commands reach the links, and a server to look at what they did."""

    def __init__(self, server, kind):
        self.server = server
        self.kind = kind

    def __call__(self, *args, ok=True, env=None):
        if self.kind == "elsewhere":
            done = curt(*args, "--server", self.server.url + "/", "--api-key", ADMIN_KEY, env=env)
        else:
            if self.kind == "straight" and self.server.process:
                self.server.stop()
            done = self.server.curt(*args, env=env)
        if ok:
            assert (done.returncode, done.stderr) == (0, ""), done
        else:
            assert done.returncode == 1 and (done.stdout == "" or args[1] == "list"), done
            assert re.fullmatch(r"curt: .+\n", done.stderr), done.stderr
        return done.stderr if not ok else done.stdout

    def json(self, *args):
        return json.loads(self(*args, "--json"))

    def look(self):
        return self.server if self.server.process else self.server.start()


@pytest.fixture(params=["through the server", "straight", "elsewhere"])
def way(server, request):
    return Way(server, request.param)


# Links

def test_a_link_is_created_and_its_short_url_printed(way):
    said = way("link", "create", "https://example.com/made")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[0-9A-Za-z]{7}\n", said)
    assert way.look().target(said.strip().rsplit("/", 1)[1]) == "https://example.com/made"


def test_a_link_is_created_with_every_option(way):
    link = way.json("link", "create", URL, "--alias", "full", "--expires", "2099-01-31T12:00:00Z", "--status", "307",
                    "--title", "A title", "--note=A note", "--tag", "one", "--tag", "two")
    assert (link["key"], link["expires_at"], link["redirect_status"]) == ("full", "2099-01-31T12:00:00Z", 307)
    assert (link["title"], link["note"], link["tags"]) == ("A title", "A note", ["one", "two"])
    assert dict(way.look().link("full"), short_url=None, domain=None) == dict(link, short_url=None, domain=None)


def test_a_link_that_never_expires_is_created(way):
    assert way.json("link", "create", URL, "--expires", "never")["expires_at"] is None


def test_a_link_is_shown(way):
    way("link", "create", URL, "--alias", "shown", "--title", "The title", "--tag", "a", "--tag", "b")
    said = way("link", "get", "shown")
    rows = dict(line.split(None, 1) for line in said.splitlines())
    assert rows["original_url"] == URL and rows["short_url"].endswith("/shown")
    assert (rows["title"], rows["tags"], rows["status"], rows["enabled"]) == ("The title", "a, b", "302", "yes")
    assert rows["note"] == "-"
    assert way.json("link", "get", "shown")["title"] == "The title"


def test_a_link_is_updated(way):
    way("link", "create", URL, "--alias", "changing")
    said = way("link", "update", "changing", "--url", "https://example.org/new", "--status", "301", "--title", "New",
               "--disable")
    assert "https://example.org/new" in said and re.search(r"^enabled +no$", said, re.MULTILINE)
    link = way.json("link", "update", "changing", "--enable", "--tag", "x", "--expires", "never")
    assert (link["enabled"], link["tags"], link["expires_at"], link["title"]) == (True, ["x"], None, "New")
    assert way.look().get("/changing", key=None).status_code == 301


def test_links_are_deleted(way):
    for name in ("one", "two", "three"):
        way("link", "create", URL, "--alias", name)
    assert way("link", "delete", "one", "two") == "deleted one\ndeleted two\n"
    assert way("link", "delete", "three", "--json") == ""
    assert way.look().links() == []


def test_links_are_listed(way):
    assert way("link", "list").splitlines() == [f"{'KEY':<24} {'EXPIRES':<10}  URL"]
    for i in range(5):
        way("link", "create", f"https://example.com/{i}", "--alias", f"listed-{i}", "--expires", "2099-01-31")
    rows = way("link", "list").splitlines()[1:]
    assert [row.split() for row in rows] == [[f"listed-{i}", "2099-01-31", f"https://example.com/{i}"]
                                            for i in (4, 3, 2, 1, 0)]
    page = way.json("link", "list", "--limit", "2")
    assert [link["key"] for link in page["links"]] == ["listed-4", "listed-3"]
    page = way.json("link", "list", "--limit", "2", "--cursor", page["next"])
    assert [link["key"] for link in page["links"]] == ["listed-2", "listed-1"]
    cut = way("link", "list", "--limit", "3").splitlines()
    assert len(cut) == 5 and re.fullmatch(r"more with --cursor \d+, or --all", cut[-1])
    assert len(way("link", "list", "--limit", "2", "--all").splitlines()) == 6


def json_values(text):
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        yield value
        while at < len(text) and text[at].isspace():
            at += 1


def test_all_links_are_listed_as_json_too(way):
    for i in range(5):
        way("link", "create", URL, "--alias", f"listed-{i}")
    pages = list(json_values(way("link", "list", "--limit", "2", "--all", "--json")))
    assert [link["key"] for page in pages for link in page["links"]] == [f"listed-{i}" for i in (4, 3, 2, 1, 0)]


@pytest.mark.parametrize("args, words", [
    (["link", "create", "nonsense"], ["http://"]),
    (["link", "create", URL, "--alias", "healthz"], ["reserved"]),
    (["link", "create", URL, "--alias", "taken"], ["taken"]),
    (["link", "create", URL, "--expires", "soon"], ["expires_at"]),
    (["link", "create", URL, "--expires", "2001-01-01"], ["past"]),
    (["link", "create", URL, "--status", "200"], ["301, 302, 307 or 308"]),
    (["link", "create", URL, "--status", "permanent"], ["30"]),
    (["link", "create", URL, "--status", "302x"], ["30"]),
    (["link", "create", URL, "--status", "1000302"], ["30"]),
    (["link", "create", URL, "--title", "\x1b[31m"], ["title"]),
    (["link", "create", URL, "--title", b"\xff\xfe"], ["UTF-8"]),
    (["link", "create", URL, "--note", b"\xff"], ["UTF-8"]),
    (["link", "create", URL, "--tag", b"\xff"], ["UTF-8"]),
    (["link", "create", URL, "--tag", ""], ["tags"]),
    (["link", "get", "missing"], ["no link"]),
    (["link", "get", "a/b"], ["no link"]),
    (["link", "get", ""], ["nothing"]),
    (["link", "update", "missing", "--title", "x"], ["no link"]),
    (["link", "update", "taken"], ["changes nothing"]),
    (["link", "update", "taken", "--enable", "--disable"], ["--enable", "--disable"]),
    (["link", "delete", "missing"], ["no link"]),
    (["link", "list", "--limit", "0"], ["imit"]),
    (["link", "list", "--limit", "x"], ["imit"]),
    (["link", "list", "--cursor", "x"], ["cursor"]),
    (["key", "create", ""], ["name"]),
    (["key", "create", "x", "--creates", "many"], ["--creates", "whole numbers"]),
    (["key", "create", "x", "--redirects", "-1"], ["--redirects", "whole numbers"]),
    (["key", "create", "x", "--period", "1h"], ["--period", "whole numbers"]),
    (["key", "create", "x", "--period", "99999999999"], ["limit_period_s"]),
    (["key", "revoke", "99"], ["no API key"]),
    (["key", "revoke", "1"], ["last admin key"]),
    (["key", "revoke", "../links"], ["no API key"]),
], ids=str)
def test_what_cannot_be_done_ends_with_a_sentence_and_status_1(way, args, words):
    way.look().create(alias="taken")
    before = way.look().links(), way.look().keys()
    said = way(*args, ok=False)
    for word in words:
        assert word in said, said
    server = way.look()
    assert ([link["key"] for link in server.links()], server.keys()) == ([link["key"] for link in before[0]], before[1])
    assert server.link("taken")["title"] is None and server.link("taken")["enabled"] is True


def test_what_lies_in_the_store_cannot_speak_to_the_terminal(way):
    """The API takes no control characters; but a store may have been filled by others."""
    server = way.look()
    server.create(alias="evil")
    server.stop()
    database = sqlite3.connect(server.data / "links.db")
    database.execute("UPDATE link SET title = ?, note = ?, user_name = ?, tags = ?",
                     ("\x1b[31mred\x07", "line\r\nnext: \x9b2J", "\x1b]0;title\x07", json.dumps(["\x1b[2J", "\x9b"])))
    database.commit()
    database.close()
    server.start()
    said = way("link", "get", "evil")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", said), repr(said)
    assert len(said.splitlines()) == 11
    assert way.json("link", "get", "evil")["title"] == "\x1b[31mred\x07", "JSON escapes it"


# Keys

def test_a_key_is_created_listed_and_revoked(way):
    key = way("key", "create", "ada").strip()
    assert re.fullmatch(r"ck_[0-9A-Za-z]{40}", key)
    assert way.look().get("/api/v1/links", key=key).status_code == 200
    rows = way("key", "list").splitlines()
    assert rows[0].split() == ["ID", "NAME", "ADMIN", "CREATES", "REDIRECTS", "PERIOD", "REVOKED"]
    assert [row.split()[:3] for row in rows[1:]] == [["1", "admin", "yes"], ["2", "ada", "no"]]
    assert way("key", "revoke", "2") == "revoked 2\n"
    assert way.look().get("/api/v1/links", key=key).status_code == 401
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", way("key", "list").splitlines()[2].split()[-1])


def test_a_key_is_created_with_every_option(way):
    key = way.json("key", "create", "bob", "--admin", "--creates", "5", "--redirects=6", "--period", "7")
    assert (key["name"], key["admin"]) == ("bob", True)
    assert (key["creates_limit"], key["redirects_limit"], key["limit_period_s"]) == (5, 6, 7)
    listed = way.json("key", "list")["keys"]
    assert [k["name"] for k in listed] == ["admin", "bob"] and "key" not in listed[1]
    assert way("key", "revoke", str(key["id"]), "--json") == ""


# Who is asked

def test_a_server_elsewhere_is_named_by_the_environment_too(server, tmp_path):
    key = server.make_key("ada")["key"]
    env = {"CURT_URL": server.url, "CURT_API_KEY": key}
    link = json.loads(curt("link", "create", URL, "--json", env=env, cwd=tmp_path).stdout)
    assert link["owner"] == "ada" and server.link(link["key"])["owner"] == "ada"
    assert list(tmp_path.glob("data")) == [], "no folder of its own"


def test_a_flag_is_stronger_than_the_environment(server):
    key = server.make_key("ada")["key"]
    done = curt("link", "create", URL, "--json", "--server", server.url, "--api-key", key,
                env={"CURT_URL": "http://127.0.0.1:1", "CURT_API_KEY": "ck_wrong"})
    assert json.loads(done.stdout)["owner"] == "ada"


@pytest.mark.parametrize("args, word", [
    (["--server", "http://127.0.0.1:1", "--api-key", "x"], "cannot reach http://127.0.0.1:1"),
    (["--server", "{url}"], "API key"), (["--server", "{url}", "--api-key", "ck_wrong"], "API key"),
])
def test_a_server_that_does_not_answer_or_refuses_the_key_is_told(server, args, word):
    done = curt("link", "list", *[arg.format(url=server.url) for arg in args])
    assert done.returncode == 1 and word in done.stderr and done.stderr.startswith("curt: ")


def test_the_server_that_works_in_the_folder_is_asked_and_needs_no_key(server):
    requests_before = metric(server, "curt_links_created_total")
    assert server.curt("link", "create", URL).returncode == 0
    assert metric(server, "curt_links_created_total") == requests_before + 1, "the server did it"


def test_how_to_reach_the_server_is_for_its_owner_alone(server):
    address = server.data / "server.json"
    assert address.stat().st_mode & 0o777 == 0o600
    assert json.loads(address.read_text())["url"] == server.url


def test_after_a_crash_the_command_line_works_on_the_folder_itself(server):
    server.create(alias="before")
    server.kill()
    assert (server.data / "server.json").exists(), "the crash has left it behind"
    assert json.loads(server.curt("link", "get", "before", "--json").stdout)["key"] == "before"
    assert server.curt("link", "create", URL, "--alias", "between").returncode == 0
    server.start()
    assert server.target("before") == server.target("between") == URL


def test_a_token_of_an_earlier_life_is_worth_nothing(server):
    token = json.loads((server.data / "server.json").read_text())["token"]
    assert server.get("/api/v1/keys", key=token).status_code == 200
    server.restart()
    assert server.get("/api/v1/keys", key=token).status_code == 401


def test_links_made_straight_on_the_folder_carry_the_public_address_of_the_settings(server):
    server.stop()
    done = server.curt("link", "create", URL, "--alias", "x", "--base-url", "https://s.example")
    assert done.stdout == "https://s.example/x\n"
    done = server.curt("link", "create", "https://s.example/x", "--base-url", "https://s.example")
    assert done.returncode == 1 and "points back at this server" in done.stderr


def test_a_command_without_a_folder_says_so_and_makes_none(tmp_path):
    for args in (["link", "list"], ["link", "create", URL], ["key", "list"]):
        done = curt(*args, "--data", tmp_path / "none")
        assert done.returncode == 1 and f"there is no data folder {tmp_path / 'none'}" in done.stderr
    done = curt("link", "list", cwd=tmp_path)
    assert done.returncode == 1 and "there is no data folder data" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_command_may_come_from_the_configuration_and_the_environment(server, tmp_path):
    server.create(alias="found")
    config = tmp_path / "curt.ini"
    config.write_text(f"[serve]\ndata = {server.data}\n")
    ways = ((["--config", config], {}), ([], {"CURT_CONFIG": config}), ([], {"CURT_SERVE_DATA": server.data}))
    for args, env in ways:
        assert json.loads(curt("link", "get", "found", "--json", *args, env=env).stdout)["key"] == "found"


# Usage

@pytest.mark.parametrize("args, word", [
    ([], "usage: curt"), (["nonsense"], "no command 'nonsense'"), (["link"], "usage: curt link"),
    (["key"], "usage: curt key"), (["doctor", "who"], "usage: curt doctor"),
])
def test_wrong_usage_ends_with_status_2_and_the_right_usage(args, word):
    done = curt(*args)
    assert (done.returncode, done.stdout) == (2, "") and word in done.stderr and "usage: curt" in done.stderr


@pytest.mark.parametrize("args, word", [
    (["link", "nonsense"], "no 'curt link nonsense'"), (["key", "nonsense"], "no 'curt key nonsense'"),
    (["link", "create"], "wrong number of arguments"), (["link", "create", URL, URL], "wrong number of arguments"),
    (["link", "get"], "wrong number of arguments"), (["link", "delete"], "wrong number of arguments"),
    (["link", "list", "x"], "wrong number of arguments"), (["key", "create"], "wrong number of arguments"),
    (["key", "list", "x"], "wrong number of arguments"), (["key", "revoke"], "wrong number of arguments"),
    (["link", "list", "--all=yes"], "takes no value"),
    (["link", "list", "--frobnicate"], "--frobnicate"), (["link", "list", "--lmit", "5"], "--lmit"),
    (["link", "create", URL, *["--tag=x"] * 33], "at most 32 times"),
    (["link", "list", *"abcdefghij"], "too many arguments"),
], ids=str)
def test_wrong_arguments_end_with_status_1_and_a_sentence(server, args, word):
    done = server.curt(*args)
    assert (done.returncode, done.stdout) == (1, "") and word in done.stderr
    assert done.stderr.startswith("curt: ") and done.stderr.count("\n") == 1


def test_an_option_without_its_value_is_named(server):
    done = curt("link", "create", "--data", server.data, URL, "--alias")
    assert (done.returncode, done.stderr) == (1, "curt: --alias needs a value behind it\n")


@pytest.mark.parametrize("args, words", [
    (["--help"], ["serve", "link", "key", "doctor", "version"]), (["-h"], ["serve"]), (["help"], ["serve"]),
    (["serve", "--help"], ["--listen", "--data", "--store-url", "--limits-creates", "CURT_"]),
    (["link", "--help"], ["create", "get", "list", "update", "delete", "--json", "--server"]),
    (["link", "create", "--help"], ["--alias"]),
    (["key", "--help"], ["create", "list", "revoke", "--creates"]), (["doctor", "--help"], ["--data"]),
    (["serve", "--data", "x", "--help"], ["--listen"]),
])
def test_help_is_printed_when_it_is_asked_for(args, words, tmp_path):
    done = curt(*args, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for word in words:
        assert word in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_the_one_of_the_source():
    version = (ROOT / "VERSION").read_text().strip()
    assert curt("version").stdout == curt("--version").stdout == f"curt {version}\n"


# The doctor

def doctor(*args, wrapper=(), env=None):
    done = run([*wrapper, CURT, "doctor", *args], env=env)
    report = [re.fullmatch(r"(ok |BAD) +(\w+) +(.+)", line) for line in done.stdout.splitlines()]
    assert all(report), done.stdout
    assert done.returncode == (1 if any(line[1] == "BAD" for line in report) else 0)
    return {line[2]: (line[1].strip(), line[3]) for line in report}


def test_the_doctor_finds_a_working_server_well(server):
    report = doctor("--data", server.data)
    assert {name: state for name, (state, _) in report.items()} == {
        "settings": "ok", "clock": "ok", "files": "ok", "disk": "ok", "server": "ok", "store": "ok",
        "event_log": "ok", "stats_worker": "ok", "sink": "ok"}
    assert report["server"][1] == f"{server.url} answers"


def test_the_doctor_finds_a_stopped_folder_well_and_changes_nothing_in_it_but_the_number_of_starts(server):
    def content():
        return {path: data for path, data in folder_bytes(server.data).items() if path != "events/boot"}
    server.create(alias="kept")
    server.stop()
    before = content()
    report = doctor("--data", server.data)
    assert report["data"] == ("ok", f"{server.data} is sound and no server works in it")
    assert report["store"] == ("ok", "answers")
    assert content() == before


def test_the_doctor_has_nothing_against_a_folder_that_is_not_there_yet(tmp_path):
    report = doctor("--data", tmp_path / "none")
    assert report["data"][0] == "ok" and "first start makes it" in report["data"][1]
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_finds_a_folder_that_is_not_ours(tmp_path):
    (tmp_path / "cat.jpg").write_bytes(b"cat")
    state, text = doctor("--data", tmp_path)["data"]
    assert state == "BAD" and "not a data folder" in text
    assert sorted(folder_bytes(tmp_path)) == ["cat.jpg"]


def test_the_doctor_finds_a_store_that_fails(serve):
    server = serve("--store-url", "fault:ping=unavailable;sqlite:")
    state, text = doctor("--data", server.data)["store"]
    assert state == "BAD" and "told to fail" in text


def test_the_doctor_finds_a_damaged_database(server):
    server.create(alias="kept")
    server.stop()
    (server.data / "links.db").write_bytes(b"no database" * 1000)
    state, text = doctor("--data", server.data)["data"]
    assert state == "BAD" and "not a SQLite database" in text


def test_the_doctor_finds_a_wrong_setting():
    state, text = doctor("--log-level", "loud")["settings"]
    assert state == "BAD" and "--log-level" in text and "loud" in text


def test_the_doctor_finds_a_machine_that_opens_too_few_files(tmp_path):
    state, text = doctor("--data", tmp_path / "none", wrapper=["prlimit", "--nofile=512:512"])["files"]
    assert state == "BAD" and "512" in text and "ulimit" in text


def test_the_doctor_finds_a_folder_whose_holder_does_not_answer(server):
    server.session.close()
    server.freeze()
    try:
        (server.data / "server.json").unlink()
        state, text = doctor("--data", server.data)["data"]
    finally:
        server.thaw()
    assert state == "BAD" and "does not answer" in text
