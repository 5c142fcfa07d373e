/* Fault injection into a store and its registry (store_fault_open in backends.h). */
#pragma once

#include "base/err.h"

enum store_op {
	STORE_OP_LOOKUP,
	STORE_OP_APPLY, /* of either role */
	STORE_OP_LIST,
	STORE_OP_TAGGED,
	STORE_OP_CLICKS,
	STORE_OP_PERMITTED,
	STORE_OP_EXPIRED,
	STORE_OP_USERS,
	STORE_OP_KEYS,
	STORE_OP_ACCOUNTS,
	STORE_OP_LEASE,
	STORE_OP_COUNTER,
	STORE_OP_CONSTANT,
	STORE_OP_PING,
	STORE_OP_CLAIM,
	STORE_OP_COUNT
};

struct store_fault;

/* 0, or the error that this call must return. */
int store_fault_hit(struct store_fault *f, enum store_op op);

#define STORE_CALL(s, op, call)                                                                  \
	({                                                                                       \
		int fault_ = UNLIKELY((s)->fault != NULL) ? store_fault_hit((s)->fault, op) : 0; \
		fault_ ? fault_ : (call);                                                        \
	})
