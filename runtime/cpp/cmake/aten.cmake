# Adds libdsv41c_aten, linked against the torch of the building Python.
#
# find_package(Torch) is avoided: with a CUDA build of torch it demands a CUDA toolkit, which this library
# does not use, and it leaves absolute paths in the RUNPATH.
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c
          "import torch, pathlib; print(pathlib.Path(torch.__file__).parent, torch.__version__, int(torch.compiled_with_cxx11_abi()), sep=';')"
  OUTPUT_VARIABLE torch_facts OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_VARIABLE torch_error RESULT_VARIABLE torch_status)
if(NOT torch_status EQUAL 0)
  if(DSV41C_WITH_ATEN STREQUAL "ON")
    message(FATAL_ERROR "DSV41C_WITH_ATEN=ON, but ${Python_EXECUTABLE} cannot import torch:\n${torch_error}")
  endif()
  message(STATUS "aten provider: left out, ${Python_EXECUTABLE} cannot import torch (build with --no-build-isolation)")
  return()
endif()
list(GET torch_facts 0 torch_root)
list(GET torch_facts 1 torch_version)
list(GET torch_facts 2 torch_cxx11_abi)
message(STATUS "aten provider: torch ${torch_version} in ${torch_root}")

file(GLOB aten_sources CONFIGURE_DEPENDS src/aten/*.cc)
add_library(dsv41c_aten SHARED ${aten_sources} src/error.cc src/expr.cc src/json_reader.cc)
target_include_directories(dsv41c_aten PRIVATE include)
# For quoted includes only: a header of ours must never stand in for one of the system.
target_compile_options(dsv41c_aten PRIVATE -iquote "${CMAKE_CURRENT_SOURCE_DIR}/src")
target_include_directories(dsv41c_aten SYSTEM PRIVATE ${DSV41C_JSON_INCLUDE} "${torch_root}/include")
target_compile_definitions(dsv41c_aten PRIVATE _GLIBCXX_USE_CXX11_ABI=${torch_cxx11_abi} DSV41C_TORCH_VERSION="${torch_version}")
target_link_libraries(dsv41c_aten PRIVATE "${torch_root}/lib/libtorch_cpu.so" "${torch_root}/lib/libc10.so" Threads::Threads)
target_link_options(dsv41c_aten PRIVATE ${DSV41C_EXPORTS})
# site-packages/dsv41c/runtime/lib -> site-packages/torch/lib, wherever the environment lies.
set_target_properties(dsv41c_aten PROPERTIES INSTALL_RPATH "$ORIGIN/../../../torch/lib" INSTALL_RPATH_USE_LINK_PATH OFF)
install(TARGETS dsv41c_aten LIBRARY DESTINATION ${DSV41C_LIB_DIR})
