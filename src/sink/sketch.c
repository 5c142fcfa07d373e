#include "sink/sketch.h"

#include <math.h>
#include <string.h>

enum { INDEX_BITS = 12, RANK_BITS = 32 - INDEX_BITS, RANK_MAX = RANK_BITS + 1 };

void sketch_init(struct sketch *s)
{
	s->dense = false;
	s->count = 0;
}

static bool dense_add(struct sketch *s, uint32_t hash)
{
	uint32_t index = hash >> RANK_BITS, rest = hash << INDEX_BITS;
	uint8_t rank = rest ? (uint8_t)(__builtin_clz(rest) + 1) : RANK_MAX;
	bool is_higher = rank > s->registers[index];
	if (is_higher)
		s->registers[index] = rank;
	return is_higher;
}

static void make_dense(struct sketch *s)
{
	uint32_t list[SKETCH_LIST_MAX];
	unsigned count = s->count;
	memcpy(list, s->list, sizeof(list));
	memset(s->registers, 0, sizeof(s->registers));
	s->dense = true;
	s->count = 0;
	for (unsigned i = 0; i < count; i++)
		dense_add(s, list[i]);
}

bool sketch_add(struct sketch *s, uint32_t hash)
{
	if (s->dense)
		return dense_add(s, hash);
	unsigned at = s->count;
	while (at > 0 && s->list[at - 1] > hash)
		at--;
	if (at > 0 && s->list[at - 1] == hash)
		return false;
	if (s->count == SKETCH_LIST_MAX) {
		make_dense(s);
		dense_add(s, hash);
		return true;
	}
	memmove(s->list + at + 1, s->list + at, (s->count - at) * sizeof(s->list[0]));
	s->list[at] = hash;
	s->count++;
	return true;
}

void sketch_merge(struct sketch *s, const struct sketch *from)
{
	if (from->dense && !s->dense)
		make_dense(s);
	for (unsigned i = 0; from->dense && i < SKETCH_REGISTERS; i++)
		s->registers[i] = MAX(s->registers[i], from->registers[i]);
	for (unsigned i = 0; !from->dense && i < from->count; i++)
		sketch_add(s, from->list[i]);
}

/* The two sums of Ertl's estimator (2017), which correct for empty and for saturated registers. Unlike the
 * original HyperLogLog it needs no switch between small and large counts. */
static double empty_part(double x)
{
	if (x == 1)
		return INFINITY;
	double before, y = 1, z = x;
	do {
		x *= x;
		before = z;
		z += x * y;
		y += y;
	} while (z != before);
	return z;
}

static double full_part(double x)
{
	if (x == 0 || x == 1)
		return 0;
	double before, y = 1, z = 1 - x;
	do {
		x = sqrt(x);
		before = z;
		y /= 2;
		z -= (1 - x) * (1 - x) * y;
	} while (z != before);
	return z / 3;
}

uint64_t sketch_estimate(const struct sketch *s)
{
	if (!s->dense)
		return s->count;
	unsigned with_rank[RANK_MAX + 1] = {0};
	for (size_t i = 0; i < SKETCH_REGISTERS; i++)
		with_rank[s->registers[i]]++;
	const double m = SKETCH_REGISTERS;
	double z = m * full_part(1 - with_rank[RANK_MAX] / m);
	for (int rank = RANK_MAX - 1; rank >= 1; rank--)
		z = (z + with_rank[rank]) / 2;
	z += m * empty_part(with_rank[0] / m);
	return (uint64_t)llround(m * m / (2 * M_LN2) / z);
}

/* Four registers are packed into three bytes. */
static bool read_registers(struct sketch *s, const uint8_t *in)
{
	for (size_t i = 0; i < SKETCH_REGISTERS; i += 4, in += 3) {
		uint32_t four = in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16;
		for (size_t k = 0; k < 4; k++, four >>= 6) {
			s->registers[i + k] = four & 0x3f;
			if (s->registers[i + k] > RANK_MAX)
				return false;
		}
	}
	s->dense = true;
	s->count = 0;
	return true;
}

bool sketch_read(struct sketch *ret, const void *data, size_t len)
{
	const uint8_t *in = data;
	sketch_init(ret);
	if (len == SKETCH_BYTES_MAX)
		return read_registers(ret, in);
	if (len % 4 != 0 || len / 4 > SKETCH_LIST_MAX)
		return false;
	for (size_t i = 0; i < len / 4; i++, in += 4) {
		ret->list[i] = in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
		if (i > 0 && ret->list[i] <= ret->list[i - 1])
			return false;
	}
	ret->count = (unsigned)(len / 4);
	return true;
}

size_t sketch_write(const struct sketch *s, uint8_t out[SKETCH_BYTES_MAX])
{
	if (!s->dense) {
		for (unsigned i = 0; i < s->count; i++)
			for (unsigned k = 0; k < 4; k++)
				out[i * 4 + k] = (uint8_t)(s->list[i] >> (8 * k));
		return (size_t)s->count * 4;
	}
	for (size_t i = 0; i < SKETCH_REGISTERS; i += 4, out += 3) {
		const uint8_t *in = s->registers + i;
		uint32_t four = in[0] | (uint32_t)in[1] << 6 | (uint32_t)in[2] << 12 | (uint32_t)in[3] << 18;
		out[0] = (uint8_t)four;
		out[1] = (uint8_t)(four >> 8);
		out[2] = (uint8_t)(four >> 16);
	}
	return SKETCH_BYTES_MAX;
}
