"""A first start may die at any step, and the next one goes on."""
import json
import re

import pytest

from harness import curt


def test_a_first_start_that_died_before_its_marker_stood_is_taken_up(nursery):
    server = nursery.server()
    server.data.mkdir()
    (server.data / "curt.lock").touch()
    (server.data / "curt.folder.12345.tmp").write_text("curt data fol")
    server.start()
    server.create(alias="first")
    assert server.target("first") == "https://example.com/"


def test_a_first_start_that_died_after_its_marker_shows_its_admin_key_the_next_time(nursery):
    server = nursery.server(admin_key=None)
    server.data.mkdir()
    (server.data / "curt.folder").write_text("curt data folder, format 1\n")
    server.start()
    assert len(re.findall(r"ck_[0-9A-Za-z]{40}", server.stdout)) == 1


def test_a_command_on_a_folder_that_was_never_served_makes_no_admin_key(nursery):
    server = nursery.server(admin_key=None)
    server.data.mkdir()
    (server.data / "curt.folder").write_text("curt data folder, format 1\n")
    assert curt("doctor", "--data", server.data).returncode == 0
    server.start()
    assert len(re.findall(r"ck_[0-9A-Za-z]{40}", server.stdout)) == 1


def test_an_address_that_a_killed_server_left_is_removed_before_anything_is_served(nursery):
    server = nursery.server()
    server.start()
    server.kill()
    stale = json.loads((server.data / "server.json").read_text())
    server.start()
    fresh = json.loads((server.data / "server.json").read_text())
    assert fresh["token"] != stale["token"]
    assert server.curt("link", "list").returncode == 0


@pytest.mark.embedded("it is about SQLite's files")
def test_two_servers_never_share_one_database(nursery, tmp_path):
    first = nursery.server("--store-url", f"sqlite:{tmp_path}/shared.db")
    first.start()
    done = curt("serve", "--data", tmp_path / "other", "--store-url", f"sqlite:{tmp_path}/shared.db", "--listen",
                "127.0.0.1:0")
    assert done.returncode == 1
    assert "shared.db is in use by another process" in done.stderr
