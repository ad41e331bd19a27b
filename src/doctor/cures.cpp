#include "doctor/cures.h"

#include <algorithm>

#include "base/text.h"
#include "quant/algorithm.h"
#include "quant/placement.h"

namespace kaon {
namespace {

/// Algorithms in the order in which they build on one another; of those in one row only one is used.
const std::vector<std::vector<std::string>>& ladder() {
  static const std::vector<std::vector<std::string>> rows = {
      {"cle"}, {"smooth_quant", "awq"}, {"range_search", "seq_mse"}, {"gptq", "adaround"}, {"bias_correction"}};
  return rows;
}

size_t rung(const std::string& name) {
  const auto found =
      std::ranges::find_if(ladder(), [&](const auto& row) { return std::ranges::find(row, name) != row.end(); });
  return static_cast<size_t>(found - ladder().begin());
}

bool is_weight_cause(CauseKind kind) {
  return kind == CauseKind::WeightChannelImbalance || kind == CauseKind::WeightOutliers ||
         kind == CauseKind::WeightResolution || kind == CauseKind::BiasShift;
}

/// The list of treatments as it grows; nothing is listed twice.
class Menu {
 public:
  Menu(const Patient& patient, Tier tier) : patient_(patient), tier_(tier) {}

  std::vector<Treatment> take() { return std::move(list_); }
  const QuantizedModel& quantized() const { return patient_.quantized(); }
  const Quantizer& quantizer(int64_t id) const { return quantized().quantizers[static_cast<size_t>(id)]; }

  void add(std::string name, std::vector<std::string> layers, std::function<void(Prescription&)> apply) {
    const bool known = std::ranges::any_of(
        list_, [&](const Treatment& one) { return one.name == name && (one.layers.empty() || one.layers == layers); });
    if (!known) list_.push_back({std::move(name), tier_, std::move(layers), std::move(apply)});
  }

  void algorithm(const AlgorithmConfig& config, const std::string& label = "") {
    if (algorithms().find(config.name) == nullptr) return;
    add(label.empty() ? config.name : label, {},
        [config](Prescription& prescription) { add_algorithm(prescription.config, config); });
  }

  /// Another way to learn the ranges of these activations; of all of them where `ids` is empty.
  void observer(const ObserverConfig& observer, std::string label, const std::vector<int64_t>& ids) {
    std::vector<int64_t> own;
    std::vector<std::pair<Quantizer, Spec>> rules;
    for (const Quantizer& one : quantized().quantizers) {
      const bool listed = ids.empty() || std::ranges::find(ids, one.id) != ids.end();
      if (!listed || !needs_data(one) || one.observer == observer) continue;
      // Of a file that was brought in, only what its layers read and make can be ruled.
      Quantizer ruled = patient_.as_brought_in().as_brought ? serving_layers(quantized(), one) : one;
      if (ruled.serves.empty()) continue;
      Spec spec = spec_of(one);
      spec.observer = observer;
      own.push_back(one.id);
      rules.emplace_back(std::move(ruled), spec);
    }
    if (own.empty()) return;
    add(std::move(label), ids.empty() ? std::vector<std::string>() : layers_of(own),
        [rules = std::move(rules)](Prescription& prescription) {
          for (const auto& [quantizer, spec] : rules) set_rule(prescription.config, quantizer, spec);
        });
  }

  /// Finer scales for these weights; for all of them where `ids` is empty.
  void granularity(const std::vector<int64_t>& ids) {
    std::vector<std::pair<int64_t, Spec>> own;
    bool groups = false;
    for (const Quantizer& one : quantized().quantizers) {
      const bool listed = ids.empty() || std::ranges::find(ids, one.id) != ids.end();
      if (!listed || one.kind != Slot::Weight || !learns_scales(format(one.spec.format))) continue;
      Spec spec = spec_of(one);
      if (one.spec.granularity == Granularity::PerTensor) {
        spec.granularity = Granularity::PerChannel;
      } else if (one.spec.granularity == Granularity::PerChannel && format(one.spec.format).bits < 8) {
        spec.granularity = Granularity::PerGroup;
        spec.group_size = 32;
        groups = true;
      } else {
        continue;
      }
      own.emplace_back(one.id, spec);
    }
    if (own.empty()) return;
    std::vector<int64_t> which;
    for (const auto& [id, spec] : own) which.push_back(id);
    add(groups ? "weights in groups of 32" : "weights with a scale for each channel",
        ids.empty() ? std::vector<std::string>() : layers_of(which),
        [this_model = &quantized(), own](Prescription& prescription) {
          for (const auto& [id, spec] : own) {
            set_rule(prescription.config, this_model->quantizers[static_cast<size_t>(id)], spec);
          }
        });
  }

  std::vector<std::string> layers_of(const std::vector<int64_t>& ids) const {
    std::vector<std::string> names;
    for (const int64_t id : ids) names.push_back(quantizer(id).serves.front().layer);
    return names;
  }

 private:
  const Patient& patient_;
  Tier tier_;
  std::vector<Treatment> list_;
};

void same_for(Menu& menu, const Cause& cause) {
  switch (cause.kind) {
    case CauseKind::CalibrationMismatch:
      menu.add("calibrated on the evaluation data", {},
               [](Prescription& prescription) { prescription.on_data = true; });
      menu.observer({"percentile", {{"percentile", 99.9}}}, "percentile ranges", cause.quantizers);
      break;
    case CauseKind::WeightChannelImbalance: menu.algorithm({"cle"}); break;
    case CauseKind::WeightOutliers: menu.algorithm({"range_search"}); break;
    case CauseKind::WeightResolution:
      menu.algorithm({"range_search"});
      menu.algorithm({"gptq"});
      menu.algorithm({"adaround"});
      break;
    case CauseKind::BiasShift: menu.algorithm({"bias_correction"}); break;
    case CauseKind::ActivationOutliers:
      menu.observer({"mse", {}}, "ranges of the least squared error", cause.quantizers);
      menu.observer({"percentile", {{"percentile", 99.9}}}, "percentile ranges", cause.quantizers);
      menu.algorithm({"range_search", {{"activations", 1}}}, "range_search with activations");
      break;
    case CauseKind::ActivationChannelImbalance:
      menu.algorithm({"cle", {{"activations", 1}}}, "cle with activations");
      menu.algorithm({"smooth_quant"});
      break;
    case CauseKind::ActivationResolution:
      menu.observer({"mse", {}}, "ranges of the least squared error", cause.quantizers);
      break;
    default: break;
  }
}

}  // namespace

Spec spec_of(const Quantizer& quantizer) {
  Spec spec;
  spec.format = quantizer.spec.format;
  spec.granularity = quantizer.spec.granularity;
  spec.group_size = quantizer.spec.group_size;
  spec.symmetric = quantizer.spec.symmetric;
  spec.scale_type = quantizer.spec.scale_type;
  spec.rounding = quantizer.spec.rounding;
  spec.block_scale = quantizer.spec.block_scale;
  spec.dynamic = quantizer.dynamic;
  spec.observer = quantizer.observer;
  return spec;
}

Quantizer serving_layers(const QuantizedModel& quantized, Quantizer quantizer) {
  std::erase_if(quantizer.serves, [&](const Served& served) {
    return std::ranges::none_of(quantized.layers, [&](const Layer& layer) { return layer.name == served.layer; });
  });
  return quantizer;
}

void set_rule(Config& config, const Quantizer& quantizer, const SlotRule& rule) {
  for (const Served& served : quantizer.serves) {
    // The last row that speaks of this layer has the last word.
    auto& rows = config.by_name;
    const auto last =
        std::find_if(rows.rbegin(), rows.rend(), [&](const auto& row) { return glob_match(row.first, served.layer); });
    const bool own = last != rows.rend() && last->first == served.layer;
    LayerRule& target = own ? last->second : rows.emplace_back(served.layer, LayerRule()).second;
    target.at(served.slot) = rule;
  }
}

void add_algorithm(Config& config, const AlgorithmConfig& algorithm) {
  auto& list = config.algorithms;
  const size_t own = rung(algorithm.name);
  std::erase_if(list, [&](const AlgorithmConfig& one) { return rung(one.name) == own; });
  const auto behind = std::ranges::find_if(list, [&](const AlgorithmConfig& one) { return rung(one.name) > own; });
  const auto added = list.insert(behind, algorithm);
  // Codes that were chosen layer by layer come with biases of their own; what corrects those must look in order, too.
  const auto in_order = [](const AlgorithmConfig& one) { return one.options.contains("sequential"); };
  if (algorithm.name != "bias_correction") return;
  if (const auto found = std::find_if(list.begin(), added, in_order); found != added) {
    added->options["sequential"] = found->options.at("sequential");
  }
}

std::optional<std::string> wider_format(const std::string& name) {
  const Format& f = format(name);
  if (f.kind != FormatKind::Integer) return std::nullopt;
  if (f.bits < 8) return f.is_signed ? "int8" : "uint8";
  if (f.bits == 8) return f.is_signed ? "int16" : "uint16";
  return std::nullopt;
}

std::vector<Treatment> treatments_for(const Patient& patient, const std::vector<Cause>& causes, Tier tier) {
  Menu menu(patient, tier);
  if (tier == Tier::Same) {
    if (patient.as_brought_in().as_brought) {
      menu.add("calibrated anew, formats as they are", {}, [](Prescription&) {});
    }
    for (const Cause& cause : causes) same_for(menu, cause);
    const bool weights = std::ranges::any_of(causes, [](const Cause& cause) {
      return is_weight_cause(cause.kind) || std::ranges::find(cause.slots, Slot::Weight) != cause.slots.end();
    });
    const bool coarse = std::ranges::any_of(patient.quantized().quantizers, [](const Quantizer& one) {
      return one.kind == Slot::Weight && format(one.spec.format).bits < 8;
    });
    if (weights || coarse) {
      menu.algorithm({"range_search"});
      menu.algorithm({"gptq"});
    }
    menu.algorithm({"bias_correction"});
    menu.observer({"mse", {}}, "ranges of the least squared error everywhere", {});
  }
  if (tier == Tier::Granularity) {
    for (const Cause& cause : causes) {
      if (is_weight_cause(cause.kind)) menu.granularity(cause.quantizers);
    }
    menu.granularity({});
  }
  return menu.take();
}

}  // namespace kaon
