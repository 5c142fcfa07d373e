#include "base/crc32c.h"

#include <pthread.h>

#define POLYNOMIAL 0x82f63b78U /* bits reversed */

static uint32_t table[256];

static void table_make(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
		table[byte] = crc;
	}
}

uint32_t crc32c_portable(uint32_t crc, const void *data, size_t len)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, table_make);
	crc = ~crc;
	for (const unsigned char *p = data; len > 0; len--)
		crc = crc >> 8 ^ table[(crc ^ *p++) & 0xff];
	return ~crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t by_processor(uint32_t crc, const unsigned char *p,
                                                               size_t len)
{
	uint64_t wide = crc;
	for (; len >= 8; len -= 8, p += 8) {
		uint64_t word;
		__builtin_memcpy(&word, p, 8);
		wide = __builtin_ia32_crc32di(wide, word);
	}
	crc = (uint32_t)wide;
	for (; len > 0; len--)
		crc = __builtin_ia32_crc32qi(crc, *p++);
	return crc;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
	return __builtin_cpu_supports("sse4.2") ? ~by_processor(~crc, data, len)
	                                        : crc32c_portable(crc, data, len);
}
#else
uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
	return crc32c_portable(crc, data, len);
}
#endif
