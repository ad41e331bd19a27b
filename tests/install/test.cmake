# Installs BUILD into an empty prefix, then configures, builds and runs program/ against it.
set(work ${BUILD}/tests/install)
file(REMOVE_RECURSE ${work})

function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed (${result}): ${ARGN}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/prefix)
file(COPY ${CMAKE_CURRENT_LIST_DIR}/program DESTINATION ${work})
step(${CMAKE_COMMAND} -G ${GENERATOR} -S ${work}/program -B ${work}/build -DCMAKE_PREFIX_PATH=${work}/prefix
     -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${COMPILER} "-DCMAKE_CXX_FLAGS=${FLAGS}")
step(${CMAKE_COMMAND} --build ${work}/build)
step(${work}/build/list_formats)
foreach(expected "int8 8" "fp4_e2m1 4")
  if(NOT output MATCHES "(^|\n)${expected}\n")
    message(FATAL_ERROR "'${expected}' is missing from what the program printed:\n${output}")
  endif()
endforeach()
