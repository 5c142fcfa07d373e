#include "sink/name_table.h"

#include <stdlib.h>

static struct name_entry *slot_of(const struct name_table *t, uint64_t hash, struct str text)
{
	size_t at = hash & (t->slot_count - 1);
	while (t->slots[at].id != 0 && !(t->slots[at].hash == hash && str_eq(t->slots[at].text, text)))
		at = (at + 1) & (t->slot_count - 1);
	return &t->slots[at];
}

struct name_entry *name_table_find(const struct name_table *t, uint64_t hash, struct str text)
{
	struct name_entry *n = t->slot_count ? slot_of(t, hash, text) : NULL;
	return n && n->id ? n : NULL;
}

static int table_grow(struct name_table *t)
{
	struct name_table larger = {.slot_count = MAX(t->slot_count * 2, 1024)};
	larger.slots = calloc(larger.slot_count, sizeof(*larger.slots));
	if (!larger.slots)
		return ERR_NOMEM;
	for (size_t i = 0; i < t->slot_count; i++)
		if (t->slots[i].id)
			*slot_of(&larger, t->slots[i].hash, t->slots[i].text) = t->slots[i];
	free(t->slots);
	t->slots = larger.slots;
	t->slot_count = larger.slot_count;
	return 0;
}

int name_table_put(struct name_table *t, struct name_entry name)
{
	if (t->count * 2 >= t->slot_count && table_grow(t) < 0)
		return ERR_NOMEM;
	struct name_entry *slot = slot_of(t, name.hash, name.text);
	if (slot->id) {
		slot->day = MAX(slot->day, name.day);
		return 0;
	}
	name.text = arena_str(&t->texts, name.text);
	if (!name.text.ptr)
		return ERR_NOMEM;
	*slot = name;
	t->count++;
	return 0;
}

void name_table_forget(struct name_table *t)
{
	free(t->slots);
	arena_release(&t->texts);
	*t = (struct name_table){0};
}
