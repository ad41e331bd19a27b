#include "numerics/format.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <tuple>

namespace kaon {

void register_all_formats(Registry<Format>& registry);

namespace {

/// Integers (signed, unsigned) by width, then floats and blocks from wide to narrow.
auto table_order(const Format& f) {
  const bool integer = f.kind == FormatKind::Integer;
  return std::tuple(f.kind, integer && !f.is_signed, integer ? f.bits : -f.bits, -f.block, f.exponent_bits, f.bias,
                    f.name);
}

/// What the kernels rely on; a descriptor that breaks it is a mistake in its file.
void check_descriptor(const Format& f, const Registry<Format>& known) {
  const auto require = [&](bool holds, const char* rule) {
    if (!holds) fail(ErrorCode::Internal, f.name, "a format's descriptor must have {}", rule);
  };
  const bool is_int32 = f.bits == 32 && f.kind == FormatKind::Integer && f.is_signed;
  require((f.bits >= 2 && f.bits <= 8) || f.bits == 16 || is_int32,
          "2 to 8 bits, 16 bits, or be a signed integer of 32 bits");
  if (f.kind == FormatKind::Float) {
    require(f.exponent_bits >= 1 && f.mantissa_bits >= 1 && f.bits == 1 + f.exponent_bits + f.mantissa_bits,
            "a sign bit, exponent and mantissa that make up its bits");
    require(f.bias <= 127 && f.max() <= FLT_MAX, "values that float32 holds");
  }
  if (f.kind == FormatKind::Block) {
    const Format* element = known.find(f.element);
    require(element != nullptr && element->kind != FormatKind::Block && element->bits == f.bits && f.bits <= 8,
            "an Integer or Float element of its own bits, 8 at most");
    require(f.block >= 1 && (f.scale == ScaleType::E8M0 || f.scale == ScaleType::E4M3),
            "blocks of 1 element or more with an E8M0 or E4M3 scale");
    require(!f.widen_on_overflow || element->kind == FormatKind::Integer, "an Integer element to widen on overflow");
  }
}

Registry<Format> build_registry() {
  Registry<Format> found("format");
  register_all_formats(found);
  for (const auto& [name, item] : found.items()) check_descriptor(item, found);
  std::vector<std::pair<std::string, Format>> items = found.items();
  std::sort(items.begin(), items.end(),
            [](const auto& a, const auto& b) { return table_order(a.second) < table_order(b.second); });
  Registry<Format> sorted("format");
  for (auto& [name, item] : items) sorted.add(name, std::move(item));
  return sorted;
}

}  // namespace

const Registry<Format>& formats() {
  static const Registry<Format> registry = build_registry();
  return registry;
}

const Format& format(const std::string& name) { return formats().get(name); }

Format without_lowest(Format format) {
  format.skip_lowest = format.kind == FormatKind::Integer && format.is_signed;
  return format;
}

int64_t Format::integer_min() const { return is_signed ? -(int64_t{1} << (bits - 1)) + skip_lowest : 0; }

int64_t Format::integer_max() const { return (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1; }

double Format::max() const {
  if (kind == FormatKind::Integer) return static_cast<double>(integer_max());
  if (kind == FormatKind::Block) return std::ldexp(kaon::format(element).max(), element_exponent);
  const int top_exponent = (1 << exponent_bits) - (specials == FloatSpecials::Ieee ? 2 : 1) - bias;
  const int top_mantissa = (2 << mantissa_bits) - (specials == FloatSpecials::NanOnly ? 2 : 1);
  return std::ldexp(top_mantissa, top_exponent - mantissa_bits);
}

double Format::min() const {
  if (kind == FormatKind::Integer) return static_cast<double>(integer_min());
  if (kind == FormatKind::Block) return std::ldexp(kaon::format(element).min(), element_exponent);
  return -max();
}

double Format::smallest() const {
  if (kind == FormatKind::Integer) return 1;
  if (kind == FormatKind::Block) return std::ldexp(kaon::format(element).smallest(), element_exponent);
  return std::ldexp(1, 1 - bias - mantissa_bits);
}

int Format::code_bytes() const { return bits <= 8 ? 1 : bits <= 16 ? 2 : 4; }

}  // namespace kaon
