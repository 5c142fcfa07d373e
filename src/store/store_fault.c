/* Fault injection: store.h asks this before each call. Rules are parsed once; calls are counted per
 * operation over all threads. */
#include "store/backends.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { RULES_MAX = 32, SLOW = -100 /* not an error code */, SLOW_MS = 300 };

static const char *const op_names[STORE_OP_COUNT] = {"lookup",    "apply",   "list",     "tagged", "clicks",
                                                     "permitted", "over",    "users",    "keys",   "accounts",
                                                     "lease",     "counter", "constant", "ping",   "claim"};

static const int error_codes[] = {ERR_UNAVAILABLE, ERR_UNCERTAIN, ERR_CORRUPT, ERR_BUSY, ERR_NOMEM};

struct rule { /* calls `first` to `last`, from 1, fail with `error` */
	enum store_op op;
	int error;
	uint64_t first;
	uint64_t last;
};

struct store_fault {
	size_t rule_count;
	struct rule rules[RULES_MAX];
	_Atomic uint64_t calls[STORE_OP_COUNT];
};

/* The first matching rule decides. */
int store_fault_hit(struct store_fault *f, enum store_op op)
{
	uint64_t call = atomic_fetch_add(&f->calls[op], 1) + 1;
	for (size_t i = 0; i < f->rule_count; i++) {
		const struct rule *rule = &f->rules[i];
		if (rule->op == op && call >= rule->first && call <= rule->last)
			return rule->error;
	}
	return 0;
}

int store_fault_lookup(struct store *s, struct store_lookup *reads, size_t n)
{
	int fault = store_fault_hit(s->fault, STORE_OP_LOOKUP);
	if (fault != 0 && fault != SLOW)
		return fault;
	int r = s->ops->lookup(s, reads, n);
	if (fault == SLOW)
		nanosleep(&(struct timespec){.tv_nsec = SLOW_MS * 1000000L}, NULL);
	return r;
}

/* For store and registry. `uncertain` applies the changes but returns nothing of them, as if the answer was
 * lost. */
#define FAULT_APPLY(role, writes, n)                                                                    \
	({                                                                                              \
		int fault_ = store_fault_hit((role)->fault, STORE_OP_APPLY);                            \
		bool is_lost_ = fault_ == ERR_UNCERTAIN;                                                \
		typeof(writes) copies_ = calloc((n) + 1, sizeof(*(writes)));                            \
		int result_ = copies_ ? fault_ : ERR_NOMEM;                                             \
		if (copies_ && is_lost_ && (n) > 0)                                                     \
			memcpy(copies_, writes, (n) * sizeof(*(writes)));                               \
		if (copies_ && (is_lost_ || fault_ == 0))                                               \
			result_ = (role)->ops->apply(role, is_lost_ ? copies_ : (writes), n) ?: fault_; \
		free(copies_);                                                                          \
		result_;                                                                                \
	})

int store_fault_apply(struct store *s, struct store_write *writes, size_t n)
{
	return FAULT_APPLY(s, writes, n);
}

int registry_fault_apply(struct registry *r, struct registry_write *writes, size_t n)
{
	return FAULT_APPLY(r, writes, n);
}

int store_fault_ping(struct store *s, struct err *e)
{
	int fault = store_fault_hit(s->fault, STORE_OP_PING);
	return fault ? err_set(e, fault, "injected fault: %s", err_name(fault)) : s->ops->ping(s, e);
}

void store_fault_free(struct store_fault *f)
{
	free(f);
}

static bool parse_op(struct str name, enum store_op *ret)
{
	for (size_t i = 0; i < STORE_OP_COUNT; i++) {
		if (str_eq(name, str_of(op_names[i]))) {
			*ret = (enum store_op)i;
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

/* "3": from the third call on; "3!": only the third; STR_NULL: every call. */
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
		return err_set(e, ERR_INVALID,
		               "fault '%.*s': unknown operation '%.*s'; use lookup, apply, list, tagged, "
		               "clicks, permitted, "
		               "over, users, keys, accounts, lease, counter, constant, ping or claim",
		               STR_ARG(text), STR_ARG(op));
	if (rule->op == STORE_OP_LOOKUP && str_eq(error, STR("slow")))
		rule->error = SLOW;
	else if (!parse_error(error, &rule->error))
		return err_set(
		    e, ERR_INVALID,
		    "fault '%.*s': unknown error; use unavailable, uncertain, corrupt, busy or no-memory",
		    STR_ARG(text));
	if (!parse_calls(rest, rule))
		return err_set(
		    e, ERR_INVALID,
		    "fault '%.*s': after '@' put a call number from 1, and '!' to fail only that call",
		    STR_ARG(text));
	return 0;
}

static int parse_spec(struct store_fault *f, struct str spec, struct err *e)
{
	if (spec.len == 0)
		return 0;
	while (spec.ptr) {
		struct str text = str_cut(&spec, ',');
		if (f->rule_count == RULES_MAX)
			return err_set(e, ERR_INVALID, "too many faults; at most %d are supported",
			               RULES_MAX);
		int r = parse_rule(text, &f->rules[f->rule_count], e);
		if (r != 0)
			return r;
		f->rule_count++;
	}
	return 0;
}

int store_fault_open(const char *spec, struct store *store, struct store **ret, struct err *e)
{
	struct store_fault *f = calloc(1, sizeof(*f));
	if (!f)
		return err_set(e, ERR_NOMEM, "out of memory");
	int r = parse_spec(f, str_of(spec), e);
	if (r != 0) {
		free(f);
		return r;
	}
	store->fault = store->registry->fault = f;
	*ret = store;
	return 0;
}
