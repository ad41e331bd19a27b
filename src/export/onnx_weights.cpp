#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/error.h"
#include "export/onnx_export.h"
#include "graph/stored.h"

namespace kaon::onnx_export {

namespace {

const Tensor& exact_values(const Exporter& exporter, const Quantizer& quantizer) {
  const Initializer* stored = find_stored(exporter.quantized.model.graph, quantizer.tensor);
  if (stored == nullptr || !is_float(stored->tensor)) {
    fail(ErrorCode::InvalidInput, quantizer.label(), "'{}' is no float constant", quantizer.tensor);
  }
  return stored->tensor;
}

/// One code for each element, in the bytes of `stored`, not yet packed.
std::vector<std::byte> codes_of(const Tensor& exact, const Quantizer& quantizer, const Format& stored) {
  const Format& own = format(quantizer.spec.format);
  std::vector<std::byte> codes(static_cast<size_t>(exact.size() * own.code_bytes()));
  QuantizeOptions options;
  options.rounding = quantizer.spec.rounding;
  quantize(float_view(exact), codes, own, quantizer.params, options);
  if (own.code_bytes() != stored.code_bytes()) {
    fail(ErrorCode::Internal, quantizer.label(), "codes of {} are not as wide as those of {}", own.name, stored.name);
  }
  return codes;
}

Tensor transposed_matrix(const Tensor& matrix) {
  if (!matrix.defined() || matrix.rank() != 2) return matrix;
  const int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  const auto bits = static_cast<size_t>(bits_of(matrix.type()));
  Format cell;  // only its width matters to pack and unpack
  cell.bits = static_cast<int>(bits);
  cell.is_signed = false;
  const auto width = static_cast<size_t>(cell.code_bytes());
  std::vector<std::byte> codes(static_cast<size_t>(matrix.size()) * width), turned(codes.size());
  unpack(matrix.bytes(), codes, cell, matrix.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      std::memcpy(&turned[static_cast<size_t>(column * rows + row) * width],
                  &codes[static_cast<size_t>(row * columns + column) * width], width);
    }
  }
  std::vector<std::byte> bytes(static_cast<size_t>(packed_bytes(cell, matrix.size())));
  pack(turned, bytes, cell, matrix.size());
  return Tensor::copy_bytes(matrix.type(), {columns, rows}, bytes);
}

/// ONNX Runtime's fusion to MatMulNBits, the fast way for weights alone, wants a Gemm's weight as [K, N].
bool wants_transposing(const Exporter& exporter, const Quantizer& quantizer, const Reader& reader) {
  const Node& node = exporter.node(reader);
  if (node.op != "Gemm" || reader.input != 1 || node.get_int("transB", 0) == 0) return false;
  if (quantizer.spec.granularity == Granularity::PerGroup) return true;
  for (const Quantizer& other : exporter.quantized.quantizers) {
    const bool quantizes_input = other.enabled && other.is_activation() && other.tensor == node.inputs[0];
    if (quantizes_input) return false;
    if (std::ranges::find(other.moved, node.inputs[0]) != other.moved.end()) return false;
  }
  return format(quantizer.spec.format).kind == FormatKind::Integer;
}

/// Quantized values as floats: what is left where ONNX has no form for the codes.
void store_fake(Exporter& exporter, const Quantizer& quantizer) {
  const std::string name = exporter.edit.constant(quantizer.tensor + "_" + quantizer.spec.format,
                                                  quantizer.applied(exact_values(exporter, quantizer)));
  exporter.edit.redirect(quantizer.readers, name);
  redirect_inside(exporter.edit.graph(), quantizer.inner_readers,
                  [&](std::vector<Node>&) -> const std::string& { return name; });
  exporter.note(fmt::format("{}: values of {}, stored as float32", quantizer.label(), quantizer.spec.format));
}

/// Codes, scale and zero point as DequantizeLinear reads them.
Node dequantize_linear(Exporter& exporter, const Quantizer& quantizer, const StoredWeight& weight) {
  GraphEdit& edit = exporter.edit;
  const std::string& about = quantizer.tensor;
  // Not even zero points are shared: with session.x64quantprecision, ONNX Runtime rewrites those of each weight.
  std::vector<std::string> inputs{edit.own_constant(about + "_quantized", weight.codes),
                                  edit.constant(about + "_scale", weight.scale)};
  if (weight.zero_point.defined()) inputs.push_back(edit.own_constant(about + "_zero_point", weight.zero_point));
  Node node = edit.make("DequantizeLinear", std::move(inputs), about, "dequantized");
  if (weight.axis >= 0) node.set("axis", weight.axis);
  if (weight.block > 0) node.set("block_size", weight.block);
  exporter.need_opset(weight.block > 0 ? 21 : weight.axis >= 0 ? 13 : 10);
  exporter.need_opset(opset_of(weight.codes.type()));
  return node;
}

/// `readers` read what `node` makes.
void put_before(Exporter& exporter, Node node, const std::vector<Reader>& readers) {
  exporter.edit.redirect(readers, node.outputs[0]);
  exporter.edit.insert_before(readers, std::move(node));
}

/// And so do those inside subgraphs, each of which has a copy: what a branch needs is made when it is taken.
void put_inside(Exporter& exporter, const Node& node, const Quantizer& quantizer) {
  redirect_inside(exporter.edit.graph(), quantizer.inner_readers, [&](std::vector<Node>& before) {
    Node copy = node;
    copy.outputs = {exporter.edit.fresh(node.outputs[0])};
    before.push_back(std::move(copy));
    return before.back().outputs[0];
  });
}

/// Whether `reader` looks up rows of codes that lie there one by one: then only these are made numbers.
bool looks_up_rows(const Exporter& exporter, const Reader& reader, const StoredWeight& weight) {
  const Node& node = node_by_id(exporter.quantized.model.graph, reader.node);
  return node.op == "Gather" && node.domain.empty() && reader.input == 0 && weight.block == 0 && weight.axis <= 0 &&
         bits_of(weight.codes.type()) >= 8;
}

/// Gather of codes, and of each row's scale, in the place of the Gather of numbers.
void gather_codes(Exporter& exporter, const Quantizer& quantizer, const StoredWeight& weight,
                  const std::vector<Reader>& readers) {
  GraphEdit& edit = exporter.edit;
  const std::string& about = quantizer.tensor;
  const bool by_row = weight.axis == 0;
  const auto column = [&](const Tensor& tensor) { return tensor.reshaped({tensor.size(), 1}); };
  const std::string codes = edit.own_constant(about + "_quantized", weight.codes);
  const bool shifted = std::ranges::any_of(quantizer.params.zero_point, [](int32_t zero) { return zero != 0; });
  const std::string scale = edit.constant(about + "_scale", by_row ? column(weight.scale) : weight.scale);
  const std::string zero =
      shifted ? edit.constant(about + "_zero_point", by_row ? column(weight.zero_point) : weight.zero_point) : "";
  for (const Reader& reader : readers) {
    Node rows = edit.node(reader.node);
    const std::string output = rows.outputs[0];
    std::vector<Node> parts;
    const auto add = [&](Node node) {
      parts.push_back(std::move(node));
      return parts.back().outputs[0];
    };
    const auto look_up = [&](const std::string& table, const std::string& what) {
      Node node = rows;
      node.inputs[0] = table;
      node.outputs = {edit.fresh(fmt::format("{}_{}", output, what))};
      if (what != "codes") node.name.clear();
      return add(std::move(node));
    };
    const auto number = [&](const std::string& value, const std::string& what) {
      Node node = edit.make("Cast", {value}, output, what);
      node.set("to", static_cast<int64_t>(DType::Float32));
      return add(std::move(node));
    };
    const std::string found = look_up(codes, "codes");
    if (!by_row) {
      std::vector<std::string> inputs{found, scale};
      if (shifted) inputs.push_back(zero);
      add(edit.make("DequantizeLinear", std::move(inputs), output, "numbers"));
    } else {
      std::string value = number(found, "number");
      if (shifted) value = add(edit.make("Sub", {value, number(look_up(zero, "zero"), "shift")}, output, "shifted"));
      add(edit.make("Mul", {value, look_up(scale, "scale")}, output, "numbers"));
    }
    parts.back().outputs = {output};
    edit.replace(reader.node, std::move(parts));
  }
  exporter.need_opset(opset_of(weight.codes.type()));
}

/// A 16-bit float is its own number: it is stored and cast back, after a Gather where one looks up rows.
void store_cast(Exporter& exporter, const Quantizer& quantizer) {
  const Tensor& exact = exact_values(exporter, quantizer);
  const Format& own = format(quantizer.spec.format);
  GraphEdit& edit = exporter.edit;
  StoredWeight weight;
  weight.codes = packed_tensor(own, exact.shape(), codes_of(exact, quantizer, own));
  const std::string name = edit.constant(quantizer.tensor + "_" + own.name, weight.codes);
  const auto cast_of = [&edit](const std::string& value, const std::string& about) {
    Node cast = edit.make("Cast", {value}, about, "float32");
    cast.set("to", static_cast<int64_t>(DType::Float32));
    return cast;
  };
  std::vector<Reader> whole;
  for (const Reader& reader : quantizer.readers) {
    if (!looks_up_rows(exporter, reader, weight)) {
      whole.push_back(reader);
      continue;
    }
    exporter.last.emplace_back([&edit, cast_of, reader, name, &own] {
      Node rows = edit.node(reader.node);
      const std::string output = rows.outputs[0];
      rows.inputs[0] = name;
      rows.outputs = {edit.fresh(output + "_" + own.name)};
      Node cast = cast_of(rows.outputs[0], output);
      cast.outputs = {output};
      edit.replace(reader.node, {std::move(rows), std::move(cast)});
    });
  }
  if (!whole.empty()) put_before(exporter, cast_of(name, quantizer.tensor), whole);
  if (!quantizer.inner_readers.empty()) put_inside(exporter, cast_of(name, quantizer.tensor), quantizer);
  exporter.need_opset(weight.codes.type() == DType::BFloat16 ? 13 : 9);
}

}  // namespace

StoredWeight store_weight(const Exporter& exporter, const Quantizer& quantizer) {
  const Tensor& exact = exact_values(exporter, quantizer);
  const Format* stored = stored_format(format(quantizer.spec.format));
  if (stored == nullptr) {
    exporter.refuse(quantizer, fmt::format("ONNX Runtime has no {}", quantizer.spec.format));
  }
  const QuantParams& params = quantizer.params;
  StoredWeight weight;
  Shape grid;
  switch (quantizer.spec.granularity) {
    case Granularity::PerTensor: break;
    case Granularity::PerChannel:
      weight.axis = quantizer.spec.axis < 0 ? quantizer.spec.axis + exact.rank() : quantizer.spec.axis;
      grid = {std::ssize(params.scale)};
      break;
    case Granularity::PerGroup:
      weight.axis = quantizer.spec.axis < 0 ? quantizer.spec.axis + exact.rank() : quantizer.spec.axis;
      weight.block = quantizer.spec.group_size;
      grid = params.tiling.grid();
      break;
    case Granularity::PerBlock:
    case Granularity::PerToken:
      exporter.refuse(quantizer,
                      fmt::format("DequantizeLinear has no {} scales", enum_name(quantizer.spec.granularity)));
  }
  weight.codes = packed_tensor(*stored, exact.shape(), codes_of(exact, quantizer, *stored));
  weight.scale = Tensor::of(grid, params.scale);
  const bool integer = stored->kind == FormatKind::Integer;
  // ONNX Runtime's integer kernels ask for the zero point of a weight even where it is 0; a bias must have none.
  const bool wanted = quantizer.kind == Slot::Weight && weight.block == 0;
  if (!params.zero_point.empty() || (integer && wanted)) {
    weight.zero_point = zero_point_tensor(*stored, grid, params.zero_point);
  }
  return weight;
}

StoredWeight transposed(const StoredWeight& weight) {
  StoredWeight turned{transposed_matrix(weight.codes), transposed_matrix(weight.scale),
                      transposed_matrix(weight.zero_point), weight.axis, weight.block};
  if (weight.axis >= 0) turned.axis = 1 - weight.axis;
  return turned;
}

void export_weight(Exporter& exporter, const Quantizer& quantizer) {
  if (is_cast(format(quantizer.spec.format))) {
    store_cast(exporter, quantizer);
    return;
  }
  const bool sayable =
      stored_format(format(quantizer.spec.format)) != nullptr && quantizer.spec.granularity != Granularity::PerBlock;
  if (!sayable && exporter.options.fake) {
    store_fake(exporter, quantizer);
    return;
  }
  const StoredWeight weight = store_weight(exporter, quantizer);
  if (name_of(weight.codes.type()) != quantizer.spec.format && format(quantizer.spec.format).onnx_type == 0) {
    exporter.note(fmt::format("{} is stored as {}: ONNX has no narrower type that holds it", quantizer.spec.format,
                              name_of(weight.codes.type())));
  }
  std::vector<Reader> as_they_are, turned, rows;
  for (const Reader& reader : quantizer.readers) {
    if (exporter.integer_weights.contains(reader)) continue;
    if (looks_up_rows(exporter, reader, weight)) {
      rows.push_back(reader);
    } else {
      (wants_transposing(exporter, quantizer, reader) ? turned : as_they_are).push_back(reader);
    }
  }
  // Two layouts of one weight would be stored twice.
  const bool plain = !as_they_are.empty() || !rows.empty() || !quantizer.inner_readers.empty();
  if (plain) std::ranges::move(std::exchange(turned, {}), std::back_inserter(as_they_are));
  // So would codes that are looked up by some and read whole by others.
  if (!rows.empty() && as_they_are.empty() && quantizer.inner_readers.empty()) {
    exporter.last.emplace_back(
        [&exporter, &quantizer, weight, rows] { gather_codes(exporter, quantizer, weight, rows); });
    return;
  }
  std::ranges::move(rows, std::back_inserter(as_they_are));
  if (!as_they_are.empty() || !quantizer.inner_readers.empty()) {
    const Node node = dequantize_linear(exporter, quantizer, weight);
    if (!as_they_are.empty()) put_before(exporter, node, as_they_are);
    put_inside(exporter, node, quantizer);
  }
  if (!turned.empty()) {
    put_before(exporter, dequantize_linear(exporter, quantizer, transposed(weight)), turned);
    for (const Reader& reader : turned) exporter.edit.node(reader.node).erase("transB");
  }
}

}  // namespace kaon::onnx_export
