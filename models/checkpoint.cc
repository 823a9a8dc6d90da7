#include "models/checkpoint.h"

#include <algorithm>

#include "core/convert.h"
#include "core/dispatch.h"
#include "data/files.h"
#include "data/hdf5_checksum.h"

namespace halftone {
namespace {

constexpr int64_t kFormatVersion = 1;

std::string name_in(const std::string& group, const std::string& path) {
  return concat("/", group, "/", path);
}

// What `dtype` says of a 16-bit dataset: the format's name.
std::string format_name(DType dtype) { return to_string(format_of(dtype)); }

void write_tensor(Hdf5File& file, const std::string& name, const Tensor& t) {
  const Tensor host = Tensor::empty(t.shape(), t.dtype());
  copy(t, host);
  const bool is_narrow = size_of(t.dtype()) == 2;
  file.write_raw(name,
                 is_narrow ? StoredType::u16 : StoredType::f32,
                 t.shape().dims(),
                 host.raw(),
                 static_cast<size_t>(host.bytes()));
  if (is_narrow) {
    file.set_text(name, "dtype", format_name(t.dtype()));
  }
}

Tensor slice_of(const Tensor& flat, const Parameter& p) {
  return flat.view(p.shape, contiguous_strides(p.shape), p.offset);
}

void check_dims(const Hdf5File& file, const std::string& name, const Shape& expected) {
  if (!file.has(name)) {
    throw_file_error(file.path(), "holds another model: there is no ", name);
  }
  const Dims dims = file.info(name).dims;
  if (dims != expected.dims()) {
    throw_file_error(file.path(),
                     "holds another model: ",
                     name,
                     " is ",
                     to_string(dims),
                     ", expected ",
                     expected);
  }
}

void copy_in(const std::vector<float>& values, const Tensor& to) {
  const Tensor host = Tensor::empty(to.shape(), to.dtype());
  dispatch_floating(host.dtype(), "checkpoint", [&]<class T>() {
    std::transform(
        values.begin(), values.end(), host.data<T>(), [](float value) { return narrow<T>(value); });
  });
  copy(host, to);
}

std::string history_name(const LinearLayer& layer, size_t index) {
  constexpr const char* kOperands[] = {"x", "w", "dy"};
  return concat("/amax/", layer.path(), "/", kOperands[index]);
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path,
                     const RunParts& run,
                     const std::string& config) {
  Hdf5File file = Hdf5File::create();
  const StepScalars scalars = run.state.read();
  file.set_text("/", "config", config);
  file.set_text("/", "recipe", to_string(run.recipe));
  file.set_text("/", "recipe_full", to_full_string(run.recipe));
  file.set_integer("/", "format_version", kFormatVersion);
  file.set_integer("/", "iteration", scalars.iteration);
  file.set_integer("/", "update", scalars.update);
  file.set_integer("/", "skipped", scalars.skipped);
  file.set_integer("/", "data_position", scalars.iteration * run.grad_accum);
  file.set_real("/", "scale", double{scalars.scaler.scale});
  file.set_integer("/", "growth", scalars.scaler.growth);
  file.set_integer("/", "skips_in_row", scalars.scaler.skips_in_row);
  file.set_integer("/", "stuck_in_row", scalars.scaler.stuck_in_row);

  const ParameterSet& parameters = run.task.parameters();
  for (const Parameter& p : parameters.all()) {
    write_tensor(file, name_in("param", p.path), p.without_padding(p.weight));
    if (parameters.buffers().copies.defined()) {
      write_tensor(file, name_in("master", p.path), p.without_padding(p.source));
    }
    for (const auto& [name, flat] : run.optimizer.moments()) {
      write_tensor(file, name_in(name, p.path), slice_of(flat, p));
    }
  }
  for (LinearLayer* layer : run.task.linear_layers()) {
    const std::vector<AmaxHistory*> histories = layer->state().histories();
    for (size_t i = 0; i < histories.size(); ++i) {
      const std::string name = history_name(*layer, i);
      write_tensor(file, name, histories[i]->amax);
      file.set_integer(name, "pushed", static_cast<int64_t>(histories[i]->pushed.item()));
    }
  }
  run.history.write(file);
  run.instruments.write(file);
  write_checksum(file);
  file.save(path);
}

Checkpoint::Checkpoint(const std::filesystem::path& path) : file_(Hdf5File::open(path)) {
  if (!file_.has_attribute("/", "config") || !file_.has_attribute("/", "recipe_full")) {
    throw_file_error(path, "is not a checkpoint: it has no config");
  }
  verify_checksum(file_);
  const int64_t version = file_.integer("/", "format_version");
  if (version != kFormatVersion) {
    throw_file_error(
        path, "is a checkpoint of version ", version, "; this program reads ", kFormatVersion);
  }
  config_ = parse_flat_json(file_.text("/", "config"));
}

std::string Checkpoint::config_text(std::string_view key) const {
  for (const auto& [name, value] : config_) {
    if (name == key) {
      const auto* text = std::get_if<std::string>(&value);
      return text == nullptr ? std::string() : *text;
    }
  }
  return {};
}

std::vector<float> Checkpoint::read_weights(const std::string& group, const Parameter& p) const {
  const std::string name = name_in(group, p.path);
  check_dims(file_, name, p.shape);
  const DatasetInfo info = file_.info(name);
  if (info.type == StoredType::f32) {
    return file_.read<float>(name);
  }
  const std::vector<uint16_t> codes = file_.read<uint16_t>(name);
  const Format format = parse_format(info.dtype);
  std::vector<float> values;
  values.reserve(codes.size());
  for (const uint16_t code : codes) {
    values.push_back(decode(format, code));
  }
  return values;
}

void Checkpoint::load_parameters(ParameterSet& parameters) const {
  const std::string prefix = "/param/";
  for (const std::string& name : file_.datasets()) {
    const bool is_ours = std::any_of(parameters.all().begin(),
                                     parameters.all().end(),
                                     [&](const Parameter& p) { return prefix + p.path == name; });
    if (name.starts_with(prefix) && !is_ours) {
      throw_file_error(path(), "holds another model: this one has no ", name);
    }
  }
  for (const Parameter& p : parameters.all()) {
    const bool has_master = file_.has(name_in("master", p.path));
    copy_in(read_weights(has_master ? "master" : "param", p), p.without_padding(p.source));
  }
  parameters.refresh_copies();
}

void Checkpoint::read_flat(const std::string& group,
                           const ParameterSet& parameters,
                           const Tensor& flat) const {
  for (const Parameter& p : parameters.all()) {
    copy_in(read_weights(group, p), slice_of(flat, p));
  }
}

void Checkpoint::restore(const RunParts& run) const {
  ParameterSet& parameters = run.task.parameters();
  const bool wants_master = parameters.buffers().copies.defined();
  if (wants_master && !file_.has("/master/" + parameters.all().front().path)) {
    throw_file_error(path(),
                     "holds no FP32 master weights, which recipe ",
                     to_string(run.recipe),
                     " trains; start anew from its parameters with --init");
  }
  load_parameters(parameters);
  for (const auto& [name, flat] : run.optimizer.moments()) {
    read_flat(name, parameters, flat);
  }
  StepScalars scalars;
  scalars.iteration = iteration();
  scalars.update = file_.integer("/", "update");
  scalars.skipped = file_.integer("/", "skipped");
  scalars.scaler.scale = static_cast<float>(file_.real("/", "scale"));
  scalars.scaler.growth = static_cast<int32_t>(file_.integer("/", "growth"));
  scalars.scaler.skips_in_row = static_cast<int32_t>(file_.integer("/", "skips_in_row"));
  scalars.scaler.stuck_in_row = static_cast<int32_t>(file_.integer("/", "stuck_in_row"));
  run.state.write(scalars);
  // The counters stand before the weights are quantised: stochastic rounding draws from them.
  for (LinearLayer* layer : run.task.linear_layers()) {
    const std::vector<AmaxHistory*> histories = layer->state().histories();
    for (size_t i = 0; i < histories.size(); ++i) {
      const std::string name = history_name(*layer, i);
      check_dims(file_, name, histories[i]->amax.shape());
      copy_in(file_.read<float>(name), histories[i]->amax);
      copy(Tensor::from<int64_t>({file_.integer(name, "pushed")}, {1}), histories[i]->pushed);
    }
    layer->state().forget_pending();  // refresh observes anew
    layer->refresh();
  }
  run.history.read(file_);
  run.instruments.read(file_);
}

}  // namespace halftone
