// Columns of an upload [rows,5], as kernels read them.
#pragma once

namespace dsv41c::cpu {

enum UploadColumn { U_SLOT, U_OFFSET, U_TOKEN, U_FLAGS, U_PAGE, NUM_UPLOAD_COLUMNS };

}  // namespace dsv41c::cpu
