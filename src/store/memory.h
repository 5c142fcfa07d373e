/*
 * What the store in memory is made of. For its own files only: store_memory.c has the role's operations,
 * memory_links.c and memory_accounts.c the changes, memory_table.c what has to be found, memory_part.c and
 * memory_move.c what it takes to be part of a ring.
 *
 * A change makes room for everything it will add before it adds anything: it happens whole or not at all.
 */
#pragma once

#include "base/list.h"
#include "store/store.h"

#include <pthread.h>
#include <stdatomic.h>

/* Pointers, sorted by an order that takes two of them. The table does not own what they point at. */
struct table {
	void **items;
	size_t count;
	size_t cap;
	int (*order)(const void *a, const void *b);
};

/* Where the first item stands that is not before `like`. */
size_t table_position(const struct table *t, const void *like);
void *table_find(const struct table *t, const void *like);
bool table_reserve(struct table *t);
void table_add(struct table *t, void *item); /* room was reserved */
void table_remove(struct table *t, const void *item);
/* Puts an item in the place of another that is its equal in the table's order. */
void table_replace(struct table *t, const void *item, void *by);
/* Takes `count` items out and frees them. */
void table_cut(struct table *t, size_t at, size_t count);
void table_free(struct table *t, bool with_items);

int order_u64(uint64_t a, uint64_t b);
int order_i64(int64_t a, int64_t b);

/* Moves a string to *at, which goes on behind it. */
void str_place(struct str *s, char **at);

/* Each node is one allocation: its strings stand behind it. */
struct link_node {
	struct link_record link;
	struct str name; /* of a generated link too, though its record does not tell it */
	char text[];
};

struct permit_node {
	uint64_t link;
	uint64_t user;
};

struct rest_node { /* an alias that only its last owner may take */
	struct str name;
	uint64_t owner;
	int64_t until_ms;
	char text[];
};

struct replay_node {
	uint64_t owner;
	struct str key;
	uint8_t fingerprint[FINGERPRINT_BYTES];
	uint64_t link;
	struct str name; /* of that link */
	int64_t created_ms;
	char text[];
};

struct route_node { /* see struct part_route */
	uint64_t owner;
	struct str key;
	struct link_ref ref;
	uint64_t link;
	bool is_alias;
	int64_t created_ms;
	char text[];
};

struct user_node {
	struct user_record user;
	char text[];
};

struct session_node {
	struct session_record session;
};

struct key_node {
	struct key_record key;
	char text[];
};

struct named_node { /* a counter or a constant */
	struct str name;
	uint64_t next;
	struct str value;
	char text[];
};

struct store_memory {
	struct store base;
	atomic_uint calls;                                        /* under way */
	pthread_mutex_t lock;                                     /* guards all below */
	struct table links, links_by_owner, links_by_over, names; /* of struct link_node */
	struct table permits;                                     /* of struct permit_node */
	struct table rests, rests_by_end;                         /* of struct rest_node */
	struct table replays, replays_by_age, replays_by_name;    /* of struct replay_node */
	struct table users, users_by_email;                       /* of struct user_node */
	struct table sessions, sessions_by_end;                   /* of struct session_node */
	struct table keys;                                        /* of struct key_node, by id */
	struct table counters, constants;                         /* of struct named_node */
	struct table routes, routes_by_age;                       /* of struct route_node */
	uint64_t epoch;
	char *ring;           /* its description; NULL: in none */
	struct list moves;    /* of struct part_move: what lies under their keys waits */
	pthread_cond_t moved; /* one has ended */
};

void memory_enter(struct store_memory *s);
void memory_leave(struct store_memory *s);

void memory_links_read(const struct store_memory *s, struct store_lookup *reads, size_t n);
void memory_change(struct store_memory *s, struct store_write *writes, size_t n, bool in_ring);

void memory_links_init(struct store_memory *s);
void memory_links_release(struct store_memory *s);
struct link_node *memory_link_by_id(const struct store_memory *s, uint64_t id);
struct link_node *memory_link_find(const struct store_memory *s, struct link_ref ref);
int memory_link_give(const struct link_node *node, struct arena *arena, struct link_record *ret);
uint64_t memory_counter_next(const struct store_memory *s, struct str name);
bool memory_is_permitted(const struct store_memory *s, uint64_t link, uint64_t user);
void memory_link_remove(struct store_memory *s, struct link_node *node);
void memory_rest_remove(struct store_memory *s, struct rest_node *node);
void memory_replay_remove(struct store_memory *s, struct replay_node *node);
/* Each adds a copy, unless there is one of that name already: 0 or ERR_NOMEM. */
int memory_link_put(struct store_memory *s, const struct link_record *link, struct str name,
                    const uint64_t *users, size_t user_count);
int memory_rest_put(struct store_memory *s, const struct rest_node *rest);
int memory_replay_put(struct store_memory *s, const struct replay_node *replay);
/* `in_ring`: what the home alone knows was asked there (part.h). */
int memory_change_link(struct store_memory *s, struct store_write *w, bool in_ring);

struct part_move;

extern const struct store_part_ops memory_part_ops;
bool memory_epoch_fits(const struct store_memory *s, uint64_t epoch);
int memory_move_begin(struct store *from, uint64_t epoch, const struct str *keys, size_t n,
                      struct part_move **ret);
int memory_move_put(struct store *to, struct part_move *move);
int memory_move_end(struct store *from, struct part_move *move, bool done);
void memory_part_init(struct store_memory *s);
void memory_part_release(struct store_memory *s);
/* Waits until nothing of what the changes are about is being moved away. */
void memory_moves_wait(struct store_memory *s, const struct store_write *writes, size_t n);
/* The same for rows. */
void memory_moves_wait_rows(struct store_memory *s, const struct store_count *rows, size_t n);

int memory_keys_collect(const struct store_memory *s, struct store_keys *page);
int memory_account_find(const struct store_memory *s, struct store_account *read, struct arena *arena);
void memory_accounts_init(struct store_memory *s);
void memory_accounts_release(struct store_memory *s);
struct user_node *memory_user_by_id(const struct store_memory *s, uint64_t id);
struct user_node *memory_user_by_email(const struct store_memory *s, struct str email);
int memory_user_give(const struct user_node *node, struct arena *arena, struct user_record *ret);
int memory_key_give(const struct key_node *node, struct arena *arena, struct key_record *ret);
int memory_change_account(struct store_memory *s, struct store_write *w);
