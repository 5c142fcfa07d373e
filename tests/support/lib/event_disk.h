/*
 * A disk that remembers: everything that goes through os/sys.h to the files of one folder is recorded in its
 * order, and later the folder can be made again as it was at any moment, with some of what was not synced by
 * then lost, or written in part. Syncs themselves are recorded, not done.
 *
 * What is in a file is on the disk after an fsync or fdatasync of it; that a name stands for it, after an
 * fsync of the folder. Of names that are not on the disk any first few may be (a journal keeps their order);
 * of writes any, and of a write any sectors.
 */
#pragma once

#include "base/def.h"

enum { DISK_SECTOR_BYTES = 512 };

void disk_record(const char *folder); /* from here on; replaces the table of os/sys.h */
void disk_stop(void);                 /* puts the system's own back */
void disk_release(void);              /* forgets the record */

size_t disk_moment(void); /* now: how many things were recorded */

enum disk_loss {
	DISK_KILLED, /* only the process died: all is there, but of the last write perhaps a part */
	DISK_POWER,  /* of what was not synced, some */
	DISK_WORST,  /* nothing but what was synced */
};

/* Empties the folder and fills it with what was there at the moment; `*random` is a state, not 0. */
void disk_restore(const char *folder, size_t moment, enum disk_loss loss, uint64_t *random);
