#include "config/config.h"
#include "lib/os_fault.h"
#include "lib/test.h"
#include "os/file.h"

struct serve {
	char *listen;
	uint64_t workers;
	bool trust;
};

struct events {
	int durability;
	uint64_t flush_ms;
	uint64_t spool_bytes;
	char *secret;
	char *note;
	uint64_t pin;
};

static const char *const durabilities[] = {"async", "sync", NULL};

static const struct conf_row serve_rows[] = {
    {"serve", "listen", CONF_STRING, offsetof(struct serve, listen), "127.0.0.1:8080",
     .help = "Where to listen."},
    {"serve", "workers", CONF_UINT, offsetof(struct serve, workers), "0", 0, 64, .help = "How many threads."},
    {"serve", "trust", CONF_BOOL, offsetof(struct serve, trust), "no", .help = "Whom | to trust."},
};

static const struct conf_row event_rows[] = {
    {"events", "durability", CONF_ENUM, offsetof(struct events, durability), "async", .choices = durabilities,
     .help = "When an event counts as kept."},
    {"events", "flush_ms", CONF_DURATION, offsetof(struct events, flush_ms), "1s", 1, 60000,
     .flags = CONF_RELOADABLE, .help = "How often the log is flushed."},
    {"events", "spool_bytes", CONF_BYTES, offsetof(struct events, spool_bytes), "1g", 1 << 20,
     .help = "How far the spool may grow."},
    {"events", "secret", CONF_STRING, offsetof(struct events, secret), "default-secret", .flags = CONF_SECRET,
     .help = "What nobody may see."},
    {"events", "note", CONF_STRING, offsetof(struct events, note), NULL, .flags = CONF_RELOADABLE,
     .help = "A remark."},
    {"events", "pin", CONF_UINT, offsetof(struct events, pin), "0", .flags = CONF_SECRET,
     .help = "A number that nobody may see."},
};

static struct serve serve;
static struct events events;
static const struct conf_group groups[] = {
    {serve_rows, ARRAY_LEN(serve_rows), &serve},
    {event_rows, ARRAY_LEN(event_rows), &events},
};

static struct temp dir;
static char file[TEMP_PATH_BYTES];
static struct err e;

enum { MAX_WORDS = 8 };

static int setup(void **state)
{
	temp_init(&dir);
	temp_path(&dir, "curt.ini", file);
	memset(&serve, 0x5a, sizeof(serve)); /* conf_load must not trust what is there */
	memset(&events, 0x5a, sizeof(events));
	e.text[0] = '\0';
	return 0;
}

static int teardown(void **state)
{
	conf_release(groups, ARRAY_LEN(groups));
	os_fault_reset();
	temp_release(&dir);
	return 0;
}

static void put_file(const char *text)
{
	assert_int_equal(file_write_atomic(file, str_of(text), 0600, &e), 0);
}

static char *const *words_copy(char *out[MAX_WORDS + 1], const char *const words[], int *ret_count)
{
	int count = 0;
	for (; words && words[count]; count++) {
		assert_true(count < MAX_WORDS);
		out[count] = (char *)(uintptr_t)words[count];
	}
	out[count] = NULL;
	if (ret_count)
		*ret_count = count;
	return out;
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static int load(const char *text, const char *const env[], const char *const args[])
{
	static const char *const ignored[] = {"CURT_ADMIN_KEY", "CURT_CONFIG", NULL};
	char *env_copy[MAX_WORDS + 1], *args_copy[MAX_WORDS + 1];
	struct conf_source from = {.env_ignored = ignored};
	from.env = words_copy(env_copy, env, NULL);
	from.args = words_copy(args_copy, args, &from.arg_count);
	if (text) {
		put_file(text);
		from.file = file;
	}
	return conf_load(groups, ARRAY_LEN(groups), &from, &e);
}

static void assert_loads(const char *text, const char *const env[], const char *const args[])
{
	if (load(text, env, args) != 0)
		fail_msg("%s", e.text);
}

/* `{}` in the expected sentence stands for the file's path. */
static void assert_fails(const char *text, const char *const env[], const char *const args[],
                         const char *expected)
{
	char sentence[sizeof(e.text)];
	const char *braces = strstr(expected, "{}");
	if (braces)
		snprintf(sentence, sizeof(sentence), "%.*s%s%s", (int)(braces - expected), expected, file,
		         braces + 2);
	else
		snprintf(sentence, sizeof(sentence), "%s", expected);
	assert_int_equal(load(text, env, args), ERR_INVALID);
	assert_string_equal(e.text, sentence);
	assert_null(serve.listen); /* nothing that needs freeing */
	assert_null(events.secret);
}

TEST(without_sources_every_field_has_its_default)
{
	assert_loads(NULL, NULL, NULL);
	assert_string_equal(serve.listen, "127.0.0.1:8080");
	assert_int_equal(serve.workers, 0);
	assert_false(serve.trust);
	assert_int_equal(events.durability, 0);
	assert_int_equal(events.flush_ms, 1000);
	assert_int_equal(events.spool_bytes, 1 << 30);
	assert_string_equal(events.secret, "default-secret");
	assert_string_equal(events.note, ""); /* never NULL */
}

TEST(each_source_is_stronger_than_the_one_before)
{
	const char *text = "[serve]\nworkers = 1\n";
	const char *const *env = WORDS("CURT_WORKERS=2");
	const char *const *args = WORDS("--workers", "3");
	assert_loads(text, NULL, NULL);
	assert_int_equal(serve.workers, 1);
	conf_release(groups, ARRAY_LEN(groups));
	assert_loads(text, env, NULL);
	assert_int_equal(serve.workers, 2);
	conf_release(groups, ARRAY_LEN(groups));
	assert_loads(NULL, env, NULL);
	assert_int_equal(serve.workers, 2);
	conf_release(groups, ARRAY_LEN(groups));
	assert_loads(text, env, args);
	assert_int_equal(serve.workers, 3);
	conf_release(groups, ARRAY_LEN(groups));
	assert_loads(text, NULL, args);
	assert_int_equal(serve.workers, 3);
}

TEST(sources_mix_setting_by_setting)
{
	assert_loads(
	    "[events]\ndurability = sync\nflush_ms = 250ms\nnote = a # b ; c\n[serve]\n# x\nworkers = 4\n"
	    "[events]\nsecret = s3cret\n",
	    WORDS("PATH=/bin", "CURT_LISTEN=:80", "CURT_ADMIN_KEY=x", "CURT_EVENTS_SPOOL_BYTES=2m"),
	    WORDS("--events-flush-ms=5s", "--trust", "--workers", "7", "--events-note="));
	assert_string_equal(serve.listen, ":80");
	assert_int_equal(serve.workers, 7);
	assert_true(serve.trust);
	assert_int_equal(events.durability, 1);
	assert_int_equal(events.flush_ms, 5000);
	assert_int_equal(events.spool_bytes, 2 << 20);
	assert_string_equal(events.secret, "s3cret");
	assert_string_equal(events.note, "");
}

TEST(flags_come_in_all_their_forms)
{
	assert_loads(NULL, NULL, WORDS("--listen", ":1", "--listen=:2", "--listen", ":3"));
	assert_string_equal(serve.listen, ":3"); /* the last counts */
	conf_release(groups, ARRAY_LEN(groups));
	assert_loads(NULL, NULL, WORDS("--events-note=--dashes=and more", "--trust", "false"));
	assert_string_equal(events.note, "--dashes=and more");
	assert_false(serve.trust);
	conf_release(groups, ARRAY_LEN(groups));
	assert_loads(NULL, NULL, WORDS("--trust", "--events-note", "-"));
	assert_true(serve.trust);
	assert_string_equal(events.note, "-");
	conf_release(groups, ARRAY_LEN(groups));
	assert_loads(NULL, NULL, WORDS("--trust=on"));
	assert_true(serve.trust);
}

TEST(errors_in_the_file_name_file_and_line)
{
	assert_fails("# top\n[serve]\nworkers = many\n", NULL, NULL,
	             "{}:3: serve.workers must be a whole number from 0 to 64, not 'many'");
	assert_fails("[serve]\n\nworkers = 65\n", NULL, NULL,
	             "{}:3: serve.workers must be a whole number from 0 to 64, not '65'");
	assert_fails("[events]\ndurability = maybe\n", NULL, NULL,
	             "{}:2: events.durability must be one of async, sync, not 'maybe'");
	assert_fails(
	    "[events]\nspool_bytes = 1k\n", NULL, NULL,
	    "{}:2: events.spool_bytes must be a number of bytes of at least 1m, such as 65536, 64k, 16m "
	    "or 2GiB, not '1k'");
	assert_fails("[serve]\nworkers =\n", NULL, NULL,
	             "{}:2: serve.workers must be a whole number from 0 to 64, and it is empty");
	assert_fails("[serve]\nnonsense\n", NULL, NULL,
	             "{}:2: expected 'name = value', '[section]' or a comment");
	assert_fails("workers = 1\n", NULL, NULL, "{}:1: 'workers' comes before the first [section]");
}

TEST(an_unknown_section_gets_the_nearest_or_all)
{
	assert_fails("[serve]\n[sevre]\n", NULL, NULL, "{}:2: unknown section [sevre]; did you mean serve?");
	assert_fails("[]\n", NULL, NULL, "{}:1: unknown section []; write one of serve, events");
}

TEST(an_unknown_name_gets_the_nearest_or_all)
{
	assert_fails("[serve]\nworker = 1\n", NULL, NULL,
	             "{}:2: section [serve] has no 'worker'; did you mean workers?");
	assert_fails("[events]\nworkers = 1\n", NULL, NULL,
	             "{}:2: section [events] has no 'workers'; write one of durability, flush_ms, "
	             "spool_bytes, secret, "
	             "note, pin");
}

TEST(a_name_given_twice_names_both_lines)
{
	assert_fails("[serve]\nworkers = 1\n\n[events]\n[serve]\nworkers = 1\n", NULL, NULL,
	             "{}:6: serve.workers is already set in line 2; keep one of them");
}

TEST(a_wrong_value_is_an_error_even_where_a_flag_overrides_it)
{
	assert_fails("[serve]\nworkers = x\n", WORDS("CURT_WORKERS=2"), WORDS("--workers=3"),
	             "{}:2: serve.workers must be a whole number from 0 to 64, not 'x'");
	assert_fails(NULL, WORDS("CURT_WORKERS=x"), WORDS("--workers=3"),
	             "CURT_WORKERS: serve.workers must be a whole number from 0 to 64, not 'x'");
}

TEST(a_file_that_cannot_be_read_is_named)
{
	struct conf_source from = {.file = file};
	assert_int_equal(conf_load(groups, ARRAY_LEN(groups), &from, &e), ERR_NOT_FOUND);
	assert_non_null(strstr(e.text, file));
	put_file("[serve]\n");
	os_fault_fail(OS_READ, 1, EIO, OS_ONCE);
	assert_int_equal(conf_load(groups, ARRAY_LEN(groups), &from, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, file));
	assert_null(serve.listen);
}

TEST(errors_in_the_environment_name_the_variable)
{
	assert_fails(
	    NULL, WORDS("CURT_EVENTS_FLUSH_MS=5"), NULL,
	    "CURT_EVENTS_FLUSH_MS: events.flush_ms must be a duration from 1ms to 1m with its unit, such "
	    "as 250ms, 5s, 2m, 1h or 7d, not '5'");
	assert_fails(NULL, WORDS("CURT_SERVE_LISTN=:80"), NULL,
	             "CURT_SERVE_LISTN: unknown setting; did you mean CURT_SERVE_LISTEN?");
	assert_fails(NULL, WORDS("CURT_SOMETHING_ELSE_ENTIRELY=1"), NULL,
	             "CURT_SOMETHING_ELSE_ENTIRELY: unknown setting; unset this variable");
	assert_fails(NULL, WORDS("CURT_FLUSH_MS=1s"), NULL,
	             "CURT_FLUSH_MS: unknown setting; unset this variable");
}

TEST(variables_that_are_not_settings_are_left_alone)
{
	assert_loads(
	    NULL, WORDS("CURTAIN=1", "curt_serve_workers=9", "CURT_CONFIG=/x", "NOVALUE", "CURT_ADMIN_KEY"),
	    NULL);
	assert_int_equal(serve.workers, 0);
}

TEST(errors_in_the_flags_name_the_flag)
{
	assert_fails(NULL, NULL, WORDS("--workers=x"),
	             "--workers: serve.workers must be a whole number from 0 to 64, not 'x'");
	assert_fails(NULL, NULL, WORDS("--workers", "x"),
	             "--workers: serve.workers must be a whole number from 0 to 64, not 'x'");
	assert_fails(NULL, NULL, WORDS("--listen"),
	             "--listen needs a value: write '--listen VALUE' or '--listen=VALUE'");
	assert_fails(NULL, NULL, WORDS("--listen", "--trust"),
	             "--listen needs a value: write '--listen VALUE' or '--listen=VALUE'");
	assert_fails(NULL, NULL, WORDS("--trust", "perhaps"),
	             "--trust: serve.trust must be true or false, not 'perhaps'");
}

TEST(a_flag_is_checked_without_loading)
{
	char *args[] = {"--workers", "x", "--listen=:80", "--lisen", "--trust", "--listen"};
	struct suggestion nearest;
	int at = 0;
#define CHECK() conf_check_flag(groups, ARRAY_LEN(groups), args, ARRAY_LEN(args), &at, &nearest, &e)
	assert_int_equal(CHECK(), ERR_INVALID);
	args[1] = "2";
	at = 0;
	assert_int_equal(CHECK(), 0);
	assert_int_equal(at, 1); /* it belongs to the flag */
	at = 2;
	assert_int_equal(CHECK(), 0);
	assert_int_equal(at, 2);
	at = 3;
	assert_int_equal(CHECK(), ERR_NOT_FOUND);
	assert_string_equal(nearest.best, "--listen");
	at = 4;
	assert_int_equal(CHECK(), 0);
	assert_int_equal(at, 4);
	at = 5;
	assert_int_equal(CHECK(), ERR_INVALID);
	assert_int_equal(serve.workers, 0x5a5a5a5a5a5a5a5a);
	assert_loads(NULL, NULL, NULL); /* for the teardown */
}

TEST(secrets_never_appear_in_a_sentence)
{
	assert_fails("[events]\npin = hunter2\n", NULL, NULL, "{}:2: events.pin must be a whole number");
	assert_fails("[events]\nsecrt = hunter2\n", NULL, NULL,
	             "{}:2: section [events] has no 'secrt'; did you mean secret?");
	assert_fails("[events]\nsecret: hunter2\n", NULL, NULL,
	             "{}:2: expected 'name = value', '[section]' or a comment");
	assert_fails(NULL, WORDS("CURT_EVENTS_PIN=hunter2"), NULL,
	             "CURT_EVENTS_PIN: events.pin must be a whole number");
	assert_fails(NULL, WORDS("CURT_EVENTS_PINN=hunter2"), NULL,
	             "CURT_EVENTS_PINN: unknown setting; did you mean CURT_EVENTS_PIN?");
	assert_fails(NULL, NULL, WORDS("--events-pin=hunter2"),
	             "--events-pin: events.pin must be a whole number");
	assert_fails("[events]\nsecret = a\033b\n", NULL, NULL,
	             "{}:2: the line has a control character; remove it");
	assert_fails(NULL, WORDS("CURT_EVENTS_SECRET=a\nb"), NULL,
	             "CURT_EVENTS_SECRET: events.secret must be text without control characters");
}

static char changes[128];

static void note_change(const char *section, const char *name)
{
	size_t len = strlen(changes);
	snprintf(changes + len, sizeof(changes) - len, "%s.%s ", section, name);
}

static int reload(const char *text)
{
	char *args[] = {"--workers=5"};
	struct conf_source from = {.file = file, .args = args, .arg_count = 1};
	changes[0] = '\0';
	put_file(text);
	return conf_reload(groups, ARRAY_LEN(groups), &from, note_change, &e);
}

TEST(reload_applies_what_may_change_and_reports_the_rest)
{
	assert_loads("[events]\nflush_ms = 2s\nnote = old\n[serve]\nlisten = :80\n", NULL,
	             WORDS("--workers=5"));
	assert_int_equal(
	    reload("[events]\nflush_ms = 3s\nnote = new\nsecret = other\n[serve]\nlisten = :81\n"), 0);
	assert_int_equal(events.flush_ms, 3000);
	assert_string_equal(events.note, "new");
	assert_string_equal(serve.listen, ":80");
	assert_string_equal(events.secret, "default-secret");
	assert_int_equal(serve.workers, 5);
	assert_string_equal(changes, "serve.listen events.secret ");
}

TEST(reload_of_the_same_settings_changes_nothing)
{
	const char *text = "[events]\nflush_ms = 2s\nnote = same\n";
	assert_loads(text, NULL, WORDS("--workers=5"));
	const char *note = events.note;
	assert_int_equal(reload(text), 0);
	assert_ptr_equal(events.note, note);
	assert_string_equal(changes, "");
}

TEST(a_setting_that_left_the_file_returns_to_its_default)
{
	assert_loads("[events]\nflush_ms = 2s\n", NULL, WORDS("--workers=5"));
	assert_int_equal(reload("\n"), 0);
	assert_int_equal(events.flush_ms, 1000);
}

TEST(a_failed_reload_changes_nothing)
{
	assert_loads("[events]\nflush_ms = 2s\nnote = old\n", NULL, WORDS("--workers=5"));
	assert_int_equal(reload("[events]\nflush_ms = 3s\nnote = new\ndurability = x\n"), ERR_INVALID);
	assert_non_null(strstr(e.text, ":4: events.durability"));
	assert_int_equal(events.flush_ms, 2000);
	assert_string_equal(events.note, "old");
	assert_string_equal(changes, "");
}

TEST(release_may_come_twice_and_after_a_failure)
{
	assert_loads(NULL, NULL, NULL);
	conf_release(groups, ARRAY_LEN(groups));
	assert_null(serve.listen);
	conf_release(groups, ARRAY_LEN(groups));
	assert_int_not_equal(load(NULL, NULL, WORDS("--workers=x")), 0);
	conf_release(groups, ARRAY_LEN(groups));
}

TEST_MAIN(.setup = setup, .teardown = teardown)
