/* An intrusive, circular, doubly linked list. A head is a node that points at itself. */
#pragma once

#include "base/def.h"

struct list {
	struct list *prev;
	struct list *next;
};

static inline void list_init(struct list *l)
{
	l->prev = l->next = l;
}

static inline bool list_empty(const struct list *head)
{
	return head->next == head;
}

static inline void list_push(struct list *head, struct list *node) /* at the tail */
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

/* Leaves the node pointing at itself, so removing twice is harmless. */
static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

static inline struct list *list_pop(struct list *head) /* from the front; NULL when empty */
{
	struct list *node = head->next;
	if (node == head)
		return NULL;
	list_remove(node);
	return node;
}

/* Moves all of `from` to the tail of `to`. */
static inline void list_splice(struct list *to, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}
