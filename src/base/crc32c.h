/* CRC-32C (Castagnoli), the checksum that processors compute: a flipped, zeroed or lost byte shows. */
#pragma once

#include "base/def.h"

/* Continues `crc` (0 to begin) over the bytes. */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);

/* The same without the processor's help. */
uint32_t crc32c_portable(uint32_t crc, const void *data, size_t len);
