/* Bounds on what a client may send. Settings of the section `limits`. */
#pragma once

#include "base/def.h"

enum { HTTP_FIELDS_MAX = 256 }; /* what headers_max may be set to at most */

struct http_limits {
	uint64_t line_bytes_max;    /* request line; beyond: 414 */
	uint64_t headers_bytes_max; /* all field lines together; beyond: 431 */
	uint64_t headers_max;       /* their number; beyond: 431 */
	uint64_t body_bytes_max;    /* beyond: 413 */
};
