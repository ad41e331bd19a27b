#pragma once
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "io/gguf/gguf.h"

namespace kaon {

/// Keys in the order they are written: integers as u32 where they fit, else i64; floats as f32; lists of integers as
/// i32.
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

/// A tensor that a file is going to hold.
struct GgufPlanned {
  std::string name;
  Shape shape;  ///< outermost first
  const GgufType* type = nullptr;

  /// Throws InvalidInput where rows are no whole blocks.
  int64_t bytes() const;
};

/// Writes a GGUF file of version 3: everything about the tensors first, then their data one after the other. It appears
/// under its name when it is committed.
class GgufWriter {
 public:
  GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata, std::vector<GgufPlanned> tensors);

  /// The data of the next tensor.
  void write(std::span<const std::byte> data);
  /// Where the bytes lie until commit().
  const std::filesystem::path& temporary() const { return file_.temporary(); }
  void finish();
  void commit() { file_.commit(); }
  int64_t bytes() const { return file_.bytes(); }

 private:
  void pad();

  AtomicFile file_;
  std::vector<GgufPlanned> tensors_;
  size_t next_ = 0;
};

/// The type called `name`, in any case: "q4_0". Throws InvalidInput with those that can be written.
const GgufType& gguf_type(const std::string& name);

/// Rows in the codes of `type`, bit for bit as ggml's own rounding gives them for the types without super-blocks.
/// `values` are whole blocks. `importance`, unless empty, says for each element of a row how much its error counts, and
/// scales are searched for that; Q8_0 and MXFP4 have none to search.
void gguf_quantize(const GgufType& type, std::span<const float> values, std::span<std::byte> out,
                   std::span<const float> importance = {});

}  // namespace kaon
