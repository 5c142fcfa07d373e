/*
 * A disk that fails under the SQLite store: for every N, the N-th call of a kind fails, once or from then on.
 * What the store said must hold, in the running store once the disk is well and after reopening. What a crash
 * or power loss leaves is tested in tests/unit/client/sqlite_file_fault_test.c.
 */
#include "lib/findings_kit.h"
#include "lib/sqlite_sys.h"
#include "lib/store_kit.h"
#include "lib/store_ledger.h"
#include "lib/store_versions.h"
#include "lib/test.h"
#include "store/backends.h"

#include <limits.h>

int fdatasync(int fd)
{
	return sqlite_sys_fdatasync(fd);
}

enum { BATCHES = 3 };

static bool reads_fail;

static const char *path_in_folder(const char *name)
{
	static char path[TEMP_PATH_BYTES];
	return temp_path(&test_dir, name, path);
}

static int remove_folder(void **state)
{
	sqlite_sys_clear();
	return test_dir_remove(state);
}

static void remove_files(void)
{
	static const char *const names[] = {"links.db", "links.db-wal", "links.db-shm"};
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		unlink(path_in_folder(names[i]));
}

static struct store *must_open(void)
{
	struct store *store = NULL;
	assert_int_equal(store_sqlite_open(path_in_folder("links.db"), &store, NULL), 0);
	return store;
}

static void assert_sound(void)
{
	struct findings_kit found = findings_kit(NULL);
	store_sqlite_check(path_in_folder("links.db"), true, false, NULL, &found.base);
	assert_int_equal(found.base.bad_count, 0);
}

/* SQLite takes an EIO of a read for a damaged disk, and so do we. */
static void assert_clean_error(int r)
{
	assert_true(r == 0 || r == ERR_UNAVAILABLE || r == ERR_UNCERTAIN || r == ERR_NOMEM ||
	            (r == ERR_CORRUPT && reads_fail));
}

static void accounts_under_fault(struct store *store, struct arena *a, uint64_t ids[1])
{
	struct store_expired expired = {.now_ms = KIT_NOW_MS, .max = 1, .ids = ids, .count_all = true};
	struct registry_page page = {.limit = 5, .arena = a};
	struct registry_page keys = {.limit = 5, .arena = a};
	struct user_record user;
	uint64_t *users;
	size_t count;
	assert_clean_error(store_expired(store, &expired));
	assert_clean_error(registry_users(store->registry, &page));
	assert_clean_error(registry_keys(store->registry, &keys));
	assert_clean_error(store_permitted(store, 11, a, &users, &count));
	int r = registry_user(store->registry, 1, STR_NULL, a, &user);
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

static void work(struct ledger *ledger, struct store *store, bool *ret_uncertain)
{
	static const size_t fillers[BATCHES] = {0, 2, 0};
	char constant[4] = "abc";
	for (unsigned b = 1; b <= BATCHES; b++) {
		const struct store_count clicks = {.id = 10ULL * b + 1, .clicks = b};
		const int results[] = {
		    ledger_apply(ledger, store, b, fillers[b - 1]),
		    store_set_clicks(store, 1, &clicks, 1),
		    ledger_lease(ledger, store),
		    registry_constant(store->registry, STR("name"), constant, sizeof(constant)),
		};
		for (size_t i = 0; i < ARRAY_LEN(results); i++) {
			assert_clean_error(results[i]);
			*ret_uncertain |= results[i] == ERR_UNCERTAIN;
		}
		assert_string_equal(constant, "abc");
		read_under_fault(store, ledger, b);
	}
}

/* One run with one fault, from no file on. False when the fault was never met: there are no more calls of its
 * kind. */
static bool run_with_fault(const struct sqlite_fault *fault, bool *ret_uncertain)
{
	struct ledger ledger = {0};
	struct store *store = NULL;
	struct err e = {""};
	remove_files();
	reads_fail = fault->call == SQLITE_SYS_READ;
	sqlite_sys_fail(fault);
	int r = store_sqlite_open(path_in_folder("links.db"), &store, &e);
	if (r == 0) {
		work(&ledger, store, ret_uncertain);
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
		store = must_open();
	assert_int_equal(store_ping(store, &e), 0);
	ledger_check(&ledger, store);
	assert_int_equal(ledger_apply(&ledger, store, BATCHES + 1, 0), 0);
	store_free(store);
	store = must_open();
	ledger_check(&ledger, store);
	store_free(store);
	assert_sound();
	return met;
}

/* True when the store was uncertain at least once. */
static bool sweep(struct sqlite_fault fault, unsigned long stride)
{
	stride = sqlite_sys_stride(stride);
	bool uncertain = false;
	for (int for_good = 0; for_good < 2; for_good++) {
		fault.for_good = for_good;
		for (fault.at = 1; run_with_fault(&fault, &uncertain); fault.at += stride)
			;
		assert_true(fault.at > stride); /* it was met at least once */
	}
	return uncertain;
}

TEST(a_write_that_fails_loses_nothing_that_was_acknowledged)
{
	sweep((struct sqlite_fault){.call = SQLITE_SYS_WRITE, .error = EIO}, 3);
}

TEST(a_full_disk_is_never_uncertain)
{
	assert_false(sweep((struct sqlite_fault){.call = SQLITE_SYS_WRITE, .error = ENOSPC}, 5));
}

TEST(a_sync_that_fails_is_reported_truly)
{
	/* A disk that stays bad leaves no way to find out. */
	assert_true(sweep((struct sqlite_fault){.call = SQLITE_SYS_SYNC, .error = EIO}, 1));
}

TEST(a_read_that_fails_tells_no_lies)
{
	sweep((struct sqlite_fault){.call = SQLITE_SYS_READ, .error = EIO}, 1);
}

TEST(memory_that_runs_out_loses_nothing)
{
	sweep((struct sqlite_fault){.call = SQLITE_SYS_MALLOC}, 61);
}

/* One opening of a file of an earlier version. False when the fault was never met. */
static bool migrate_with_fault(const struct sqlite_fault *fault)
{
	struct store *store = NULL;
	remove_files();
	store_version_make(path_in_folder("links.db"), STORE_VERSION_LAST);
	sqlite_sys_fail(fault);
	assert_clean_error(store_sqlite_open(path_in_folder("links.db"), &store, NULL));
	store_free(store);
	bool met = sqlite_sys_clear() >= fault->at;
	store = must_open();
	store_version_check(store, STORE_VERSION_LAST);
	store_free(store);
	assert_sound();
	return met;
}

TEST(a_file_of_an_earlier_version_survives_a_failure_on_its_way)
{
	static const struct {
		struct sqlite_fault fault;
		unsigned long stride;
	} cases[] = {
	    {{.call = SQLITE_SYS_WRITE, .error = ENOSPC}, 1},
	    {{.call = SQLITE_SYS_SYNC, .error = EIO}, 1},
	    {{.call = SQLITE_SYS_READ, .error = EIO}, 1},
	    {{.call = SQLITE_SYS_MALLOC}, 61},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct sqlite_fault fault = cases[i].fault;
		reads_fail = fault.call == SQLITE_SYS_READ;
		for (fault.at = 1; migrate_with_fault(&fault); fault.at += cases[i].stride)
			fault.for_good = !fault.for_good;
		assert_true(fault.at > cases[i].stride);
	}
}

/* How many pages a store that was just opened reads for one page of a list. */
static unsigned long list_reads(uint64_t owner, struct str cursor, size_t count)
{
	CLEANUP(arena_release) struct arena a = {0};
	struct store *store = must_open();
	struct store_list page = {.owner = owner, .cursor = cursor, .limit = 10, .arena = &a};
	sqlite_sys_fail(&(struct sqlite_fault){.call = SQLITE_SYS_READ, .at = ULONG_MAX});
	assert_int_equal(store_list(store, &page), 0);
	unsigned long reads = sqlite_sys_clear();
	assert_int_equal(page.count, count);
	store_free(store);
	return reads;
}

TEST(a_page_of_a_list_costs_its_own_length)
{
	enum { LINKS = 20000 };
	CLEANUP(arena_release) struct arena a = {0};
	struct store *store = must_open();
	struct store_write *batch = calloc(LINKS, sizeof(*batch));
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
	struct store *store = must_open();
	struct store_expired expired = {.now_ms = now_ms, .max = max, .ids = ids};
	sqlite_sys_fail(&(struct sqlite_fault){.call = SQLITE_SYS_READ, .at = ULONG_MAX});
	assert_int_equal(store_expired(store, &expired), 0);
	unsigned long reads = sqlite_sys_clear();
	assert_int_equal(expired.count, count);
	store_free(store);
	return reads;
}

TEST(what_is_over_costs_its_own_length)
{
	enum { LINKS = 20000 };
	CLEANUP(arena_release) struct arena a = {0};
	struct store *store = must_open();
	struct store_write *batch = calloc(LINKS, sizeof(*batch));
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

static bool log_is_dirty, log_was_written;

static void watch(const struct sqlite_event *event)
{
	if (!str_ends(str_of(event->path), STR("links.db-wal")))
		return;
	log_was_written |= event->kind == SQLITE_EVENT_WRITE;
	log_is_dirty = event->kind == SQLITE_EVENT_WRITE;
}

TEST(what_is_acknowledged_has_been_synced)
{
	struct ledger ledger = {0};
	struct store *store = must_open();
	sqlite_sys_watch(watch);
	for (unsigned b = 1; b < 9; b++) {
		log_was_written = false;
		assert_int_equal(b % 2 ? ledger_apply(&ledger, store, b, 2) : ledger_lease(&ledger, store),
		                 0);
		assert_true(log_was_written);
		assert_false(log_is_dirty);
	}
	sqlite_sys_watch(NULL);
	store_free(store);
}

TEST(a_batch_that_failed_can_be_handed_in_again)
{
	CLEANUP(arena_release) struct arena a = {0};
	struct store *store = must_open();
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

int main(void)
{
	sqlite_sys_install();
	return RUN_TESTS(.setup = test_dir_make, .teardown = remove_folder);
}
