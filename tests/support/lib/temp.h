/* A fresh folder of a test's own: CLEANUP(temp_release) struct temp dir; temp_init(&dir); */
#pragma once

#include "base/def.h"

enum { TEMP_PATH_BYTES = 256 };

struct temp {
	char path[TEMP_PATH_BYTES / 2];
};

void temp_init(struct temp *t);
void temp_release(struct temp *t); /* and everything in it */

/* The path of `name` in the folder, in `out`, which is also returned. */
char *temp_path(const struct temp *t, const char *name, char out[TEMP_PATH_BYTES]);
