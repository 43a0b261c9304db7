# Equality with the Hugging Face package. The trained tokenizer is made by a fixture, so that a plain build does not
# spend time on it.
if(EXISTS ${GODWIT_PYTHON})
  add_test(NAME train_tokenizer COMMAND train_bpe ${CMAKE_BINARY_DIR}/trained_tokenizer.json)
  set_tests_properties(train_tokenizer PROPERTIES FIXTURES_SETUP trained_tokenizer LABELS clients TIMEOUT 300)
  add_test(NAME tokenizer_parity
           COMMAND ${GODWIT_PYTHON} ${CMAKE_SOURCE_DIR}/tools/tokenizer_parity.py --tool $<TARGET_FILE:tokenizer_tool>
                   --scale 0.1 ${CMAKE_SOURCE_DIR}/models/tiny-glm5next/tokenizer.json
                   ${CMAKE_BINARY_DIR}/trained_tokenizer.json)
  set_tests_properties(tokenizer_parity PROPERTIES FIXTURES_REQUIRED trained_tokenizer LABELS clients TIMEOUT 300)
endif()
