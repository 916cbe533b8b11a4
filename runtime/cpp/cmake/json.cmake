# Finds the headers of nlohmann json through the Python package that ships them.
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c "import nlohmann_json; print(nlohmann_json.get_include())"
  OUTPUT_VARIABLE DSV41C_JSON_INCLUDE OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_VARIABLE json_error RESULT_VARIABLE json_status)
if(NOT json_status EQUAL 0)
  message(FATAL_ERROR "nlohmann json headers: ${Python_EXECUTABLE} has no package nlohmann_json.\n"
                      "Install it: ${Python_EXECUTABLE} -m pip install nlohmann_json\n${json_error}")
endif()
