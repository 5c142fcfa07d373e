#include "lib/keys_kit.h"
#include "lib/test.h"

struct source_key pipe_key(unsigned number)
{
	char text[KEY_LENGTH_MAX + 1];
	struct source_key key = {.len = 7, .used_before = number % 3 == 0};
	snprintf(text, sizeof(text), "%07u", number % 10000000);
	memcpy(key.text, text, 7);
	return key;
}

void pipe_keys(struct source_key *ret, size_t n, unsigned first)
{
	for (size_t i = 0; i < n; i++)
		ret[i] = pipe_key(first + (unsigned)i);
}

unsigned pipe_key_number(const struct source_key *key)
{
	uint64_t number;
	assert_true(str_u64(str_n(key->text, key->len), &number));
	assert_int_equal(key->used_before, number % 3 == 0);
	return (unsigned)number;
}

void pipe_seen_init(struct pipe_seen *s, size_t room)
{
	*s = (struct pipe_seen){.seen = calloc(room, sizeof(bool)), .room = room};
	assert_non_null(s->seen);
}

void pipe_seen_release(struct pipe_seen *s)
{
	free(s->seen);
}

void pipe_seen_note(struct pipe_seen *s, const struct source_key *keys, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned number = pipe_key_number(&keys[i]);
		assert_true(number < s->room);
		if (s->seen[number])
			fail_msg("key %07u was given out twice", number);
		s->seen[number] = true;
		s->count++;
	}
}

int pipe_take(struct key_source *from, struct source_key *ret, size_t n, size_t *ret_count, struct err *e)
{
	int r;
	UNTIL((r = from->ops->take(from, ret, n, ret_count, e)) != ERR_LIMIT ||
	      !strstr(e->text, "try again"));
	return r;
}

struct pipe_source {
	struct key_source base;
	_Atomic unsigned next;
};

static void source_free(struct key_source *base)
{
	free(container_of(base, struct pipe_source, base));
}

static int source_take(struct key_source *base, struct source_key *ret, size_t n, size_t *ret_count,
                       struct err *e)
{
	(void)e;
	struct pipe_source *s = container_of(base, struct pipe_source, base);
	pipe_keys(ret, n, atomic_fetch_add(&s->next, (unsigned)n));
	*ret_count = n;
	return 0;
}

static void source_give_back(struct key_source *base, const struct source_key *keys, size_t n, bool later)
{
	(void)base, (void)keys, (void)n, (void)later;
}

static struct source_stats source_stats(struct key_source *base)
{
	(void)base;
	return (struct source_stats){0};
}

struct key_source *pipe_source_new(unsigned first)
{
	static const struct key_source_ops ops = {
	    .free = source_free, .take = source_take, .put_back = source_give_back, .stats = source_stats};
	struct pipe_source *s = calloc(1, sizeof(*s));
	assert_non_null(s);
	s->base.ops = &ops;
	s->next = first;
	return &s->base;
}
