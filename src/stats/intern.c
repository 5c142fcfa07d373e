#include "stats/intern.h"

#include "base/hash.h"
#include "os/clock.h"

#include <sodium.h>
#include <stdlib.h>

enum { SLOTS = 2 * INTERN_MAX, HOST_BYTES_MAX = 253 };

int intern_init(struct intern *w, struct agents *agents)
{
	*w = (struct intern){.agents = agents, .agent_ns_left = INT64_MAX};
	w->list = calloc(INTERN_MAX, sizeof(*w->list));
	w->slots = calloc(SLOTS, sizeof(*w->slots));
	randombytes_buf(&w->seed, sizeof(w->seed));
	return w->list && w->slots ? 0 : ERR_NOMEM;
}

void intern_release(struct intern *w)
{
	arena_release(&w->arena);
	free(w->list);
	free(w->slots);
	*w = (struct intern){0};
}

void intern_reset(struct intern *w)
{
	arena_release(&w->arena);
	memset(w->slots, 0, SLOTS * sizeof(*w->slots));
	memset(w->list, 0, (w->count + 1) * sizeof(*w->list));
	w->count = 0;
	w->bytes = 0;
}

void intern_allow(struct intern *w, int64_t agent_ns)
{
	w->agent_ns_left = agent_ns;
}

/* A batch adds what it adds; so this leaves room for one. */
bool intern_is_full(const struct intern *w)
{
	return w->count > INTERN_MAX / 2 || w->bytes > INTERN_BYTES_MAX / 2;
}

uint32_t intern_add(struct intern *w, struct str text)
{
	if (text.len == 0)
		return INTERN_NONE;
	uint64_t hash = hash_str(text, w->seed);
	size_t i = hash % SLOTS;
	for (; w->slots[i] != 0; i = (i + 1) % SLOTS) {
		const struct interned *found = &w->list[w->slots[i]];
		if (found->hash == hash && str_eq(found->text, text))
			return w->slots[i];
	}
	if (w->count + 1 >= INTERN_MAX || w->bytes + text.len > INTERN_BYTES_MAX)
		return INTERN_NONE;
	struct str kept = arena_str(&w->arena, text);
	if (!kept.ptr)
		return INTERN_NONE;
	w->bytes += text.len;
	w->slots[i] = ++w->count;
	w->list[w->count] = (struct interned){.text = kept, .hash = hash};
	return w->count;
}

const struct interned *intern_agent(struct intern *w, uint32_t number)
{
	struct interned *word = &w->list[number]; /* the one of INTERN_NONE stands for a missing agent */
	if (LIKELY(word->agent_known))
		return word;
	struct agent_info info = {.browser = STR("Other"), .os = STR("Other"), .device = STR("Other")};
	bool in_time = w->agent_ns_left > 0 || number == INTERN_NONE;
	if (in_time) {
		agents_load(w->agents); /* which is nobody's fault in this batch */
		int64_t start_ns = clock_thread_ns();
		agents_find(w->agents, word->text, &info);
		w->agent_ns_left -= clock_thread_ns() - start_ns;
	}
	word->browser = intern_add(w, info.browser);
	word->os = intern_add(w, info.os);
	word->device = intern_add(w, info.device);
	word->bot = intern_add(w, info.bot);
	word->agent_known = in_time;
	return word;
}

/* "https://user@Host.example:8080/path" has the host "host.example". Anything else than http has none. */
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

uint32_t intern_host(struct intern *w, uint32_t number)
{
	if (number == INTERN_NONE)
		return INTERN_NONE;
	char host[HOST_BYTES_MAX];
	struct interned *word = &w->list[number];
	if (!word->host_known) {
		word->host = intern_add(w, host_of(word->text, host));
		word->host_known = true;
	}
	return word->host;
}

static bool is_letter(char c)
{
	return ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z';
}

uint32_t intern_language(struct intern *w, uint32_t number)
{
	if (number == INTERN_NONE)
		return INTERN_NONE;
	struct interned *word = &w->list[number];
	if (!word->language_known) {
		char primary[3];
		size_t len = 0;
		while (len < word->text.len && len < sizeof(primary) && is_letter(word->text.ptr[len])) {
			primary[len] = ascii_lower(word->text.ptr[len]);
			len++;
		}
		bool ends = len == word->text.len || word->text.ptr[len] == '-';
		word->language = len >= 2 && ends ? intern_add(w, str_n(primary, len)) : INTERN_NONE;
		word->language_known = true;
	}
	return word->language;
}
