/*
 * librdkafka's mock cluster in a process of its own, for machines where the real broker's jars cannot be had.
 * Usage: kafka_mock FILE: writes its port to FILE and runs until it is killed. What it holds goes with it.
 */
/* clang-format off: the second needs the first */
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
/* clang-format on */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int port_write(const char *path, const char *servers)
{
	const char *colon = strrchr(servers, ':');
	char temporary[4096];
	snprintf(temporary, sizeof(temporary), "%s.new", path);
	FILE *file = fopen(temporary, "w");
	if (!colon || !file)
		return -1;
	fprintf(file, "%s\n", colon + 1);
	return fclose(file) == 0 ? rename(temporary, path) : -1;
}

int main(int argc, char **argv)
{
	char why[512];
	if (argc != 2) {
		fputs("usage: kafka_mock FILE\n", stderr);
		return 2;
	}
	rd_kafka_t *client = rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), why, sizeof(why));
	rd_kafka_mock_cluster_t *cluster = client ? rd_kafka_mock_cluster_new(client, 1) : NULL;
	if (!cluster || port_write(argv[1], rd_kafka_mock_cluster_bootstraps(cluster)) < 0) {
		fprintf(stderr, "kafka_mock: no mock cluster: %s\n", client ? argv[1] : why);
		return 1;
	}
	for (;;)
		pause();
}
