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
#include "lib/store_versions.h"
#include "store/backends.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int fdatasync(int fd)
{
	return sqlite_sys_fdatasync(fd);
}

/* Under the thread sanitizer, which makes each run slow and has nothing to find in one thread, a few will do.
 */
#ifdef __SANITIZE_THREAD__
enum { THIN = 9 };
#else
enum { THIN = 1 };
#endif

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
	struct store *store;
	kit_folder_make(folder);
	if (store_sqlite_open(path_in_folder("empty.db"), &store, NULL) != 0)
		return -1;
	store_free(store);
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
	static const char *const names[] = {"links.db", "links.db-wal", "links.db-shm", "image.db",
	                                    "image.db-wal"};
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		unlink(path_in_folder(names[i]));
}

/* Files that were read while SQLite had them open: closing one of them would drop SQLite's locks, so they are
 * closed when the run is over. */
static int held[64];
static size_t held_count;

static void held_release(void)
{
	while (held_count > 0)
		close(held[--held_count]);
}

static void copy_file(const char *from_name, const char *to_name)
{
	static char bytes[1 << 20];
	ssize_t len;
	int from = open(path_in_folder(from_name), O_RDONLY);
	if (from < 0)
		return;
	assert_true(held_count < ARRAY_LEN(held));
	held[held_count++] = from;
	int to = open(path_in_folder(to_name), O_CREAT | O_TRUNC | O_WRONLY, 0600);
	assert_true(to >= 0);
	while ((len = read(from, bytes, sizeof(bytes))) > 0)
		assert_int_equal(write(to, bytes, (size_t)len), len);
	close(to);
}

/* What the files would be after kill -9. */
static void take_image(void)
{
	copy_file("links.db", "image.db");
	copy_file("links.db-wal", "image.db-wal");
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

static void accounts_under_fault(struct store *store, struct arena *a, uint64_t ids[1])
{
	struct store_over over = {.now_ms = KIT_NOW_MS, .max = 1, .ids = ids, .count_all = true};
	struct store_users page = {.limit = 5, .arena = a};
	struct session_record *sessions;
	struct key_record *keys;
	struct user_record user;
	uint64_t *users;
	size_t count;
	assert_clean_error(store_over(store, &over));
	assert_clean_error(store_users(store, &page));
	assert_clean_error(store_sessions(store, 0, a, &sessions, &count));
	assert_clean_error(store_keys(store, a, &keys, &count));
	assert_clean_error(store_permitted(store, 11, a, &users, &count));
	int r = store_user(store, 1, STR_NULL, a, &user);
	assert_clean_error(r == ERR_NOT_FOUND ? 0 : r);
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
	accounts_under_fault(store, &a, ids);
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
		note_failure(run, store_set_clicks(store, 1, &clicks, 1));
		note_failure(run, ledger_lease(&run->ledger, store));
		int r = store_constant(store, STR("name"), constant, sizeof(constant));
		assert_clean_error(r);
		if (r == 0)
			assert_string_equal(constant, "abc");
	}
}

/* What one run does, and where it begins: with no file, or with that of a store with nothing in it. */
struct plan {
	bool fresh;
	unsigned batches;
	const size_t *fillers;
};

static void begin(const struct plan *plan)
{
	remove_files();
	if (!plan->fresh)
		copy_file("empty.db", "links.db");
}

/* One run with one fault. False when the fault was never met: there are no more calls of its kind. */
static bool run_with_fault(const struct sqlite_fault *fault, const struct plan *plan,
                           unsigned long *ret_uncertain)
{
	struct run run = {0};
	struct store *store = NULL;
	struct err e = {""};
	begin(plan);
	reads_fail = fault->call == SQLITE_SYS_READ;
	sqlite_sys_fail(fault);
	int r = store_sqlite_open(path_in_folder("links.db"), &store, &e);
	if (r == 0) {
		work(&run, store, plan->fillers, plan->batches);
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
	assert_int_equal(ledger_apply(&run.ledger, store, plan->batches + 1, 0), 0);
	store_free(store);
	check_files("links.db", &run.ledger);
	if (run.failed)
		check_files("image.db", &run.at_image);
	held_release();
	*ret_uncertain += run.was_uncertain;
	return met;
}

static void sweep_plan(struct sqlite_fault fault, const struct plan *plan, unsigned long stride,
                       unsigned long *ret_uncertain)
{
	stride *= THIN;
	for (int for_good = 0; for_good < 2; for_good++) {
		fault.for_good = for_good;
		for (fault.at = 1; run_with_fault(&fault, plan, ret_uncertain); fault.at += stride)
			;
		assert_true(fault.at > stride); /* it was met at least once */
	}
}

/* First while the file is made, then while it is worked with. */
static void sweep(struct sqlite_fault fault, unsigned long stride, unsigned long *ret_uncertain)
{
	static const size_t fillers[3] = {0, 2, 0};
	sweep_plan(fault, &(struct plan){.fresh = true}, stride, ret_uncertain);
	sweep_plan(fault, &(struct plan){.batches = 3, .fillers = fillers}, stride, ret_uncertain);
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
	sweep((struct sqlite_fault){.call = SQLITE_SYS_MALLOC}, 61, &uncertain);
}

/* Batches of 3 MB fill the log, so that it is moved into the file and begun anew twice. */
static void a_checkpoint_that_fails_loses_nothing(void **state)
{
	(void)state;
	static const size_t fillers[6] = {300, 300, 0, 300, 300, 0};
	const struct plan plan = {.batches = 6, .fillers = fillers};
	static const struct sqlite_fault faults[] = {
	    {.call = SQLITE_SYS_WRITE, .error = EIO},
	    {.call = SQLITE_SYS_WRITE, .error = ENOSPC},
	    {.call = SQLITE_SYS_SYNC, .error = EIO},
	    {.call = SQLITE_SYS_TRUNCATE, .error = EIO},
	};
	unsigned long uncertain = 0;
	for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
		struct sqlite_fault fault = faults[i];
		unsigned long stride = fault.call == SQLITE_SYS_WRITE ? 997 * THIN : 1;
		for (fault.at = 1; run_with_fault(&fault, &plan, &uncertain); fault.at += stride)
			fault.for_good = !fault.for_good;
	}
}

/* One opening of a file of an earlier version. False when the fault was never met. */
static bool migrate_with_fault(const struct sqlite_fault *fault)
{
	struct store *store = NULL;
	remove_files();
	copy_file("old.db", "links.db");
	sqlite_sys_fail(fault);
	assert_clean_error(store_sqlite_open(path_in_folder("links.db"), &store, NULL));
	store_free(store);
	bool met = sqlite_sys_clear() >= fault->at;
	assert_int_equal(store_sqlite_open(path_in_folder("links.db"), &store, NULL), 0);
	store_version_check(store, STORE_VERSION_LAST);
	store_free(store);
	assert_sound("links.db");
	held_release();
	return met;
}

static void a_file_of_an_earlier_version_survives_a_failure_on_its_way(void **state)
{
	(void)state;
	static const struct {
		struct sqlite_fault fault;
		unsigned long stride;
	} cases[] = {
	    {{.call = SQLITE_SYS_WRITE, .error = ENOSPC}, 1},
	    {{.call = SQLITE_SYS_SYNC, .error = EIO}, 1},
	    {{.call = SQLITE_SYS_READ, .error = EIO}, 1},
	    {{.call = SQLITE_SYS_MALLOC}, 61},
	};
	store_version_make(path_in_folder("old.db"), STORE_VERSION_LAST);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct sqlite_fault fault = cases[i].fault;
		reads_fail = fault.call == SQLITE_SYS_READ;
		for (fault.at = 1; migrate_with_fault(&fault); fault.at += cases[i].stride * THIN)
			fault.for_good = !fault.for_good;
		assert_true(fault.at > cases[i].stride);
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

static unsigned long over_reads(int64_t now_ms, size_t max, size_t count)
{
	uint64_t ids[16];
	struct store *store;
	struct store_over over = {.now_ms = now_ms, .max = max, .ids = ids};
	assert_int_equal(store_sqlite_open(path_in_folder("links.db"), &store, NULL), 0);
	sqlite_sys_fail(&(struct sqlite_fault){.call = SQLITE_SYS_READ, .at = ULONG_MAX});
	assert_int_equal(store_over(store, &over), 0);
	unsigned long reads = sqlite_sys_clear();
	assert_int_equal(over.count, count);
	store_free(store);
	return reads;
}

static void what_is_over_costs_its_own_length(void **state)
{
	(void)state;
	enum { LINKS = 20000 };
	CLEANUP(arena_release) struct arena a = {0};
	struct store *store;
	struct store_write *batch = calloc(LINKS, sizeof(*batch));
	assert_int_equal(store_sqlite_open(path_in_folder("links.db"), &store, NULL), 0);
	for (size_t i = 0; i < LINKS; i++) {
		batch[i] = kit_generated(&a, i + 1);
		batch[i].link.expires_ms = i % 2 ? LINKS - (int64_t)i : 0;
	}
	assert_int_equal(store_apply(store, batch, LINKS), 0);
	free(batch);
	store_free(store);
	assert_in_range(over_reads(LINKS, 10, 10), 1, 12);
	assert_in_range(over_reads(6, 10, 3), 1, 12);
	assert_in_range(over_reads(0, 10, 0), 1, 12);
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
	    DISK_TEST(a_file_of_an_earlier_version_survives_a_failure_on_its_way),
	    DISK_TEST(a_page_of_a_list_costs_its_own_length),
	    DISK_TEST(what_is_over_costs_its_own_length),
	    DISK_TEST(ping_tells_of_a_failed_write_until_one_succeeds),
	    DISK_TEST(a_batch_that_failed_can_be_handed_in_again),
	};
	sqlite_sys_install();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
