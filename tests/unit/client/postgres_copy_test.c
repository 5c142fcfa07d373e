/* Rows by binary COPY. */
#include "client/postgres.h"
#include "lib/database_kit.h"
#include "lib/test.h"

static const char *const url = database_kit_urls[0];
static const char *const copy_sql = "COPY t (a, b, c) FROM STDIN (FORMAT binary)";
static const struct pg_statement begin = {"copy_begin", "BEGIN"}, commit = {"copy_commit", "COMMIT"};
static const struct pg_statement first = {"copy_first", "INSERT INTO t VALUES (-1, -1, NULL)"};

static struct pg_pool *pool;
static struct pg_conn *conn;

static int setup(void **state)
{
	struct err e = {""};
	if (!url[0])
		return 0;
	database_kit_renew(NULL);
	postgres_kit_run(url, "CREATE TABLE t (a bigint UNIQUE, b int NOT NULL, c bytea)");
	assert_int_equal(pg_pool_new(str_of(url), 1, NULL, NULL, &pool, &e), 0);
	conn = pg_take(pool, &e);
	assert_non_null(conn);
	return 0;
}

static int teardown(void **state)
{
	pg_return(steal(conn));
	pg_pool_free(steal(pool));
	return 0;
}

static void ask(const struct pg_statement *statement)
{
	struct pg_result none;
	struct pg_query q = pg_query(conn, statement);
	assert_int_equal(pg_ask(&q, &none, NULL), 0);
	pg_result_end(&none);
}

static void row_put(struct pg_copy *copy, int64_t a, int32_t b, struct str c)
{
	pg_copy_row(copy, 3);
	pg_copy_int(copy, a);
	pg_copy_int32(copy, b);
	pg_copy_bytes(copy, c.ptr, c.len);
}

TEST(rows_are_read_back_as_they_were_put)
{
	database_kit_need();
	struct pg_copy copy;
	assert_int_equal(pg_copy_begin(&copy, conn, copy_sql, NULL), 0);
	row_put(&copy, INT64_MIN, INT32_MAX, STR("\xff\x00\x01"));
	row_put(&copy, INT64_MAX, INT32_MIN, STR(""));
	row_put(&copy, 0, -1, STR_NULL);
	assert_int_equal(pg_copy_end(&copy, NULL), 0);
	assert_int_equal(postgres_kit_ask(url,
	                                  "SELECT count(*) FROM t WHERE (a, b, c) = (-9223372036854775808,"
	                                  " 2147483647, '\\xff0001')"),
	                 1);
	assert_int_equal(postgres_kit_ask(url,
	                                  "SELECT count(*) FROM t WHERE (a, b, c) = (9223372036854775807,"
	                                  " -2147483648, '')"),
	                 1);
	assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM t WHERE a = 0 AND b = -1 AND c IS NULL"),
	                 1);
}

/* More than any buffer holds. */
TEST(many_rows_are_part_of_their_transaction)
{
	database_kit_need();
	enum { ROWS = 20000 };
	char text[500];
	memset(text, 'x', sizeof(text));
	for (int round = 0; round < 2; round++) {
		struct pg_copy copy;
		ask(&begin);
		ask(&first);
		assert_int_equal(pg_copy_begin(&copy, conn, copy_sql, NULL), 0);
		for (int i = 0; i < ROWS; i++)
			row_put(&copy, i, i, str_n(text, sizeof(text)));
		assert_int_equal(pg_copy_end(&copy, NULL), 0);
		if (round == 0)
			assert_int_equal(pg_run(conn, "ROLLBACK", NULL), 0);
		else
			ask(&commit);
		assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM t"), round ? ROWS + 1 : 0);
	}
	assert_int_equal(postgres_kit_ask(url, "SELECT sum(length(c)) FROM t"), ROWS * (int)sizeof(text));
}

TEST(no_rows_are_no_error)
{
	database_kit_need();
	struct pg_copy copy;
	assert_int_equal(pg_copy_begin(&copy, conn, copy_sql, NULL), 0);
	assert_int_equal(pg_copy_end(&copy, NULL), 0);
	assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM t"), 0);
}

TEST(a_row_that_is_refused_fails_the_whole_and_the_connection_goes_on)
{
	database_kit_need();
	struct pg_copy copy;
	struct err e = {""};
	ask(&first);
	assert_int_equal(pg_copy_begin(&copy, conn, copy_sql, NULL), 0);
	for (int i = 5; i >= -1; i--)
		row_put(&copy, i, i, STR_NULL);
	assert_int_equal(pg_copy_end(&copy, &e), ERR_CONFLICT);
	assert_non_null(strstr(e.text, "unique"));
	assert_false(pg_conn_failed(conn));
	assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM t"), 1);
	assert_int_equal(pg_copy_begin(&copy, conn, copy_sql, NULL), 0);
	row_put(&copy, 7, 7, STR_NULL);
	assert_int_equal(pg_copy_end(&copy, NULL), 0);
	ask(&begin);
	ask(&commit);
}

TEST(a_table_that_is_not_there_is_said_at_once)
{
	database_kit_need();
	struct pg_copy copy;
	struct err e = {""};
	assert_int_equal(pg_copy_begin(&copy, conn, "COPY nothing FROM STDIN (FORMAT binary)", &e),
	                 ERR_INVALID);
	assert_non_null(strstr(e.text, "nothing"));
	assert_int_equal(pg_copy_end(&copy, NULL), ERR_INVALID);
	ask(&first);
	assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM t"), 1);
}

TEST(a_connection_that_is_lost_in_the_middle_is_of_no_use_any_more)
{
	database_kit_need();
	char through[2 * POSTGRES_KIT_URL_BYTES];
	struct relay *relay = database_kit_relay(url, through);
	struct pg_pool *p = NULL;
	assert_int_equal(pg_pool_new(str_of(through), 1, NULL, NULL, &p, NULL), 0);
	struct pg_conn *c = pg_take(p, NULL);
	assert_non_null(c);
	struct pg_copy copy;
	assert_int_equal(pg_copy_begin(&copy, c, copy_sql, NULL), 0);
	relay_set(relay, RELAY_CUT);
	for (int i = 0; i < 50000; i++)
		row_put(&copy, i, i, STR("text"));
	assert_int_equal(pg_copy_end(&copy, NULL), ERR_UNAVAILABLE);
	assert_true(pg_conn_failed(c));
	pg_return(c);
	pg_pool_free(p);
	relay_stop(relay);
	assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM t"), 0);
}

TEST_MAIN(.group_setup = database_kit_one, .group_teardown = database_kit_down, .setup = setup,
          .teardown = teardown)
