#include "stats/intern.h"

#include "base/hash.h"
#include "os/clock.h"

#include <sodium.h>
#include <stdlib.h>

enum { SLOTS = 2 * INTERN_MAX, HOST_BYTES_MAX = 253 };

int intern_init(struct intern *t, struct agents *agents)
{
	*t = (struct intern){.agents = agents, .agent_ns_left = INT64_MAX};
	t->list = calloc(INTERN_MAX, sizeof(*t->list));
	t->slots = calloc(SLOTS, sizeof(*t->slots));
	randombytes_buf(&t->seed, sizeof(t->seed));
	return t->list && t->slots ? 0 : ERR_NOMEM;
}

void intern_release(struct intern *t)
{
	arena_release(&t->arena);
	free(t->list);
	free(t->slots);
	*t = (struct intern){0};
}

void intern_reset(struct intern *t)
{
	arena_release(&t->arena);
	memset(t->slots, 0, SLOTS * sizeof(*t->slots));
	memset(t->list, 0, (t->count + 1) * sizeof(*t->list));
	t->count = 0;
	t->bytes = 0;
}

void intern_allow(struct intern *t, int64_t agent_ns)
{
	t->agent_ns_left = agent_ns;
}

/* Leaves room for the texts of one batch. */
bool intern_is_full(const struct intern *t)
{
	return t->count > INTERN_MAX / 2 || t->bytes > INTERN_BYTES_MAX / 2;
}

uint32_t intern_add(struct intern *t, struct str text)
{
	if (text.len == 0)
		return INTERN_NONE;
	uint64_t hash = hash_str(text, t->seed);
	size_t i = hash % SLOTS;
	for (; t->slots[i] != 0; i = (i + 1) % SLOTS) {
		const struct interned *found = &t->list[t->slots[i]];
		if (found->hash == hash && str_eq(found->text, text))
			return t->slots[i];
	}
	if (t->count + 1 >= INTERN_MAX || t->bytes + text.len > INTERN_BYTES_MAX)
		return INTERN_NONE;
	struct str kept = arena_str(&t->arena, text);
	if (!kept.ptr)
		return INTERN_NONE;
	t->bytes += text.len;
	t->slots[i] = ++t->count;
	t->list[t->count] = (struct interned){.text = kept, .hash = hash};
	return t->count;
}

const struct interned *intern_agent(struct intern *t, uint32_t number)
{
	struct interned *entry = &t->list[number]; /* INTERN_NONE: the missing user agent */
	if (LIKELY(entry->agent_known))
		return entry;
	struct agent_info info = {.browser = STR("Other"), .os = STR("Other"), .device = STR("Other")};
	bool in_time = t->agent_ns_left > 0 || number == INTERN_NONE;
	if (in_time) {
		agents_load(t->agents); /* not counted against this batch */
		int64_t start_ns = clock_thread_ns();
		agents_find(t->agents, entry->text, &info);
		t->agent_ns_left -= clock_thread_ns() - start_ns;
	}
	entry->browser = intern_add(t, info.browser);
	entry->os = intern_add(t, info.os);
	entry->device = intern_add(t, info.device);
	entry->bot = intern_add(t, info.bot);
	entry->agent_known = in_time;
	return entry;
}

/* The host of "https://user@Host.example:8080/path" is "host.example". Other schemes have none. */
static struct str host_of(struct str url, char out[HOST_BYTES_MAX])
{
	struct str rest = url;
	if (str_starts(rest, STR("https://")))
		rest = str_n(rest.ptr + 8, rest.len - 8);
	else if (str_starts(rest, STR("http://")))
		rest = str_n(rest.ptr + 7, rest.len - 7);
	else
		return STR_NULL;
	size_t end = 0;
	while (end < rest.len && !strchr("/?#\\", rest.ptr[end]))
		end++;
	struct str host = str_n(rest.ptr, end);
	const char *at = host.len > 0 ? memrchr(host.ptr, '@', host.len) : NULL;
	if (at)
		host = str_n(at + 1, host.len - (size_t)(at + 1 - host.ptr));
	if (host.len > 0 && host.ptr[0] == '[') {
		const char *bracket = memchr(host.ptr, ']', host.len);
		host.len = bracket ? (size_t)(bracket + 1 - host.ptr) : 0;
	} else {
		host = str_cut(&host, ':');
	}
	if (host.len == 0 || host.len > HOST_BYTES_MAX)
		return STR_NULL;
	for (size_t i = 0; i < host.len; i++) {
		if (host.ptr[i] <= ' ' || host.ptr[i] >= 127)
			return STR_NULL;
		out[i] = ascii_lower(host.ptr[i]);
	}
	return str_n(out, host.len);
}

uint32_t intern_host(struct intern *t, uint32_t number)
{
	if (number == INTERN_NONE)
		return INTERN_NONE;
	char host[HOST_BYTES_MAX];
	struct interned *entry = &t->list[number];
	if (!entry->host_known) {
		entry->host = intern_add(t, host_of(entry->text, host));
		entry->host_known = true;
	}
	return entry->host;
}

static bool is_letter(char c)
{
	return ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z';
}

uint32_t intern_language(struct intern *t, uint32_t number)
{
	if (number == INTERN_NONE)
		return INTERN_NONE;
	struct interned *entry = &t->list[number];
	if (!entry->language_known) {
		char primary[3];
		size_t len = 0;
		while (len < entry->text.len && len < sizeof(primary) && is_letter(entry->text.ptr[len])) {
			primary[len] = ascii_lower(entry->text.ptr[len]);
			len++;
		}
		bool ends = len == entry->text.len || entry->text.ptr[len] == '-';
		entry->language = len >= 2 && ends ? intern_add(t, str_n(primary, len)) : INTERN_NONE;
		entry->language_known = true;
	}
	return entry->language;
}
