/* Numbers as they are stored and sent: little-endian on every machine. */
#pragma once

#include "base/def.h"

static inline void bytes_put(void *to, uint64_t value, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)to)[i] = (uint8_t)(value >> 8 * i);
}

static inline uint64_t bytes_get(const void *from, size_t len)
{
	uint64_t value = 0;
	for (size_t i = 0; i < len; i++)
		value |= (uint64_t)((const uint8_t *)from)[i] << 8 * i;
	return value;
}
