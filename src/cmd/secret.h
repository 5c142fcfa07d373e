/*
 * Reads a password, never from the arguments: other users of the machine can see those. On a terminal
 * it asks twice and does not show what is typed; otherwise it reads one line of standard input.
 */
#pragma once

#include "base/err.h"

enum { SECRET_BYTES_MAX = 1024 };

struct secret {
	char text[SECRET_BYTES_MAX];
	size_t len;
};

/* `whose` is the prompt: "password for ada@example.com". Call it before any thread starts: a signal that ends
 * or stops the process first restores the terminal's echo. */
int secret_read(struct secret *ret, const char *whose, struct err *e);

/* Overwrites it. */
void secret_wipe(struct secret *s);
