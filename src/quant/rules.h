#pragma once
#include <map>
#include <string>
#include <vector>

#include "quant/config.h"

namespace kaon {

/// Which row of a config had the last word about a slot; a later kind of row is more special.
struct Origin {
  enum class Row { Global, Type, Name };
  Row row = Row::Global;
  std::string text;  ///< "by_name: conv1", for messages
};

/// What a config says about one layer, or about one operator that is no layer.
struct Ruling {
  LayerRule rule;
  std::map<Slot, Origin> origin;  ///< of the slots that a row speaks of
  bool excluded = false;
};

/// Something of a model that rules can be about.
struct Subject {
  std::string name;
  std::string op;
};

const std::vector<std::string>& layer_types();

/// Applies a config to the layers of a model, and to the operators between them.
class Rules {
 public:
  /// Throws InvalidConfig where a pattern of the config names none of them, or says something about operators that
  /// only layers have.
  Rules(const Config& config, const std::vector<Layer>& layers, const std::vector<Subject>& operators);

  Ruling of(const Layer& layer) const;
  /// An operator starts with the output of what it reads, `output`. Without an `origin` what it reads is not quantized
  /// in one way: it stays float, unless a row names a format to go with the rest of `output`.
  Ruling of(const Subject& subject, const Spec& output, const Origin* origin) const;

 private:
  Ruling applied(const Subject& subject, Ruling ruling, bool starts_float) const;

  const Config& config_;
};

}  // namespace kaon
