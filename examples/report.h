// What a training program prints: first the seed, the device and the whole recipe, then lines of
// progress (one line, rewritten, on a terminal), and last a summary. Facts a reader must not miss
// (a step skipped by the loss scaler, formats that are emulated) get a line of their own.
#pragma once

#include <string>
#include <vector>

#include "core/recipe.h"
#include "models/run_observer.h"

namespace halftone {

struct ReportOptions {
  bool quiet = false;  // no progress; the first lines and the summary stay
  int64_t total_steps = 0;
  int64_t print_every = 10;  // lines off a terminal
  std::string unit;          // "samples" or "tokens"
};

/// "seed 1, device cuda:0 (NVIDIA H200, compute capability 9.0)" or "seed 1, device cpu (2 threads;
/// no GPU: there is no NVIDIA driver)"; the recipe in full, and how_multiplied.
void print_first_lines(uint64_t seed,
                       const Device& device,
                       const std::string& device_note,
                       const Recipe& recipe,
                       std::string_view kernel = "");

/// "native", or "emulated (via fp16)" where formats are multiplied in a wider one, of a large
/// layer; then what multiplies: "by wgmma", or on the CPU what adds the products. `kernel`: the one
/// that
/// --gemm asks for. Throws std::invalid_argument where no kernel of the device takes the recipe.
std::string how_multiplied(const Recipe& recipe, const Device& device, std::string_view kernel);

/// Below this many elements an 8-bit or narrower format costs more to make than it saves.
inline constexpr int64_t kSmallLayer = int64_t{512} * 512;
/// A line for whoever trains small layers in narrow formats: still right, but pointless.
void print_notes(const Recipe& recipe, const std::vector<LinearLayer*>& layers);

class ConsoleReport : public RunObserver {
 public:
  explicit ConsoleReport(const ReportOptions& options);

  void step(const StepEvent& event) override;
  void eval(const EvalEvent& event) override;
  void caught_up() override;
  void checkpoint(int64_t step, const std::string& path) override;
  void summary(const RunSummary& summary) override;

 private:
  void line(const std::string& text);  // a line that stays
  std::string progress(const StepEvent& event) const;

  ReportOptions options_;
  bool is_terminal_;
  bool has_progress_ = false;  // a progress line stands on the terminal
  std::string pending_;        // the latest progress
  int64_t skips_in_a_row_ = 0;
};

}  // namespace halftone
