#include "keys/keys_db.h"
#include "lib/database_kit.h"
#include "lib/keys_kit.h"
#include "lib/test.h"

static const char *const url = database_kit_urls[0];

static struct keys_db *open_here(void)
{
	struct keys_db *s = NULL;
	database_kit_need();
	MUST(keys_db_new(str_of(url), &s, &why));
	return s;
}

static void assert_count(struct keys_db *s, uint64_t expected)
{
	uint64_t count = 0;
	assert_int_equal(keys_db_count(s, &count, NULL), 0);
	assert_int_equal(count, expected);
	assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM key_stock"), (int64_t)expected);
}

static int add(struct keys_db *s, uint64_t fence, unsigned first, size_t n, size_t *ret_new)
{
	struct source_key keys[KEYS_DB_KEYS_MAX];
	pipe_keys(keys, n, first);
	return keys_db_add(s, fence, keys, n, ret_new, NULL);
}

static size_t take(struct keys_db *s, size_t max, struct source_key *ret)
{
	size_t count = 0;
	assert_int_equal(keys_db_take(s, max, ret, &count, NULL), 0);
	return count;
}

TEST(keys_that_are_taken_are_gone_and_the_rest_stays, database_kit_renew, database_kit_calm)
{
	struct source_key keys[KEYS_DB_KEYS_MAX];
	struct pipe_seen seen;
	struct keys_db *s = open_here();
	size_t added = 0;
	pipe_seen_init(&seen, 1000);
	assert_count(s, 0);
	assert_int_equal(take(s, 10, keys), 0);
	assert_int_equal(add(s, 1, 0, 1000, &added), 0);
	assert_int_equal(added, 1000);
	assert_count(s, 1000);
	pipe_seen_note(&seen, keys, take(s, 300, keys));
	assert_int_equal(seen.count, 300);
	assert_count(s, 700);
	pipe_seen_note(&seen, keys, take(s, 1000, keys));
	assert_int_equal(seen.count, 1000);
	assert_count(s, 0);
	pipe_seen_release(&seen);
	keys_db_free(s);
}

TEST(a_key_that_is_there_is_not_added_twice, database_kit_renew, database_kit_calm)
{
	struct keys_db *s = open_here();
	size_t added = 0;
	assert_int_equal(add(s, 1, 0, 10, &added), 0);
	assert_int_equal(add(s, 1, 5, 10, &added), 0);
	assert_int_equal(added, 5);
	assert_count(s, 15);
	keys_db_free(s);
}

TEST(keys_that_come_back_are_there_again, database_kit_renew, database_kit_calm)
{
	struct source_key keys[20];
	struct keys_db *s = open_here();
	size_t added = 0;
	struct pipe_seen seen;
	pipe_seen_init(&seen, 20);
	assert_int_equal(add(s, 7, 0, 20, &added), 0);
	assert_int_equal(take(s, 20, keys), 20);
	assert_int_equal(keys_db_return(s, keys, 20, NULL), 0);
	assert_int_equal(keys_db_return(s, keys, 20, NULL), 0); /* once is enough */
	assert_count(s, 20);
	pipe_seen_note(&seen, keys, take(s, 20, keys));
	assert_int_equal(seen.count, 20);
	pipe_seen_release(&seen);
	keys_db_free(s);
}

TEST(a_smaller_fencing_number_adds_nothing, database_kit_renew, database_kit_calm)
{
	struct keys_db *old = open_here(), *new = open_here();
	size_t added = 0;
	struct err e = {""};
	struct source_key key = pipe_key(99);
	assert_int_equal(add(old, 5, 0, 10, &added), 0);
	assert_int_equal(keys_db_add(new, 6, NULL, 0, &added, NULL), 0); /* making it known is enough */
	assert_int_equal(keys_db_add(old, 5, &key, 1, &added, &e), ERR_CONFLICT);
	assert_non_null(strstr(e.text, "fencing number"));
	assert_count(new, 10);
	assert_int_equal(add(new, 6, 10, 10, &added), 0);
	assert_int_equal(add(new, UINT64_C(1) << 62, 20, 10, &added), 0);
	assert_int_equal(add(new, (UINT64_C(1) << 62) - 1, 30, 10, &added), ERR_CONFLICT);
	assert_count(new, 30);
	keys_db_free(old);
	keys_db_free(new);
}

static int late_result;

static void *add_late(void *db)
{
	size_t added = 0;
	late_result = add(db, 5, 1, 1, &added);
	return NULL;
}

/* A late writer waits for the row that its successor holds, and is refused after that. */
TEST(a_late_writer_is_refused_even_in_the_middle_of_its_successors_transaction, database_kit_renew,
     database_kit_calm)
{
	struct keys_db *s = open_here();
	size_t added = 0;
	assert_int_equal(add(s, 5, 0, 1, &added), 0);
	database_kit_hold(url, "BEGIN; UPDATE key_fence SET fence = 9");
	database_kit_start_waiting(url, add_late, s);
	database_kit_let_go();
	database_kit_join();
	assert_int_equal(late_result, ERR_CONFLICT);
	assert_count(s, 1);
	keys_db_free(s);
}

struct taker {
	struct keys_db *db;
	struct source_key keys[4000];
	size_t count;
};

static void *take_in_thread(void *arg)
{
	struct taker *t = arg;
	size_t some = 1;
	while (some > 0 && keys_db_take(t->db, 37, t->keys + t->count, &some, NULL) == 0)
		t->count += some;
	return NULL;
}

TEST(takers_at_the_same_time_never_get_the_same_key, database_kit_renew, database_kit_calm)
{
	enum { TAKERS = 4, KEYS = 3000 };
	struct keys_db *s = open_here();
	struct taker *takers = test_calloc(TAKERS, sizeof(*takers));
	pthread_t threads[TAKERS];
	struct pipe_seen seen;
	size_t added;
	for (unsigned i = 0; i < KEYS; i += KEYS_DB_KEYS_MAX)
		assert_int_equal(add(s, 1, i, KEYS_DB_KEYS_MAX, &added), 0);
	for (int i = 0; i < TAKERS; i++) {
		takers[i].db = s;
		assert_int_equal(pthread_create(&threads[i], NULL, take_in_thread, &takers[i]), 0);
	}
	pipe_seen_init(&seen, KEYS);
	for (int i = 0; i < TAKERS; i++) {
		pthread_join(threads[i], NULL);
		pipe_seen_note(&seen, takers[i].keys, takers[i].count);
	}
	struct source_key rest[KEYS_DB_KEYS_MAX]; /* who skips locked rows may go home early */
	for (size_t some; (some = take(s, KEYS_DB_KEYS_MAX, rest)) > 0;)
		pipe_seen_note(&seen, rest, some);
	assert_int_equal(seen.count, KEYS);
	assert_count(s, 0);
	pipe_seen_release(&seen);
	test_free(takers);
	keys_db_free(s);
}

static void *name_in_thread(void *arg)
{
	struct keys_db *s = NULL;
	if (keys_db_new(str_of(url), &s, NULL) == 0 && keys_db_name(s, arg, NULL) != 0)
		((char *)arg)[0] = '\0';
	keys_db_free(s);
	return NULL;
}

TEST(all_who_come_to_an_empty_database_at_once_know_it_by_one_name, database_kit_renew, database_kit_calm)
{
	enum { COMERS = 4 };
	char names[COMERS][KEYS_DB_NAME_BYTES];
	pthread_t threads[COMERS];
	keys_db_free(open_here());
	for (int i = 0; i < COMERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, name_in_thread, names[i]), 0);
	for (int i = 0; i < COMERS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(strlen(names[0]), KEYS_DB_NAME_BYTES - 1);
	for (int i = 1; i < COMERS; i++)
		assert_string_equal(names[i], names[0]);
}

TEST(a_layout_of_a_newer_version_is_left_alone, database_kit_renew, database_kit_calm)
{
	struct keys_db *s = open_here();
	uint64_t count;
	struct err e = {""};
	assert_count(s, 0);
	keys_db_free(s);
	postgres_kit_run(url, "UPDATE key_layout SET version = 99");
	s = open_here();
	assert_true(keys_db_count(s, &count, &e) < 0);
	assert_non_null(strstr(e.text, "newer version"));
	keys_db_free(s);
}

TEST(a_database_that_is_down_is_distinguished_from_an_empty_one)
{
	struct keys_db *s = NULL;
	struct source_key key;
	size_t count;
	struct err e = {""};
	assert_int_equal(keys_db_new(STR("postgres://nobody:hidden@127.0.0.1:1/none"), &s, NULL), 0);
	assert_int_equal(keys_db_take(s, 1, &key, &count, &e), ERR_UNAVAILABLE);
	assert_true(e.text[0] != '\0');
	assert_null(strstr(e.text, "hidden"));
	assert_true(keys_db_is_failing(s));
	keys_db_free(s);
}

TEST(a_list_of_databases_is_cut_between_them_and_not_between_hosts)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct keys_db **dbs;
	size_t count;
	struct err e = {""};
	assert_int_equal(
	    keys_dbs_new(STR("postgres://a:1,b:2/x, postgresql://c/y"), &arena, &dbs, &count, &e), 0);
	assert_int_equal(count, 2);
	keys_dbs_free(dbs, count);
	assert_int_equal(keys_dbs_new(STR("postgres://a/x,mysql://b/y"), &arena, &dbs, &count, &e),
	                 ERR_INVALID);
	assert_int_equal(
	    keys_dbs_new(STR("postgres://a/x,postgres://u:hidden@[/y"), &arena, &dbs, &count, &e),
	    ERR_INVALID);
	assert_null(strstr(e.text, "hidden"));
}

TEST_MAIN(.group_setup = database_kit_one, .group_teardown = database_kit_down)
