/*
 * A store that fails when told to. It decorates another one: calls go through unless a rule of the spec meets
 * their number. Rules are read once; calls are counted per operation over all threads.
 */
#include "store/backends.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { RULES_MAX = 32, SLOW = -100 /* beside the error codes */, SLOW_MS = 300 };

enum op {
	OP_LOOKUP,
	OP_APPLY,
	OP_LIST,
	OP_TAGGED,
	OP_CLICKS,
	OP_PERMITTED,
	OP_OVER,
	OP_USERS,
	OP_KEYS,
	OP_ACCOUNTS,
	OP_LEASE,
	OP_CONSTANT,
	OP_PING,
	OP_VERSION,
	OP_CLAIM,
	OP_COUNT
};

static const char *const op_names[OP_COUNT] = {"lookup",    "apply",    "list",  "tagged",  "clicks",
                                               "permitted", "over",     "users", "keys",    "accounts",
                                               "lease",     "constant", "ping",  "version", "claim"};

static const int error_codes[] = {ERR_UNAVAILABLE, ERR_UNCERTAIN, ERR_CORRUPT, ERR_BUSY, ERR_NOMEM};

struct rule { /* calls `first` to `last`, counted from 1, fail with `error` */
	enum op op;
	int error;
	uint64_t first;
	uint64_t last;
};

struct store_fault {
	struct store base;
	struct store_ops ops; /* it has what `inner` has */
	struct store *inner;
	size_t rule_count;
	struct rule rules[RULES_MAX];
	_Atomic uint64_t calls[OP_COUNT];
};

static struct store_fault *self(struct store *base)
{
	return container_of(base, struct store_fault, base);
}

/* Counts the call; the error that it shall have, or 0. The first rule that meets it decides. */
static int fault_of_call(struct store_fault *s, enum op op)
{
	uint64_t call = atomic_fetch_add(&s->calls[op], 1) + 1;
	for (size_t i = 0; i < s->rule_count; i++) {
		const struct rule *rule = &s->rules[i];
		if (rule->op == op && call >= rule->first && call <= rule->last)
			return rule->error;
	}
	return 0;
}

static int fault_lookup(struct store *base, struct store_lookup *reads, size_t n)
{
	struct store_fault *s = self(base);
	int fault = fault_of_call(s, OP_LOOKUP);
	if (fault != 0 && fault != SLOW)
		return fault;
	int r = store_lookup(s->inner, reads, n);
	if (fault == SLOW)
		nanosleep(&(struct timespec){.tv_nsec = SLOW_MS * 1000000L}, NULL);
	return r;
}

/* The work is done and nothing of it comes back, as when an answer is lost on its way. */
static int apply_uncertain(struct store_fault *s, const struct store_write *writes, size_t n)
{
	struct store_write *copies = calloc(n, sizeof(*copies));
	if (n > 0 && !copies)
		return ERR_NOMEM;
	if (n > 0)
		memcpy(copies, writes, n * sizeof(*copies));
	int r = store_apply(s->inner, copies, n);
	free(copies);
	return r ? r : ERR_UNCERTAIN;
}

static int fault_apply(struct store *base, struct store_write *writes, size_t n)
{
	struct store_fault *s = self(base);
	int fault = fault_of_call(s, OP_APPLY);
	if (fault == ERR_UNCERTAIN)
		return apply_uncertain(s, writes, n);
	return fault ? fault : store_apply(s->inner, writes, n);
}

static int fault_list(struct store *base, struct store_list *page)
{
	struct store_fault *s = self(base);
	int fault = fault_of_call(s, OP_LIST);
	return fault ? fault : store_list(s->inner, page);
}

static int fault_tagged(struct store *base, struct str tag, size_t max, uint64_t *ret_ids, size_t *ret_count)
{
	struct store_fault *s = self(base);
	int fault = fault_of_call(s, OP_TAGGED);
	return fault ? fault : store_tagged(s->inner, tag, max, ret_ids, ret_count);
}

static int fault_set_clicks(struct store *base, uint64_t node, const struct store_count *counts, size_t n)
{
	struct store_fault *s = self(base);
	int fault = fault_of_call(s, OP_CLICKS);
	return fault ? fault : store_set_clicks(s->inner, node, counts, n);
}

static int fault_permitted(struct store *base, uint64_t link, struct arena *arena, uint64_t **ret,
                           size_t *ret_count)
{
	struct store_fault *s = self(base);
	int fault = fault_of_call(s, OP_PERMITTED);
	return fault ? fault : store_permitted(s->inner, link, arena, ret, ret_count);
}

static int fault_over(struct store *base, struct store_over *over)
{
	struct store_fault *s = self(base);
	int fault = fault_of_call(s, OP_OVER);
	return fault ? fault : store_over(s->inner, over);
}

static int fault_users(struct store *base, struct store_users *page)
{
	struct store_fault *s = self(base);
	int fault = fault_of_call(s, OP_USERS);
	return fault ? fault : store_users(s->inner, page);
}

static int fault_keys(struct store *base, struct store_keys *page)
{
	struct store_fault *s = self(base);
	int fault = fault_of_call(s, OP_KEYS);
	return fault ? fault : store_keys(s->inner, page);
}

static int fault_accounts(struct store *base, struct store_account *reads, size_t n, struct arena *arena)
{
	struct store_fault *s = self(base);
	int fault = fault_of_call(s, OP_ACCOUNTS);
	return fault ? fault : store_accounts(s->inner, reads, n, arena);
}

static int fault_lease(struct store *base, struct str counter, uint64_t count, uint64_t *ret_first)
{
	struct store_fault *s = self(base);
	int fault = fault_of_call(s, OP_LEASE);
	return fault ? fault : store_lease(s->inner, counter, count, ret_first);
}

static int fault_constant(struct store *base, struct str name, void *value, size_t len)
{
	struct store_fault *s = self(base);
	int fault = fault_of_call(s, OP_CONSTANT);
	return fault ? fault : store_constant(s->inner, name, value, len);
}

static int fault_forget(struct store *base, struct str from, struct str before)
{
	struct store_fault *s = self(base);
	int fault = fault_of_call(s, OP_CONSTANT);
	return fault ? fault : s->inner->ops->forget(s->inner, from, before);
}

static int fault_ping(struct store *base, struct err *e)
{
	struct store_fault *s = self(base);
	int fault = fault_of_call(s, OP_PING);
	return fault ? err_set(e, fault, "the store was told to fail: %s", err_name(fault))
	             : store_ping(s->inner, e);
}

static int fault_version(struct store *base, uint64_t *ret)
{
	struct store_fault *s = self(base);
	int fault = fault_of_call(s, OP_VERSION);
	return fault ? fault : s->inner->ops->version(s->inner, ret);
}

static int fault_claim(struct store *base, int64_t now_ms, uint64_t rest_ms, size_t max, uint64_t *ret_ids,
                       size_t *ret_count)
{
	struct store_fault *s = self(base);
	int fault = fault_of_call(s, OP_CLAIM);
	return fault ? fault : s->inner->ops->claim(s->inner, now_ms, rest_ms, max, ret_ids, ret_count);
}

static void fault_free(struct store *base)
{
	struct store_fault *s = self(base);
	store_free(s->inner);
	free(s);
}

static const struct store_ops fault_ops = {
    .free = fault_free,
    .lookup = fault_lookup,
    .apply = fault_apply,
    .list = fault_list,
    .tagged = fault_tagged,
    .set_clicks = fault_set_clicks,
    .permitted = fault_permitted,
    .over = fault_over,
    .users = fault_users,
    .keys = fault_keys,
    .accounts = fault_accounts,
    .lease = fault_lease,
    .constant = fault_constant,
    .ping = fault_ping,
};

static bool parse_op(struct str name, enum op *ret)
{
	for (size_t i = 0; i < OP_COUNT; i++) {
		if (str_eq(name, str_of(op_names[i]))) {
			*ret = (enum op)i;
			return true;
		}
	}
	return false;
}

static bool parse_error(struct str name, int *ret)
{
	for (size_t i = 0; i < ARRAY_LEN(error_codes); i++) {
		if (str_eq(name, str_of(err_name(error_codes[i])))) {
			*ret = error_codes[i];
			return true;
		}
	}
	return false;
}

/* "3" is from the third on, "3!" the third only, nothing at all is every call. */
static bool parse_calls(struct str text, struct rule *rule)
{
	rule->first = 1;
	rule->last = UINT64_MAX;
	if (!text.ptr)
		return true;
	bool only = str_ends(text, STR("!"));
	if (only)
		text.len--;
	if (!str_u64(text, &rule->first) || rule->first == 0)
		return false;
	if (only)
		rule->last = rule->first;
	return true;
}

static int parse_rule(struct str text, struct rule *rule, struct err *e)
{
	struct str rest = text;
	struct str op = str_cut(&rest, '=');
	struct str error = str_cut(&rest, '@');
	if (!parse_op(op, &rule->op))
		return err_set(
		    e, ERR_INVALID,
		    "fault '%.*s': '%.*s' is none of lookup, apply, list, tagged, clicks, permitted, "
		    "over, users, user, sessions, keys, lease, constant, ping, version, claim",
		    STR_ARG(text), STR_ARG(op));
	if (rule->op == OP_LOOKUP && str_eq(error, STR("slow")))
		rule->error = SLOW;
	else if (!parse_error(error, &rule->error))
		return err_set(
		    e, ERR_INVALID,
		    "fault '%.*s': the error must be unavailable, uncertain, corrupt, busy or no-memory",
		    STR_ARG(text));
	if (!parse_calls(rest, rule))
		return err_set(
		    e, ERR_INVALID,
		    "fault '%.*s': after '@' comes the number of a call from 1, with '!' for that one only",
		    STR_ARG(text));
	return 0;
}

static int parse_spec(struct store_fault *s, struct str spec, struct err *e)
{
	if (spec.len == 0)
		return 0;
	while (spec.ptr) {
		struct str text = str_cut(&spec, ',');
		if (s->rule_count == RULES_MAX)
			return err_set(e, ERR_INVALID, "more than %d faults", RULES_MAX);
		int r = parse_rule(text, &s->rules[s->rule_count], e);
		if (r != 0)
			return r;
		s->rule_count++;
	}
	return 0;
}

int store_fault_open(const char *spec, struct store *inner, struct store **ret, struct err *e)
{
	struct store_fault *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "memory ran out");
	int r = parse_spec(s, str_of(spec), e);
	if (r != 0) {
		free(s);
		return r;
	}
	s->ops = fault_ops;
	s->ops.version = inner->ops->version ? fault_version : NULL;
	s->ops.forget = inner->ops->forget ? fault_forget : NULL;
	s->ops.claim = inner->ops->claim ? fault_claim : NULL;
	s->base.ops = &s->ops;
	s->inner = inner;
	*ret = &s->base;
	return 0;
}
