/*
 * Memory that lock-free readers might still see is freed after every reader has passed a quiescent point
 * (QSBR, from liburcu). Event loops are the readers. They hold no such pointer across turns, so the end of
 * each turn is their quiescent point; while they sleep they are offline.
 */
#pragma once

/* A reader thread: from here on it must pass quiescent points or be offline. */
void reclaim_reader_register(void);
void reclaim_reader_unregister(void);
void reclaim_reader_quiescent(void);
void reclaim_reader_offline(void); /* about to sleep: holds no shared pointer */
void reclaim_reader_online(void);

/* Returns when every reader has passed a quiescent point since the call: what was unlinked before may be
 * freed. Never called by a registered reader. */
void reclaim_wait(void);
