/*
 * Power loss under the SQLite store. Everything that SQLite writes and syncs is recorded. Then the power goes
 * at many points of that record: what was synced is on the disk; of what was written since, any part may be,
 * also half of a write. Whatever was acknowledged before must be there, and every batch whole or not at all.
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

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Under the thread sanitizer, which has nothing to find in one thread, a few points will do. */
#ifdef __SANITIZE_THREAD__
enum { THIN = 6 };
#else
enum { THIN = 1 };
#endif

enum { BATCHES = 14, OPERATIONS_MAX = 20000, RANDOM_POINTS = 60 / THIN };

int fdatasync(int fd)
{
	return sqlite_sys_fdatasync(fd);
}

enum file { FILE_DB, FILE_WAL, FILE_JOURNAL, FILE_COUNT };
static const char *const suffixes[FILE_COUNT] = {"", "-wal", "-journal"};

struct operation {
	int kind; /* of struct sqlite_event */
	enum file file;
	size_t at;
	size_t len;
	char *data;
	size_t settled;     /* the operation that puts it on the disk for certain */
	struct ledger said; /* by the store, before this operation */
};

/* A file on the disk; absent when `data` is NULL. */
struct disk_file {
	char *data;
	size_t len;
	size_t cap;
};

static char folder[KIT_PATH_BYTES];
static struct operation *operations;
static size_t operation_count;
static struct ledger said; /* so far */
static uint64_t randomness = 88172645463325252ULL;

static uint64_t random_below(uint64_t bound)
{
	randomness ^= randomness << 13;
	randomness ^= randomness >> 7;
	randomness ^= randomness << 17;
	return randomness % bound;
}

static void record(const struct sqlite_event *event)
{
	struct str path = str_of(event->path);
	if (str_ends(path, STR("-shm")) || !strstr(event->path, "links.db"))
		return; /* nobody trusts the index after a restart; folders are synced as SQLite sees fit */
	assert_true(operation_count < OPERATIONS_MAX);
	struct operation *op = &operations[operation_count++];
	*op = (struct operation){.kind = (int)event->kind,
	                         .file = str_ends(path, STR("-wal"))       ? FILE_WAL
	                                 : str_ends(path, STR("-journal")) ? FILE_JOURNAL
	                                                                   : FILE_DB,
	                         .at = (size_t)event->at,
	                         .len = event->len,
	                         .said = said};
	if (event->len > 0) {
		op->data = malloc(event->len);
		memcpy(op->data, event->data, event->len);
	}
}

static void resize(struct disk_file *f, size_t len)
{
	if (len > f->cap || !f->data) {
		f->cap = len * 2 + 1;
		f->data = realloc(f->data, f->cap);
		if (!f->data)
			abort();
	}
	if (len > f->len)
		memset(f->data + f->len, 0, len - f->len);
	f->len = len;
}

static void perform(struct disk_file *f, const struct operation *op, size_t len)
{
	if (op->kind == SQLITE_EVENT_TRUNCATE) {
		resize(f, op->at);
	} else if (op->kind == SQLITE_EVENT_UNLINK) {
		free(f->data);
		*f = (struct disk_file){0};
	} else if (op->kind == SQLITE_EVENT_WRITE && len > 0) {
		resize(f, MAX(f->len, op->at + len));
		memcpy(f->data + op->at, op->data, len);
	}
}

/* For each operation, the one from which on it is on the disk for certain. */
static void settle(void)
{
	size_t next[FILE_COUNT] = {operation_count, operation_count, operation_count};
	for (size_t i = operation_count; i > 0; i--) {
		struct operation *op = &operations[i - 1];
		op->settled = op->kind == SQLITE_EVENT_UNLINK ? i - 1 : next[op->file];
		if (op->kind == SQLITE_EVENT_SYNC || op->kind == SQLITE_EVENT_UNLINK)
			next[op->file] = i - 1;
	}
}

/* The disk when the power goes before operation `point`. */
static void disk_at(size_t point, struct disk_file disk[FILE_COUNT])
{
	bool synced[FILE_COUNT] = {true, true, true};
	size_t lose_in_8 = random_below(9); /* none to all of what was not synced */
	for (size_t i = 0; i < point; i++) {
		const struct operation *op = &operations[i];
		struct disk_file *f = &disk[op->file];
		if (op->kind == SQLITE_EVENT_SYNC)
			continue;
		if (synced[op->file] && op->settled >= point)
			synced[op->file] = false; /* nor is anything after it */
		if (op->kind == SQLITE_EVENT_UNLINK)
			synced[op->file] = true;
		if (synced[op->file])
			perform(f, op, op->len);
		else if (random_below(8) >= lose_in_8)
			perform(f, op, random_below(4) ? op->len : op->len * random_below(8) / 8);
	}
}

static void disk_write(const struct disk_file disk[FILE_COUNT])
{
	kit_folder_remove(folder);
	assert_int_equal(mkdir(folder, 0700), 0);
	for (size_t i = 0; i < FILE_COUNT; i++) {
		char path[KIT_PATH_BYTES + 32];
		snprintf(path, sizeof(path), "%s/links.db%s", folder, suffixes[i]);
		if (!disk[i].data)
			continue;
		int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
		assert_true(fd >= 0);
		assert_int_equal(write(fd, disk[i].data, disk[i].len), disk[i].len);
		close(fd);
	}
}

static struct store *store_open(void)
{
	char path[KIT_PATH_BYTES + 32];
	struct store *store = NULL;
	struct err e = {""};
	snprintf(path, sizeof(path), "%s/links.db", folder);
	if (store_sqlite_open(path, &store, &e) != 0)
		print_error("%s\n", e.text);
	assert_non_null(store);
	return store;
}

static void lose_power_at(size_t point)
{
	struct disk_file disk[FILE_COUNT] = {{0}};
	disk_at(point, disk);
	disk_write(disk);
	for (size_t i = 0; i < FILE_COUNT; i++)
		free(disk[i].data);
	struct ledger ledger = point < operation_count ? operations[point].said : said;
	for (unsigned b = 1; b < LEDGER_BATCHES; b++) {
		if (ledger.batches[b] == LEDGER_NOTHING) { /* this one was under way */
			ledger.batches[b] = LEDGER_UNCERTAIN;
			break;
		}
	}
	struct store *store = store_open();
	ledger_check(&ledger, store);
	store_free(store);
}

/* The log is moved into the file twice on the way; the store is closed and opened in between. */
static void record_work(void)
{
	operations = calloc(OPERATIONS_MAX, sizeof(*operations));
	sqlite_sys_watch(record);
	struct store *store = store_open();
	for (unsigned b = 1; b <= BATCHES; b++) {
		assert_int_equal(ledger_apply(&said, store, b, b % 2 ? 130 : 0), 0);
		assert_int_equal(ledger_lease(&said, store), 0);
		if (b == BATCHES - 2) {
			store_free(store);
			store = store_open();
		}
	}
	store_free(store);
	sqlite_sys_watch(NULL);
	settle();
}

static void acknowledged_batches_survive_power_loss_whole(void **state)
{
	(void)state;
	record_work();
	size_t syncs = 0, moved = 0;
	for (size_t i = 0; i < operation_count; i++) {
		moved += operations[i].file == FILE_DB && operations[i].kind == SQLITE_EVENT_SYNC;
		if (operations[i].kind != SQLITE_EVENT_SYNC)
			continue;
		if (syncs++ % THIN)
			continue;
		lose_power_at(i);
		lose_power_at(i + 1);
	}
	assert_true(syncs / 2 > BATCHES); /* each was acknowledged after a sync of its own */
	assert_true(moved >= 4);
	for (size_t i = 0; i < RANDOM_POINTS; i++)
		lose_power_at(random_below(operation_count + 1));
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
	kit_folder_remove(folder);
	for (size_t i = 0; i < operation_count; i++)
		free(operations[i].data);
	free(operations);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(acknowledged_batches_survive_power_loss_whole, make_folder,
	                                    remove_folder),
	};
	sqlite_sys_install();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
