#include "examples/report.h"

#include <unistd.h>

#include <cstdio>

#include "core/cuda/gpu.h"
#include "core/parallel.h"
#include "ops/gemm/gemm_config.h"

namespace halftone {
namespace {

constexpr int64_t kManySkips = 10;  // in a row: then a warning

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char buffer[256];
  std::snprintf(buffer, sizeof(buffer), pattern, args...);
  return buffer;
}

std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s >= 3600) {
    return format("%ldh%02ldm", static_cast<long>(s / 3600), static_cast<long>(s / 60 % 60));
  }
  return s >= 60 ? format("%ldm%02lds", static_cast<long>(s / 60), static_cast<long>(s % 60))
                 : format("%.1fs", seconds);
}

std::string mebibytes(int64_t bytes) {
  return format("%.1f MiB", static_cast<double>(bytes) / 1048576.0);
}

std::string evaluation_text(const Evaluation& evaluation) {
  std::string text = format("val_loss %.4f", evaluation.loss);
  if (evaluation.accuracy) {
    text += format(", accuracy %.2f%%", 100.0 * *evaluation.accuracy);
  }
  return text;
}

// What the forward product of a large layer runs on, unless a kernel is asked for.
GemmKernel chosen_kernel(const Recipe& recipe, const Device& device) {
  constexpr int64_t kSize = 4096;
  const float scale = 1.0f;
  const GemmPrecision precision = resolve_linear(recipe, "", false).forward;
  GemmProblem problem{.M = kSize,
                      .N = kSize,
                      .K = kSize,
                      .a = {.format = precision.a.format},
                      .b = {.format = precision.b.format, .transposed = true},
                      .d_dtype = recipe.act,
                      .acc = precision.acc,
                      .promote = precision.promote};
  problem.a.scales.data = precision.a.scaling == Scaling::none ? nullptr : &scale;
  const cuda::GpuFacts facts = cuda::inspect_gpu(device.index);
  return choose_gemm(problem, {facts.compute_capability, facts.multiprocessors}).kernel;
}

}  // namespace

std::string how_multiplied(const Recipe& recipe, const Device& device, std::string_view kernel) {
  // Operands of Eigen and simt are FP32 whatever the recipe; the other kernels take the next wider
  // format.
  const bool is_eigen = device.is_cpu() && recipe.acc == Accumulator::fp32;
  const std::string by(device.is_cpu()  ? ""
                       : kernel.empty() ? name_of(chosen_kernel(recipe, device))
                                        : kernel);
  const Format widest = is_eigen || by == "simt" ? kFp32 : compute_format(recipe.fwd, recipe.grad);
  const bool is_native = widest == recipe.fwd && (widest == kFp32 || device.is_cuda());
  const std::string formats =
      is_native ? "native" : concat("emulated (via ", to_string(widest), ")");
  if (device.is_cpu()) {
    return concat(formats, ", accumulated by ", is_eigen ? "Eigen in fp32" : name_of(recipe.acc));
  }
  return concat(formats, ", by ", by);
}

void print_notes(const Recipe& recipe, const std::vector<LinearLayer*>& layers) {
  const LinearLayer* smallest = nullptr;
  for (const LinearLayer* layer : layers) {
    const bool is_narrow = layer->precision().forward.b.format.bits() <= 8;
    const int64_t size = layer->weight().shape.numel();
    if (is_narrow && size < kSmallLayer &&
        (smallest == nullptr || size < smallest->weight().shape.numel())) {
      smallest = layer;
    }
  }
  if (smallest != nullptr) {
    std::printf("note: %s is %lld x %lld; below 512 x 512, %s costs more than it saves\n",
                smallest->path().c_str(),
                static_cast<long long>(smallest->weight().shape[0]),
                static_cast<long long>(smallest->weight().shape[1]),
                recipe.base.c_str());
  }
}

void print_first_lines(uint64_t seed,
                       const Device& device,
                       const std::string& device_note,
                       const Recipe& recipe,
                       std::string_view kernel) {
  std::string about;
  if (device.is_cpu()) {
    about = concat(num_threads(), num_threads() == 1 ? " thread" : " threads");
  }
  about += concat(about.empty() || device_note.empty() ? "" : "; ", device_note);
  std::printf("seed %llu, device %s (%s)\n",
              static_cast<unsigned long long>(seed),
              to_string(device).c_str(),
              about.c_str());
  std::printf("recipe %s, %s\n",
              to_full_string(recipe).c_str(),
              how_multiplied(recipe, device, kernel).c_str());
  std::fflush(stdout);
}

ConsoleReport::ConsoleReport(const ReportOptions& options)
    : options_(options), is_terminal_(isatty(STDOUT_FILENO) != 0) {}

void ConsoleReport::line(const std::string& text) {
  std::printf("%s%s\n", has_progress_ ? "\r\033[K" : "", text.c_str());
  has_progress_ = false;
}

std::string ConsoleReport::progress(const StepEvent& event) const {
  const StepRecord& r = event.record;
  std::string text = format("step %ld/%ld  loss %.4f  lr %.3g  norm %.3g",
                            static_cast<long>(r.iteration),
                            static_cast<long>(options_.total_steps),
                            static_cast<double>(r.loss),
                            event.lr,
                            static_cast<double>(r.grad_norm));
  if (event.skipped_so_far > 0) {
    text += format("  skipped %ld", static_cast<long>(event.skipped_so_far));
  }
  text += format("  %.0f %s/s", event.units_per_second, options_.unit.c_str());
  const auto steps_left = static_cast<double>(options_.total_steps - r.iteration);
  return text + concat("  ", duration(steps_left * event.seconds_per_step), " left");
}

void ConsoleReport::step(const StepEvent& event) {
  const StepRecord& r = event.record;
  if (r.skipped != 0 && !options_.quiet) {
    if (r.targets == 0) {
      line(format("step %ld skipped: every target is ignored", static_cast<long>(r.iteration)));
    } else {
      line(format("step %ld skipped: a gradient is not finite; loss scale %.9g -> %.9g",
                  static_cast<long>(r.iteration),
                  static_cast<double>(r.loss_scale),
                  static_cast<double>(r.next_loss_scale)));
    }
  }
  skips_in_a_row_ = r.skipped != 0 && r.targets > 0 ? skips_in_a_row_ + 1 : 0;
  if (skips_in_a_row_ == kManySkips) {
    line(
        format("warning: %ld steps in a row were skipped; a few at the start are normal with "
               "dynamic loss scaling, this many are not",
               static_cast<long>(kManySkips)));
  }
  pending_ = progress(event);
  if (!is_terminal_ && !options_.quiet && r.iteration % options_.print_every == 0) {
    line(pending_);
    pending_.clear();
  }
}

void ConsoleReport::caught_up() {
  if (is_terminal_ && !options_.quiet && !pending_.empty()) {
    std::printf("\r\033[K%s", pending_.c_str());
    has_progress_ = true;
  }
  std::fflush(stdout);
}

void ConsoleReport::eval(const EvalEvent& event) {
  if (!options_.quiet) {
    line(concat("eval at step ", event.step, ": ", evaluation_text(event.evaluation)));
    std::fflush(stdout);
  }
}

void ConsoleReport::checkpoint(int64_t step, const std::string& path) {
  if (!options_.quiet) {
    line(concat("checkpoint at step ", step, ": ", path));
  }
}

void ConsoleReport::summary(const RunSummary& summary) {
  std::string text = concat("done: ", summary.steps, " of ", summary.total_steps, " steps");
  text += concat(" in ", duration(summary.seconds));
  if (summary.last) {
    text += concat(", ", evaluation_text(*summary.last));
  }
  text += format(", %.0f %s/s", summary.units_per_second, options_.unit.c_str());
  text += concat(", ", summary.skipped, " skipped");
  std::string peaks;
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    const int64_t bytes = summary.memory.by_category[static_cast<size_t>(i)].peak_bytes;
    if (bytes > 0) {
      const std::string_view name = name_of(static_cast<MemoryCategory>(i));
      peaks += concat(peaks.empty() ? "" : ", ", name, " ", mebibytes(bytes));
    }
  }
  line(concat("peak memory ", mebibytes(summary.memory.total.peak_bytes), ": ", peaks));
  line(text);
  std::fflush(stdout);
}

}  // namespace halftone
