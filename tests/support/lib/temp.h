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

/* The folder of the test that runs, as a fixture. Its begin silences the log, its end clears all faults. */
extern struct temp test_dir;
int test_dir_make(void **state);
int test_dir_remove(void **state);
