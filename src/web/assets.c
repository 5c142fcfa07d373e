#include "web/assets.h"

#define ASSET(name, path)                                                       \
	__asm__(".section .rodata\n"                                            \
	        ".balign 16\n" #name "_begin:\n"                                \
	        ".incbin \"" path "\"\n" #name "_end:\n"                        \
	        ".byte 0\n"                                                     \
	        ".previous\n");                                                 \
	extern const char name##_begin[] __attribute__((visibility("hidden"))); \
	extern const char name##_end[] __attribute__((visibility("hidden")))

ASSET(openapi, "src/web/openapi.json");

struct str asset_openapi(void)
{
	return str_n(openapi_begin, (size_t)(openapi_end - openapi_begin));
}
