/* The queue of events: servers write to it, workers read it. */
#pragma once

#include "config/config.h"

struct queue_settings {
	char *url;           /* "": the event log itself; kafka://host:port,host:port */
	char *group;         /* of workers that share the events */
	char *prefix;        /* of the topics' names */
	uint64_t partitions; /* of topics that curt creates */
	char *options;       /* librdkafka's, "name=value,name=value" */
};

extern const struct conf_row queue_rows[];
extern const size_t queue_row_count;
