#include "sink/page.h"

#include <arpa/inet.h>

enum { CURSOR_BYTES = 44 }; /* 16 hexadecimal digits for the minute, 16 for the rank, 12 for the check */

static uint64_t check_of(const uint8_t *key, uint64_t link, uint64_t minute, uint64_t rank)
{
	uint64_t what[3] = {link, minute, rank};
	return keyed_hash(key, what, sizeof(what)) >> 16;
}

struct str page_cursor_text(struct arena *arena, const uint8_t key[SINK_KEY_BYTES], uint64_t link,
                            struct page_cursor at)
{
	uint64_t check = check_of(key, link, (uint64_t)at.minute_ms, at.rank);
	return arena_printf(arena, "%016llx%016llx%012llx", (unsigned long long)at.minute_ms,
	                    (unsigned long long)at.rank, (unsigned long long)check);
}

static bool hex_get(const char *text, size_t len, uint64_t *ret)
{
	*ret = 0;
	for (size_t i = 0; i < len; i++) {
		char c = text[i];
		if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
		*ret = *ret << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
	}
	return true;
}

int page_cursor_parse(const struct visits_query *q, const uint8_t key[SINK_KEY_BYTES],
                      struct page_cursor *ret)
{
	*ret = (struct page_cursor){.minute_ms = INT64_MAX, .rank = UINT64_MAX};
	if (q->limit == 0 || q->link > INT64_MAX)
		return ERR_INVALID;
	if (!q->cursor.ptr)
		return 0;
	uint64_t minute, check;
	if (q->cursor.len != CURSOR_BYTES || !hex_get(q->cursor.ptr, 16, &minute) ||
	    !hex_get(q->cursor.ptr + 16, 16, &ret->rank) || !hex_get(q->cursor.ptr + 32, 12, &check))
		return ERR_INVALID;
	ret->minute_ms = (int64_t)minute;
	return check == check_of(key, q->link, minute, ret->rank) ? 0 : ERR_INVALID;
}

struct str page_address(struct arena *arena, const uint8_t *bytes, size_t len)
{
	if (len == 3)
		return arena_printf(arena, "%u.%u.%u.0/24", bytes[0], bytes[1], bytes[2]);
	if (len != 6)
		return STR_NULL;
	char text[INET6_ADDRSTRLEN];
	struct in6_addr address = {0};
	memcpy(&address, bytes, 6);
	inet_ntop(AF_INET6, &address, text, sizeof(text));
	return arena_printf(arena, "%s/48", text);
}

void page_place(struct str place, struct stats_visit *to)
{
	if (!place.ptr)
		return;
	to->region = str_cut(&place, '\n');
	to->city = place;
}
