# The few functions that the CMakeLists files are written in.

set(KAON_SOURCE_DIR ${PROJECT_SOURCE_DIR}/src)
set(KAON_WARNINGS -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-unused-parameter -Wno-missing-field-initializers)

# kaon_precompiled(TARGET NAME header... [LINK ...] [OPTIONS ...]): TARGET starts from these headers, compiled once for
# all targets that give the same NAME; files include what they need all the same (the preset `dev` compiles without).
function(kaon_precompiled target name)
  cmake_parse_arguments(arg "" "" "LINK;OPTIONS" ${ARGN})
  if(NOT TARGET kaon_${name})
    set(source ${PROJECT_BINARY_DIR}/${name}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "")
    add_library(kaon_${name} OBJECT ${source})
    target_link_libraries(kaon_${name} PRIVATE ${arg_LINK})
    target_compile_options(kaon_${name} PRIVATE ${arg_OPTIONS})
    target_precompile_headers(kaon_${name} PRIVATE ${arg_UNPARSED_ARGUMENTS})
  endif()
  target_precompile_headers(${target} REUSE_FROM kaon_${name})
endfunction()

# kaon_layer(NAME [LINK public...] [PRIVATE_LINK private...] [ATEN_TESTS stem...]): src/NAME as a static library
# kaon::NAME, and one test program for each foo_test.cpp in it; those of ATEN_TESTS see the headers of ATen.
function(kaon_layer name)
  cmake_parse_arguments(arg "" "" "LINK;PRIVATE_LINK;ATEN_TESTS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${KAON_SOURCE_DIR}/${name}/*.cpp)
  file(GLOB_RECURSE tests CONFIGURE_DEPENDS ${KAON_SOURCE_DIR}/${name}/*_test.cpp)
  list(REMOVE_ITEM sources "" ${tests})
  add_library(kaon_${name} STATIC ${sources})
  add_library(kaon::${name} ALIAS kaon_${name})
  set_target_properties(kaon_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_include_directories(kaon_${name} PUBLIC
    $<BUILD_INTERFACE:${KAON_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(kaon_${name} PUBLIC cxx_std_20)
  # No contraction to FMA: results do not depend on the instruction set.
  target_compile_options(kaon_${name} PRIVATE ${KAON_WARNINGS} -ffp-contract=off)
  target_link_libraries(kaon_${name} PUBLIC ${arg_LINK} PRIVATE ${arg_PRIVATE_LINK})
  set_property(GLOBAL APPEND PROPERTY KAON_LAYERS ${name})
  if(KAON_TESTS)
    # Those few tests that include torch find its headers without it; its definitions would forbid the precompiled ones.
    list(REMOVE_ITEM arg_PRIVATE_LINK torch)
    foreach(test IN LISTS tests)
      get_filename_component(stem ${test} NAME_WE)
      set(aten "")
      if(stem IN_LIST arg_ATEN_TESTS)
        set(aten ATEN)
      endif()
      kaon_test(${name}.${stem} ${test} ${aten} LINK kaon_${name} ${arg_PRIVATE_LINK})
    endforeach()
  endif()
endfunction()

# kaon_together(LAYER [APART stem...]): files of a layer are compiled several at a time, but for those of APART.
function(kaon_together layer)
  if(NOT KAON_TOGETHER)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "APART" ${ARGN})
  get_target_property(sources kaon_${layer} SOURCES)
  foreach(source IN LISTS sources)
    get_filename_component(stem ${source} NAME_WE)
    if(stem IN_LIST arg_APART)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  set_target_properties(kaon_${layer} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
endfunction()

# kaon_test(NAME source... [ATEN] [LINK ...]): a GoogleTest program and its ctest; ATEN: it includes ATen's headers.
function(kaon_test name)
  cmake_parse_arguments(arg "ATEN" "" "LINK" ${ARGN})
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${arg_LINK} GTest::gtest_main)
  # Tests are compiled more often than run: -O1 takes a third off the time.
  set(options ${KAON_WARNINGS} $<$<CONFIG:Release>:-O1>)
  target_compile_options(${name} PRIVATE ${options})
  set(headers <gtest/gtest.h> <fmt/format.h> <filesystem> <fstream>)
  if(arg_ATEN)
    kaon_precompiled(${name} aten_test_headers ${headers} <ATen/ATen.h>
      LINK kaon_base GTest::gtest OPTIONS ${options})
  else()
    kaon_precompiled(${name} test_headers ${headers} LINK kaon_base GTest::gtest OPTIONS ${options})
  endif()
  target_compile_definitions(${name} PRIVATE KAON_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  kaon_executable(${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600)
endfunction()

# What every program of ours gets: mimalloc as its allocator (page faults dominate convolutions otherwise), and an
# operator new that fails with an error.
function(kaon_executable target)
  if(NOT TARGET kaon_guarded_new)
    add_library(kaon_guarded_new OBJECT ${KAON_SOURCE_DIR}/guarded_new.cpp)
    target_link_libraries(kaon_guarded_new PRIVATE kaon_base)
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:kaon_guarded_new>)
  target_link_libraries(${target} PRIVATE kaon_base)
  if(KAON_MIMALLOC)
    find_package(mimalloc REQUIRED CONFIG)
    target_link_options(${target} BEFORE PRIVATE -Wl,--no-as-needed)
    target_link_libraries(${target} PRIVATE mimalloc)
  endif()
endfunction()

# kaon_registry(FOLDER TARGET t HEADER h REGISTRY type): each src/FOLDER/foo.cpp defines
# `void register_foo(type&)`; this generates `register_all_<folder name>(type&)`, which calls them all.
# EXTRA names further files of that kind, outside the folder.
function(kaon_registry folder)
  cmake_parse_arguments(arg "" "TARGET;HEADER;REGISTRY" "EXTRA" ${ARGN})
  file(GLOB files CONFIGURE_DEPENDS ${KAON_SOURCE_DIR}/${folder}/*.cpp)
  list(FILTER files EXCLUDE REGEX "_test\\.cpp$")
  list(APPEND files ${arg_EXTRA})
  get_filename_component(kind ${folder} NAME)
  set(declarations "")
  set(calls "")
  foreach(file IN LISTS files)
    get_filename_component(stem ${file} NAME_WE)
    string(APPEND declarations "void register_${stem}(${arg_REGISTRY}&);\n")
    string(APPEND calls "  register_${stem}(registry);\n")
  endforeach()
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/${arg_TARGET}/${kind}_all.cpp)
  file(CONFIGURE OUTPUT ${generated} @ONLY CONTENT
"#include \"${arg_HEADER}\"
namespace kaon {
${declarations}
void register_all_${kind}(${arg_REGISTRY}& registry) {
${calls}}
}  // namespace kaon
")
  target_sources(${arg_TARGET} PRIVATE ${generated} ${arg_EXTRA})
endfunction()

# kaon_embed(TARGET name=file...): the files as text in the program; C++ asks for them by embedded_file(name).
function(kaon_embed target)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/${target}/embedded.cpp)
  list(TRANSFORM ARGN REPLACE "^[^=]*=" "" OUTPUT_VARIABLE files)
  add_custom_command(OUTPUT ${generated}
    COMMAND ${CMAKE_COMMAND} "-DFILES=${ARGN}" -DOUTPUT=${generated} -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} VERBATIM)
  target_sources(${target} PRIVATE ${generated})
endfunction()

# Leaves one parallel_for backend in kaon_base (TSan does not understand libgomp).
function(kaon_threads_backend)
  get_target_property(sources kaon_base SOURCES)
  if(KAON_THREADS STREQUAL "openmp")
    find_package(OpenMP REQUIRED)
    target_link_libraries(kaon_base PUBLIC OpenMP::OpenMP_CXX)
    list(FILTER sources EXCLUDE REGEX "parallel_std\\.cpp$")
  else()
    find_package(Threads REQUIRED)
    target_link_libraries(kaon_base PUBLIC Threads::Threads)
    list(FILTER sources EXCLUDE REGEX "parallel_openmp\\.cpp$")
  endif()
  set_target_properties(kaon_base PROPERTIES SOURCES "${sources}")
endfunction()

# The target `lint`: the object files of all layers, without a program; see scripts/lint.sh.
function(kaon_lint)
  get_property(layers GLOBAL PROPERTY KAON_LAYERS)
  list(TRANSFORM layers REPLACE "(.+)" "$<TARGET_OBJECTS:kaon_\\1>" OUTPUT_VARIABLE objects)
  add_custom_target(lint DEPENDS ${objects})
endfunction()

function(kaon_install)
  include(CMakePackageConfigHelpers)
  get_property(layers GLOBAL PROPERTY KAON_LAYERS)
  list(TRANSFORM layers PREPEND kaon_ OUTPUT_VARIABLE targets)
  install(TARGETS ${targets} EXPORT kaonTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  if(TARGET kaon)
    install(TARGETS kaon RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
  install(CODE "
    set(LAYERS \"${layers}\")
    set(SOURCE ${KAON_SOURCE_DIR})
    set(STAGE ${PROJECT_BINARY_DIR}/installed_headers)
    set(DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}\")
    include(${PROJECT_SOURCE_DIR}/cmake/install_headers.cmake)")
  set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kaon)
  install(EXPORT kaonTargets NAMESPACE kaon:: DESTINATION ${config_dir})
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/kaonConfig.cmake.in
    ${PROJECT_BINARY_DIR}/kaonConfig.cmake INSTALL_DESTINATION ${config_dir})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/kaonConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/kaonConfig.cmake ${PROJECT_BINARY_DIR}/kaonConfigVersion.cmake
          DESTINATION ${config_dir})
endfunction()
