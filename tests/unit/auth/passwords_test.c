#include "auth/passwords.h"
#include "lib/test.h"

#include <sodium.h>
#include <sys/resource.h>

static struct arena arena;

static int stop(void **state)
{
	arena_release(&arena);
	arena = (struct arena){0};
	return 0;
}

static struct str hashed(struct str text)
{
	struct str hash;
	assert_int_equal(password_hash(text, &arena, &hash), 0);
	return hash;
}

TEST(a_password_is_known_again_and_no_other)
{
	struct str hash = hashed(STR("correct horse"));
	assert_int_equal(password_verify(hash, STR("correct horse")), 0);
	assert_int_equal(password_verify(hash, STR("correct horsf")), ERR_INVALID);
	assert_int_equal(password_verify(hash, STR("correct hors")), ERR_INVALID);
	assert_int_equal(password_verify(hash, STR("")), ERR_INVALID);
	assert_int_equal(password_verify(hash, STR_NULL), ERR_INVALID);
}

TEST(the_same_password_is_kept_in_another_way_each_time)
{
	assert_false(str_eq(hashed(STR("twice the same")), hashed(STR("twice the same"))));
}

TEST(every_byte_of_a_long_password_counts)
{
	char text[PASSWORD_BYTES_MAX];
	memset(text, 'x', sizeof(text));
	text[20] = '\0';
	struct str hash = hashed(str_n(text, sizeof(text)));
	assert_int_equal(password_verify(hash, str_n(text, sizeof(text))), 0);
	text[PASSWORD_BYTES_MAX - 1] = 'y';
	assert_int_equal(password_verify(hash, str_n(text, sizeof(text))), ERR_INVALID);
}

/* The stand-in for a password that is not there has to have the same parameters, or time would tell. */
TEST(what_is_kept_is_argon2id_of_19_mib_and_two_passes)
{
	struct str hash = hashed(STR("correct horse"));
	assert_true(str_starts(hash, STR("$argon2id$v=19$m=19456,t=2,p=1$")));
	assert_int_equal(strlen(hash.ptr), hash.len);
}

static int64_t cpu_us(void)
{
	struct rusage used;
	getrusage(RUSAGE_THREAD, &used);
	return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000LL + used.ru_utime.tv_usec +
	       used.ru_stime.tv_usec;
}

static int64_t fastest_us(struct str hash)
{
	int64_t best = INT64_MAX;
	for (int i = 0; i < 3; i++) {
		int64_t from = cpu_us();
		assert_int_equal(password_verify(hash, STR("a guess")), ERR_INVALID);
		best = MIN(best, cpu_us() - from);
	}
	return best;
}

TEST(who_has_no_password_is_refused_after_as_much_work)
{
	int64_t with = fastest_us(hashed(STR("correct horse"))), without = fastest_us(STR_NULL);
	assert_true(without > with / 3);
	assert_true(without < with * 3);
}

TEST(what_is_no_hash_matches_nothing)
{
	char long_text[300];
	memset(long_text, '$', sizeof(long_text));
	assert_int_equal(password_verify(STR(""), STR("")), ERR_INVALID);
	assert_int_equal(password_verify(STR("plain"), STR("plain")), ERR_INVALID);
	assert_int_equal(password_verify(STR("$argon2id$v=19$m=19456,t=2,p=1$AA$AA"), STR("x")), ERR_INVALID);
	assert_int_equal(password_verify(str_n(long_text, sizeof(long_text)), STR("x")), ERR_INVALID);
}

int main(void)
{
	return sodium_init() < 0 ? 1 : RUN_TESTS(.teardown = stop);
}
