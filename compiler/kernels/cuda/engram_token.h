// What the token ring holds of a row.
#pragma once

#include "row_view.h"

DEVICE int raw_token(Row row) { return row.image() ? -1 : row[TOKEN]; }
