/*
 * A disk that fails under the SQLite store: for every N, the N-th call of a kind fails, once or from then on.
 * Whatever the store said, it must hold: in the running store once the disk is well, after reopening, and in
 * what a crash right after the failure would have left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/sqlite_sys.h"
#include "lib/store_kit.h"
#include "lib/store_ledger.h"
#include "store/backends.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int fdatasync(int fd)
{
	return sqlite_sys_fdatasync(fd);
}

static char folder[KIT_PATH_BYTES];
static bool reads_fail;

static const char *path_in_folder(const char *name)
{
	static char path[KIT_PATH_BYTES + 32];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static int make_folder(void **state)
{
	(void)state;
	kit_folder_make(folder);
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	sqlite_sys_clear();
	kit_folder_remove(folder);
	return 0;
}

static void remove_files(void)
{
	kit_folder_remove(folder);
	assert_int_equal(mkdir(folder, 0700), 0);
}

static void copy_file(const char *from_name, const char *to_name)
{
	char bytes[65536];
	ssize_t len;
	int from = open(path_in_folder(from_name), O_RDONLY);
	if (from < 0)
		return;
	int to = open(path_in_folder(to_name), O_CREAT | O_TRUNC | O_WRONLY, 0600);
	while ((len = read(from, bytes, sizeof(bytes))) > 0) {
		if (write(to, bytes, (size_t)len) != len)
			_exit(1);
	}
	close(from);
	close(to);
}

/* What the files would be after kill -9. Another process copies, as closing a descriptor here would drop
 * SQLite's locks. */
static void take_image(void)
{
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		copy_file("links.db", "image.db");
		copy_file("links.db-wal", "image.db-wal");
		_exit(0);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void assert_sound(const char *name)
{
	sqlite3 *db;
	sqlite3_stmt *stmt;
	assert_int_equal(sqlite3_open_v2(path_in_folder(name), &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &stmt, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
	assert_string_equal(sqlite3_column_text(stmt, 0), "ok");
	sqlite3_finalize(stmt);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void check_files(const char *name, const struct ledger *ledger)
{
	struct ledger copy = *ledger;
	struct store *store;
	assert_int_equal(store_sqlite_open(path_in_folder(name), &store, NULL), 0);
	ledger_check(&copy, store);
	store_free(store);
	assert_sound(name);
}

/* SQLite takes an EIO of a read for a damaged disk, and so do we. */
static void assert_clean_error(int r)
{
	assert_true(r == 0 || r == ERR_UNAVAILABLE || r == ERR_UNCERTAIN || r == ERR_NOMEM ||
	            (r == ERR_CORRUPT && reads_fail));
}

/* A read either works and tells the truth, or says that it did not work. */
static void read_under_fault(struct store *store, const struct ledger *ledger, unsigned b)
{
	CLEANUP(arena_release) struct arena a = {0};
	struct store_lookup reads[2] = {{.ref = kit_generated(&a, 10ULL * b + 1).ref, .arena = &a},
	                                {.ref = kit_generated(&a, 10ULL * b + 1).ref, .arena = &a}};
	for (size_t n = 1; n <= 2; n++) {
		int r = store_lookup(store, reads, n);
		assert_clean_error(r);
		assert_int_not_equal(r, ERR_UNCERTAIN);
		for (size_t i = 0; r == 0 && i < n; i++) {
			if (reads[i].result != ERR_NOT_FOUND)
				assert_clean_error(reads[i].result);
			if (ledger->batches[b] == LEDGER_DONE)
				assert_int_not_equal(reads[i].result, ERR_NOT_FOUND);
			else if (ledger->batches[b] == LEDGER_REFUSED)
				assert_int_not_equal(reads[i].result, 0);
		}
	}
	struct store_list page = {.limit = 5, .arena = &a};
	assert_clean_error(store_list(store, &page));
	uint64_t ids[5];
	size_t count;
	assert_clean_error(store_tagged(store, STR("all"), ARRAY_LEN(ids), ids, &count));
}

struct run {
	struct ledger ledger;
	struct ledger at_image; /* the book when the image was taken */
	bool failed;            /* something failed; then there is an image */
	bool was_uncertain;
};

static void note_failure(struct run *run, int r)
{
	assert_clean_error(r);
	if (r == ERR_UNCERTAIN)
		run->was_uncertain = true;
	if (r == 0 || run->failed)
		return;
	run->failed = true;
	run->at_image = run->ledger;
	take_image();
}

static void work(struct run *run, struct store *store, const size_t *fillers, unsigned batches)
{
	char constant[4] = "abc";
	for (unsigned b = 1; b <= batches; b++) {
		note_failure(run, ledger_apply(&run->ledger, store, b, fillers[b - 1]));
		read_under_fault(store, &run->ledger, b);
		const struct store_count clicks = {.id = 10ULL * b + 1, .clicks = b};
		note_failure(run, store_set_clicks(store, &clicks, 1));
		note_failure(run, ledger_lease(&run->ledger, store));
		int r = store_constant(store, STR("name"), constant, sizeof(constant));
		assert_clean_error(r);
		if (r == 0)
			assert_string_equal(constant, "abc");
	}
}

/* One run with one fault. False when the fault was never met: there are no more calls of its kind. */
static bool run_with_fault(const struct sqlite_fault *fault, const size_t *fillers, unsigned batches,
                           unsigned long *ret_uncertain)
{
	struct run run = {0};
	struct store *store = NULL;
	struct err e = {""};
	remove_files();
	reads_fail = fault->call == SQLITE_SYS_READ;
	sqlite_sys_fail(fault);
	int r = store_sqlite_open(path_in_folder("links.db"), &store, &e);
	if (r == 0) {
		work(&run, store, fillers, batches);
	} else {
		assert_clean_error(r);
		assert_true(strlen(e.text) > 0);
	}
	if (r == 0 && fault->for_good) { /* the disk is still bad when the store closes */
		store_free(store);
		store = NULL;
	}
	bool met = sqlite_sys_clear() >= fault->at;

	if (!store)
		assert_int_equal(store_sqlite_open(path_in_folder("links.db"), &store, &e), 0);
	assert_int_equal(store_ping(store, &e), 0);
	ledger_check(&run.ledger, store);
	assert_int_equal(ledger_apply(&run.ledger, store, batches + 1, 0), 0);
	store_free(store);
	check_files("links.db", &run.ledger);
	if (run.failed)
		check_files("image.db", &run.at_image);
	*ret_uncertain += run.was_uncertain;
	return met;
}

static void sweep(struct sqlite_fault fault, unsigned long stride, unsigned long *ret_uncertain)
{
	static const size_t fillers[3] = {0, 2, 0};
	for (int for_good = 0; for_good < 2; for_good++) {
		fault.for_good = for_good;
		for (fault.at = 1; run_with_fault(&fault, fillers, 3, ret_uncertain); fault.at += stride)
			;
		assert_true(fault.at > stride); /* it was met at least once */
	}
}

static void a_write_that_fails_loses_nothing_that_was_acknowledged(void **state)
{
	(void)state;
	unsigned long uncertain = 0;
	sweep((struct sqlite_fault){.call = SQLITE_SYS_WRITE, .error = EIO}, 1, &uncertain);
}

static void a_full_disk_loses_nothing_and_is_never_uncertain(void **state)
{
	(void)state;
	unsigned long uncertain = 0;
	sweep((struct sqlite_fault){.call = SQLITE_SYS_WRITE, .error = ENOSPC}, 1, &uncertain);
	assert_int_equal(uncertain, 0);
}

static void a_write_cut_in_half_loses_nothing_and_is_never_uncertain(void **state)
{
	(void)state;
	unsigned long uncertain = 0;
	sweep((struct sqlite_fault){.call = SQLITE_SYS_WRITE, .error = ENOSPC, .half = true}, 1, &uncertain);
	assert_int_equal(uncertain, 0);
}

static void a_sync_that_fails_is_told_truly(void **state)
{
	(void)state;
	unsigned long uncertain = 0;
	sweep((struct sqlite_fault){.call = SQLITE_SYS_SYNC, .error = EIO}, 1, &uncertain);
	assert_true(uncertain > 0); /* a disk that stays bad leaves no way to find out */
}

static void an_open_that_fails_loses_nothing(void **state)
{
	(void)state;
	unsigned long uncertain = 0;
	sweep((struct sqlite_fault){.call = SQLITE_SYS_OPEN, .error = EMFILE}, 1, &uncertain);
}

static void a_read_that_fails_tells_no_lies(void **state)
{
	(void)state;
	unsigned long uncertain = 0;
	sweep((struct sqlite_fault){.call = SQLITE_SYS_READ, .error = EIO}, 1, &uncertain);
}

static void memory_that_runs_out_loses_nothing(void **state)
{
	(void)state;
	unsigned long uncertain = 0;
	sweep((struct sqlite_fault){.call = SQLITE_SYS_MALLOC}, 17, &uncertain);
}

/* Batches of 3 MB fill the log, so that it is moved into the file and begun anew twice. */
static void a_checkpoint_that_fails_loses_nothing(void **state)
{
	(void)state;
	static const size_t fillers[6] = {300, 300, 0, 300, 300, 0};
	static const struct sqlite_fault faults[] = {
	    {.call = SQLITE_SYS_WRITE, .error = EIO},
	    {.call = SQLITE_SYS_WRITE, .error = ENOSPC},
	    {.call = SQLITE_SYS_SYNC, .error = EIO},
	    {.call = SQLITE_SYS_TRUNCATE, .error = EIO},
	};
	unsigned long uncertain = 0;
	for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
		struct sqlite_fault fault = faults[i];
		unsigned long stride = fault.call == SQLITE_SYS_WRITE ? 997 : 1;
		for (fault.at = 1; run_with_fault(&fault, fillers, 6, &uncertain); fault.at += stride)
			fault.for_good = !fault.for_good;
	}
}

/* How many pages a store that was just opened reads for one page of a list. */
static unsigned long list_reads(uint64_t owner, struct str cursor, size_t count)
{
	CLEANUP(arena_release) struct arena a = {0};
	struct store *store;
	struct store_list page = {.owner = owner, .cursor = cursor, .limit = 10, .arena = &a};
	assert_int_equal(store_sqlite_open(path_in_folder("links.db"), &store, NULL), 0);
	sqlite_sys_fail(&(struct sqlite_fault){.call = SQLITE_SYS_READ, .at = ULONG_MAX});
	assert_int_equal(store_list(store, &page), 0);
	unsigned long reads = sqlite_sys_clear();
	assert_int_equal(page.count, count);
	store_free(store);
	return reads;
}

static void a_page_of_a_list_costs_its_own_length(void **state)
{
	(void)state;
	enum { LINKS = 20000 };
	CLEANUP(arena_release) struct arena a = {0};
	struct store *store;
	struct store_write *batch = calloc(LINKS, sizeof(*batch));
	assert_int_equal(store_sqlite_open(path_in_folder("links.db"), &store, NULL), 0);
	for (size_t i = 0; i < LINKS; i++) {
		batch[i] = kit_generated(&a, i + 1);
		batch[i].link.owner = i < 5 ? 2 : 1;
	}
	assert_int_equal(store_apply(store, batch, LINKS), 0);
	free(batch);
	store_free(store);
	assert_in_range(list_reads(0, STR_NULL, 10), 1, 12);
	assert_in_range(list_reads(0, STR("10000"), 10), 1, 12);
	assert_in_range(list_reads(1, STR("10000"), 10), 1, 12);
	assert_in_range(list_reads(2, STR_NULL, 5), 1, 12);
	assert_in_range(list_reads(3, STR_NULL, 0), 1, 12);
}

static void ping_tells_of_a_failed_write_until_one_succeeds(void **state)
{
	(void)state;
	struct ledger ledger = {0};
	struct store *store;
	struct err e = {""};
	assert_int_equal(store_sqlite_open(path_in_folder("links.db"), &store, &e), 0);
	assert_int_equal(ledger_apply(&ledger, store, 1, 0), 0);
	sqlite_sys_fail(
	    &(struct sqlite_fault){.call = SQLITE_SYS_SYNC, .at = 1, .for_good = true, .error = EIO});
	assert_int_equal(ledger_apply(&ledger, store, 2, 0), ERR_UNCERTAIN);
	assert_int_equal(store_ping(store, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "links.db"));
	assert_non_null(strstr(e.text, "the last write failed"));
	sqlite_sys_clear();
	assert_int_equal(store_ping(store, &e), 0);
	ledger_check(&ledger, store);
	store_free(store);
}

static void a_batch_that_failed_can_be_handed_in_again(void **state)
{
	(void)state;
	CLEANUP(arena_release) struct arena a = {0};
	struct store *store;
	assert_int_equal(store_sqlite_open(path_in_folder("links.db"), &store, NULL), 0);
	struct store_write first = kit_generated(&a, 1);
	first.idempotency_key = STR("key");
	assert_int_equal(kit_apply(store, &first), 0);
	struct store_write batch[] = {kit_generated(&a, 2), kit_generated(&a, 3)};
	batch[0].idempotency_key = STR("key");
	sqlite_sys_fail(&(struct sqlite_fault){.call = SQLITE_SYS_WRITE, .at = 1, .error = ENOSPC});
	assert_int_equal(store_apply(store, batch, 2), ERR_UNAVAILABLE);
	sqlite_sys_clear();
	assert_false(batch[0].replayed);
	assert_int_equal(batch[0].link.id, 2);
	assert_int_equal(store_apply(store, batch, 2), 0);
	assert_true(batch[0].replayed);
	assert_int_equal(batch[0].link.id, 1);
	assert_int_equal(batch[1].result, 0);
	store_free(store);
}

#define DISK_TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    DISK_TEST(a_write_that_fails_loses_nothing_that_was_acknowledged),
	    DISK_TEST(a_full_disk_loses_nothing_and_is_never_uncertain),
	    DISK_TEST(a_write_cut_in_half_loses_nothing_and_is_never_uncertain),
	    DISK_TEST(a_sync_that_fails_is_told_truly),
	    DISK_TEST(an_open_that_fails_loses_nothing),
	    DISK_TEST(a_read_that_fails_tells_no_lies),
	    DISK_TEST(memory_that_runs_out_loses_nothing),
	    DISK_TEST(a_checkpoint_that_fails_loses_nothing),
	    DISK_TEST(a_page_of_a_list_costs_its_own_length),
	    DISK_TEST(ping_tells_of_a_failed_write_until_one_succeeds),
	    DISK_TEST(a_batch_that_failed_can_be_handed_in_again),
	};
	sqlite_sys_install();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
