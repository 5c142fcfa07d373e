#include "queue/watermarks.h"

#include "base/hash.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define WATERMARK_BIT (1ULL << 63)

struct log_position {
	uint64_t segment, position;
};

struct watermark {
	uint64_t partition, node;
	uint64_t writer;
	uint64_t stream;              /* of the segment; that of the position is one higher */
	struct log_position at, kept; /* read; committed */
};

struct watermarks {
	struct watermark *all;
	size_t count, cap;
	uint32_t *slots; /* 1 + index; twice as many as cap */
	struct position *loaded;
	size_t loaded_count;
	size_t last; /* the watermark that advanced last */
	struct log_position last_before;
};

int watermarks_new(struct watermarks **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : ERR_NOMEM;
}

void watermarks_free(struct watermarks *m)
{
	if (!m)
		return;
	free(m->all);
	free(m->slots);
	free(m->loaded);
	free(m);
}

/* Stored positions */

static int position_order(const void *a, const void *b)
{
	uint64_t x = ((const struct position *)a)->stream, y = ((const struct position *)b)->stream;
	return x < y ? -1 : x > y;
}

int watermarks_load(struct watermarks *m, const struct position *positions, size_t count)
{
	struct position *loaded = calloc(count + 1, sizeof(*loaded));
	if (!loaded)
		return ERR_NOMEM;
	free(m->loaded);
	m->loaded = loaded;
	m->loaded_count = 0;
	for (size_t i = 0; i < count; i++)
		if (positions[i].stream & WATERMARK_BIT)
			loaded[m->loaded_count++] = positions[i];
	qsort(loaded, m->loaded_count, sizeof(*loaded), position_order);
	return 0;
}

static uint64_t kept_of(const struct watermarks *m, uint64_t stream)
{
	const struct position wanted = {.stream = stream};
	const struct position *found = m->loaded_count > 0 ? bsearch(&wanted, m->loaded, m->loaded_count,
	                                                             sizeof(wanted), position_order)
	                                                   : NULL;
	return found ? found->offset : 0;
}

/* The table */

static size_t slot_of(const struct watermarks *m, uint64_t partition, uint64_t node, uint64_t writer)
{
	size_t i = hash_u64(node + writer, partition) & (2 * m->cap - 1);
	for (; m->slots[i] != 0; i = (i + 1) & (2 * m->cap - 1)) {
		const struct watermark *k = &m->all[m->slots[i] - 1];
		if (k->node == node && k->writer == writer && k->partition == partition)
			break;
	}
	return i;
}

static void slots_fill(struct watermarks *m)
{
	memset(m->slots, 0, 2 * m->cap * sizeof(*m->slots));
	for (size_t i = 0; i < m->count; i++)
		m->slots[slot_of(m, m->all[i].partition, m->all[i].node, m->all[i].writer)] = (uint32_t)i + 1;
}

static int grow(struct watermarks *m)
{
	size_t cap = MAX(2 * m->cap, (size_t)64);
	struct watermark *all = reallocarray(m->all, cap, sizeof(*all));
	if (all)
		m->all = all;
	uint32_t *slots = calloc(2 * cap, sizeof(*slots));
	if (!all || !slots) {
		free(slots);
		return ERR_NOMEM;
	}
	free(m->slots);
	m->slots = slots;
	m->cap = cap;
	slots_fill(m);
	return 0;
}

static struct watermark *watermark_of(struct watermarks *m, uint64_t partition, struct event_id id)
{
	uint64_t writer = id.segment >> 24 & 0xff;
	if (m->count == m->cap && grow(m) < 0)
		return NULL;
	size_t slot = slot_of(m, partition, id.node, writer);
	if (LIKELY(m->slots[slot] != 0))
		return &m->all[m->slots[slot] - 1];
	struct watermark *k = &m->all[m->count];
	*k = (struct watermark){.partition = partition, .node = id.node, .writer = writer};
	/* The number is stored, so the hash must not change: SipHash with a key of zeros. */
	static const uint8_t key[crypto_shorthash_KEYBYTES];
	const uint64_t name[3] = {k->partition, k->node, k->writer};
	uint64_t hash;
	crypto_shorthash((uint8_t *)&hash, (const uint8_t *)name, sizeof(name), key);
	k->stream = (hash | WATERMARK_BIT) & ~1ULL;
	k->kept = (struct log_position){kept_of(m, k->stream), kept_of(m, k->stream + 1)};
	k->at = k->kept;
	m->slots[slot] = (uint32_t)++m->count;
	return k;
}

void watermarks_forget(struct watermarks *m, uint64_t partition)
{
	size_t left = 0;
	for (size_t i = 0; i < m->count; i++)
		if (m->all[i].partition != partition)
			m->all[left++] = m->all[i];
	m->count = left;
	if (m->cap > 0)
		slots_fill(m);
}

int watermarks_advance(struct watermarks *m, uint64_t partition, struct event_id id)
{
	struct watermark *k = watermark_of(m, partition, id);
	if (!k)
		return ERR_NOMEM;
	if (id.segment < k->at.segment || (id.segment == k->at.segment && id.position <= k->at.position))
		return 0;
	m->last = (size_t)(k - m->all);
	m->last_before = k->at;
	k->at = (struct log_position){id.segment, id.position};
	return 1;
}

void watermarks_undo(struct watermarks *m)
{
	m->all[m->last].at = m->last_before;
}

/* Changes */

size_t watermarks_changes_max(const struct watermarks *m)
{
	return 2 * m->count;
}

size_t watermarks_changes(const struct watermarks *m, struct advance *ret)
{
	size_t n = 0;
	for (size_t i = 0; i < m->count; i++) {
		const struct watermark *k = &m->all[i];
		if (k->at.segment != k->kept.segment)
			ret[n++] = (struct advance){k->stream, k->kept.segment, k->at.segment};
		if (k->at.position != k->kept.position)
			ret[n++] = (struct advance){k->stream + 1, k->kept.position, k->at.position};
	}
	return n;
}

void watermarks_commit(struct watermarks *m)
{
	for (size_t i = 0; i < m->count; i++)
		m->all[i].kept = m->all[i].at;
}

void watermarks_rewind(struct watermarks *m)
{
	for (size_t i = 0; i < m->count; i++)
		m->all[i].at = m->all[i].kept;
}
