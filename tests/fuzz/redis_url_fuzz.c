// needs: src/client/redis_url.c
// flags: -max_len=512
/* A list of Redis URLs is cut into its parts, and each is taken or refused; what is refused is never
 * repeated. */
#include "client/redis.h"
#include "client/redis_url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check_taken(const struct redis_url *u)
{
	ASSERT(u->host_count > 0 && u->host_count <= REDIS_HOSTS_MAX);
	for (size_t i = 0; i < u->host_count; i++)
		ASSERT(u->hosts[i].host[0] && u->hosts[i].port > 0);
	uint64_t db;
	ASSERT(str_u64(u->db, &db));
	ASSERT(u->name.len > 0);
	for (size_t i = 0; i < u->name.len; i++)
		ASSERT(u->name.ptr[i] > 0x20 && u->name.ptr[i] < 0x7f && u->name.ptr[i] != '@');
	ASSERT(u->is_sentinel == (u->primary.ptr != NULL));
	ASSERT(!u->user.ptr || u->password.ptr);
}

static void check_one(struct str url)
{
	struct redis_url u;
	struct err e = {""};
	int rc = redis_url_parse(url, &u, &e);
	if (rc == 0) {
		check_taken(&u);
		redis_url_release(&u);
		return;
	}
	ASSERT(rc == ERR_INVALID && e.text[0]);
	for (const char *p = e.text; *p; p++)
		ASSERT(*p >= 0x20 && *p < 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct arena arena = {0};
	struct str *urls;
	size_t count;
	struct err e = {""};
	if (redis_urls_cut(str_n((const char *)data, len), &arena, &urls, &count, &e) == 0) {
		ASSERT(count > 0);
		for (size_t i = 0; i < count; i++)
			check_one(urls[i]);
	}
	arena_release(&arena);
	return 0;
}
