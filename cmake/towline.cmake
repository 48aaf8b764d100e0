# Compiler settings and the two functions that every room and test folder uses.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_FLAGS_DEV "-O1")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

find_program(TOWLINE_CCACHE ccache)
if(TOWLINE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TOWLINE_CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)

add_library(towline_flags INTERFACE)
target_compile_options(towline_flags INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-align -Wunused
  -Wno-missing-field-initializers -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(towline_flags INTERFACE -Wthread-safety -Wno-gnu-statement-expression)
endif()
if(TOWLINE_FUZZERS)
  add_compile_options(-fsanitize=fuzzer-no-link)  # without it the rooms carry no coverage and a fuzzer is blind
endif()
if(TOWLINE_SANITIZE)
  # Applied to everything, generated code too, so that the runtimes agree; debug lines for the reports.
  add_compile_options(-fsanitize=${TOWLINE_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TOWLINE_SANITIZE})
  if(TOWLINE_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

# towline_room(NAME USES room... SOURCES file... LIBRARIES private library...)
#
# One static library per room. USES is the room's row of the layer table in STYLE.md; `tools/tidy` holds the
# includes against it. LIBRARIES are third-party ones: their headers stay inside the room's sources.
function(towline_room name)
  cmake_parse_arguments(ROOM "" "" "USES;SOURCES;LIBRARIES" ${ARGN})
  add_library(towline_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(towline_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  set(uses ${ROOM_USES})
  list(TRANSFORM uses PREPEND towline_)
  target_link_libraries(towline_${name} PUBLIC ${uses} PRIVATE towline_flags ${ROOM_LIBRARIES})
endfunction()

# towline_tests(KIND ROOM LINKS target...)
#
# One executable of all *_test.cc in tests/KIND/ROOM, labelled by kind and room; nothing when the folder is absent.
function(towline_tests kind room)
  cmake_parse_arguments(TEST "" "" "LINKS" ${ARGN})
  if(NOT kind IN_LIST TOWLINE_TEST_KINDS)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${kind}/${room}/*_test.cc)
  if(NOT sources)
    return()
  endif()
  set(target ${kind}_${room}_tests)
  add_executable(${target} ${sources})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE towline_flags ${TEST_LINKS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_precompile_headers(${target} REUSE_FROM towline_gtest_pch)
  add_test(NAME ${kind}.${room} COMMAND ${target} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${kind}.${room} PROPERTIES LABELS "${kind};${room}" TIMEOUT 600
    ENVIRONMENT "${TOWLINE_TEST_ENVIRONMENT}")
endfunction()
