#include "keys/redis_key_list.h"

#include "client/redis.h"
#include "keys/element.h"

#include <stdio.h>
#include <stdlib.h>

#define AVAILABLE STR("curt:keys:available")
#define ASIDE     STR("curt:keys:aside")
#define FENCE     STR("curt:keys:fence")
#define BATCH     STR("curt:keys:batch")
#define BROUGHT   STR("curt:keys:brought")

/* Fencing numbers are compared as text: Lua's numbers are not exact beyond 2^53. A batch that is not above
 * the last one was added already, or arrives late over an abandoned connection. -1: refused. What may fail
 * comes before the keys are added: after an error none was. */
#define PUSH_SCRIPT                                                                                    \
	STR("local fence, batch = ARGV[1], tonumber(ARGV[2])\n"                                        \
	    "local seen = redis.call('GET', KEYS[2]) or '0'\n"                                         \
	    "if #seen > #fence or (#seen == #fence and seen > fence) then return -1 end\n"             \
	    "if seen ~= fence then redis.call('SET', KEYS[2], fence) redis.call('DEL', KEYS[3]) end\n" \
	    "if #ARGV > 2 and batch > (tonumber(redis.call('GET', KEYS[3])) or 0) then\n"              \
	    "  redis.call('INCRBY', KEYS[4], #ARGV - 2)\n"                                             \
	    "  redis.call('RPUSH', KEYS[1], unpack(ARGV, 3))\n"                                        \
	    "  redis.call('SET', KEYS[3], ARGV[2])\n"                                                  \
	    "end\n"                                                                                    \
	    "return 0")

/* The lists, and how keys return to them. */
static const struct {
	struct str name, put;
} kinds[KEY_LIST_KINDS] = {
    [KEY_LIST_AVAILABLE] = {AVAILABLE, STR("LPUSH")}, [KEY_LIST_DEFERRED] = {ASIDE, STR("RPUSH")}};

enum { PUSH_HEAD = 9, NUMBER_BYTES = 24 };

struct redis_key_list {
	struct redis *redis;
};

int key_list_new(struct str url, struct redis_key_list **ret, struct err *e)
{
	struct redis_key_list *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "out of memory");
	int r = redis_new(url, &s->redis, e);
	if (r < 0) {
		free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void key_list_free(struct redis_key_list *s)
{
	if (!s)
		return;
	redis_free(s->redis);
	free(s);
}

struct str key_list_name(const struct redis_key_list *s)
{
	return redis_name(s->redis);
}

bool key_list_is_failing(const struct redis_key_list *s)
{
	return redis_is_failing(s->redis);
}

/* The server has answered with an error, or with the wrong type. */
static int refused(const struct redis_key_list *s, const struct redis_reply *reply, struct err *e)
{
	struct str text = reply->type == REDIS_ERROR ? reply->text : STR("a reply of the wrong type");
	return err_set(e, ERR_UNAVAILABLE, "Redis at %.*s refused: %.*s", STR_ARG(key_list_name(s)),
	               (int)MIN(text.len, 200), text.ptr);
}

/* There is no answer, or one after which the client closes the connection. `code` is for the former: a
 * server that refuses has done nothing. */
static int no_reply(const struct redis_key_list *s, const struct redis_conn *c, int code, struct err *e)
{
	bool refused = redis_was_refused(c);
	return err_set(e, refused ? ERR_UNAVAILABLE : code, "Redis at %.*s %s: %.200s",
	               STR_ARG(key_list_name(s)), refused ? "refused" : "failed", redis_why(c));
}

/* Sends one command that returns a number. ERR_UNCERTAIN: it was sent, but not answered. */
static int ask_number(struct redis_key_list *s, const struct str *args, size_t n, int64_t *ret, struct err *e)
{
	struct redis_conn *c = redis_take(s->redis, e);
	if (!c)
		return ERR_UNAVAILABLE;
	struct redis_reply reply;
	int r = redis_ask(c, args, n, &reply);
	if (r < 0)
		r = no_reply(s, c, ERR_UNCERTAIN, e);
	else if (reply.type != REDIS_INT)
		r = refused(s, &reply, e);
	else
		*ret = reply.number;
	redis_return(c);
	return r;
}

int key_list_count(struct redis_key_list *s, uint64_t *ret, struct err *e)
{
	const struct str args[] = {STR("LLEN"), AVAILABLE};
	int64_t count = 0;
	int r = ask_number(s, args, ARRAY_LEN(args), &count, e);
	if (r < 0)
		return ERR_UNAVAILABLE;
	*ret = (uint64_t)count;
	return 0;
}

static int view_read(const struct redis_key_list *s, struct redis_conn *c, struct key_list_view *ret,
                     struct err *e)
{
	uint64_t *const to[] = {&ret->count, &ret->deferred, &ret->pushed};
	int r = 0;
	redis_write(c, REDIS_ARGS(STR("LLEN"), AVAILABLE));
	redis_write(c, REDIS_ARGS(STR("LLEN"), ASIDE));
	redis_write(c, REDIS_ARGS(STR("GET"), BROUGHT));
	for (size_t i = 0; i < ARRAY_LEN(to); i++) {
		struct redis_reply reply;
		if (redis_read(c, &reply) < 0)
			return no_reply(s, c, ERR_UNAVAILABLE, e);
		if (i == 0 && reply.type != REDIS_INT)
			r = refused(s, &reply, e);
		if (reply.type != REDIS_STR || !str_u64(reply.text, to[i]))
			*to[i] = reply.type == REDIS_INT ? (uint64_t)reply.number : 0;
	}
	return r;
}

int key_list_look(struct redis_key_list *s, struct key_list_view *ret, struct err *e)
{
	struct redis_conn *c = redis_take(s->redis, e);
	if (!c)
		return ERR_UNAVAILABLE;
	struct key_list_view view = {0};
	int r = view_read(s, c, &view, e);
	redis_return(c);
	if (r == 0)
		*ret = view;
	return r;
}

static struct str number_text(uint64_t n, char out[NUMBER_BYTES])
{
	return str_n(out, (size_t)snprintf(out, NUMBER_BYTES, "%ju", (uintmax_t)n));
}

/* `head`, then the keys. NULL: out of memory. */
static struct str *command_of(const struct str *head, size_t head_count, const struct source_key *keys,
                              size_t n, struct arena *arena)
{
	const struct str *texts = elements_write(keys, n, arena);
	struct str *args = arena_alloc(arena, (head_count + n) * sizeof(*args));
	if (!texts || !args)
		return NULL;
	memcpy(args, head, head_count * sizeof(*args));
	if (n > 0)
		memcpy(args + head_count, texts, n * sizeof(*args));
	return args;
}

int key_list_push(struct redis_key_list *s, uint64_t fence, uint64_t batch, const struct source_key *keys,
                  size_t n, struct err *e)
{
	ASSERT(n <= KEY_LIST_KEYS_MAX && batch != 0);
	struct arena CLEANUP(arena_release) arena = {0};
	char fence_text[NUMBER_BYTES], batch_text[NUMBER_BYTES];
	const struct str head[PUSH_HEAD] = {
	    STR("EVAL"),
	    PUSH_SCRIPT,
	    STR("4"),
	    AVAILABLE,
	    FENCE,
	    BATCH,
	    BROUGHT,
	    number_text(fence, fence_text),
	    number_text(batch, batch_text),
	};
	const struct str *args = command_of(head, PUSH_HEAD, keys, n, &arena);
	if (!args)
		return err_set(e, ERR_UNAVAILABLE, "out of memory");
	int64_t answer = 0;
	int r = ask_number(s, args, PUSH_HEAD + n, &answer, e);
	if (r == 0 && answer < 0)
		r = err_set(
		    e, ERR_CONFLICT,
		    "Redis at %.*s has seen a larger fencing number than %ju: another curt keysync has "
		    "taken over (if none runs, lease.url was changed: delete curt:keys:fence there)",
		    STR_ARG(key_list_name(s)), (uintmax_t)fence);
	return r;
}

int key_list_take(struct redis_key_list *s, enum key_list_kind list, size_t max, struct source_key *ret,
                  size_t *ret_count, uint64_t *ret_left, struct err *e)
{
	struct redis_conn *c = redis_take(s->redis, e);
	if (!c)
		return ERR_UNAVAILABLE;
	char max_text[NUMBER_BYTES];
	struct redis_reply reply;
	size_t count = 0;
	redis_write(c, REDIS_ARGS(STR("LPOP"), kinds[list].name, number_text(max, max_text)));
	redis_write(c, REDIS_ARGS(STR("LLEN"), kinds[list].name));
	bool answered = redis_read(c, &reply) == 0;
	int r = answered ? 0 : no_reply(s, c, ERR_UNCERTAIN, e);
	if (r == 0 && reply.type != REDIS_ARRAY && reply.type != REDIS_NIL)
		r = refused(s, &reply, e);
	for (size_t i = 0; r == 0 && reply.type == REDIS_ARRAY && i < MIN(reply.count, max); i++) {
		if (element_read(redis_reply_at(&reply, i).text, &ret[count]))
			count++; /* invalid keys are dropped */
	}
	if (!answered) {
		redis_return(c);
		return r;
	}
	*ret_count = count;
	/* The keys count even without the second answer. */
	bool reported = redis_read(c, &reply) == 0 && reply.type == REDIS_INT;
	*ret_left = reported ? (uint64_t)reply.number : 0;
	redis_return(c);
	return r;
}

int key_list_put(struct redis_key_list *s, enum key_list_kind list, const struct source_key *keys, size_t n,
                 uint64_t *ret_length, struct err *e)
{
	struct arena CLEANUP(arena_release) arena = {0};
	const struct str head[] = {kinds[list].put, kinds[list].name};
	if (n == 0)
		return 0;
	const struct str *args = command_of(head, ARRAY_LEN(head), keys, n, &arena);
	if (!args)
		return err_set(e, ERR_UNAVAILABLE, "out of memory");
	int64_t length = 0;
	int r = ask_number(s, args, ARRAY_LEN(head) + n, &length, e);
	if (r == 0)
		*ret_length = (uint64_t)length;
	return r;
}

/* A duplicate would be leased and counted twice. */
static int check_distinct(struct redis_key_list *const *lists, size_t n, struct err *e)
{
	for (size_t i = 1; i < n; i++) {
		for (size_t j = 0; j < i; j++) {
			if (str_eq(key_list_name(lists[i]), key_list_name(lists[j])))
				return err_set(e, ERR_INVALID,
				               "the Redis server %.*s is listed twice; remove one",
				               STR_ARG(key_list_name(lists[i])));
		}
	}
	return 0;
}

int key_lists_new(struct str urls, struct arena *arena, struct redis_key_list ***ret, size_t *ret_count,
                  struct err *e)
{
	struct str *each;
	size_t count, made = 0;
	int r = redis_urls_cut(urls, arena, &each, &count, e);
	if (r < 0)
		return r;
	struct redis_key_list **lists = arena_zalloc(arena, count * sizeof(struct redis_key_list *));
	if (!lists)
		return err_set(e, ERR_NOMEM, "out of memory");
	while (r == 0 && made < count) {
		r = key_list_new(each[made], &lists[made], e);
		made += r == 0 ? 1 : 0;
	}
	if (r == 0)
		r = check_distinct(lists, count, e);
	if (r < 0) {
		key_lists_free(lists, made);
		return r;
	}
	*ret = lists;
	*ret_count = count;
	return 0;
}

void key_lists_free(struct redis_key_list **lists, size_t n)
{
	for (size_t i = 0; i < n; i++)
		key_list_free(lists[i]);
}
