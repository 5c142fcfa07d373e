/* Files that are compiled into the binary. */
#pragma once

#include "base/str.h"

struct str asset_openapi(void);
