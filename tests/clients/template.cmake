# Equality of the template interpreter with Python's jinja2 as transformers sets it up.
add_executable(template_tool template_tool.cpp)
target_link_libraries(template_tool PRIVATE godwit_chat)
if(EXISTS ${GODWIT_PYTHON})
  add_test(NAME template_parity
           COMMAND ${GODWIT_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/template_parity.py --tool $<TARGET_FILE:template_tool>
                   --source ${CMAKE_SOURCE_DIR})
  set_tests_properties(template_parity PROPERTIES LABELS clients TIMEOUT 300)
endif()
