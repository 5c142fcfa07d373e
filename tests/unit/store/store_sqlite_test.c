/* What is particular to the SQLite store: files of earlier versions, and what damage and a killed process
 * leave. tests/unit/client/sqlite_file*_test.c have what holds for every SQLite file. */
#include "lib/store_kit.h"
#include "lib/store_ledger.h"
#include "lib/store_versions.h"
#include "lib/test.h"
#include "store/backends.h"
#include "store/sqlite_store.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>

static char path[TEMP_PATH_BYTES];

static int setup(void **state)
{
	int r = test_dir_make(state);
	temp_path(&test_dir, "links.db", path);
	return r;
}

static struct store *store_open(void)
{
	struct store *store = NULL;
	MUST(store_sqlite_open(path, &store, &why));
	return store;
}

TEST(a_file_says_whose_it_is)
{
	char id[4];
	store_free(store_open());
	int fd = open(path, O_RDONLY);
	assert_int_equal(pread(fd, id, sizeof(id), 68), sizeof(id)); /* where SQLite's format has it */
	assert_memory_equal(id, "curt", sizeof(id));
	close(fd);
}

/* Overwrites the first page of the file that has this text in it. */
static void damage_page_with(const char *text)
{
	char page[4096], junk[4096];
	off_t at = 0;
	int fd = open(path, O_RDWR);
	memset(junk, 0xee, sizeof(junk));
	do {
		assert_int_equal(pread(fd, page, sizeof(page), at), sizeof(page));
		at += (off_t)sizeof(page);
	} while (!memmem(page, sizeof(page), text, strlen(text)));
	assert_int_equal(pwrite(fd, junk, sizeof(junk), at - (off_t)sizeof(page)), sizeof(junk));
	close(fd);
}

TEST(a_damaged_page_is_reported_and_the_others_are_read)
{
	enum { LINKS = 2000 };
	CLEANUP(arena_release) struct arena a = {0};
	struct store_write *batch = calloc(LINKS, sizeof(*batch));
	for (size_t i = 0; i < LINKS; i++)
		batch[i] = kit_generated(&a, i + 1);
	struct store *store = store_open();
	assert_int_equal(store_apply(store, batch, LINKS), 0);
	free(batch);
	store_free(store);

	damage_page_with("https://example.com/1000");
	store = store_open();
	struct store_lookup *reads = calloc(LINKS, sizeof(*reads));
	for (size_t i = 0; i < LINKS; i++)
		reads[i] = (struct store_lookup){.ref = {.id = i + 1, .key = STR("x")}, .arena = &a};
	assert_int_equal(store_lookup(store, reads, LINKS), 0);
	size_t good = 0, bad = 0;
	for (size_t i = 0; i < LINKS; i++) {
		good += reads[i].result == 0;
		bad += reads[i].result == ERR_CORRUPT;
	}
	assert_int_equal(good + bad, LINKS);
	assert_true(good > LINKS / 2 && bad > 0);
	free(reads);
	store_free(store);
}

TEST(a_row_that_cannot_be_read_fails_only_those_who_want_it)
{
	CLEANUP(arena_release) struct arena a = {0};
	struct store *store = store_open();
	struct store_write made[] = {kit_alias(&a, 1, "damaged"), kit_alias(&a, 2, "nothing")};
	struct registry_write user = kit_user(&a, NULL, ROLE_VIEWER);
	assert_int_equal(store_apply(store, made, ARRAY_LEN(made)), 0);
	assert_int_equal(kit_apply(store, &user), 0);
	store_free(store);
	sqlite3 *db;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db,
	                              "UPDATE link SET redirect_status = -1 WHERE id = 1;"
	                              "DELETE FROM link WHERE id = 2; UPDATE user SET role = 9",
	                              NULL, NULL, NULL),
	                 SQLITE_OK);
	sqlite3_close(db);
	store = store_open();
	struct store_write batch[] = {
	    {.kind = STORE_LINK_UPDATE, .arena = &a, .ref.key = STR("damaged")},
	    {.kind = STORE_LINK_DELETE, .arena = &a, .ref.key = STR("nothing")},
	    kit_alias(&a, 3, "damaged"),
	    kit_alias(&a, 4, "nothing"),
	    kit_generated(&a, 5),
	};
	assert_int_equal(store_apply(store, batch, ARRAY_LEN(batch)), 0);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(batch[i].result, ERR_CORRUPT);
	assert_int_equal(batch[2].result, ERR_CONFLICT);
	assert_int_equal(batch[3].result, ERR_CONFLICT);
	assert_int_equal(batch[4].result, 0);
	struct registry_write accounts[] = {
	    {.kind = REGISTRY_USER_UPDATE, .arena = &a, .user = user.user, .user_fields = USER_END_SESSIONS},
	    kit_user(&a, NULL, ROLE_VIEWER)};
	assert_int_equal(registry_apply(store->registry, accounts, 2), 0);
	assert_int_equal(accounts[0].result, ERR_CORRUPT);
	assert_int_equal(accounts[1].result, 0);
	store_free(store);
}

TEST(a_create_whose_id_is_taken_fails_alone)
{
	CLEANUP(arena_release) struct arena a = {0};
	struct store *store = store_open();
	struct registry_write user = kit_user(&a, NULL, ROLE_VIEWER);
	assert_int_equal(kit_apply(store, &user), 0);
	struct store_write made[] = {kit_alias(&a, 1, "first"),
	                             {.kind = STORE_PERMIT, .arena = &a, .ref.key = STR("first")}};
	made[1].user = user.user.id;
	assert_int_equal(store_apply(store, made, 2), 0);
	assert_int_equal(made[1].result, 0);
	struct store_write batch[] = {kit_alias(&a, 1, "second"),
	                              {.kind = STORE_PERMIT, .arena = &a, .ref.key = STR("second")},
	                              kit_generated(&a, 2)};
	batch[1].user = user.user.id;
	assert_int_equal(store_apply(store, batch, 3), 0);
	assert_int_equal(batch[0].result, ERR_CONFLICT);
	assert_int_equal(batch[1].result, ERR_NOT_FOUND);
	assert_int_equal(batch[2].result, 0);
	store_free(store);
}

TEST(a_cursor_from_before_a_restore_gets_an_error)
{
	CLEANUP(arena_release) struct arena a = {0};
	struct store *store = store_open();
	struct store_write w = kit_generated(&a, 1);
	assert_int_equal(kit_apply(store, &w), 0);
	struct feed_page page = {.from_end = true, .arena = &a, .max = 10};
	assert_int_equal(store_feed(store, &page), 0);
	page.from_end = false;
	assert_int_equal(store_feed(store, &page), 0);
	assert_false(page.lost);
	page.cursor.sequence++; /* of a row that the backup does not have */
	assert_int_equal(store_feed(store, &page), 0);
	assert_true(page.lost);
	store_free(store);
}

/* --- files of earlier versions --- */

static void assert_tagged(struct store *store, struct str tag, size_t expected_count, uint64_t newest)
{
	uint64_t ids[8] = {0};
	size_t count;
	assert_int_equal(store_tagged(store, tag, ARRAY_LEN(ids), ids, &count), 0);
	assert_int_equal(count, expected_count);
	assert_int_equal(ids[0], newest);
}

TEST(a_file_of_an_earlier_version_opens_with_all_its_links)
{
	for (int version = 1; version <= STORE_VERSION_LAST; version++) {
		store_version_make(path, version);
		for (int i = 0; i < 2; i++) { /* also when it has been brought up to date already */
			struct store *store = store_open();
			store_version_check(store, version);
			store_free(store);
		}
		assert_int_equal(unlink(path), 0);
	}
}

TEST(a_key_of_an_earlier_version_becomes_a_user_of_the_same_id)
{
	CLEANUP(arena_release) struct arena a = {0};
	for (int version = 1; version <= STORE_VERSION_LAST; version++) {
		store_version_make(path, version);
		struct store *store = store_open();
		struct registry_page page = {.limit = 9, .arena = &a};
		size_t count;
		struct key_record *keys = kit_keys(store, &a, &count);
		assert_int_equal(registry_users(store->registry, &page), 0);
		assert_int_equal(page.count, 3);
		assert_int_equal(count, 3);
		for (size_t i = 0; i < 3; i++) {
			assert_int_equal(keys[i].id, page.users[i].id);
			assert_int_equal(keys[i].user, page.users[i].id);
			assert_int_equal(page.users[i].created_ms, keys[i].created_ms);
			assert_true(str_eq(page.users[i].first_name, keys[i].name));
			assert_null(page.users[i].email.ptr);
			assert_int_equal(page.users[i].enabled, keys[i].revoked_ms == 0);
			assert_int_equal(page.users[i].role, i == 1 ? ROLE_EDITOR : ROLE_ADMIN);
			assert_int_equal(keys[i].rights, i == 1 ? RIGHTS_ALL & ~RIGHT_ADMIN : RIGHTS_ALL);
			assert_int_equal(keys[i].expires_ms, 0);
			assert_int_equal(keys[i].used_ms, 0);
		}
		assert_int_equal(keys[1].id, 7);
		assert_true(str_eq(keys[1].name, STR("a program")));
		assert_memory_equal(keys[1].digest, "12345678901234567890123456789012", KEY_DIGEST_BYTES);
		assert_int_equal(keys[1].creates_max, 100);
		assert_int_equal(keys[1].redirects_max, 200);
		assert_null(keys[2].name.ptr);
		assert_int_equal(keys[2].revoked_ms, 14);
		store_free(store);
		assert_int_equal(unlink(path), 0);
	}
}

TEST(a_file_of_an_earlier_version_goes_on)
{
	CLEANUP(arena_release) struct arena a = {0};
	store_version_make(path, 1);
	struct store *store = store_open();
	uint64_t first;
	char secret[3];
	assert_int_equal(registry_lease(store->registry, STR("ids"), 1, &first), 0);
	assert_int_equal(first, 5);
	assert_int_equal(registry_constant(store->registry, STR("secret"), secret, 3), 0);
	assert_memory_equal(secret, "abc", 3);
	struct store_write replay = kit_generated(&a, 50);
	replay.idempotency_key = STR("again");
	replay.idempotency_owner = 7;
	assert_int_equal(kit_apply(store, &replay), 0);
	assert_true(replay.replayed);
	assert_int_equal(replay.link.id, 1);
	struct registry_write user = kit_user(&a, "new@example.com", ROLE_VIEWER);
	assert_int_equal(kit_apply(store, &user), 0);
	assert_int_equal(user.user.id, 10);
	struct registry_write last = {.kind = REGISTRY_KEY_REVOKE, .now_ms = 5, .arena = &a, .key.id = 3};
	assert_int_equal(kit_apply(store, &last), ERR_CONFLICT); /* the only admin's in force */
	const struct store_count clicks = {.id = 1, .clicks = 12};
	assert_int_equal(store_set_clicks(store, 1, &clicks, 1), 0);
	struct store_write w = {.kind = STORE_PERMIT, .arena = &a, .ref = {1, STR("g1")}, .user = 7};
	assert_int_equal(kit_apply(store, &w), 0);
	w = (struct store_write){.kind = STORE_LINK_DELETE, .arena = &a, .ref = {1, STR("g1")}};
	assert_int_equal(kit_apply(store, &w), 0);
	assert_int_equal(w.link.clicks, 12);
	assert_tagged(store, STR("old"), 0, 0);
	assert_tagged(store, STR("both"), 1, 2);
	store_free(store);
}

/* --- kill -9 --- */

/* Works until it is killed, and tells of each acknowledgement. */
static void child_work(int acks)
{
	struct ledger ledger = {0};
	struct store *store = NULL;
	if (store_sqlite_open(path, &store, NULL) != 0)
		_exit(1);
	for (unsigned b = 1; b < LEDGER_BATCHES; b++) {
		if (ledger_apply(&ledger, store, b, b % 4 ? 1 : 120) != 0 || write(acks, "b", 1) != 1 ||
		    ledger_lease(&ledger, store) != 0 || write(acks, &ledger.leased_end, 8) != 8)
			_exit(1);
	}
	for (;;)
		pause();
}

/* Reads acknowledgements into the book, `max` batches at most; what was under way is uncertain. */
static unsigned read_acks(int acks, struct ledger *ledger, unsigned batch, unsigned max)
{
	char said;
	while (batch <= max && read(acks, &said, 1) == 1) {
		ledger->accounts[batch] = LEDGER_DONE;
		ledger->batches[batch++] = LEDGER_DONE;
		uint64_t end;
		if (read(acks, &end, 8) == 8)
			ledger->leased_end = end;
	}
	return batch;
}

static void kill_after(unsigned batches, unsigned spin)
{
	int acks[2];
	assert_int_equal(pipe(acks), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		close(acks[0]);
		child_work(acks[1]);
	}
	close(acks[1]);
	struct ledger ledger = {0};
	unsigned next = read_acks(acks[0], &ledger, 1, batches);
	for (volatile unsigned i = 0; i < spin; i++)
		;
	assert_int_equal(kill(child, SIGKILL), 0);
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	next = read_acks(acks[0], &ledger, next, LEDGER_BATCHES - 1);
	close(acks[0]);
	assert_true(next > batches);
	if (next < LEDGER_BATCHES)
		ledger.batches[next] = ledger.accounts[next] = LEDGER_UNCERTAIN;
	struct store *store = store_open();
	ledger_check(&ledger, store);
	store_free(store);
	assert_int_equal(unlink(path), 0);
}

TEST(what_a_killed_process_acknowledged_is_there)
{
	for (unsigned i = 0; i < 24; i++)
		kill_after(1 + i * 2, i * 40009 % 300000);
}

/* "SCAN" is what SQLite's plan says of a table that it reads to its end. */
TEST(every_statement_but_verification_finds_its_rows_by_an_index)
{
	sqlite3 *db;
	store_free(store_open());
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	for (unsigned i = 0; i < link_file_layout.sql_count - SQL_OWN; i++) {
		char sql[4096];
		sqlite3_stmt *stmt;
		if (i == SQL_ALIAS_ASTRAY - SQL_OWN)
			continue;
		snprintf(sql, sizeof(sql), "EXPLAIN QUERY PLAN %s", link_file_layout.sql[i]);
		assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
		while (sqlite3_step(stmt) == SQLITE_ROW) {
			const char *step = (const char *)sqlite3_column_text(stmt, 3);
			bool is_scan = strncmp(step, "SCAN ", 5) == 0 && !strstr(step, "USING") &&
			               !strstr(step, "(subquery") && !strstr(step, "CONSTANT ROW");
			if (is_scan)
				fail_msg("%s: %s", step, link_file_layout.sql[i]);
		}
		sqlite3_finalize(stmt);
	}
	sqlite3_close(db);
}

TEST_MAIN(.setup = setup, .teardown = test_dir_remove)
