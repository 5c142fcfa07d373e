/* What is particular to the SQLite store: whose files it takes, and what a killed process leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/store_kit.h"
#include "lib/store_ledger.h"
#include "lib/store_versions.h"
#include "store/backends.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[KIT_PATH_BYTES];
static char path[KIT_PATH_BYTES + 32];

static int make_folder(void **state)
{
	(void)state;
	kit_folder_make(folder);
	snprintf(path, sizeof(path), "%s/links.db", folder);
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	kit_folder_remove(folder);
	return 0;
}

static struct store *store_open(void)
{
	struct store *store = NULL;
	struct err e = {""};
	if (store_sqlite_open(path, &store, &e) != 0)
		print_error("%s\n", e.text);
	assert_non_null(store);
	return store;
}

static void file_write(const void *bytes, size_t len)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), len);
	close(fd);
}

static void file_sql(const char *sql)
{
	sqlite3 *db;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* Opening must fail with a sentence that has these words, and change nothing. */
static void assert_refused(const char *words)
{
	char before[65536], after[65536];
	struct store *store = NULL;
	struct err e = {""};
	int fd = open(path, O_RDONLY);
	ssize_t len = read(fd, before, sizeof(before));
	assert_int_equal(store_sqlite_open(path, &store, &e), ERR_INVALID);
	assert_null(store);
	assert_non_null(strstr(e.text, words));
	assert_non_null(strstr(e.text, path));
	assert_int_equal(pread(fd, after, sizeof(after), 0), len);
	assert_memory_equal(before, after, (size_t)len);
	close(fd);
}

static void a_file_of_a_newer_version_is_refused(void **state)
{
	(void)state;
	store_free(store_open());
	file_sql("PRAGMA user_version = 1000");
	assert_refused("newer version");
}

static void a_file_that_is_no_database_is_refused(void **state)
{
	(void)state;
	char bytes[9000];
	memset(bytes, 'x', sizeof(bytes));
	file_write(bytes, sizeof(bytes));
	assert_refused("not a SQLite database");
	file_write("short", 5);
	assert_refused("not a SQLite database");
}

static void a_database_of_another_program_is_refused(void **state)
{
	(void)state;
	file_sql("CREATE TABLE link (id INTEGER PRIMARY KEY)");
	assert_refused("another program");
	file_sql("PRAGMA user_version = 1");
	assert_refused("another program");
	file_sql("PRAGMA application_id = 12345");
	assert_refused("another program");
	file_sql("DROP TABLE link");
	assert_refused("another program");
}

static void a_file_says_whose_it_is(void **state)
{
	(void)state;
	char id[4];
	store_free(store_open());
	int fd = open(path, O_RDONLY);
	assert_int_equal(pread(fd, id, sizeof(id), 68), sizeof(id)); /* where SQLite's format has it */
	assert_memory_equal(id, "curt", sizeof(id));
	close(fd);
}

static void an_empty_file_becomes_a_store(void **state)
{
	(void)state;
	file_write("", 0);
	struct store *store = store_open();
	assert_int_equal(store_ping(store, NULL), 0);
	store_free(store);
}

static void a_file_that_is_open_cannot_be_opened_again(void **state)
{
	(void)state;
	struct store *store = store_open(), *second = NULL;
	struct err e = {""};
	assert_int_equal(store_sqlite_open(path, &second, &e), ERR_BUSY);
	assert_non_null(strstr(e.text, path));
	assert_non_null(strstr(e.text, "in use"));
	store_free(store);
	store_free(store_open());
}

static void a_folder_that_is_not_there_is_named(void **state)
{
	(void)state;
	struct store *store = NULL;
	struct err e = {""};
	snprintf(path, sizeof(path), "%s/none/links.db", folder);
	assert_int_equal(store_sqlite_open(path, &store, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, path));
	assert_non_null(strstr(e.text, "No such file"));
	snprintf(path, sizeof(path), "%s/folder.db", folder);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(store_sqlite_open(path, &store, &e), ERR_UNAVAILABLE);
	assert_int_equal(rmdir(path), 0);
}

static void names_that_mean_something_to_sqlite_are_plain_names(void **state)
{
	(void)state;
	static const char *const names[] = {":memory:", "file:links?mode=memory"};
	char before[4096];
	assert_non_null(getcwd(before, sizeof(before)));
	assert_int_equal(chdir(folder), 0);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct store *store = NULL;
		struct stat st;
		assert_int_equal(store_sqlite_open(names[i], &store, NULL), 0);
		store_free(store);
		assert_int_equal(stat(names[i], &st), 0);
		assert_true(st.st_size > 0);
	}
	assert_int_equal(chdir(before), 0);
}

static void what_is_stored_is_for_its_owner_only(void **state)
{
	(void)state;
	static const char *const suffixes[] = {"", "-wal", "-shm"};
	struct store *store = store_open();
	for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
		char name[KIT_PATH_BYTES + 40];
		struct stat st;
		snprintf(name, sizeof(name), "%s%s", path, suffixes[i]);
		assert_int_equal(stat(name, &st), 0);
		assert_int_equal(st.st_mode & 0777, 0600);
	}
	store_free(store);
}

static void a_clean_close_leaves_one_file(void **state)
{
	(void)state;
	struct ledger ledger = {0};
	struct store *store = store_open();
	assert_int_equal(ledger_apply(&ledger, store, 1, 10), 0);
	store_free(store);
	char name[KIT_PATH_BYTES + 40];
	snprintf(name, sizeof(name), "%s-wal", path);
	assert_int_equal(access(name, F_OK), -1);
	store = store_open();
	ledger_check(&ledger, store);
	store_free(store);
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

static void a_damaged_page_is_told_and_the_others_are_read(void **state)
{
	(void)state;
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

/* --- files of earlier versions --- */

static void assert_tagged(struct store *store, struct str tag, size_t expected_count, uint64_t newest)
{
	uint64_t ids[8] = {0};
	size_t count;
	assert_int_equal(store_tagged(store, tag, ARRAY_LEN(ids), ids, &count), 0);
	assert_int_equal(count, expected_count);
	assert_int_equal(ids[0], newest);
}

static void a_file_of_an_earlier_version_opens_with_all_its_links(void **state)
{
	(void)state;
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

static void a_key_of_an_earlier_version_becomes_a_user_of_the_same_id(void **state)
{
	(void)state;
	CLEANUP(arena_release) struct arena a = {0};
	for (int version = 1; version <= STORE_VERSION_LAST; version++) {
		store_version_make(path, version);
		struct store *store = store_open();
		struct store_users page = {.limit = 9, .arena = &a};
		struct key_record *keys;
		size_t count;
		assert_int_equal(store_users(store, &page), 0);
		assert_int_equal(store_keys(store, &a, &keys, &count), 0);
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

static void a_file_of_an_earlier_version_goes_on(void **state)
{
	(void)state;
	CLEANUP(arena_release) struct arena a = {0};
	store_version_make(path, 1);
	struct store *store = store_open();
	uint64_t first;
	char secret[3];
	assert_int_equal(store_lease(store, STR("ids"), 1, &first), 0);
	assert_int_equal(first, 5);
	assert_int_equal(store_constant(store, STR("secret"), secret, 3), 0);
	assert_memory_equal(secret, "abc", 3);
	struct store_write replay = kit_generated(&a, 50);
	replay.idempotency_key = STR("again");
	replay.idempotency_owner = 7;
	assert_int_equal(kit_apply(store, &replay), 0);
	assert_true(replay.replayed);
	assert_int_equal(replay.link.id, 1);
	struct store_write user = kit_user(&a, "new@example.com", ROLE_VIEWER);
	assert_int_equal(kit_apply(store, &user), 0);
	assert_int_equal(user.user.id, 10);
	struct store_write last = {.kind = STORE_KEY_REVOKE, .now_ms = 5, .arena = &a, .key.id = 3};
	assert_int_equal(kit_apply(store, &last), ERR_CONFLICT); /* the only admin's in force */
	const struct store_count clicks = {.id = 1, .clicks = 12};
	assert_int_equal(store_set_clicks(store, 1, &clicks, 1), 0);
	struct store_write w = {.kind = STORE_PERMIT, .arena = &a, .ref = {1, STR("g1")}, .user.id = 7};
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
		ledger.batches[next] = LEDGER_UNCERTAIN;
	struct store *store = store_open();
	ledger_check(&ledger, store);
	store_free(store);
	assert_int_equal(unlink(path), 0);
}

static void what_a_killed_process_acknowledged_is_there(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 24; i++)
		kill_after(1 + i * 2, i * 40009 % 300000);
}

/* --- the log --- */

static atomic_bool reading;

static void *read_on(void *store)
{
	struct arena a = {0};
	while (atomic_load(&reading)) {
		struct store_lookup read = {.ref = {.id = 11, .key = STR("g11")}, .arena = &a};
		if (store_lookup(store, &read, 1) != 0)
			abort();
		arena_release(&a);
	}
	arena_release(&a);
	return NULL;
}

static void steady_reading_does_not_let_the_log_grow(void **state)
{
	(void)state;
	struct ledger ledger = {0};
	pthread_t threads[2];
	struct store *store = store_open();
	atomic_store(&reading, true);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_on, store), 0);
	for (unsigned b = 1; b < LEDGER_BATCHES; b++) /* 64 MB in all */
		assert_int_equal(ledger_apply(&ledger, store, b, 126), 0);
	atomic_store(&reading, false);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
	struct stat st;
	char name[KIT_PATH_BYTES + 40];
	snprintf(name, sizeof(name), "%s-wal", path);
	assert_int_equal(stat(name, &st), 0);
	assert_in_range(st.st_size, 1, 24 << 20);
	ledger_check(&ledger, store);
	store_free(store);
}

#define FILE_TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    FILE_TEST(a_file_of_a_newer_version_is_refused),
	    FILE_TEST(a_file_that_is_no_database_is_refused),
	    FILE_TEST(a_database_of_another_program_is_refused),
	    FILE_TEST(a_file_says_whose_it_is),
	    FILE_TEST(an_empty_file_becomes_a_store),
	    FILE_TEST(a_file_that_is_open_cannot_be_opened_again),
	    FILE_TEST(a_folder_that_is_not_there_is_named),
	    FILE_TEST(names_that_mean_something_to_sqlite_are_plain_names),
	    FILE_TEST(what_is_stored_is_for_its_owner_only),
	    FILE_TEST(a_clean_close_leaves_one_file),
	    FILE_TEST(a_damaged_page_is_told_and_the_others_are_read),
	    FILE_TEST(a_file_of_an_earlier_version_opens_with_all_its_links),
	    FILE_TEST(a_key_of_an_earlier_version_becomes_a_user_of_the_same_id),
	    FILE_TEST(a_file_of_an_earlier_version_goes_on),
	    FILE_TEST(what_a_killed_process_acknowledged_is_there),
	    FILE_TEST(steady_reading_does_not_let_the_log_grow),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
