#include "lib/redis_kit.h"
#include "lib/test.h"

struct redis_server redis_kit_servers[REDIS_KIT_SERVERS];

static int up(size_t n)
{
	for (size_t i = 0; redis_server_exists() && i < n; i++)
		redis_server_start(&redis_kit_servers[i], NULL);
	return 0;
}

int redis_kit_one(void **state)
{
	return up(1);
}

int redis_kit_two(void **state)
{
	return up(2);
}

int redis_kit_three(void **state)
{
	return up(3);
}

int redis_kit_down(void **state)
{
	for (size_t i = 0; i < REDIS_KIT_SERVERS; i++)
		redis_server_stop(&redis_kit_servers[i]);
	return 0;
}

int redis_kit_renew(void **state)
{
	for (size_t i = 0; i < REDIS_KIT_SERVERS && redis_kit_servers[i].port; i++) {
		struct redis_server *s = &redis_kit_servers[i];
		if (!s->pid) { /* it comes back empty, and who waits for it may write at once */
			redis_server_restart(s, NULL);
			continue;
		}
		redis_server_signal(s, SIGCONT);
		redis_kit_ask(s->url, REDIS_ARGS(STR("FLUSHALL")));
	}
	return 0;
}

void redis_kit_need(void)
{
	if (!redis_kit_servers[0].port) {
		print_message("no Redis: redis-tools is not installed\n");
		skip();
	}
}

const char *redis_kit_urls(char out[REDIS_KIT_URLS_BYTES])
{
	size_t len = 0;
	out[0] = '\0';
	for (size_t i = 0; i < REDIS_KIT_SERVERS && redis_kit_servers[i].port; i++)
		len += (size_t)snprintf(out + len, REDIS_KIT_URLS_BYTES - len, "%s%s", i ? "," : "",
		                        redis_kit_servers[i].url);
	return out;
}

static int64_t ask(const char *url, const char *text, const struct str *args, size_t n, bool *ret_found)
{
	struct redis *r = NULL;
	struct redis_reply reply;
	struct err e = {""};
	assert_int_equal(redis_new(str_of(url), &r, &e), 0);
	struct redis_conn *c = redis_take(r, &e);
	if (!c)
		fail_msg("%s", e.text);
	if (redis_ask(c, args, n, &reply) != 0)
		fail_msg("%s", redis_why(c));
	if (reply.type == REDIS_ERROR)
		fail_msg("%.*s: %.*s", STR_ARG(args[0]), STR_ARG(reply.text));
	int64_t number = reply.number;
	if (text)
		*ret_found = memmem(reply.text.ptr, reply.text.len, text, strlen(text)) != NULL;
	redis_return(c);
	redis_free(r);
	return number;
}

int64_t redis_kit_ask(const char *url, const struct str *args, size_t n)
{
	return ask(url, NULL, args, n, NULL);
}

bool redis_kit_answers(const char *url, const char *text, const struct str *args, size_t n)
{
	bool found = false;
	ask(url, text, args, n, &found);
	return found;
}
