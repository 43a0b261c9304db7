#include "selftest/dequantise.h"

#include <vector>

#include "weights/inventory.h"
#include "weights/load.h"
#include "weights/safetensors_writer.h"

namespace godwit::selftest {
namespace {

constexpr std::string_view kScaleSuffix = ".weight_scale_inv";

Buffer widen(const Weight& w) {
  Buffer out(static_cast<size_t>(w.out() * w.in()) * sizeof(float));
  for (int64_t n = 0; n < w.out(); ++n)
    for (int64_t k = 0; k < w.in(); ++k)
      out.as<float>()[n * w.in() + k] =
          to_float(w.data.row<f8_e4m3>(n)[k]) * w.scales[n / kFp8Block * w.scale_stride + k / kFp8Block];
  return out;
}

}  // namespace

Result<void> write_dequantised(const std::filesystem::path& from, const std::filesystem::path& to) {
  GODWIT_ASSIGN(const Checkpoint source, Checkpoint::open(from));
  std::error_code failed;
  std::filesystem::create_directories(to, failed);
  std::filesystem::copy_file(from / "config.json", to / "config.json",
                             std::filesystem::copy_options::overwrite_existing, failed);
  if (failed)
    return make_error(ErrorCode::data_refused, to.string(), "{}: {}", to.string(), failed.message());

  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, ref] : source.tensors()) {
    if (name.ends_with(kScaleSuffix)) continue;
    SafetensorsEntry e;
    e.name = name;
    e.dtype = source.find(scale_name(name)) ? DType::f32 : ref.dtype;
    e.shape = ref.shape;
    entries.push_back(std::move(e));
  }
  GODWIT_ASSIGN(SafetensorsWriter writer,
                SafetensorsWriter::create(to / "model.safetensors", std::move(entries)));
  for (const SafetensorsEntry& e : writer.entries()) {
    const TensorRef& ref = *source.find(e.name);
    const TensorRef* scales = source.find(scale_name(e.name));
    if (scales) {
      std::vector<Buffer> copies;
      const Buffer wide = widen(weight_view(ref, scales, copies));
      GODWIT_TRY(writer.write({wide.as<char>(), wide.bytes()}));
    } else {
      GODWIT_TRY(writer.write({reinterpret_cast<const char*>(ref.data), ref.bytes}));
    }
  }
  return writer.finish();
}

}  // namespace godwit::selftest
