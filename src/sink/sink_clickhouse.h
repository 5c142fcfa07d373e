/*
 * The role `sink` on a ClickHouse database, 18.16 or later, that any number of workers fill and any number of
 * servers ask.
 *
 * It has no transactions, so nothing depends on one. Every row carries its event's id in its table's sorting
 * key, and a question counts one row for each: whatever is given twice is counted once. So it keeps no
 * positions (`resume` is NULL), and takes all impressions for new (`recall` is what tells).
 *
 * What is weaker than elsewhere: a commit is one INSERT for each table, and one INSERT is seen at once only
 * within a day. So a question may see the visits of a commit and not yet its impressions, or those of one day
 * and not yet those of another; every question is answered by one SELECT, but for unique visitors, which are
 * asked for apart. What was committed survives power loss once the server's system has written it to disk, as
 * far as the server is set up to care.
 *
 * Nothing is folded: counts stay exact to the millisecond until their day goes.
 */
#pragma once

#include "sink/settings.h"
#include "sink/sink.h"

/* Makes the database and the tables that are missing. The form of a URL is in client/clickhouse.h. */
int sink_clickhouse_open(const char *url, const struct sink_settings *settings, struct sink **ret,
                         struct err *e);
