#include "event/strings.h"

void strings_clear(struct strings *s)
{
	if (s->count > 0)
		memset(s->slots, 0, sizeof(s->slots));
	s->count = 0;
	s->text_len = 0;
}

uint32_t strings_find(const struct strings *s, struct str text, uint64_t hash)
{
	for (size_t i = hash % STRINGS_SLOTS;; i = (i + 1) % STRINGS_SLOTS) {
		const struct strings_slot *slot = &s->slots[i];
		if (slot->position == 0)
			return 0;
		if (slot->hash == hash && str_eq(str_n(s->text + slot->text_at, slot->text_len), text))
			return slot->position;
	}
}

void strings_add(struct strings *s, struct str text, uint64_t hash, uint32_t position)
{
	if (s->count >= STRINGS_SLOTS * 3 / 4 || s->text_len + text.len > STRINGS_TEXT_BYTES)
		strings_clear(s);
	size_t i = hash % STRINGS_SLOTS;
	while (s->slots[i].position != 0)
		i = (i + 1) % STRINGS_SLOTS;
	s->slots[i] = (struct strings_slot){hash, position, (uint32_t)s->text_len, (uint32_t)text.len};
	memcpy(s->text + s->text_len, text.ptr, text.len);
	s->text_len += text.len;
	s->count++;
}
