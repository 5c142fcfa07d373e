/*
 * The conformance suite of the role `lease`: every promise of lease/lease.h as a test, among threads and
 * among processes. A backend passes by running it from tests/conformance/lease_test.c.
 */
#pragma once

#include "lease/lease.h"

struct lease_backend {
	const char *name;
	const char *missing; /* why it is not there, when it is not */
	const char *address; /* of its server, or its folder; NULL: its tests are skipped */
	int (*open)(const char *address, struct leases **ret, struct err *e);
	bool has_server; /* at the address HOST:PORT, from which it can be cut off */
	bool expires;    /* a holder that does not renew its lease loses it */
};

/* How many tests failed. */
int lease_suite_run(const struct lease_backend *backend);

/* A test program calls itself in order to have other processes. True: this is such a call, and *ret_status is
 * what main returns. `backends` without their addresses. */
bool lease_suite_is_puppet(int argc, char **argv, const struct lease_backend *backends, size_t n,
                           int *ret_status);
