/* A SQLite file's life on a good disk: which files it takes, its mode and lock, its readers, and its log. */
#include "client/sqlite_file.h"
#include "lib/test.h"
#include "os/file.h"

enum { SQL_ITEM_PUT = SQL_OWN, SQL_ITEM_COUNT, SQL_ITEM_LAST, SQL_COUNT };

static const char *const migrations[] = {"CREATE TABLE item (filler BLOB)"};
static const char *const sql[] = {
    [SQL_ITEM_PUT - SQL_OWN] = "INSERT INTO item (filler) VALUES (zeroblob(3000))",
    [SQL_ITEM_COUNT - SQL_OWN] = "SELECT count(*) FROM item",
    [SQL_ITEM_LAST - SQL_OWN] = "SELECT max(rowid) FROM item",
};
static const struct sqlite_layout layout = {.application_id = 0x74657374,
                                            .migrations = migrations,
                                            .migration_count = ARRAY_LEN(migrations),
                                            .sql = sql,
                                            .sql_count = SQL_COUNT,
                                            .writer_pragmas = "PRAGMA synchronous = FULL"};

static struct temp folder;
static char path[TEMP_PATH_BYTES];
static struct err error;

static int setup(void **state)
{
	temp_init(&folder);
	temp_path(&folder, "test.db", path);
	error.text[0] = '\0';
	return 0;
}

static int teardown(void **state)
{
	temp_release(&folder);
	return 0;
}

static int open_path(const char *name, struct sqlite_file **ret)
{
	const struct sqlite_file_config config = {.path = name, .layout = &layout, .checkpoint_pages = 100};
	*ret = NULL;
	return sqlite_file_open(&config, ret, &error);
}

static struct sqlite_file *must_open(void)
{
	struct sqlite_file *f;
	if (open_path(path, &f) != 0)
		print_error("%s\n", error.text);
	assert_non_null(f);
	return f;
}

static int put(struct sqlite_file *f, int rows)
{
	struct sqlite_conn *c;
	int r = sqlite_file_write_begin(f, &c), rc = SQLITE_OK;
	if (r != 0)
		return r;
	for (int i = 0; rc == SQLITE_OK && i < rows; i++)
		rc = sqlite_conn_run(c, SQL_ITEM_PUT);
	return sqlite_file_write_end(f, rc);
}

static int64_t number(struct sqlite_conn *c, unsigned statement)
{
	CLEANUP(query_end) struct query q = query_begin(c, statement);
	return query_step(&q) == SQLITE_ROW ? sqlite3_column_int64(q.stmt, 0) : -1;
}

static int64_t count(struct sqlite_conn *c)
{
	return number(c, SQL_ITEM_COUNT);
}

static int64_t count_now(struct sqlite_file *f)
{
	CLEANUP(sqlite_file_read_end) struct sqlite_read read = sqlite_file_read_begin(f);
	return count(read.conn);
}

/* --- which files it takes --- */

static void file_write(const void *bytes, size_t len)
{
	assert_int_equal(file_write_atomic(path, str_n(bytes, len), 0600, NULL), 0);
}

static void file_sql(const char *text)
{
	sqlite3 *db;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* Opening must fail with a sentence that has these words, and change nothing. */
static void assert_refused(const char *words)
{
	CLEANUP(buf_release) struct buf before = {0}, after = {0};
	struct sqlite_file *f;
	assert_int_equal(file_read(path, 1 << 20, &before, NULL), 0);
	assert_int_equal(open_path(path, &f), ERR_INVALID);
	assert_null(f);
	assert_non_null(strstr(error.text, words));
	assert_non_null(strstr(error.text, path));
	assert_int_equal(file_read(path, 1 << 20, &after, NULL), 0);
	assert_true(str_eq(buf_view(&before), buf_view(&after)));
}

TEST(a_file_of_a_newer_version_is_refused)
{
	sqlite_file_free(must_open());
	file_sql("PRAGMA user_version = 1000");
	assert_refused("newer version");
}

TEST(a_file_that_is_no_database_is_refused)
{
	char bytes[9000];
	memset(bytes, 'x', sizeof(bytes));
	file_write(bytes, sizeof(bytes));
	assert_refused("not a SQLite database");
	file_write("short", 5);
	assert_refused("not a SQLite database");
}

TEST(a_database_of_another_program_is_refused)
{
	file_sql("CREATE TABLE item (id INTEGER PRIMARY KEY)");
	assert_refused("another program");
	file_sql("PRAGMA user_version = 1");
	assert_refused("another program");
	file_sql("PRAGMA application_id = 12345");
	assert_refused("another program");
	file_sql("DROP TABLE item");
	assert_refused("another program");
}

TEST(an_empty_file_gets_its_layout)
{
	file_write("", 0);
	struct sqlite_file *f = must_open();
	assert_int_equal(sqlite_file_ping(f, NULL), 0);
	assert_int_equal(put(f, 1), 0);
	sqlite_file_free(f);
}

TEST(a_file_that_is_open_cannot_be_opened_again)
{
	struct sqlite_file *f = must_open(), *second;
	assert_int_equal(open_path(path, &second), ERR_BUSY);
	assert_non_null(strstr(error.text, path));
	assert_non_null(strstr(error.text, "in use"));
	sqlite_file_free(f);
	sqlite_file_free(must_open());
}

TEST(a_folder_that_is_not_there_is_named)
{
	struct sqlite_file *f;
	temp_path(&folder, "none/test.db", path);
	assert_int_equal(open_path(path, &f), ERR_UNAVAILABLE);
	assert_non_null(strstr(error.text, path));
	assert_non_null(strstr(error.text, "No such file"));
	assert_int_equal(mkdir(temp_path(&folder, "folder.db", path), 0700), 0);
	assert_int_equal(open_path(path, &f), ERR_UNAVAILABLE);
}

TEST(names_that_mean_something_to_sqlite_are_plain_names)
{
	static const char *const names[] = {":memory:", "file:links?mode=memory"};
	char before[4096];
	assert_non_null(getcwd(before, sizeof(before)));
	assert_int_equal(chdir(folder.path), 0);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct sqlite_file *f;
		struct stat st;
		assert_int_equal(open_path(names[i], &f), 0);
		sqlite_file_free(f);
		assert_int_equal(stat(names[i], &st), 0);
		assert_true(st.st_size > 0);
	}
	assert_int_equal(chdir(before), 0);
}

static off_t size_of(const char *name, mode_t *ret_mode)
{
	char full[TEMP_PATH_BYTES];
	struct stat st;
	if (stat(temp_path(&folder, name, full), &st) != 0)
		return -1;
	*ret_mode = st.st_mode & 0777;
	return st.st_size;
}

TEST(what_is_stored_is_for_its_owner_only_and_a_clean_close_leaves_one_file)
{
	static const char *const names[] = {"test.db", "test.db-wal", "test.db-shm"};
	mode_t mode;
	struct sqlite_file *f = must_open();
	assert_int_equal(put(f, 10), 0);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		assert_true(size_of(names[i], &mode) > 0);
		assert_int_equal(mode, 0600);
	}
	sqlite_file_free(f);
	assert_int_equal(size_of("test.db-wal", &mode), -1);
	f = must_open();
	assert_int_equal(count_now(f), 10);
	sqlite_file_free(f);
}

/* --- reads and writes --- */

TEST(a_snapshot_stays_and_single_reads_see_each_commit)
{
	struct sqlite_file *f = must_open();
	{
		CLEANUP(sqlite_file_read_end) struct sqlite_read snapshot = sqlite_file_snapshot_begin(f);
		CLEANUP(sqlite_file_read_end) struct sqlite_read read = sqlite_file_read_begin(f);
		assert_int_equal(count(snapshot.conn), 0);
		assert_int_equal(put(f, 3), 0);
		assert_int_equal(count(snapshot.conn), 0);
		assert_int_equal(count(read.conn), 3);
	}
	assert_int_equal(count_now(f), 3); /* with the connection that had the snapshot */
	struct sqlite_read last = sqlite_file_read_begin(f);
	assert_int_equal(sqlite_conn_run(last.conn, SQL_ITEM_PUT), SQLITE_READONLY);
	sqlite_file_read_end(&last);
	sqlite_file_free(f);
}

TEST(a_transaction_that_failed_is_rolled_back)
{
	struct sqlite_file *f = must_open();
	struct sqlite_conn *c;
	assert_int_equal(sqlite_file_write_begin(f, &c), 0);
	assert_int_equal(sqlite_conn_run(c, SQL_ITEM_PUT), SQLITE_OK);
	assert_int_equal(sqlite_file_write_end(f, SQLITE_NOMEM), ERR_NOMEM);
	assert_int_equal(count_now(f), 0);
	assert_int_equal(sqlite_file_ping(f, &error), ERR_UNAVAILABLE);
	assert_int_equal(put(f, 0), 0); /* writes nothing, so it proves nothing */
	assert_int_equal(sqlite_file_ping(f, &error), ERR_UNAVAILABLE);
	assert_int_equal(put(f, 1), 0);
	assert_int_equal(sqlite_file_ping(f, &error), 0);
	sqlite_file_free(f);
}

static atomic_int phase;

static void *read_slowly(void *f)
{
	CLEANUP(sqlite_file_read_end) struct sqlite_read read = sqlite_file_snapshot_begin(f);
	atomic_store(&phase, 1);
	usleep(20000); /* the file is freed meanwhile; if later, the test shows less and still passes */
	if (count(read.conn) != 2)
		abort();
	atomic_store(&phase, 2);
	return NULL;
}

static _Atomic pid_t reader_id;

static void *count_two(void *f)
{
	atomic_store(&reader_id, gettid());
	if (count_now(f) != 2)
		abort();
	atomic_store(&phase, 1);
	return NULL;
}

TEST(a_read_waits_while_all_readers_are_lent_out)
{
	struct sqlite_read reads[SQLITE_FILE_READERS];
	pthread_t thread;
	struct sqlite_file *f = must_open();
	assert_int_equal(put(f, 2), 0);
	atomic_store(&phase, 0);
	for (size_t i = 0; i < ARRAY_LEN(reads); i++)
		reads[i] = sqlite_file_read_begin(f);
	assert_int_equal(pthread_create(&thread, NULL, count_two, f), 0);
	UNTIL(atomic_load(&reader_id) && thread_is_asleep(atomic_load(&reader_id)));
	assert_int_equal(atomic_load(&phase), 0);
	sqlite_file_read_end(&reads[1]);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&phase), 1);
	for (size_t i = 0; i < ARRAY_LEN(reads); i++)
		if (i != 1)
			sqlite_file_read_end(&reads[i]);
	sqlite_file_free(f);
}

TEST(a_read_under_way_ends_before_the_file_is_freed)
{
	pthread_t thread;
	struct sqlite_file *f = must_open();
	assert_int_equal(put(f, 2), 0);
	atomic_store(&phase, 0);
	assert_int_equal(pthread_create(&thread, NULL, read_slowly, f), 0);
	while (atomic_load(&phase) == 0)
		sched_yield();
	sqlite_file_free(f);
	assert_int_equal(atomic_load(&phase), 2);
	pthread_join(thread, NULL);
}

/* --- the log --- */

static atomic_bool reading;

static void *read_on(void *f)
{
	while (atomic_load(&reading)) {
		CLEANUP(sqlite_file_read_end) struct sqlite_read read = sqlite_file_read_begin(f);
		if (number(read.conn, SQL_ITEM_LAST) < 0)
			abort();
	}
	return NULL;
}

TEST(steady_reading_does_not_let_the_log_grow)
{
	pthread_t threads[2];
	mode_t mode;
	struct sqlite_file *f = must_open();
	atomic_store(&reading, true);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_on, f), 0);
	for (int i = 0; i < 80; i++) /* 16 MB in all, where a log is to have 400 KB */
		assert_int_equal(put(f, 50), 0);
	atomic_store(&reading, false);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
	assert_in_range(size_of("test.db-wal", &mode), 1, 6 << 20);
	assert_int_equal(count_now(f), 4000);
	assert_int_equal(sqlite_file_settle(f), 0);
	sqlite_file_free(f);
}

TEST_MAIN(.setup = setup, .teardown = teardown)
