#pragma once
#include <string_view>
#include <vector>

#include "graph/upgrade/editor.h"

/// What changed in ONNX's operators so that a node written for an older version would mean something else, or nothing.
/// Versions that only add types, optional inputs or attributes with the old behaviour as default are not listed.
namespace kaon::upgrade {

/// Turns a node as written before some version into nodes that mean the same in that version. Further changes of these
/// nodes are applied afterwards.
using Rule = std::vector<Node> (*)(Node node, Editor& editor);

struct Change {
  std::string_view op;
  int64_t version;  ///< the first version with the new meaning
  Rule rule;        ///< nullptr where none is written
};

/// All changes of one operator, oldest first.
const std::vector<Change>& changes_of(std::string_view op);

// The groups, one file each.
std::vector<Change> attribute_changes();      ///< renamed, dropped, or turned into inputs
std::vector<Change> broadcasting_changes();   ///< the axis and broadcast attributes before version 7
std::vector<Change> image_changes();          ///< Upsample, Resize, RoiAlign, GridSample
std::vector<Change> normalization_changes();  ///< Softmax and its kin, BatchNormalization, GroupNormalization, Dropout
std::vector<Change> scan_changes();

}  // namespace kaon::upgrade
