/*
 * A disk that fails under a SQLite file, and power loss. For every N, the N-th system call of a kind fails,
 * once or from then on. What write_end said must hold: in the open file, after reopening, and in what kill -9
 * right after the failure would have left. Then everything SQLite writes and syncs is recorded, and the power
 * goes at many points of that record.
 */
#include "client/sqlite_check.h"
#include "client/sqlite_file.h"
#include "lib/findings_kit.h"
#include "lib/sqlite_sys.h"
#include "lib/test.h"

enum { BATCHES = 7, FILLER_BYTES = 3000, CHECKPOINT_PAGES = 10 };
enum { SQL_ITEM_PUT = SQL_OWN, SQL_ITEM_COUNT, SQL_COUNT };

static const char *const migrations[] = {
    "CREATE TABLE item (batch INTEGER, filler BLOB)",
    "CREATE INDEX item_by_batch ON item (batch)",
};
static const char *const sql[] = {
    [SQL_ITEM_PUT - SQL_OWN] = "INSERT INTO item (batch, filler) VALUES (?, zeroblob(3000))",
    [SQL_ITEM_COUNT - SQL_OWN] = "SELECT count(*), sum(length(filler)) FROM item WHERE batch = ?",
};
#define LAYOUT(synchronous)                                                                           \
	{                                                                                             \
		.application_id = 0x74657374, .migrations = migrations,                               \
		.migration_count = ARRAY_LEN(migrations), .sql = sql, .sql_count = SQL_COUNT,         \
		.writer_pragmas = "PRAGMA synchronous = " synchronous "; PRAGMA cache_size = -2000; " \
		                  "PRAGMA journal_size_limit = 65536"                                 \
	}
static const struct sqlite_layout full = LAYOUT("FULL"), normal = LAYOUT("NORMAL");

/* What was said of each batch, from 1. SETTLED: also after power loss. */
enum said { NOTHING, REFUSED, UNCERTAIN, DONE, SETTLED };
struct ledger {
	enum said batches[BATCHES + 1];
};

static struct temp folder;
static const struct sqlite_layout *layout;
static struct ledger said;
static bool reads_fail;
static bool opens_fail_after_sync;

int fdatasync(int fd)
{
	int r = sqlite_sys_fdatasync(fd);
	if (r != 0 && opens_fail_after_sync)
		sqlite_sys_fail(&(struct sqlite_fault){
		    .call = SQLITE_SYS_OPEN, .at = 1, .for_good = true, .error = EMFILE});
	return r;
}

static unsigned rows_of(unsigned b)
{
	return b % 3 ? 1 : 5;
}

static int open_named(const char *name, struct sqlite_file **ret)
{
	char path[TEMP_PATH_BYTES];
	struct err e = {""};
	const struct sqlite_file_config config = {.path = temp_path(&folder, name, path),
	                                          .layout = layout,
	                                          .checkpoint_pages = CHECKPOINT_PAGES,
	                                          .ping_writes = true};
	int r = sqlite_file_open(&config, ret, &e);
	if (r != 0)
		assert_true(strlen(e.text) > 0);
	return r;
}

static struct sqlite_file *must_open(const char *name)
{
	struct sqlite_file *f = NULL;
	assert_int_equal(open_named(name, &f), 0);
	return f;
}

static int put_rows(struct sqlite_conn *c, unsigned b)
{
	int rc = SQLITE_OK;
	for (unsigned i = 0; rc == SQLITE_OK && i < rows_of(b); i++) {
		CLEANUP(query_end) struct query q = query_begin(c, SQL_ITEM_PUT);
		query_int(&q, b);
		rc = query_run(&q);
	}
	return rc;
}

static int count_rows(struct sqlite_file *f, unsigned b, unsigned *ret)
{
	CLEANUP(sqlite_file_read_end) struct sqlite_read read = sqlite_file_snapshot_begin(f);
	if (read.rc != SQLITE_OK)
		return read.rc;
	CLEANUP(query_end) struct query q = query_begin(read.conn, SQL_ITEM_COUNT);
	query_int(&q, b);
	bool found;
	int rc = query_find(&q, &found);
	if (rc == SQLITE_OK) {
		*ret = (unsigned)sqlite3_column_int(q.stmt, 0);
		assert_int_equal(sqlite3_column_int(q.stmt, 1), *ret * FILLER_BYTES);
	}
	return rc;
}

/* SQLite takes an EIO of a read for a damaged disk, and so do we. */
static void assert_clean_error(int r)
{
	assert_true(r == 0 || r == ERR_UNAVAILABLE || r == ERR_NOMEM || (r == ERR_CORRUPT && reads_fail));
}

/* Of a batch that failed nothing can be seen, uncertain or not. */
static void assert_seen(struct sqlite_file *f, unsigned b)
{
	unsigned count;
	int rc = count_rows(f, b, &count);
	assert_clean_error(sqlite_error(rc));
	if (rc == SQLITE_OK)
		assert_int_equal(count, said.batches[b] >= DONE ? rows_of(b) : 0);
}

static int write_batch(struct sqlite_file *f, unsigned b)
{
	struct sqlite_conn *c;
	int r = sqlite_file_write_begin(f, &c);
	if (r == 0)
		r = sqlite_file_write_end(f, put_rows(c, b));
	if (r != ERR_UNCERTAIN)
		assert_clean_error(r);
	said.batches[b] = r == 0 ? DONE : r == ERR_UNCERTAIN ? UNCERTAIN : REFUSED;
	if (r == 0 && layout == &full)
		said.batches[b] = SETTLED;
	for (unsigned i = 1; r == 0 && i < b; i++)
		if (said.batches[i] == UNCERTAIN)
			said.batches[i] = REFUSED; /* its frames are overwritten */
	return r;
}

static int settle(struct sqlite_file *f)
{
	int r = sqlite_file_settle(f);
	for (unsigned b = 1; r == 0 && b <= BATCHES; b++)
		if (said.batches[b] == DONE)
			said.batches[b] = SETTLED;
	return r;
}

/* After a crash, every batch is there whole or not at all, as was said; nothing committed later than one that
 * power loss took. */
static void check_file(const char *name, const struct ledger *ledger, enum said kept)
{
	char path[TEMP_PATH_BYTES];
	struct findings_kit found = findings_kit(NULL);
	struct sqlite_file *f = must_open(name);
	bool lost = false;
	for (unsigned b = 1; b <= BATCHES; b++) {
		unsigned count;
		assert_int_equal(count_rows(f, b, &count), SQLITE_OK);
		assert_true(count == 0 || count == rows_of(b));
		if (ledger->batches[b] >= kept)
			assert_int_equal(count, rows_of(b));
		if (ledger->batches[b] <= REFUSED)
			assert_int_equal(count, 0);
		if (count > 0)
			assert_false(lost);
		lost |= count == 0 && ledger->batches[b] >= DONE;
	}
	sqlite_file_free(f);
	const struct sqlite_check check = {.layout = layout, .is_deep = true};
	sqlite_check(temp_path(&folder, name, path), &check, &found.base);
	assert_int_equal(found.base.bad_count, 0);
}

/* Files that were read while SQLite had them open: closing one would drop SQLite's locks, so they are closed
 * when the run is over. */
static int held[4];
static size_t held_count;

static void copy_file(const char *from_name, const char *to_name)
{
	static char bytes[1 << 16];
	char path[TEMP_PATH_BYTES];
	ssize_t len;
	int from = open(temp_path(&folder, from_name, path), O_RDONLY);
	if (from < 0)
		return;
	assert_true(held_count < ARRAY_LEN(held));
	held[held_count++] = from;
	int to = open(temp_path(&folder, to_name, path), O_CREAT | O_TRUNC | O_WRONLY, 0600);
	while ((len = read(from, bytes, sizeof(bytes))) > 0)
		assert_int_equal(write(to, bytes, (size_t)len), len);
	close(to);
}

/* --- faults --- */

static struct ledger at_image; /* the ledger at the first failure, when there is an image of the files */
static bool has_image;

static void note(int r)
{
	if (r == 0 || has_image)
		return;
	has_image = true;
	at_image = said;
	copy_file("test.db", "image.db");
	copy_file("test.db-wal", "image.db-wal");
}

static void work(struct sqlite_file *f)
{
	for (unsigned b = 1; b < BATCHES; b++) {
		note(write_batch(f, b));
		assert_seen(f, b);
		if (b % 2 == 0)
			note(settle(f));
		assert_clean_error(sqlite_file_ping(f, NULL));
	}
}

/* One run with one fault. False when the fault was never met. */
static bool run_with_fault(const struct sqlite_fault *fault, bool fresh, bool *ret_uncertain)
{
	struct sqlite_file *f = NULL;
	temp_init(&folder);
	said = (struct ledger){0};
	has_image = false;
	reads_fail = fault->call == SQLITE_SYS_READ;
	if (!fresh)
		f = must_open("test.db");
	sqlite_sys_fail(fault);
	if (fresh)
		assert_clean_error(open_named("test.db", &f));
	else
		work(f);
	if (fault->for_good) { /* the disk is still bad when the file is closed */
		sqlite_file_free(f);
		f = NULL;
	}
	bool met = sqlite_sys_clear() >= fault->at;
	if (!f) /* now recovery has decided */
		f = must_open("test.db");
	assert_int_equal(sqlite_file_ping(f, NULL), 0);
	for (unsigned b = 1; b < BATCHES; b++) {
		unsigned count;
		bool decided = fault->for_good && said.batches[b] == UNCERTAIN;
		*ret_uncertain |= said.batches[b] == UNCERTAIN;
		assert_int_equal(count_rows(f, b, &count), SQLITE_OK);
		if (decided && count > 0)
			said.batches[b] = DONE;
		assert_seen(f, b);
	}
	assert_int_equal(write_batch(f, BATCHES), 0);
	sqlite_file_free(f);
	check_file("test.db", &said, DONE);
	if (has_image)
		check_file("image.db", &at_image, DONE);
	while (held_count > 0)
		close(held[--held_count]);
	temp_release(&folder);
	return met;
}

/* Both while the file is made, then while it is worked with, with either kind of durability. */
static bool sweep(struct sqlite_fault fault, unsigned long stride)
{
	stride = sqlite_sys_stride(stride);
	bool uncertain = false;
	for (unsigned i = 0; i < 8; i++) {
		layout = i & 1 ? &full : &normal;
		fault.for_good = i & 2;
		for (fault.at = 1; run_with_fault(&fault, i & 4, &uncertain); fault.at += stride)
			;
		assert_true(fault.at > 1 || (fault.call == SQLITE_SYS_OPEN && !(i & 4)));
	}
	return uncertain;
}

TEST(a_write_that_fails_loses_nothing_that_was_acknowledged)
{
	sweep((struct sqlite_fault){.call = SQLITE_SYS_WRITE, .error = EIO}, 1);
}

TEST(a_full_disk_loses_nothing_and_is_never_uncertain)
{
	assert_false(sweep((struct sqlite_fault){.call = SQLITE_SYS_WRITE, .error = ENOSPC}, 3));
	assert_false(
	    sweep((struct sqlite_fault){.call = SQLITE_SYS_WRITE, .error = ENOSPC, .half = true}, 5));
}

TEST(a_sync_that_fails_is_reported_truly)
{
	/* A disk that stays bad leaves no way to find out. */
	assert_true(sweep((struct sqlite_fault){.call = SQLITE_SYS_SYNC, .error = EIO}, 1));
}

TEST(an_open_that_fails_loses_nothing)
{
	sweep((struct sqlite_fault){.call = SQLITE_SYS_OPEN, .error = EMFILE}, 1);
}

TEST(a_writer_that_cannot_be_opened_again_loses_nothing)
{
	bool uncertain = false;
	opens_fail_after_sync = true;
	layout = &full;
	struct sqlite_fault fault = {.call = SQLITE_SYS_SYNC, .error = EIO};
	for (fault.at = 1; fault.at < 40; fault.at++)
		run_with_fault(&fault, false, &uncertain);
	opens_fail_after_sync = false;
	assert_true(uncertain);
}

TEST(a_read_that_fails_loses_nothing)
{
	sweep((struct sqlite_fault){.call = SQLITE_SYS_READ, .error = EIO}, 2);
}

TEST(a_truncation_that_fails_loses_nothing)
{
	sweep((struct sqlite_fault){.call = SQLITE_SYS_TRUNCATE, .error = EIO}, 1);
}

TEST(memory_that_runs_out_loses_nothing)
{
	sweep((struct sqlite_fault){.call = SQLITE_SYS_MALLOC}, 61);
}

static void ping_reports(bool ping_writes, int checkpoint_pages, unsigned long failing_sync,
                         const char *words)
{
	struct sqlite_file *f;
	struct err e = {""};
	char path[TEMP_PATH_BYTES];
	temp_init(&folder);
	layout = &full;
	const struct sqlite_file_config config = {.path = temp_path(&folder, "test.db", path),
	                                          .layout = layout,
	                                          .checkpoint_pages = checkpoint_pages,
	                                          .ping_writes = ping_writes};
	assert_int_equal(sqlite_file_open(&config, &f, NULL), 0);
	assert_int_equal(write_batch(f, 1), 0);
	sqlite_sys_fail(&(struct sqlite_fault){
	    .call = SQLITE_SYS_SYNC, .at = failing_sync, .for_good = true, .error = EIO});
	write_batch(f, 2);
	assert_int_equal(sqlite_file_ping(f, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, path));
	assert_non_null(strstr(e.text, words));
	assert_int_equal(sqlite_file_settle(f), ERR_UNAVAILABLE);
	sqlite_sys_clear();
	if (checkpoint_pages > 1 && !ping_writes) {
		assert_int_equal(sqlite_file_ping(f, NULL), ERR_UNAVAILABLE);
		assert_int_equal(write_batch(f, 3), 0);
	}
	assert_int_equal(sqlite_file_ping(f, NULL), 0);
	sqlite_file_free(f);
	temp_release(&folder);
}

TEST(ping_reports_a_failure_until_a_success)
{
	ping_reports(true, 1000, 1, "the last write failed");
	ping_reports(false, 1000, 1, "the last write failed");
	/* The log's header and the commit have been synced; now the checkpoint syncs. */
	ping_reports(false, 1, 3, "moving the log into the file failed");
}

/* --- power loss --- */

enum { OPERATIONS_MAX = 2000, RANDOM_POINTS = 100 };
enum file { FILE_DB, FILE_WAL, FILE_JOURNAL, FILE_COUNT };
static const char *const names[FILE_COUNT] = {"test.db", "test.db-wal", "test.db-journal"};

struct operation {
	int kind; /* of struct sqlite_event */
	enum file file;
	size_t at;
	size_t len;
	char *data;
	size_t settled;     /* the operation that puts it on the disk for certain */
	struct ledger said; /* before this operation */
};

/* A file on the disk; absent when `data` is NULL. */
struct disk_file {
	char *data;
	size_t len;
	size_t cap;
};

static struct operation *operations;
static size_t operation_count;
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
	enum file file = FILE_DB;
	while (file < FILE_COUNT && !str_ends(path, str_of(names[file])))
		file++;
	if (file == FILE_COUNT)
		return; /* nobody trusts the index after a restart; SQLite syncs folders as it sees fit */
	assert_true(operation_count < OPERATIONS_MAX);
	struct operation *op = &operations[operation_count++];
	*op = (struct operation){
	    .kind = (int)event->kind, .file = file, .at = (size_t)event->at, .len = event->len, .said = said};
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
static void operations_settle(void)
{
	size_t next[FILE_COUNT] = {operation_count, operation_count, operation_count};
	for (size_t i = operation_count; i > 0; i--) {
		struct operation *op = &operations[i - 1];
		op->settled = op->kind == SQLITE_EVENT_UNLINK ? i - 1 : next[op->file];
		if (op->kind == SQLITE_EVENT_SYNC || op->kind == SQLITE_EVENT_UNLINK)
			next[op->file] = i - 1;
	}
}

/* The disk when the power goes before operation `point`: what was synced is there; of what was written since,
 * any part may be, also half of a write. */
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

static void lose_power_at(size_t point)
{
	struct disk_file disk[FILE_COUNT] = {{0}};
	disk_at(point, disk);
	temp_init(&folder);
	for (size_t i = 0; i < FILE_COUNT; i++) {
		char path[TEMP_PATH_BYTES];
		if (!disk[i].data)
			continue;
		int fd = open(temp_path(&folder, names[i], path), O_CREAT | O_EXCL | O_WRONLY, 0600);
		assert_int_equal(write(fd, disk[i].data, disk[i].len), disk[i].len);
		close(fd);
		free(disk[i].data);
	}
	struct ledger ledger = point < operation_count ? operations[point].said : said;
	for (unsigned b = 1; b <= BATCHES; b++) {
		if (ledger.batches[b] == NOTHING) { /* this one was under way */
			ledger.batches[b] = UNCERTAIN;
			break;
		}
	}
	check_file("test.db", &ledger, SETTLED);
	temp_release(&folder);
}

/* On the way the log is moved into the file, begun anew, and the file is closed and opened. */
static void record_work(void)
{
	temp_init(&folder);
	said = (struct ledger){0};
	operation_count = 0;
	sqlite_sys_watch(record);
	struct sqlite_file *f = must_open("test.db");
	for (unsigned b = 1; b <= BATCHES; b++) {
		assert_int_equal(write_batch(f, b), 0);
		if (b == 5)
			assert_int_equal(settle(f), 0);
		if (b == 6) {
			sqlite_file_free(f);
			f = must_open("test.db");
		}
	}
	sqlite_file_free(f);
	sqlite_sys_watch(NULL);
	operations_settle();
	temp_release(&folder);
}

TEST(what_is_safe_survives_power_loss)
{
	operations = calloc(OPERATIONS_MAX, sizeof(*operations));
	for (int i = 0; i < 2; i++) {
		size_t syncs = 0, moved = 0;
		layout = i ? &full : &normal;
		record_work();
		for (size_t k = 0; k < operation_count; k++) {
			if (operations[k].kind != SQLITE_EVENT_SYNC)
				continue;
			moved += operations[k].file == FILE_DB;
			syncs++;
			lose_power_at(k);
			lose_power_at(k + 1);
		}
		assert_true(moved >= 4);
		assert_true(layout == &normal || syncs - moved > BATCHES); /* one for each batch */
		for (size_t k = 0; k < RANDOM_POINTS; k++)
			lose_power_at(random_below(operation_count + 1));
		for (size_t k = 0; k < operation_count; k++)
			free(operations[k].data);
	}
	free(operations);
}

int main(void)
{
	sqlite_sys_install();
	return RUN_TESTS();
}
