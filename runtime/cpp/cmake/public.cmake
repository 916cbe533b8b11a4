# libdsv41c.so.1 with its header, pkg-config file and CMake package. There is no libdsv41c.so: both name the file.
set(DSV41C_API_EXPORTS "${CMAKE_CURRENT_SOURCE_DIR}/cmake/api.map")
add_library(dsv41c SHARED)
target_link_libraries(dsv41c PRIVATE dsv41c_objects Threads::Threads ${CMAKE_DL_LIBS})
# Never unloaded: a callback may still be on its way when the last handle is gone.
target_link_options(dsv41c PRIVATE "-Wl,--version-script=${DSV41C_API_EXPORTS}" -Wl,-z,nodelete)
set_target_properties(dsv41c PROPERTIES SUFFIX ".so.1" LINK_DEPENDS "${DSV41C_API_EXPORTS}")

configure_file(cmake/dsv41c.pc.in dsv41c.pc @ONLY)
configure_file(cmake/dsv41cConfigVersion.cmake.in dsv41cConfigVersion.cmake @ONLY)
install(TARGETS dsv41c LIBRARY DESTINATION ${DSV41C_LIB_DIR})
install(FILES include/dsv41c/dsv41c.h DESTINATION ${DSV41C_LIB_DIR}/../include/dsv41c)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/dsv41c.pc" DESTINATION ${DSV41C_LIB_DIR}/pkgconfig)
install(FILES cmake/dsv41cConfig.cmake "${CMAKE_CURRENT_BINARY_DIR}/dsv41cConfigVersion.cmake"
        DESTINATION ${DSV41C_LIB_DIR}/cmake/dsv41c)
