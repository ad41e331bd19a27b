# cmake -DFILES=name=file;... -DOUTPUT=x.cpp -P embed.cmake: a C++ file that holds the files as string literals.
set(rows "")
foreach(entry IN LISTS FILES)
  string(REGEX MATCH "^([^=]*)=(.*)$" matched "${entry}")
  set(name ${CMAKE_MATCH_1})
  file(READ ${CMAKE_MATCH_2} text)
  string(FIND "${text}" ")kaon_file\"" end)
  if(NOT end EQUAL -1)
    message(FATAL_ERROR "${CMAKE_MATCH_2} holds the mark that ends an embedded file")
  endif()
  string(APPEND rows "  if (name == \"${name}\") return R\"kaon_file(${text})kaon_file\";\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"report/embedded.h\"
namespace kaon {
std::string_view embedded_file(std::string_view name) {
${rows}  return {};
}
}  // namespace kaon
")
