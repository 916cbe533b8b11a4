# find_package(dsv41c) gives the target dsv41c::dsv41c.
if(NOT TARGET dsv41c::dsv41c)
  get_filename_component(_dsv41c_lib "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
  add_library(dsv41c::dsv41c SHARED IMPORTED)
  set_target_properties(dsv41c::dsv41c PROPERTIES
    IMPORTED_LOCATION "${_dsv41c_lib}/libdsv41c.so.1"
    IMPORTED_SONAME libdsv41c.so.1
    INTERFACE_INCLUDE_DIRECTORIES "${_dsv41c_lib}/../include")
  unset(_dsv41c_lib)
endif()
