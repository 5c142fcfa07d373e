/*
 * Kafka, through librdkafka: a producer whose messages are acknowledged one by one, and a consumer in a
 * group.
 *
 * A producer and a consumer each belong to one thread; librdkafka has its own threads behind them. Every
 * blocking call is bounded. Errors name the brokers, never a password: passwords are only in the options.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum { KAFKA_TOPICS_MAX = 4 };

/* All pointers must outlive what is created from it. */
struct kafka_config {
	const char *brokers; /* host:port, several separated by commas */
	const char *options; /* librdkafka properties: "name=value,name=value", a comma in a value doubled */
	const char *topics[KAFKA_TOPICS_MAX];
	unsigned topic_count;
	unsigned partitions; /* of topics that are created because they are missing */
};

/* "kafka://host:port,host:port": the brokers, which point into it. ERR_INVALID. */
int kafka_url_brokers(const char *url, const char **ret, struct err *e);

/* Are these properties known to librdkafka, with such values? ERR_INVALID. */
int kafka_options_check(const char *options, struct err *e);

/* Producer */

enum kafka_outgoing_state {
	MESSAGE_NEW,
	MESSAGE_SENT,      /* sent, not acknowledged */
	MESSAGE_DELIVERED, /* all in-sync replicas have it */
};

/* Messages with the same key go to one partition, in the order in which they were sent. */
struct kafka_outgoing {
	unsigned topic; /* index into config.topics */
	enum kafka_outgoing_state state;
	struct str key, value;
};

struct kafka_producer;

/* ERR_INVALID: wrong options. Does not connect yet. */
int kafka_producer_new(const struct kafka_config *config, struct kafka_producer **ret, struct err *e);

/* Undelivered messages may still arrive. Takes NULL. */
void kafka_producer_free(struct kafka_producer *p);

/* Does a broker answer? ERR_UNAVAILABLE. Sends nothing, creates no topics. */
int kafka_producer_ping(struct kafka_producer *p, uint64_t timeout_ms, struct err *e);

/*
 * Sends new messages, and waits until all are delivered; creates missing topics first.
 *
 *	0                 all are delivered
 *	ERR_UNAVAILABLE   not yet; call again with the same messages, which are not sent twice
 *	ERR_UNCERTAIN     this producer has failed permanently; free it, and send the undelivered messages
 *	                  with another one; they may then arrive twice
 *
 * The bytes must stay until they are delivered, or the producer is freed.
 */
int kafka_producer_send(struct kafka_producer *p, struct kafka_outgoing *messages, size_t count,
                        uint64_t timeout_ms, struct err *e);

/* Consumer */

enum { KAFKA_OFFSET_NONE = -1, KAFKA_READ_MAX = 1024 };

struct kafka_place {
	unsigned topic;
	int32_t partition;
	int64_t offset; /* offset of the next message */
};

struct kafka_message {
	unsigned topic;
	int32_t partition;
	int64_t offset;
	int64_t time_ms; /* timestamp of the producer or broker; 0: none */
	struct str value;
};

/* Group events, on the consumer's thread, within kafka_consumer_read. They also come without partitions
 * when the group changes for others: librdkafka then drops what it had fetched of partitions that stay. So
 * these must be sought again (kafka_consumer_seek). */
struct kafka_listener {
	/* Partitions assigned to this consumer, perhaps none: kafka_consumer_start must follow, with all of
	 * them. */
	void (*assigned)(void *ctx, const struct kafka_place *places, size_t count);
	/* Partitions revoked. The messages that were just read may still contain some of theirs. */
	void (*taken)(void *ctx, const struct kafka_place *places, size_t count);
	void *ctx;
};

struct kafka_consumer;

int kafka_consumer_new(const struct kafka_config *config, const char *group,
                       const struct kafka_listener *listener, struct kafka_consumer **ret, struct err *e);

/* Leaves the group if that is possible at once. Otherwise the group notices later, and librdkafka's memory
 * stays until the process ends (which then skips library destructors). No more callbacks. */
void kafka_consumer_free(struct kafka_consumer *c);

/* The cluster id; STR_NULL: unknown yet. */
struct str kafka_consumer_cluster(struct kafka_consumer *c, uint64_t timeout_ms);

/* Reads at most KAFKA_READ_MAX messages; waits up to the timeout for the first. Valid until the next call. */
size_t kafka_consumer_read(struct kafka_consumer *c, uint64_t timeout_ms, const struct kafka_message **ret);

/* The bounds of a partition. */
struct kafka_bounds {
	int64_t group; /* committed offset of the group; KAFKA_OFFSET_NONE: none */
	int64_t first; /* first available offset, or the next one if there are no messages */
};

/* Reads the bounds of each partition; the given offsets do not matter. ERR_UNAVAILABLE. At most twice the
 * timeout. */
int kafka_consumer_find(struct kafka_consumer *c, const struct kafka_place *places, size_t count,
                        struct kafka_bounds *ret, uint64_t timeout_ms);

/* False: they were started already, at the group's offsets, because the group did not wait. */
bool kafka_consumer_start(struct kafka_consumer *c, const struct kafka_place *places, size_t count);

/* Continues a partition at another offset, and drops what was fetched. 0, or ERR_UNAVAILABLE: not yet. */
int kafka_consumer_seek(struct kafka_consumer *c, const struct kafka_place *place);

/* Commits offsets to the group, without waiting. */
void kafka_consumer_commit(struct kafka_consumer *c, const struct kafka_place *places, size_t count);

/* The end offset of an assigned partition, as last known; KAFKA_OFFSET_NONE: unknown. */
int64_t kafka_consumer_end(struct kafka_consumer *c, unsigned topic, int32_t partition);

/* Likewise the first offset. Earlier messages were deleted. */
int64_t kafka_consumer_first(struct kafka_consumer *c, unsigned topic, int32_t partition);

/* 0, or why no messages arrive. Checks whether a problem is over, and creates missing topics; takes a
 * second at most. */
int kafka_consumer_trouble(struct kafka_consumer *c, struct err *e);
