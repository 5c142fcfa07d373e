/*
 * The role `sink` on a ClickHouse database, 18.16 or later, written by any number of workers and queried by
 * any number of servers.
 *
 * ClickHouse has no transactions, so nothing depends on one. Every row carries its event's id in the sorting
 * key of its table, and queries count one row per id: a row inserted twice counts once. So this sink keeps no
 * positions (`resume` is NULL), and its commit does not detect duplicates (`find_duplicates` does).
 *
 * Its guarantees are weaker than those of the other backends:
 *
 *	atomicity    A commit is one INSERT per table, and an INSERT is atomic only within one day. A query
 *	             may see a commit's visits before its impressions, or one day before another.
 *	consistency  A query is one SELECT, except that unique visitors are a second one.
 *	durability   Commits survive power loss once the server's operating system has written them to disk.
 *
 * Counts are never folded: they stay exact to the millisecond until their day expires.
 */
#pragma once

#include "sink/settings.h"
#include "sink/sink.h"

/* Creates the database and the tables if needed. client/clickhouse.h describes the URL. */
int sink_clickhouse_open(const char *url, const struct sink_settings *settings, struct sink **ret,
                         struct err *e);
