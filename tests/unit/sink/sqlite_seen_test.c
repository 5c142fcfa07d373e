#include "lib/test.h"
#include "os/file.h"
#include "sink/sqlite_seen.h"

static const int64_t start_ms = 1790000000000, window_ms = 24 * 60000;

static struct temp folder;
static struct sqlite_conn conn;
static struct seen_index seen;

static int setup(void **state)
{
	char path[TEMP_PATH_BYTES];
	temp_init(&folder);
	temp_path(&folder, "stats.db", path);
	file_write_atomic(path, STR(""), 0600, NULL);
	seen_init(&seen, window_ms);
	return sqlite_conn_open_writer(&conn, &stats_file_layout, path, NULL);
}

static int teardown(void **state)
{
	seen_release(&seen);
	sqlite_conn_close(&conn);
	temp_release(&folder);
	return 0;
}

static struct seen_entry entry(uint64_t number, int64_t received_ms)
{
	struct sink_impression i = {.received_ms = received_ms};
	uint64_t spread = number * 0x9e3779b97f4a7c15u;
	memcpy(i.fingerprint, &spread, 8);
	memcpy(i.fingerprint + 8, &number, 4);
	return seen_entry_of(&i);
}

static bool has(uint64_t number, int64_t received_ms)
{
	struct seen_entry e = entry(number, received_ms);
	bool found;
	assert_int_equal(seen_check(&seen, &conn, &e, 1, &found), SQLITE_OK);
	return found;
}

static struct seen_entry *entries_of(uint64_t first, size_t count, int64_t received_ms)
{
	struct seen_entry *entries = malloc(count * sizeof(*entries));
	assert_non_null(entries);
	for (size_t i = 0; i < count; i++)
		entries[i] = entry(first + i, received_ms);
	return entries;
}

static void begin_and_add(const struct seen_entry *entries, size_t count)
{
	assert_int_equal(sqlite_conn_run(&conn, SQL_BEGIN_WRITE), SQLITE_OK);
	assert_int_equal(seen_add(&seen, &conn, entries, count), SQLITE_OK);
}

static void add(uint64_t first, size_t count, int64_t received_ms)
{
	struct seen_entry *entries = entries_of(first, count, received_ms);
	begin_and_add(entries, count);
	assert_int_equal(sqlite_conn_run(&conn, SQL_COMMIT), SQLITE_OK);
	assert_int_equal(seen_committed(&seen), SQLITE_OK);
	free(entries);
}

TEST(a_fingerprint_is_seen_until_the_window_is_over)
{
	assert_false(has(1, start_ms));
	add(1, 1, start_ms);
	assert_true(has(1, start_ms));
	assert_true(has(1, start_ms + window_ms - 1));
	assert_false(has(1, start_ms + window_ms));
	assert_true(has(1, start_ms - window_ms + 1));
	assert_false(has(1, start_ms - window_ms));
	assert_false(has(2, start_ms));
}

TEST(a_full_table_is_sealed_and_still_known)
{
	enum { ENTRIES = 3000 };
	seen.seal_at = ENTRIES;
	add(0, ENTRIES, start_ms);
	assert_int_equal(seen.run_count, 0);
	add(ENTRIES, 5, start_ms + 1);
	assert_int_equal(seen.run_count, 1);
	assert_int_equal(seen.table.count, 5);
	for (uint64_t i = 0; i < ENTRIES + 5; i++)
		assert_true(has(i, start_ms + 2));
	for (uint64_t i = ENTRIES + 5; i < 3 * ENTRIES; i++)
		assert_false(has(i, start_ms + 2));
	assert_true(has(7, start_ms + window_ms - 1));
	assert_false(has(7, start_ms + window_ms));
}

TEST(a_table_that_spans_too_long_is_sealed)
{
	add(1, 1, start_ms);
	add(2, 1, start_ms + window_ms / 24);
	add(3, 1, start_ms + window_ms / 24 + 1);
	assert_int_equal(seen.run_count, 0);
	add(4, 1, start_ms + window_ms / 24 + 2);
	assert_int_equal(seen.run_count, 1);
	assert_int_equal(seen.table.count, 1);
}

TEST(everything_is_known_after_loading)
{
	seen.seal_at = 500;
	for (uint64_t i = 0; i < 20; i++)
		add(i * 100, 100, start_ms + (int64_t)i);
	size_t runs = seen.run_count, count = seen.table.count;
	assert_true(runs >= 3 && count > 0);
	for (int round = 0; round < 2; round++) { /* the second time over what is there */
		assert_int_equal(seen_load(&seen, &conn), SQLITE_OK);
		assert_int_equal(seen.run_count, runs);
		assert_int_equal(seen.table.count, count);
		for (uint64_t i = 0; i < 2000; i++)
			assert_true(has(i, start_ms + 100));
		for (uint64_t i = 2000; i < 4000; i++)
			assert_false(has(i, start_ms + 100));
	}
}

TEST(a_rollback_leaves_everything_as_it_was)
{
	for (int sealing = 0; sealing < 2; sealing++) {
		seen.seal_at = sealing ? 1 : SEEN_SEAL_AT;
		if (!sealing)
			add(0, 50, start_ms);
		struct seen_entry *entries = entries_of(1000, 50, start_ms);
		begin_and_add(entries, 50);
		assert_int_equal(seen.sealing, sealing);
		assert_int_equal(sqlite_conn_run(&conn, SQL_ROLLBACK), SQLITE_OK);
		seen_rolled_back(&seen);
		free(entries);
		assert_int_equal(seen.run_count, 0);
		assert_int_equal(seen.table.count, 50);
		assert_true(has(49, start_ms));
		assert_false(has(1000, start_ms));
		assert_int_equal(seen_load(&seen, &conn), SQLITE_OK);
		assert_int_equal(seen.table.count, 50);
		assert_false(has(1000, start_ms));
	}
	add(1000, 1, start_ms); /* and the next one works */
	assert_true(has(1000, start_ms) && has(49, start_ms));
	assert_int_equal(seen.run_count, 1);
}

TEST(entries_that_share_their_first_bytes_are_distinguished)
{
	enum { ENTRIES = 1000 };
	struct seen_entry *entries = calloc(ENTRIES, sizeof(*entries));
	for (unsigned i = 0; i < ENTRIES; i++) {
		struct sink_impression impression = {.received_ms = start_ms};
		uint32_t odd = 2 * i + 1;
		memcpy(impression.fingerprint + 6, &odd, sizeof(odd));
		entries[i] = seen_entry_of(&impression);
	}
	seen.seal_at = ENTRIES;
	begin_and_add(entries, ENTRIES);
	assert_int_equal(sqlite_conn_run(&conn, SQL_COMMIT), SQLITE_OK);
	assert_int_equal(seen_committed(&seen), SQLITE_OK);
	add(1, 1, start_ms);
	assert_int_equal(seen.run_count, 1);
	for (unsigned i = 0; i < ENTRIES; i++) {
		bool found;
		assert_int_equal(seen_check(&seen, &conn, &entries[i], 1, &found), SQLITE_OK);
		assert_true(found);
		entries[i].fingerprint[6]++; /* even: nobody has it */
		assert_int_equal(seen_check(&seen, &conn, &entries[i], 1, &found), SQLITE_OK);
		assert_false(found);
	}
	free(entries);
}

static bool drop(int64_t horizon_ms)
{
	bool more;
	int64_t run;
	assert_int_equal(sqlite_conn_run(&conn, SQL_BEGIN_WRITE), SQLITE_OK);
	assert_int_equal(seen_drop(&seen, &conn, horizon_ms, &more, &run), SQLITE_OK);
	assert_int_equal(sqlite_conn_run(&conn, SQL_COMMIT), SQLITE_OK);
	if (run)
		seen_dropped(&seen, run);
	return more;
}

static int64_t rows_in(const char *table)
{
	char sql[64];
	sqlite3_stmt *stmt;
	snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s", table);
	assert_int_equal(sqlite3_prepare_v2(conn.db, sql, -1, &stmt, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
	int64_t count = sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	return count;
}

TEST(a_run_is_dropped_when_nobody_can_repeat_it)
{
	seen.seal_at = 1;
	add(0, 60000, start_ms);
	add(60000, 10, start_ms + 5);
	add(70000, 1, start_ms + 6);
	assert_int_equal(seen.run_count, 2);
	assert_false(drop(start_ms + window_ms - 1));
	assert_true(has(5, start_ms + window_ms - 1));
	unsigned steps = 0;
	while (drop(start_ms + window_ms))
		steps++;
	assert_true(steps > 1); /* 300 chunks are too many for one */
	assert_int_equal(seen.run_count, 1);
	assert_int_equal(rows_in("seen_run"), 1);
	assert_int_equal(rows_in("seen_chunk"), 1);
	assert_true(has(60001, start_ms + window_ms));
	assert_int_equal(seen_load(&seen, &conn), SQLITE_OK);
	assert_int_equal(seen.run_count, 1);
}

TEST(few_chunks_are_read_for_what_was_never_seen)
{
	enum { ENTRIES = 50000 };
	seen.seal_at = ENTRIES;
	add(0, ENTRIES, start_ms);
	add(ENTRIES, 1, start_ms);
	struct seen_entry *entries = entries_of(10 * ENTRIES, ENTRIES, start_ms);
	bool *found = calloc(ENTRIES, sizeof(*found));
	assert_int_equal(seen_check(&seen, &conn, entries, ENTRIES, found), SQLITE_OK);
	for (unsigned i = 0; i < ENTRIES; i++)
		assert_false(found[i]);
	int runs = sqlite3_stmt_status(conn.stmts[SQL_SEEN_CHUNK_AT], SQLITE_STMTSTATUS_RUN, 0);
	assert_in_range(runs, 0, ENTRIES / 100);
	free(entries);
	free(found);
}

TEST_MAIN(.setup = setup, .teardown = teardown)
