#include "keys/element.h"

static const char used_mark = '!'; /* in no alphabet */

size_t element_write(const struct source_key *key, char out[ELEMENT_BYTES_MAX])
{
	memcpy(out, key->text, key->len);
	if (key->used_before)
		out[key->len] = used_mark;
	return key->len + (key->used_before ? 1U : 0U);
}

bool element_read(struct str text, struct source_key *ret)
{
	bool used_before = text.len > 0 && text.ptr[text.len - 1] == used_mark;
	text.len -= used_before ? 1 : 0;
	if (text.len < KEY_LENGTH_MIN || text.len > KEY_LENGTH_MAX || !key_is_wellformed(text))
		return false;
	*ret = (struct source_key){.len = (uint8_t)text.len, .used_before = used_before};
	memcpy(ret->text, text.ptr, text.len);
	return true;
}

struct str *elements_write(const struct source_key *keys, size_t n, struct arena *arena)
{
	struct str *views = arena_alloc(arena, n * sizeof(*views));
	char *texts = arena_alloc(arena, n * ELEMENT_BYTES_MAX);
	if (!views || !texts)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		char *out = texts + i * ELEMENT_BYTES_MAX;
		views[i] = str_n(out, element_write(&keys[i], out));
	}
	return views;
}
