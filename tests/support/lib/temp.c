#include "lib/temp.h"

#include "lib/os_fault.h"
#include "obs/log.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void temp_init(struct temp *t)
{
	const char *base = getenv("TMPDIR");
	int len = snprintf(t->path, sizeof(t->path), "%s/curt-test-XXXXXX", base ? base : "/tmp");
	ASSERT(len > 0 && (size_t)len < sizeof(t->path));
	const char *made = mkdtemp(t->path);
	ASSERT(made);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void temp_release(struct temp *t)
{
	nftw(t->path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

char *temp_path(const struct temp *t, const char *name, char out[TEMP_PATH_BYTES])
{
	int len = snprintf(out, TEMP_PATH_BYTES, "%s/%s", t->path, name);
	ASSERT(len > 0 && len < TEMP_PATH_BYTES);
	return out;
}

struct temp test_dir;

int test_dir_make(void **state)
{
	temp_init(&test_dir);
	log_level_set(LOG_ERROR + 1);
	return 0;
}

int test_dir_remove(void **state)
{
	os_fault_reset();
	temp_release(&test_dir);
	return 0;
}
