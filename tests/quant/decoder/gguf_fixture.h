// A fixture of make_fixtures.py as llama.cpp's converter would write it.
#ifndef SLUICE_TESTS_QUANT_DECODER_GGUF_FIXTURE_H_
#define SLUICE_TESTS_QUANT_DECODER_GGUF_FIXTURE_H_

#include <string>
#include <string_view>

namespace sluice::test {

// Writes fixture `name` to `path`; not one of Mistral's or Qwen's with windows, which GGUF cannot
// express.
void WriteGgufFixture(std::string_view name, const std::string& path);

}  // namespace sluice::test

#endif  // SLUICE_TESTS_QUANT_DECODER_GGUF_FIXTURE_H_
