/*
 * A password from whoever runs a command: never from the arguments, which others on the machine can read. On
 * a terminal it is asked for twice and does not show; otherwise it is one line of standard input.
 */
#pragma once

#include "base/err.h"

enum { SECRET_BYTES_MAX = 1024 };

struct secret {
	char text[SECRET_BYTES_MAX];
	size_t len;
};

/* `whose` is for the prompt: "password for ada@example.com". Before any thread is started: a signal that ends
 * or stops the process first gives the terminal its echo back. */
int secret_read(struct secret *ret, const char *whose, struct err *e);

/* Overwrites it. */
void secret_wipe(struct secret *s);
