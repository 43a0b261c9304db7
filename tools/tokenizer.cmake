add_executable(train_bpe train_bpe.cpp bpe_trainer.cpp)
target_link_libraries(train_bpe PRIVATE godwit_tokenizer)
add_executable(tokenizer_tool tokenizer_tool.cpp)
target_link_libraries(tokenizer_tool PRIVATE godwit_tokenizer)

# A tokenizer of the real one's size, for tests and benchmarks; made on demand: ninja trained_tokenizer
add_custom_command(
  OUTPUT ${CMAKE_BINARY_DIR}/trained_tokenizer.json
  COMMAND train_bpe ${CMAKE_BINARY_DIR}/trained_tokenizer.json
  DEPENDS train_bpe
  COMMENT "Training a 150K vocabulary")
add_custom_target(trained_tokenizer DEPENDS ${CMAKE_BINARY_DIR}/trained_tokenizer.json)
