/* What a change will say once it is committed: until then a batch that failed can be handed in again as it
 * is. For backends only. */
#pragma once

#include "store/store.h"

enum { BACK_LINK = 1 << 0, BACK_USER = 1 << 1, BACK_KEY = 1 << 2 };

struct store_outcome {
	int result;
	bool replayed;
	unsigned back; /* bits: which records come back */
	union {
		struct link_record link;
		struct {
			struct user_record user;
			struct key_record key;
			struct session_record session;
		};
	};
};

static inline void outcome_publish(const struct store_outcome *out, struct store_write *w)
{
	w->result = out->result;
	w->replayed = out->replayed;
	if (out->result != 0)
		return;
	if (out->back & BACK_LINK)
		w->link = out->link;
	if (out->back & BACK_USER)
		w->user = out->user;
	if (out->back & BACK_KEY)
		w->key = out->key;
}
