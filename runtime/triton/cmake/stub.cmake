# Makes libraries that have a name and symbols and do nothing: what is linked against one finds the real one at run time.
function(dsv41c_stub target name symbols)
  set(text "")
  foreach(symbol IN LISTS symbols)
    string(APPEND text "void ${symbol}(void) {}\n")
  endforeach()
  file(GENERATE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${target}.c" CONTENT "${text}")
  add_library(${target} SHARED "${CMAKE_CURRENT_BINARY_DIR}/${target}.c")
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} C_VISIBILITY_PRESET default
                                             LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/stubs")
endfunction()
