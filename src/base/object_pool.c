#include "base/object_pool.h"

#include <stdlib.h>

/* In front of each object, so that the object keeps its contents while it waits. */
struct pool_node {
	_Alignas(16) struct pool_node *next;
};

void object_pool_init(struct object_pool *p, size_t object_bytes, size_t max)
{
	*p = (struct object_pool){.object_bytes = object_bytes, .max = max};
}

void *object_pool_get(struct object_pool *p)
{
	struct pool_node *node = p->free_list;
	if (LIKELY(node)) {
		p->free_list = node->next;
	} else {
		if (p->live >= p->max)
			return NULL;
		node = calloc(1, sizeof(*node) + p->object_bytes);
		if (!node)
			return NULL;
	}
	p->live++;
	return node + 1;
}

void object_pool_put(struct object_pool *p, void *object)
{
	if (!object)
		return;
	struct pool_node *node = (struct pool_node *)object - 1;
	node->next = p->free_list;
	p->free_list = node;
	ASSERT(p->live > 0);
	p->live--;
}

void object_pool_release(struct object_pool *p)
{
	ASSERT(p->live == 0);
	struct pool_node *node = p->free_list;
	while (node) {
		struct pool_node *next = node->next;
		free(node);
		node = next;
	}
	p->free_list = NULL;
}
