#include "engine/rates.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"

namespace nightsweep {

namespace {

// Sources: NVIDIA's data sheets and white papers (GA102, AD102, GB202, A100, H100, H200): memory
// bandwidth, and dense FP16 tensor operations with FP32 accumulation.
constexpr GpuSheet kSheets[] = {
    {"rtx-3060", 12 * kGiB, 360e9, 25.6e12},    {"rtx-3090", 24 * kGiB, 936e9, 71e12},
    {"rtx-4060-ti", 16 * kGiB, 288e9, 44.1e12}, {"rtx-4070", 12 * kGiB, 504e9, 58.3e12},
    {"rtx-4080", 16 * kGiB, 717e9, 97.5e12},    {"rtx-4090", 24 * kGiB, 1008e9, 165.2e12},
    {"rtx-5090", 32 * kGiB, 1792e9, 209.5e12},  {"a100-40g", 40 * kGiB, 1555e9, 312e12},
    {"h100", 80 * kGiB, 3350e9, 989e12},        {"h200", 141 * kGiB, 4800e9, 989e12},
};
// Measured on an H200 with the matrices of a 70B model in Q4_K_M: 3.3 TB/s at one row; 420 TFLOP/s
// in whole sweeps of 512 rows.
constexpr double kMemoryShare = 0.69;
constexpr double kFlopsShare = 0.43;
constexpr double kOperatorSeconds = 4e-6;

struct Figure {
  const char* key;
  double MachineRates::*value;
};
constexpr Figure kFigures[] = {
    {"link_rate", &MachineRates::link_rate},
    {"disk_rate", &MachineRates::disk_rate},
    {"memory_rate", &MachineRates::memory_rate},
    {"flops", &MachineRates::flops},
    {"repack_rate", &MachineRates::repack_rate},
    {"attention_rate", &MachineRates::attention_rate},
    {"attention_flops", &MachineRates::attention_flops},
    {"operator_s", &MachineRates::operator_s},
    {"attention_s", &MachineRates::attention_s},
};

constexpr QuantType kTypes[] = {QuantType::f32,  QuantType::f16,  QuantType::bf16, QuantType::q4_0,
                                QuantType::q4_1, QuantType::q5_0, QuantType::q5_1, QuantType::q8_0,
                                QuantType::q4_k, QuantType::q5_k, QuantType::q6_k};

Json curves_json(const std::map<QuantType, std::vector<LinearRate>>& curves) {
  Json::Array list;
  for (const auto& [type, curve] : curves) {
    for (const LinearRate& rate : curve) {
      Json entry = Json::Object{};
      entry.set("type", quant_traits(type).name);
      entry.set("rows", rate.rows);
      entry.set("weights_per_s", rate.weights_per_s);
      list.push_back(std::move(entry));
    }
  }
  return list;
}

double require_number(const Json* value, const std::string& where) {
  if (value == nullptr || !value->is_number() || value->as_double() < 0) {
    fail(
        ErrorKind::usage, "{}: expected a number from 0, found {}", where,
        value == nullptr ? "nothing" : value->kind_text());
  }
  return value->as_double();
}

std::map<QuantType, std::vector<LinearRate>> parse_curves(
    const Json& list,
    const std::string& where) {
  if (!list.is_array()) {
    fail(ErrorKind::usage, "{}: expected an array, found {}", where, list.kind_text());
  }
  std::map<QuantType, std::vector<LinearRate>> curves;
  for (size_t i = 0; i < list.as_array().size(); ++i) {
    const Json& entry = list.as_array()[i];
    const std::string here = format("{}[{}]", where, i);
    const Json* name = entry.find("type");
    const auto* type = std::ranges::find_if(kTypes, [&](QuantType known) {
      return name != nullptr && name->is_string() && name->as_string() == quant_traits(known).name;
    });
    if (type == std::end(kTypes)) {
      fail(ErrorKind::usage, "{}.type: expected a tensor type such as \"Q4_K\"", here);
    }
    const double rows = require_number(entry.find("rows"), here + ".rows");
    const double rate = require_number(entry.find("weights_per_s"), here + ".weights_per_s");
    if (rows < 1 || rows > 1e6 || rate <= 0) {
      fail(ErrorKind::usage, "{}: expected rows from 1 and weights_per_s above 0", here);
    }
    std::vector<LinearRate>& curve = curves[*type];
    if (!curve.empty() && curve.back().rows >= rows) {
      fail(ErrorKind::usage, "{}.rows: expected them rising within a type", here);
    }
    curve.push_back({.rows = static_cast<uint32_t>(rows), .weights_per_s = rate});
  }
  return curves;
}

}  // namespace

const std::string* MachineRates::origin_of(const std::string& name) const {
  for (const auto& [figure, origin] : origins) {
    if (figure == name) return &origin;
  }
  return nullptr;
}

void MachineRates::set_origin(const std::string& name, std::string origin) {
  std::erase_if(origins, [&](const auto& entry) { return entry.first == name; });
  origins.emplace_back(name, std::move(origin));
}

const GpuSheet* find_gpu_sheet(const std::string& name) {
  const auto* found =
      std::ranges::find_if(kSheets, [&](const GpuSheet& sheet) { return name == sheet.name; });
  return found == std::end(kSheets) ? nullptr : found;
}

std::string known_gpu_sheets() {
  std::string names;
  for (const GpuSheet& sheet : kSheets)
    names += std::string(names.empty() ? "" : ", ") + sheet.name;
  return names;
}

MachineRates rates_of_sheet(const GpuSheet& sheet) {
  MachineRates rates;
  rates.device = sheet.name;
  rates.memory_rate = kMemoryShare * sheet.memory_rate;
  rates.flops = kFlopsShare * sheet.flops;
  rates.operator_s = kOperatorSeconds;
  const std::string origin =
      format("data sheet of {}, times what this program reaches of an H200's", sheet.name);
  rates.set_origin("memory", origin);
  rates.set_origin("flops", origin);
  return rates;
}

Json rates_json(const MachineRates& rates) {
  Json object = Json::Object{};
  object.set("device", rates.device);
  for (const Figure& figure : kFigures) {
    if (rates.*figure.value > 0) object.set(figure.key, rates.*figure.value);
  }
  if (!rates.linear.empty()) object.set("linear", curves_json(rates.linear));
  if (!rates.linear_streamed.empty()) {
    object.set("linear_streamed", curves_json(rates.linear_streamed));
  }
  return object;
}

MachineRates parse_rates(const std::string& text, const std::string& name) {
  Json object;
  try {
    object = Json::parse(text);
  } catch (const JsonError& error) {
    fail(ErrorKind::usage, "{}: byte {}: {}", name, error.offset(), error.what());
  }
  if (!object.is_object()) {
    fail(
        ErrorKind::usage, "{}: expected the object that `bench links --json` prints, found {}",
        name, object.kind_text());
  }
  MachineRates rates;
  if (const Json* device = object.find("device"); device != nullptr && device->is_string()) {
    rates.device = device->as_string();
  }
  for (const Figure& figure : kFigures) {
    if (const Json* value = object.find(figure.key)) {
      rates.*figure.value = require_number(value, format("{}: {}", name, figure.key));
    }
  }
  if (const Json* list = object.find("linear")) {
    rates.linear = parse_curves(*list, format("{}: linear", name));
  }
  if (const Json* list = object.find("linear_streamed")) {
    rates.linear_streamed = parse_curves(*list, format("{}: linear_streamed", name));
  }
  for (const char* figure : {"link", "disk", "memory", "flops"})
    rates.set_origin(figure, name);
  return rates;
}

}  // namespace nightsweep
