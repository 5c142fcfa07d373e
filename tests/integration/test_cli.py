"""Every subcommand, in the three ways it can do its work: through the server of the data folder, straight on the folder
when there is none, and through a server elsewhere."""
import contextlib
import http.server
import json
import os
import pty
import re
import shutil
import signal
import sqlite3
import subprocess
import termios
import threading

import pytest

from harness import ADMIN_KEY, CURT, LONG, ROOT, VARIANT, WELL, clean_env, curt, folder_bytes, run, until
from prometheus import metric

URL = "https://example.com/"
SECRET = "correct horse battery"


def told(text, *command):
    """Runs a command with the text on its standard input."""
    return run(["sh", "-c", 'printf %s "$TOLD" | exec "$@"', "sh", *command], env=clean_env(TOLD=text))


def make_user(server, email, **fields):
    response = server.post("/api/v1/users", json=dict(email=email, **fields))
    assert response.status_code == 201, response.text
    return response.json()


API_WORDS = re.compile(r"\b(field|fields|body|parameter|null|send|GET|POST|route|Authorization)\b|/api/|_at'")


@contextlib.contextmanager
def another_server(handler):
    """The address of a server that is not ours."""
    handler.log_message = lambda *args: None
    fake = http.server.HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=fake.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{fake.server_port}"
    finally:
        fake.shutdown()
        thread.join()


class Way:
    """How commands reach the links, and a server to look at what they did."""

    def __init__(self, server, kind):
        self.server = server
        self.kind = kind

    def run(self, *args, env=None, tell=None):
        if self.kind == "elsewhere":
            args = *args, "--server", self.server.url + "/", "--api-key", ADMIN_KEY
        else:
            if self.kind == "straight" and self.server.process:
                self.server.stop()
            args = *args, "--data", self.server.data
        return curt(*args, env=env) if tell is None else told(tell, CURT, *args)

    def __call__(self, *args, status=0, env=None, tell=None):
        done = self.run(*args, env=env, tell=tell)
        assert done.returncode == status, done
        if status == 0:
            assert done.stderr == "", done
        else:
            assert done.stdout == "", done
            assert re.fullmatch(r"curt: .+\n", done.stderr), done.stderr
            assert not API_WORDS.search(done.stderr), done.stderr
        return done.stderr if status else done.stdout

    def json(self, *args, tell=None):
        return json.loads(self(*args, "--json", tell=tell))

    def look(self):
        return self.server if self.server.process else self.server.start()


# A server elsewhere differs from the one of the data folder by its address: a sanitizer sees nothing new there.
@pytest.fixture(params=["through the server", "straight", *(["elsewhere"] if VARIANT == "release" or LONG else [])])
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
    assert rows["note"] == rows["not_before"] == rows["expired_url"] == "-"
    assert (rows["visibility"], rows["password"], rows["clicks"]) == ("public", "no", "0")
    assert way.json("link", "get", "shown")["title"] == "The title"


def test_a_link_is_updated(way):
    way("link", "create", URL, "--alias", "changing")
    said = way("link", "update", "changing", "--url", "https://example.org/new", "--status", "301", "--title", "New",
               "--disable")
    assert "https://example.org/new" in said and re.search(r"^enabled +no$", said, re.MULTILINE)
    link = way.json("link", "update", "changing", "--enable", "--tag", "x", "--expires", "never")
    assert (link["enabled"], link["tags"], link["expires_at"], link["title"]) == (True, ["x"], None, "New")
    assert way.look().get("/changing", key=None).status_code == 301


BOUNDS = ["--not-before", "2020-01-31", "--expires", "2099-01-31", "--expired-url", "https://example.com/over",
          "--max-clicks", "5", "--private"]


def test_a_link_is_created_with_bounds(way):
    make_user(way.look(), "ada@example.com")
    link = way.json("link", "create", URL, "--alias", "bound", *BOUNDS, "--password", "--owner", "ada@example.com",
                    tell=f"{SECRET}\nand more")
    assert (link["not_before"], link["expires_at"]) == ("2020-01-31T00:00:00Z", "2099-01-31T00:00:00Z")
    assert (link["expired_url"], link["max_clicks"]) == ("https://example.com/over", 5)
    assert (link["visibility"], link["has_password"], link["owner"]) == ("private", True, "ada@example.com")
    rows = dict(line.split(None, 1) for line in way("link", "get", "bound").splitlines())
    assert (rows["not_before"], rows["expired_url"]) == ("2020-01-31T00:00:00Z", "https://example.com/over")
    assert (rows["clicks"], rows["visibility"], rows["password"]) == ("0 of 5", "private", "yes")
    assert way("link", "list").splitlines()[1].endswith("(private)  (password)")
    answer = way.look().post("/bound", json={"password": SECRET})
    assert (answer.status_code, answer.headers["Location"]) == (303, URL)


def test_what_bounds_a_link_can_be_taken_away(way):
    way("link", "create", URL, "--alias", "bound", *BOUNDS, "--password", tell=SECRET)
    link = way.json("link", "update", "bound", "--not-before", "none", "--expires", "never", "--expired-url", "none",
                    "--max-clicks", "none", "--public", "--no-password")
    assert [link[name] for name in ("not_before", "expires_at", "expired_url", "max_clicks")] == [None] * 4
    assert (link["visibility"], link["has_password"]) == ("public", False)
    assert way.look().target("bound") == URL


def test_a_link_gets_another_password(way):
    way("link", "create", URL, "--alias", "locked", "--password", tell="first\n")
    assert "password      yes" in way("link", "update", "locked", "--password", tell="second\n")
    tries = [way.look().post("/locked", json={"password": word}, key=None) for word in ("first", "second")]
    assert [answer.status_code for answer in tries] == [401, 303]


def test_users_are_permitted_and_forbidden_to_follow_a_private_link(way):
    ada = make_user(way.look(), "ada@example.com", first_name="Ada", last_name="Lovelace")["id"]
    grace = make_user(way.look(), "grace@example.com")["id"]
    way("link", "create", URL, "--alias", "board", "--private")
    assert way("link", "permitted", "board").split() == ["ID", "EMAIL", "NAME"]
    assert way("link", "permit", "board", "Ada@example.com") == "Ada@example.com is on the list of board\n"
    assert way("link", "permit", "board", str(grace), "--json") == ""
    rows = way("link", "permitted", "board").splitlines()
    assert [row.split(None, 2) for row in rows[1:]] == [[str(ada), "ada@example.com", "Ada Lovelace"],
                                                       [str(grace), "grace@example.com", "-"]]
    assert way("link", "forbid", "board", "grace@example.com") == "grace@example.com is off the list of board\n"
    assert [user["id"] for user in way.json("link", "permitted", "board")["users"]] == [ada]
    way("link", "update", "board", "--public")
    assert way("link", "permitted", "board").endswith("the link is public: everybody may follow it\n")


def test_links_are_deleted(way):
    for name in ("one", "two", "three"):
        way("link", "create", URL, "--alias", name)
    assert way("link", "delete", "one", "two") == "deleted one\ndeleted two\n"
    assert way("link", "delete", "three", "--json") == ""
    assert way.look().links() == []


def test_each_link_is_deleted_whatever_becomes_of_the_others(way):
    for name in ("one", "three"):
        way("link", "create", URL, "--alias", name)
    done = way.run("link", "delete", "one", "missing", "../users", "three")
    assert (done.returncode, done.stdout) == (1, "deleted one\ndeleted three\n")
    said = done.stderr.splitlines()
    assert [line[:line.index(": There is no link")] for line in said] == ["curt: missing", "curt: ../users"]
    assert not API_WORDS.search(done.stderr) and way.look().links() == []


def test_title_note_and_tags_are_removed_by_an_empty_value(way):
    way("link", "create", URL, "--alias", "full", "--title", "T", "--note", "N", "--tag", "one", "--tag", "two")
    link = way.json("link", "update", "full", "--title", "", "--note=", "--tag", "")
    assert (link["title"], link["note"], link["tags"]) == (None, None, [])
    assert "'' means none" in curt("help", "link", "update").stdout


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
    assert len(cut) == 5 and re.fullmatch(r"more with --cursor \S+, or --all", cut[-1])
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


REFUSED = [
    (["link", "create", "nonsense"], ["http://"]),
    (["link", "create", URL, "--alias", "healthz"], ["reserved"]),
    (["link", "create", URL, "--alias", "taken"], ["taken"]),
    (["link", "create", URL, "--expires", "soon"], ["--expires"]),
    (["link", "create", URL, "--expires", "2001-01-01"], ["past", "never"]),
    (["link", "create", URL, "--title", "\x1b[31m"], ["title"]),
    (["link", "create", URL, "--title", b"\xff\xfe"], ["UTF-8"]),
    (["link", "create", URL, "--note", b"\xff"], ["UTF-8"]),
    (["link", "create", URL, "--tag", b"\xff"], ["UTF-8"]),
    (["link", "create", URL, "--tag", "", "--tag", "x"], ["--tag"]),
    (["link", "get", "missing"], ["no link"]),
    (["link", "get", "a/b"], ["no link"]),
    (["link", "update", "missing", "--title", "x"], ["no link"]),
    (["link", "delete", "missing"], ["no link"]),
    (["link", "list", "--limit", "0"], ["--limit"]),
    (["link", "list", "--limit", "x"], ["--limit"]),
    (["link", "list", "--cursor", "x"], ["--cursor"]),
    (["stats", "--from", "ö"], ["--from"]),
    (["stats", "--limit", "3.0"], ["--limit", "'3.0'"]),
    (["link", "create", URL, "--expired-url", "ftp://example.com/"], ["In --expired-url", "http"]),
    (["link", "create", URL, "--not-before", "2050-01-01", "--expires", "2049-01-01"], ["--not-before", "--expires"]),
    (["link", "create", URL, "--password"], ["no password", "one line"]),
    (["link", "create", URL, "--owner", "nobody@example.com"], ["owner"]),
    (["link", "update", "taken", "--owner", ""], ["owner"]),
    (["link", "permit", "taken", "nobody@example.com"], ["no such user"]),
    (["link", "permit", "missing", "1"], ["no link"]),
    (["link", "forbid", "taken", ".."], ["no such user"]),
    (["link", "permitted", "missing"], ["no link"]),
    (["user", "add", "ada@example.com"], ["no password", "one line"]),
    (["user", "add", "nobody", "--no-password"], ["email"]),
    (["user", "add", "ada@example.com", "--no-password", "--first-name", b"\xff"], ["UTF-8"]),
    (["user", "role", "1", "viewer"], ["last admin"]),
    (["user", "disable", "1"], ["last admin"]),
    (["user", "disable", "nobody@example.com"], ["no user"]),
    (["user", "enable", ".."], ["no user"]),
    (["user", "sign-out", "99"], ["no user"]),
    (["key", "create", "x", "--scopes", "read", "--admin"], ["--scopes", "--admin"]),
    (["key", "create", "x", "--user", "nobody@example.com"], ["--user", "nobody@example.com"]),
    (["key", "create", "x", "--expires", "2001-01-01"], ["past"]),
    (["key", "create", "x", "--expires", "soon"], ["--expires"]),
    (["key", "create", "n" * 65], ["NAME", "64"]),
    (["key", "revoke", "99"], ["no API key"]),
    (["key", "revoke", "1"], ["last admin key"]),
    (["key", "revoke", "../links"], ["no API key"]),
]
WRONG = [  # the command line itself: nothing is asked
    (["link", "create", URL, "--status", "200"], ["301, 302, 307 or 308"]),
    (["link", "create", URL, "--status", "permanent"], ["30"]),
    (["link", "create", URL, "--status", "302x"], ["30"]),
    (["link", "create", URL, "--status", "1000302"], ["30"]),
    (["link", "update", "taken", "--enable", "--disable"], ["--enable", "--disable"]),
    (["link", "create", URL, "--max-clicks", "many"], ["--max-clicks", "whole number"]),
    (["link", "create", URL, "--max-clicks", "-1"], ["--max-clicks", "whole number"]),
    (["link", "create", URL, "--private", "--public"], ["--private", "--public"]),
    (["link", "create", URL, "--password", "--no-password"], ["--password", "--no-password"]),
    (["key", "create", "x", "--creates", "many"], ["--creates", "whole number"]),
    (["key", "create", "x", "--redirects", "-1"], ["--redirects", "whole number"]),
    (["key", "create", "x", "--period", "1h"], ["--period", "whole number"]),
    (["user", "passwd", "1", "--no-password"], ["unknown option '--no-password'"]),
    (["stats", "--where", "Firefox"], ["NAME=VALUE"]),
    (["stats", "--where", "foo=bar"], ["--where", "'foo'", "referrer, country, browser"]),
    (["stats", "--where", "brwser=Firefox"], ["did you mean browser?"]),
    (["stats", "taken", "--where", "os=Linux", "--where", "os=Windows"], ["--where os is given twice"]),
    (["stats", "--step", "dya"], ["--step", "did you mean day?"]),
    (["stats", "--bots", "ony"], ["--bots", "did you mean only?"]),
    (["user", "add", "ada@example.com", "--no-password", "--role", "king"], ["--role", "viewer, editor or admin"]),
    (["user", "role", "1", "edtor"], ["ROLE", "viewer, editor or admin", "did you mean editor?"]),
    (["key", "create", "x", "--scopes", "read,wirte"], ["--scopes", "'wirte'"]),
    (["key", "create", "x", "--scopes", "raed"], ["--scopes", "did you mean read?"]),
    (["key", "create", "x", "--scopes", ""], ["--scopes"]),
    (["key", "create", "x", "--period", "99999999999"], ["--period", "from 0 to 2678400"]),
    (["key", "create", ""], ["NAME", "empty"]),
    (["link", "get", ""], ["KEY", "empty"]),
    (["link", "delete", "taken", ""], ["argument 2 is empty"]),
    (["link", "update", "taken"], ["what to change"]),
    (["link", "create", URL, "--max-clicks", "0"], ["--max-clicks", "from 1 to", "or none"]),
    (["link", "create", URL, "--max-clicks", "3.0"], ["--max-clicks", "write 3, not 3.0"]),
    (["link", "create", URL, "--url", "https://example.org/"], ["unknown option '--url'"]),
]


@pytest.mark.parametrize("args, words, status", [*[(*row, 1) for row in REFUSED], *[(*row, 2) for row in WRONG]], ids=str)
def test_what_cannot_be_done_ends_with_a_sentence_and_a_status(way, args, words, status):
    way.look().create(alias="taken")

    def content(server):
        keys = [{name: value for name, value in key.items() if name != "last_used_at"} for key in server.keys()]
        return [link["key"] for link in server.links()], keys, server.users()
    before = content(way.look())
    said = way(*args, status=status)
    for word in words:
        assert word in said, said
    server = way.look()
    assert content(server) == before
    assert server.link("taken")["title"] is None and server.link("taken")["enabled"] is True


@pytest.mark.embedded("it is about SQLite's files")
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
    assert len(said.splitlines()) == 16
    assert way.json("link", "get", "evil")["title"] == "\x1b[31mred\x07", "JSON escapes it"


# Users

def sign_in(server, email, password):
    return server.post("/api/v1/session", json={"email": email, "password": password}, key=None).status_code


def test_a_user_is_added_and_can_sign_in(way):
    assert way("user", "add", "Ada@Example.com", tell=f"{SECRET}\n") == "added ada@example.com as editor, id 2\n"
    assert sign_in(way.look(), "ada@example.com", SECRET) == 200
    assert SECRET.encode() not in b"".join(folder_bytes(way.server.data).values())


def test_a_user_is_added_with_every_option(way):
    user = way.json("user", "add", "ada@example.com", "--role", "viewer", "--first-name", "Ada", "--middle-name=King",
                    "--last-name", "Lovelace", tell=SECRET)
    assert (user["email"], user["role"], user["enabled"]) == ("ada@example.com", "viewer", True)
    assert (user["first_name"], user["middle_name"], user["last_name"]) == ("Ada", "King", "Lovelace")
    rows = way("user", "list").splitlines()
    assert rows[0].split() == ["ID", "EMAIL", "ROLE", "ENABLED", "NAME"]
    assert [row.split() for row in rows[1:]] == [["1", "-", "admin", "yes", "admin"],
                                                ["2", "ada@example.com", "viewer", "yes", "Ada", "King", "Lovelace"]]
    assert way.json("user", "list")["users"] == way.look().users()


def test_a_user_without_a_password_cannot_sign_in_until_there_is_one(way):
    way("user", "add", "ada@example.com", "--no-password")
    assert sign_in(way.look(), "ada@example.com", "") == 401
    assert way("user", "passwd", "ada@example.com", tell=SECRET) == "changed the password of ada@example.com\n"
    assert sign_in(way.look(), "ada@example.com", SECRET) == 200
    assert way.json("user", "passwd", "2", tell="another password")["id"] == 2
    assert [sign_in(way.look(), "ada@example.com", word) for word in (SECRET, "another password")] == [401, 200]


def test_a_user_gets_another_role_is_disabled_and_enabled(way):
    way("user", "add", "ada@example.com", "--no-password")
    assert way("user", "role", "ada@example.com", "admin") == "admin is now the role of ada@example.com\n"
    key = way("key", "create", "ada's", "--user", "ada@example.com").strip()
    assert way("user", "disable", "2") == "disabled ada@example.com\n"
    assert way.look().get("/api/v1/links", key=key).status_code == 401
    assert way.json("user", "enable", "ada@example.com")["enabled"] is True
    assert way.look().get("/api/v1/links", key=key).status_code == 200


def test_a_user_is_signed_out_everywhere(way):
    way("user", "add", "ada@example.com", tell=SECRET)
    account = {"email": "ada@example.com", "password": SECRET}
    token = way.look().post("/api/v1/session", json=account, key=None).cookies["curt_session"]
    cookie = {"Cookie": f"curt_session={token}"}
    way.look().session.cookies.clear()
    assert way.look().get("/api/v1/session", key=None, headers=cookie).status_code == 200
    assert way("user", "sign-out", "ada@example.com") == "signed out ada@example.com\n"
    assert way.look().get("/api/v1/session", key=None, headers=cookie).status_code == 401
    assert way("user", "sign-out", "2", "--json") == ""


def test_more_users_than_fit_on_a_page_are_listed(server):
    made = [make_user(server, f"user-{i}@example.com")["id"] for i in range(1100)]
    assert [int(row.split()[0]) for row in server.curt("user", "list").stdout.splitlines()[2:]] == made
    assert len(json.loads(server.curt("user", "list", "--json").stdout)["users"]) == 1101


@pytest.mark.parametrize("text, word", [("short\n", "must have 8 to 1024"), ("\n" + SECRET, "must have 8 to 1024"),
                                        ("x" * 1025, "at most 1024 bytes"), ("", "no password")])
def test_a_password_that_will_not_do_is_refused(server, text, word):
    done = told(text, CURT, "user", "add", "ada@example.com", "--data", server.data)
    assert (done.returncode, done.stdout) == (1, "") and word in done.stderr
    assert len(server.users()) == 1


# Passwords on a terminal

class Terminal:
    """A command that has a terminal to itself."""

    def __init__(self, *args):
        self.side, self.theirs = pty.openpty()
        self.said = ""
        # The parent process may ignore signals (nohup, a shell's background): the command must not inherit that.
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "env", "--default-signal=INT,HUP", "setsid", "--ctty", CURT,
             *map(str, args)], env=clean_env(), stdin=self.theirs, stdout=self.theirs, stderr=self.theirs)

        os.set_blocking(self.side, False)

    def read(self):
        with contextlib.suppress(BlockingIOError):
            self.said += os.read(self.side, 65536).decode()
        return self.said

    def expect(self, prompt):
        until(lambda: self.read().endswith(prompt), f"the command asks '{prompt}'")

    def type(self, text):
        os.write(self.side, text.encode())

    @property
    def echoes(self):
        return bool(termios.tcgetattr(self.theirs)[3] & termios.ECHO)

    def end(self):
        """The exit status."""
        until(lambda: self.read() and self.process.poll() is not None, "the command ends")
        self.read()
        return self.process.returncode

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.side)
        os.close(self.theirs)


@pytest.fixture
def terminal():
    with contextlib.ExitStack() as stack:
        def start(*args):
            terminal = Terminal(*args)
            stack.callback(terminal.close)
            return terminal
        yield start


def test_a_terminal_is_asked_twice_and_shows_nothing(server, terminal):
    command = terminal("user", "add", "ada@example.com", "--data", server.data)
    command.expect("new password for ada@example.com: ")
    assert not command.echoes
    command.type(SECRET + "\n")
    command.expect("once more: ")
    command.type(SECRET + "\n")
    assert command.end() == 0 and command.echoes
    assert "added ada@example.com" in command.said and SECRET not in command.said
    assert sign_in(server, "ada@example.com", SECRET) == 200


def test_two_passwords_that_differ_are_refused(server, terminal):
    command = terminal("link", "create", URL, "--password", "--data", server.data)
    command.expect("password of the link: ")
    command.type("one\n")
    command.expect("once more: ")
    command.type("two\n")
    assert command.end() == 1 and "curt: the two passwords differ" in command.said
    assert server.links() == []


@pytest.mark.parametrize("ended_by", ["ctrl-c", signal.SIGTERM, signal.SIGHUP], ids=str)
def test_a_terminal_shows_again_what_is_typed_when_the_command_is_ended(server, terminal, ended_by):
    command = terminal("user", "passwd", "1", "--data", server.data)
    command.expect("new password for 1: ")
    command.type("half a pass")
    if ended_by == "ctrl-c":
        command.type("\x03")
    else:
        command.process.send_signal(ended_by)
    assert command.end() == -(signal.SIGINT if ended_by == "ctrl-c" else ended_by)
    assert command.echoes and "half" not in command.said


# Keys

def test_a_key_is_created_listed_and_revoked(way):
    key = way("key", "create", "ada").strip()
    assert re.fullmatch(r"ck_[0-9A-Za-z]{40}", key)
    assert way.look().get("/api/v1/links", key=key).status_code == 200
    rows = way("key", "list").splitlines()
    assert rows[0].split() == ["ID", "NAME", "USER", "SCOPES", "CREATES", "REDIRECTS", "PERIOD", "EXPIRES", "USED",
                               "REVOKED"]
    assert [row.split()[:4] for row in rows[1:]] == [["1", "admin", "1", "read,stats,create,delete,admin"],
                                                    ["2", "ada", "2", "read,stats,create,delete"]]
    used = rows[2].split()[8]
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d", used)
    assert way("key", "revoke", "2") == "revoked 2\n"
    assert way.look().get("/api/v1/links", key=key).status_code == 401
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", way("key", "list").splitlines()[2].split()[-1])


def test_a_key_is_created_with_every_option(way):
    way("user", "add", "ada@example.com", "--no-password")
    key = way.json("key", "create", "bob", "--scopes", "create, read", "--user", "Ada@example.com", "--expires",
                   "2099-01-31", "--creates", "5", "--redirects=6", "--period", "7")
    assert (key["name"], key["admin"], key["scopes"], key["user"]) == ("bob", False, ["read", "create"], 2)
    assert (key["creates_limit"], key["redirects_limit"], key["limit_period_s"]) == (5, 6, 7)
    assert key["expires_at"] == "2099-01-31T00:00:00Z"
    listed = way.json("key", "list")["keys"]
    assert [k["name"] for k in listed] == ["admin", "bob"] and "key" not in listed[1]
    assert way("key", "list").splitlines()[2].split() == ["2", "bob", "2", "read,create", "5", "6", "7", "2099-01-31",
                                                         "-", "-"]
    assert way("key", "revoke", str(key["id"]), "--json") == ""


def test_a_key_that_may_do_everything_is_created(way):
    key = way.json("key", "create", "root", "--admin", "--expires", "never")
    assert (key["admin"], key["expires_at"]) == (True, None)
    assert way.json("key", "create", "root", "--scopes", "read,stats,create,delete,admin")["admin"] is True


# Sweeping

def end_links(server, count):
    """Links whose time is over, as if it had passed."""
    names = [server.create(alias=f"ended-{i}")["key"] for i in range(count)]
    server.stop()
    database = sqlite3.connect(server.data / "links.db")
    changed = database.execute("UPDATE link SET expires_ms = 1000, over_ms = 1000 WHERE alias LIKE 'ended-%'").rowcount
    database.commit()
    database.close()
    assert changed == count
    server.start()
    return names


@pytest.mark.embedded("it writes to SQLite's files")
def test_links_whose_time_is_over_are_swept(way):
    way.look().create(alias="living")
    end_links(way.look(), 40)
    done = way.run("sweep")
    assert (done.returncode, done.stdout) == (0, "removed 40 links\n")
    assert re.fullmatch(r"(removed \d+, \d+ remain\n)*removed 40, 0 remain\n", done.stderr)
    assert [link["key"] for link in way.look().links()] == ["living"]
    done = way.run("sweep", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"removed": 0})


@pytest.fixture
def sweeper():
    """sweeper(*answers): the address of a server that gives these answers to calls of /api/v1/sweep."""
    with contextlib.ExitStack() as stack:
        def start(*answers):
            left = list(answers)

            class Handler(http.server.BaseHTTPRequestHandler):
                def do_POST(self):
                    assert self.path == "/api/v1/sweep"
                    status, body = left.pop(0)
                    text = json.dumps(body).encode()
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)
            return ["--server", stack.enter_context(another_server(Handler))]
        yield start


def answer(removed, remaining):
    return 200, {"removed": removed, "remaining": remaining}


def test_a_sweep_goes_on_until_nothing_remains(sweeper, terminal):
    done = curt("sweep", *sweeper(answer(500, 700), answer(600, 100), answer(100, 0)))
    assert (done.returncode, done.stdout) == (0, "removed 1200 links\n")
    assert done.stderr == "removed 500, 700 remain\nremoved 1100, 100 remain\nremoved 1200, 0 remain\n"
    command = terminal("sweep", *sweeper(answer(1, 1), answer(1, 0)))
    assert command.end() == 0
    assert command.said == "removed 1, 1 remain\x1b[K\rremoved 2, 0 remain\x1b[K\r\r\nremoved 2 links\r\n"


def test_a_sweep_that_gets_nowhere_says_so(sweeper):
    done = curt("sweep", "--json", *sweeper(answer(3, 2), answer(0, 2)))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith("curt: 2 expired links remain")


def test_a_sweep_that_fails_says_why(sweeper):
    done = curt("sweep", *sweeper(answer(3, 2), (503, {"detail": "The link store does not answer."})))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "removed 3, 2 remain\ncurt: The link store does not answer.\n"


# Who is asked

@pytest.fixture
def answering():
    """answering(status, headers, body): the address of a server that answers everything so, and the requests it got."""
    with contextlib.ExitStack() as stack:
        def start(status, headers, body):
            got = []

            class Handler(http.server.BaseHTTPRequestHandler):
                def do_GET(self):
                    got.append((self.path, self.headers["Authorization"]))
                    self.send_response(status)
                    for name, value in {**headers, "Content-Length": str(len(body))}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body)
            return stack.enter_context(another_server(Handler)), got
        yield start


@pytest.mark.parametrize("url", ["file:///etc/passwd", "gopher://127.0.0.1:1", "dict://127.0.0.1", "s.example", "",
                                 "http://", "http://s.example/?x", "http://s.example/#x", "https://" + "s" * 300,
                                 "x" + "ü" * 60])
@pytest.mark.parametrize("command", [["link", "list"], ["doctor"], ["user", "add", "ada@example.com"]], ids=" ".join)
def test_a_server_has_an_http_address(url, command):
    done = curt(*command, "--server", url)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("curt: --server takes the http:// or https:// address of a server") and url[:50] in done.stderr
    if url:
        assert curt(*command, env={"CURT_URL": url}).stderr == done.stderr.replace("--server", "CURT_URL")


def test_a_password_in_the_address_of_a_server_is_refused_and_not_quoted():
    for url in ("http://ada:hidden@127.0.0.1:1", "ftp://ada:hidden@127.0.0.1:1"):
        done = curt("link", "list", "--server", url)
        assert done.returncode == 2 and "hidden" not in done.stderr


@pytest.mark.parametrize("target", ["{other}/", "file:///etc/passwd", "gopher://127.0.0.1:1/"])
def test_a_redirect_is_reported_and_not_followed(answering, target):
    other, asked = answering(200, {}, b"{}")
    target = target.format(other=other)
    url, got = answering(302, {"Location": target}, b"")
    done = curt("link", "list", "--server", url, "--api-key", "ck_secret")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"curt: {url} redirects to {target}; name the right server with --server\n"
    assert len(got) == 1 and asked == []


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=str)
def test_a_server_that_is_not_ours_is_found_out(answering, flags):
    url, _ = answering(200, {"Content-Type": "text/html"}, b"<h1>It works!</h1>")
    done = curt("link", "get", "x", "--server", url, *flags)
    assert (done.returncode, done.stdout) == (1, "") and "is not JSON" in done.stderr


def test_a_wrong_path_of_a_server_is_reported(server):
    done = curt("link", "list", "--server", f"{server.url}/elsewhere", "--api-key", ADMIN_KEY)
    assert (done.returncode, done.stderr) == (
        1, f"curt: {server.url}/elsewhere is not the address of a curt server; correct --server or CURT_URL\n")


def test_options_that_do_not_apply_are_refused(server, tmp_path):
    done = curt("link", "list", "--data", server.data, "--api-key", "ck_hidden")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("curt: --api-key needs --server") and "hidden" not in done.stderr
    for flag in (["--data", server.data], ["--config=x"], ["--base-url", "https://s.example"]):
        done = curt("link", "list", "--server", server.url, "--api-key", ADMIN_KEY, *flag)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"curt: {str(flag[0]).split('=')[0]} does not apply: --server names the server")
        done = curt("link", "list", *flag, env={"CURT_URL": server.url, "CURT_API_KEY": ADMIN_KEY})
        assert done.returncode == 2 and "CURT_URL names the server" in done.stderr


def test_columns_are_as_wide_with_letters_of_several_bytes(server):
    for name in ("grün", "blue"):
        server.make_key(name)
    rows = server.curt("key", "list").stdout.splitlines()
    assert [row.index("read,") for row in rows[1:]] == [rows[0].index("SCOPES")] * 3

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
def test_a_server_that_does_not_answer_or_refuses_the_key_is_reported(server, args, word):
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
    assert done.returncode == 1 and "points back to this server" in done.stderr


def test_a_command_without_a_folder_says_so_and_makes_none(tmp_path):
    for args in (["link", "list"], ["link", "create", URL], ["key", "list"], ["user", "list"], ["sweep"]):
        done = curt(*args, "--data", tmp_path / "none")
        assert done.returncode == 1 and f"there is no data folder {tmp_path / 'none'}" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("env, folder", [
    ({}, ".local/state/curt"), ({"XDG_STATE_HOME": "{}/xdg"}, "xdg/curt"), ({"XDG_STATE_HOME": "relative"}, ".local/state/curt"),
    ({"XDG_STATE_HOME": "{}/xdg", "STATE_DIRECTORY": "{}/lib:{}/more"}, "lib"),
    ({"STATE_DIRECTORY": "{}/lib", "CURT_DATA": "{}/own"}, "own"),
])
def test_without_a_name_the_data_folder_is_the_state_folder_of_the_system(tmp_path, env, folder):
    env = {"HOME": str(tmp_path), **{name: value.replace("{}", str(tmp_path)) for name, value in env.items()}}
    done = curt("link", "list", env=env, cwd=tmp_path)
    assert done.returncode == 1 and f"there is no data folder {tmp_path / folder};" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_server_makes_the_state_folder(tmp_path):
    data = tmp_path / ".local" / "state" / "curt"
    started = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", CURT, "serve", "--listen", "127.0.0.1:0"],
                               env=clean_env(HOME=tmp_path, CURT_ADMIN_KEY=ADMIN_KEY), stdout=subprocess.PIPE, text=True)
    try:
        assert started.stdout.readline().endswith(f", data in {data}\n")
    finally:
        started.terminate()
        assert started.wait() == 0
    assert (data / "curt.folder").exists()


def test_the_configuration_of_the_machine_is_read_when_no_other_is_named(tmp_path):
    """In a mount namespace, so that /etc is the test's own."""
    (tmp_path / "etc" / "curt").mkdir(parents=True)
    (tmp_path / "etc" / "curt" / "curt.conf").write_text(f"[serve]\ndata = {tmp_path}/machine\n")
    (tmp_path / "other.conf").write_text(f"[serve]\ndata = {tmp_path}/other\n")
    inside = ["unshare", "--map-root-user", "--mount", "sh", "-c", f'mount --bind {tmp_path}/etc /etc && exec "$@"', "sh"]
    if run([*inside, "true"]).returncode != 0:
        pytest.skip("this machine permits no mount namespace")
    for args, env, folder in ([], {}, "machine"), ([], {"CURT_CONFIG": tmp_path / "other.conf"}, "other"), (
            ["--config", tmp_path / "other.conf"], {"CURT_CONFIG": "/nowhere"}, "other"):
        done = run([*inside, CURT, "link", "list", *args], env=clean_env(**env))
        assert done.returncode == 1 and f"there is no data folder {tmp_path / folder};" in done.stderr, done


def test_the_folder_of_a_command_may_come_from_the_configuration_and_the_environment(server, tmp_path):
    server.create(alias="found")
    config = tmp_path / "curt.ini"
    config.write_text(f"[serve]\ndata = {server.data}\n")
    ways = ((["--config", config], {}), ([], {"CURT_CONFIG": config}), ([], {"CURT_DATA": server.data}))
    for args, env in ways:
        assert json.loads(curt("link", "get", "found", "--json", *args, env=env).stdout)["key"] == "found"


# Usage

@pytest.mark.parametrize("args, word", [
    ([], "usage: curt COMMAND"), (["link"], "usage: curt link COMMAND"), (["key"], "usage: curt key COMMAND"),
    (["user"], "usage: curt user COMMAND"),
])
def test_a_command_that_is_not_complete_gets_the_usage_and_status_2(args, word):
    done = curt(*args)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith(word)


@pytest.mark.parametrize("args, word", [
    (["nonsense"], "unknown command 'nonsense'; see 'curt help'"), (["lnk"], "unknown command 'lnk'; did you mean link?"),
    (["link", "nonsense"], "unknown command 'link nonsense'; see 'curt help link'"),
    (["key", "craete"], "unknown command 'key craete'; did you mean create?"),
    (["help", "lnk"], "did you mean link?"), (["help", "link", "gte"], "unknown command 'link gte'; did you mean get?"),
    (["--data", "x", "link", "list"], "unknown option '--data'; see 'curt help'"),
    (["link", "create"], "'curt link create' takes URL, but got 0 arguments; see 'curt help link create'"),
    (["link", "create", URL, URL], "takes URL, but got 2 arguments"),
    (["link", "get"], "takes KEY"), (["link", "delete"], "takes KEY..."), (["link", "list", "x"], "takes no arguments"),
    (["key", "create"], "takes NAME"), (["key", "list", "x"], "takes no arguments"), (["key", "revoke"], "takes ID"),
    (["link", "permit", "x"], "takes KEY USER"), (["link", "permitted"], "takes KEY"), (["user", "add"], "takes EMAIL"),
    (["user", "role", "x"], "takes USER ROLE"), (["user", "list", "x"], "takes no arguments"),
    (["stats", "a", "b"], "takes [KEY]"), (["doctor", "who"], "takes no arguments"), (["sweep", "all"], "takes no arguments"),
    (["serve", "8080"], "takes no arguments"), (["version", "x"], "takes no arguments"),
    (["link", "list", "--all=yes"], "--all takes no value"),
    (["link", "create", URL, "--password=x"], "--password takes no value"),
    (["link", "create", URL, "--password", "x"], "takes URL, but got 2 arguments"),
    (["user", "passwd", "1", "x"], "takes USER"), (["user", "passwd", "1", "--password=x"], "unknown option '--password'"),
    (["link", "get", "x", "--alias", "y"], "unknown option '--alias'"),
    (["link", "list", "--frobnicate"], "unknown option '--frobnicate'; see 'curt help link list'"),
    (["link", "list", "--lmit", "5"], "unknown option '--lmit'; did you mean --limit?"),
    (["link", "list", "--dta", "x"], "unknown option '--dta'; did you mean --data?"),
    (["serve", "--lisen", "x"], "unknown option '--lisen'; did you mean --listen?"),
    (["serve", "--confg=x"], "did you mean --config?"), (["serve", "--config"], "--config needs a file name"),
    (["version", "--data", "x"], "unknown option '--data'"),
    (["serve", "--log-level", "loud"], "--log-level: log.level must be one of"), (["serve", "--listen"], "--listen needs a value"),
    (["help", "--completion", "csh"], "bash, zsh or fish"),
    (["help", "--man", "--markdown"], "one option"), (["help", "link", "--man"], "one option"),
    (["reshard", "--status", "--dry-run"], "--status"), (["reshard", "--yes"], "--yes confirms --forget"),
    (["reshard", "--forget", "x", "--dry-run"], "--forget"), (["reshard", "--forget", "x", "--leave", "y"], "--forget"),
], ids=str)
def test_wrong_usage_ends_with_a_sentence_and_status_2(args, word, tmp_path):
    done = curt(*args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and word in done.stderr
    assert done.stderr.startswith("curt: ") and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("args", [["serve", "--store-url", "postgres://curt:", "hidden@db/curt"], ["--api-key=hidden"],
                                  ["link", "list", "--api-ky=hidden"], ["serve", "--store-ulr=hidden"]], ids=str)
def test_a_secret_is_not_quoted(args):
    done = curt(*args)
    assert done.returncode == 2 and "hidden" not in done.stderr


def test_an_option_without_its_value_is_named(server):
    done = curt("link", "create", "--data", server.data, URL, "--alias")
    assert (done.returncode, done.stderr) == (2, "curt: --alias needs a value: write '--alias VALUE' or '--alias=VALUE'\n")
    assert curt("link", "create", URL, "--alias", "--data", server.data).stderr == done.stderr


COMMANDS = ["serve", "link", "link create", "link get", "link list", "link update", "link delete", "link permit", "link forbid",
            "link permitted", "stats", "user", "user add", "user list", "user passwd", "user role", "user disable", "user enable",
            "user sign-out", "key", "key create", "key list", "key revoke", "sweep", "worker", "keygen", "keysync", "reshard",
            "verify", "doctor", "help", "version"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_same_help_in_three_ways(name, tmp_path):
    said = [curt(*args, cwd=tmp_path) for args in ([*name.split(), "--help"], [*name.split(), "-h"], ["help", *name.split()])]
    assert {(done.returncode, done.stderr) for done in said} == {(0, "")}
    assert len({done.stdout for done in said}) == 1 and said[0].stdout.startswith(f"usage: curt {name}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("args, words", [
    (["--help"], [*{name.split()[0] for name in COMMANDS}, "Exit status", "CURT_CONFIG", "/etc/curt/curt.conf", "CURT_DATA"]),
    (["serve", "--help"], ["--listen", "--data", "--store-url", "--limits-creates", "CURT_"]),
    (["link", "--help"], ["create URL", "get KEY", "list", "update KEY", "delete KEY...", "permit KEY USER"]),
    (["link", "create", "--help"], ["--alias", "--max-clicks", "--public, --private", "--password", "--json", "--server"]),
    (["link", "update", "--help"], ["--url", "--disable, --enable"]),
    (["user", "--help"], ["add", "list", "passwd", "role", "disable", "enable", "sign-out"]),
    (["user", "role", "--help"], ["viewer", "editor", "admin"]), (["sweep", "--help"], ["sweep.interval"]),
    (["key", "create", "--help"], ["--creates", "--scopes"]), (["doctor", "--help"], ["--data"]),
    (["serve", "--data", "x", "--help"], ["--listen"]),
])
def test_help_is_printed_when_it_is_asked_for(args, words, tmp_path):
    done = curt(*args, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for word in words:
        assert word in done.stdout
    assert all(len(line) <= 110 for line in done.stdout.splitlines())
    assert list(tmp_path.iterdir()) == []


def test_help_is_the_same_by_three_names():
    assert curt("help").stdout == curt("--help").stdout == curt("-h").stdout


def test_the_version_comes_with_the_commit_and_the_backends():
    version = (ROOT / "VERSION").read_text().strip()
    done = curt("version")
    assert done.stdout == curt("--version").stdout
    first, *backends = done.stdout.splitlines()
    assert re.fullmatch(rf"curt {re.escape(version)}(, commit [0-9a-f]{{12}}(-dirty)?)?", first)
    assert {line.split()[0].rstrip(",") for line in backends} == {"store.url", "sink.url", "lease.url", "queue.url", "cache.url"}
    assert "postgres://" in backends[0] and "clickhouse://" in backends[1]


# Output that cannot be written

def full(*args, **env):
    return run(["sh", "-c", 'exec "$@" >/dev/full', "sh", CURT, *args], env=clean_env(**env))


@pytest.mark.parametrize("args", [
    ["key", "create", "x"], ["key", "list"], ["link", "create", URL], ["link", "get", "x", "--json"], ["link", "list"],
    ["link", "list", "--all", "--json"], ["user", "list"], ["stats"], ["sweep"], ["verify"], ["doctor"], ["version"], ["help"],
    ["serve", "--help"], ["help", "--man"],
], ids=" ".join)
def test_output_that_cannot_be_written_is_a_failure(server, args):
    server.create(alias="x")
    data = [] if args[0] in ("version", "help") else ["--data", server.data]
    done = full(*args, *data)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("curt: cannot write the output: ")


def test_a_server_that_cannot_show_its_admin_key_does_not_start(nursery, tmp_path):
    done = full("serve", "--data", tmp_path / "data", "--listen", "127.0.0.1:0")
    assert done.returncode == 1 and "cannot write the output" in done.stderr
    server = nursery.server(admin_key=None)
    server.data = tmp_path / "data"
    server.start()
    assert len(re.findall(r"ck_[0-9A-Za-z]{40}", server.stdout)) == 1, "the next start shows one"


# Manual page and completion

def test_the_manual_page_is_without_warnings(tmp_path):
    if not shutil.which("groff"):
        pytest.skip("groff is not installed")
    (tmp_path / "curt.1").write_text(curt("help", "--man").stdout)
    done = run(["groff", "-man", "-ww", "-Tutf8", "-P-c", tmp_path / "curt.1"])
    assert (done.returncode, done.stderr) == (0, "")
    text = re.sub(r".\x08", "", done.stdout)
    assert re.search(r"^NAME\n +curt . URL shortener", text, re.MULTILINE)
    for name in COMMANDS:
        assert re.search(rf"^ +curt {name}$", text, re.MULTILINE), name
    for heading in ("SYNOPSIS", "COMMANDS", "Exit status", "Files", "Environment"):
        assert f"\n{heading}\n" in text


COMPLETE = """
set -eu
source <("$CURT" help --completion bash)
COMP_WORDS=(curt "$@")
COMP_CWORD=$#
_curt curt "${@: -1}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]-}"
"""


@pytest.mark.parametrize("line, offered, not_offered", [
    ([""], ["serve", "link", "help", "version"], ["create", "--help"]),
    (["l"], ["link"], ["stats"]), (["--"], ["--help"], ["--listen"]),
    (["link", ""], ["create", "get", "permitted"], ["serve"]), (["link", "cr"], ["create"], ["get"]),
    (["link", "create", URL, "--"], ["--alias", "--private", "--json", "--data", "--log-level", "--config"], ["--limit"]),
    (["link", "list", "--li"], ["--limit", "--limits-creates", "--listen"], ["--alias"]),
    (["link", "--json", "get", "--"], ["--json"], ["--alias"]),
    (["serve", "--sto"], ["--store-url", "--store-replicas"], ["--listen"]),
    (["user", "add", "--r"], ["--role"], ["--limit"]), (["help", "--"], ["--man", "--markdown", "--completion"], ["--data"]),
    (["link", "get", ""], [""], ["create"]),
], ids=str)
def test_bash_completes_commands_options_and_settings(line, offered, not_offered):
    done = run(["bash", "-c", COMPLETE, "bash", *line], env=clean_env(CURT=CURT))
    assert (done.returncode, done.stderr) == (0, ""), done
    words = done.stdout.split("\n")[:-1]
    assert set(offered) <= set(words) and not set(not_offered) & set(words)
    assert all(word.startswith(line[-1]) for word in words)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_a_shell_is_a_script_without_errors(shell, tmp_path):
    script = tmp_path / "script"
    script.write_text(curt("help", "--completion", shell).stdout)
    assert "permitted" in script.read_text() and "store-url" in script.read_text()
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    done = run([shell, "-n", script])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(VARIANT != "release", reason="it installs the release build")
def test_make_install_installs_the_binary_the_manual_and_completions(tmp_path):
    done = run(["make", "-s", "-o", "build/curt", "-C", ROOT, "install", f"DESTDIR={tmp_path}", "PREFIX=/usr"])  # as it is built
    assert done.returncode == 0, done.stderr
    installed = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert installed == {"usr/bin/curt", "usr/share/man/man1/curt.1", "usr/share/bash-completion/completions/curt",
                         "usr/share/zsh/site-functions/_curt", "usr/share/fish/vendor_completions.d/curt.fish"}
    assert (tmp_path / "usr/share/man/man1/curt.1").read_text() == curt("help", "--man").stdout


# The doctor

def doctor(*args, wrapper=(), env=None):
    done = run([*wrapper, CURT, "doctor", *args], env=env)
    report = [re.fullmatch(r"(ok |note|BAD) +([\w.]+) +(.+)", line) for line in done.stdout.splitlines()]
    assert all(report), done.stdout
    assert done.returncode == (1 if any(line[1] == "BAD" for line in report) else 0)
    return {line[2]: (line[1].strip(), line[3]) for line in report}


def test_the_doctor_reports_as_json_too(server, tmp_path):
    done = curt("doctor", "--json", "--data", server.data)
    report = json.loads(done.stdout)
    lines = doctor("--data", server.data)
    assert done.returncode == 0 and report["sound"] is True
    assert [check["name"] for check in report["checks"]] == list(lines)
    assert report["checks"][0] == {"name": "settings", "status": "ok", "detail": "are valid"}
    for args, name in ((["--data", tmp_path], "data"), (["--listen", "x"], "settings")):
        (tmp_path / "cat.jpg").write_bytes(b"cat")
        done = curt("doctor", "--json", *args)
        report = json.loads(done.stdout)
        assert (done.returncode, report["sound"]) == (1, False)
        assert [check["name"] for check in report["checks"] if check["status"] == "bad"] == [name]


def test_the_doctor_finds_a_working_server_well(server):
    report = doctor("--data", server.data)
    assert {name: state for name, (state, _) in report.items()} == {
        "settings": "ok", "clock": "ok", "files": "ok", "disk": "ok", "data": "ok", "server": "ok", **WELL}
    assert report["server"][1] == f"{server.url} answers"


def test_the_doctor_finds_a_stopped_folder_well_and_changes_nothing_in_it_but_the_number_of_starts(server):
    def content():
        return {path: data for path, data in folder_bytes(server.data).items() if path != "events/boot"}
    server.create(alias="kept")
    server.stop()
    before = content()
    report = doctor("--data", server.data)
    assert report["data"] == ("ok", f"{server.data}: a quick look found no damage; 'curt verify' reads every record")
    assert report["server"] == ("ok", "none uses the folder")
    assert report["store"] == ("ok", "answers")
    assert content() == before


def test_the_doctor_has_nothing_against_a_folder_that_is_not_there_yet(tmp_path):
    report = doctor("--data", tmp_path / "none")
    assert report["data"][0] == "ok" and "first start creates it" in report["data"][1]
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_finds_a_folder_that_is_not_ours(tmp_path):
    (tmp_path / "cat.jpg").write_bytes(b"cat")
    state, text = doctor("--data", tmp_path)["data"]
    assert state == "BAD" and "not a data folder" in text
    assert sorted(folder_bytes(tmp_path)) == ["cat.jpg"]


def test_the_doctor_asks_whether_leases_can_be_had(tmp_path):
    assert doctor("--data", tmp_path / "none", "--lease-url", f"file:{tmp_path}")["leases"] == ("ok", "answers")
    state, text = doctor("--data", tmp_path / "none", "--lease-url", "redis://:hidden@127.0.0.1:1")["leases"]
    assert state == "BAD" and "127.0.0.1:1" in text and "hidden" not in text


def test_the_doctor_asks_the_queue_and_those_who_remember_what_was_seen(serve):
    server = serve()
    server.stop()
    report = doctor("--data", server.data, "--queue-url", "kafka://127.0.0.1:1", "--seen-url", "redis://:hidden@127.0.0.1:1")
    assert report["queue"][0] == report["seen"][0] == "BAD"
    assert "127.0.0.1:1" in report["queue"][1] and "127.0.0.1:1" in report["seen"][1] and "hidden" not in report["seen"][1]
    assert "forwarder" not in report  # a command sends nothing


def test_the_doctor_finds_a_store_that_fails(serve):
    server = serve("--store-url", "fault:ping=unavailable;sqlite:")
    state, text = doctor("--data", server.data)["store"]
    assert state == "BAD" and "injected fault" in text


@pytest.mark.embedded("it is about SQLite's files")
def test_the_doctor_finds_a_damaged_database(server):
    server.create(alias="kept")
    server.stop()
    whole = (server.data / "links.db").read_bytes()
    for damaged, said in [(b"no database" * 1000, "does not begin as a SQLite database does"),
                          (whole[:4096] + bytes(range(256)) * 16 + whole[8192:], "DAMAGED")]:
        (server.data / "links.db").write_bytes(damaged)
        state, text = doctor("--data", server.data)["data"]
        assert state == "BAD" and "links.db" in text and said in text
        assert (server.data / "links.db").read_bytes() == damaged, "no server was started on it"
    report = json.loads(curt("doctor", "--data", server.data, "--json").stdout)
    assert report["sound"] is False and [c["name"] for c in report["checks"] if c["status"] == "bad"] == ["data"]


def test_the_doctor_finds_a_wrong_setting():
    state, text = doctor(env=clean_env(CURT_LOG_LEVEL="loud"))["settings"]
    assert state == "BAD" and "CURT_LOG_LEVEL" in text and "loud" in text


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
