#include "core/autograd.h"

#include <algorithm>
#include <unordered_set>

namespace halftone {

struct Node;

// What autograd knows of one tensor. It holds no elements of the tensor itself, so an activation
// lives only as long as some closure captured it.
struct GradMeta {
  Shape shape;
  DType dtype = DType::f32;
  Device device;
  bool leaf = true;
  std::shared_ptr<Node> producer;  // null for a leaf, and once the graph has been walked
  Tensor grad;  // a leaf's stays; an activation's is freed once its producer has run
  bool written = false;
  bool taken = false;  // by GradSink::take: others may read the memory of `grad`
};

struct Node {
  uint64_t sequence = 0;  // order of recording: every input's producer has a smaller one
  std::vector<std::shared_ptr<GradMeta>> inputs;  // null where no gradient is wanted
  detail::BackwardFunction backward;

  ~Node();
};

namespace {

thread_local bool recording_now = true;
uint64_t last_sequence = 0;

std::shared_ptr<GradMeta> make_meta(const Tensor& t) {
  auto meta = std::make_shared<GradMeta>();
  meta->shape = t.shape();
  meta->dtype = t.dtype();
  meta->device = t.device();
  return meta;
}

// Every tensor that `root` was computed from (leaves aside) and root itself, latest first.
std::vector<std::shared_ptr<GradMeta>> reachable(const std::shared_ptr<GradMeta>& root) {
  std::vector<std::shared_ptr<GradMeta>> found{root};
  std::unordered_set<const GradMeta*> seen{root.get()};
  for (size_t next = 0; next < found.size(); ++next) {
    const std::shared_ptr<Node> producer = found[next]->producer;
    for (const std::shared_ptr<GradMeta>& input : producer->inputs) {
      if (input != nullptr && input->producer != nullptr && seen.insert(input.get()).second) {
        found.push_back(input);
      }
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a->producer->sequence > b->producer->sequence;
  });
  return found;
}

Tensor new_gradient(const GradMeta& meta) {
  const DType dtype = meta.leaf && meta.dtype != DType::f64 ? DType::f32 : meta.dtype;
  return Tensor::empty(meta.shape,
                       dtype,
                       meta.device,
                       meta.leaf ? MemoryCategory::gradients : MemoryCategory::activations);
}

GradSink open_sink(const std::shared_ptr<GradMeta>& meta) {
  if (meta == nullptr) {
    return {};
  }
  const bool leaf = meta->leaf;
  HALFTONE_CHECK(leaf || meta->producer != nullptr,
                 "backward: a tensor of shape ",
                 meta->shape,
                 " comes from a graph that was already walked");
  if (!meta->grad.defined()) {
    meta->grad = new_gradient(*meta);
    meta->written = false;
  }
  const bool accumulate = meta->written;
  if (accumulate && meta->taken) {
    if (meta->grad.is_shared()) {
      const Tensor own = new_gradient(*meta);
      copy(meta->grad, own);
      meta->grad = own;
    }
    meta->taken = false;
  }
  meta->written = true;
  return {meta->grad, accumulate, leaf || accumulate ? nullptr : meta};
}

// One sink per input.
void open_sinks(const std::vector<std::shared_ptr<GradMeta>>& inputs,
                std::vector<GradSink>& sinks) {
  sinks.clear();
  for (const std::shared_ptr<GradMeta>& input : inputs) {
    sinks.push_back(open_sink(input));
    if (std::count(inputs.begin(), inputs.end(), input) > 1) {
      sinks.back().taker = nullptr;  // the other sinks' buffer is this one's
    }
  }
}

void run_backward(const std::shared_ptr<GradMeta>& root) {
  const NoGrad off;
  std::vector<GradSink> sinks;
  for (std::shared_ptr<GradMeta>& output : reachable(root)) {
    const std::shared_ptr<Node> node = std::move(output->producer);
    if (output->written) {
      open_sinks(node->inputs, sinks);
      node->backward(output->grad, sinks);
    }
    // The gradient and whatever the closure captured are free from here on.
    output->grad = Tensor();
    output->written = false;
    output->taken = false;
  }
}

}  // namespace

// A chain of nodes owns itself link by link, through inputs and through what closures captured;
// letting go of the first would recurse as deep as the chain is long. So a node leaves what it owns
// to the outermost destructor, which works in a loop.
Node::~Node() {
  thread_local std::vector<std::pair<decltype(inputs), detail::BackwardFunction>> pending;
  thread_local bool draining = false;
  pending.emplace_back(std::move(inputs), std::move(backward));
  if (draining) {
    return;
  }
  draining = true;
  while (!pending.empty()) {
    const auto last = std::move(pending.back());
    pending.pop_back();
  }
  draining = false;
}

bool GradSink::take(const Tensor& gradient) const {
  if (taker == nullptr || gradient.dtype() != taker->dtype || !gradient.is_contiguous()) {
    return false;
  }
  taker->grad = gradient.view(taker->shape);
  taker->taken = true;
  return true;
}

bool recording() { return recording_now; }
NoGrad::NoGrad() : previous_(recording_now) { recording_now = false; }
NoGrad::~NoGrad() { recording_now = previous_; }
WithGrad::WithGrad() : previous_(recording_now) { recording_now = true; }
WithGrad::~WithGrad() { recording_now = previous_; }

bool detail::wants_record(std::span<const Tensor> inputs) {
  return recording_now && std::any_of(inputs.begin(), inputs.end(), [](const Tensor& t) {
           return t.requires_grad();
         });
}

void detail::record_node(std::span<const Tensor> inputs,
                         Tensor& output,
                         BackwardFunction backward) {
  auto node = std::make_shared<Node>();
  node->sequence = ++last_sequence;
  for (const Tensor& input : inputs) {
    node->inputs.push_back(input.requires_grad() ? input.grad_meta() : nullptr);
  }
  node->backward = std::move(backward);
  std::shared_ptr<GradMeta> meta = make_meta(output);
  meta->leaf = false;
  meta->producer = std::move(node);
  output.set_grad_meta(std::move(meta));
}

void backward(const Tensor& loss, float seed) {
  HALFTONE_CHECK(
      loss.numel() == 1, "backward: the loss has shape ", loss.shape(), ", expected one element");
  Tensor dy = loss.dtype() == DType::f64 ? Tensor::from<double>({seed}, loss.shape())
                                         : Tensor::from<float>({seed}, loss.shape());
  backward(loss, to_device(dy, loss.device()));
}

void backward(const Tensor& y, const Tensor& dy) {
  HALFTONE_CHECK(y.requires_grad() && y.grad_meta()->producer != nullptr,
                 "backward: nothing was recorded for this tensor (already walked, or no input "
                 "needs a gradient)");
  HALFTONE_CHECK(dy.shape() == y.shape() && dy.dtype() == y.dtype(),
                 "backward: dy is ",
                 dy.dtype(),
                 " ",
                 dy.shape(),
                 ", expected ",
                 y.dtype(),
                 " ",
                 y.shape());
  y.grad_meta()->grad = dy;
  y.grad_meta()->written = true;
  run_backward(y.grad_meta());
}

Tensor& Tensor::set_requires_grad() {
  HALFTONE_CHECK(
      is_floating(dtype_), "set_requires_grad: a tensor of ", dtype_, " has no gradient");
  if (grad_ == nullptr) {
    grad_ = make_meta(*this);
  }
  return *this;
}

bool Tensor::requires_grad() const { return grad_ != nullptr; }

Tensor Tensor::grad() const { return grad_ == nullptr ? Tensor() : grad_->grad; }

void Tensor::bind_grad(const Tensor& buffer) {
  HALFTONE_CHECK(buffer.shape() == shape_,
                 "bind_grad: the buffer has shape ",
                 buffer.shape(),
                 ", the tensor ",
                 shape_);
  const DType expected = dtype_ == DType::f64 ? DType::f64 : DType::f32;
  HALFTONE_CHECK(buffer.dtype() == expected,
                 "bind_grad: the buffer is ",
                 buffer.dtype(),
                 ", expected ",
                 expected);
  set_requires_grad();
  grad_->grad = buffer;
  grad_->written = false;
}

void Tensor::reset_grad() {
  if (grad_ != nullptr) {
    grad_->written = false;
  }
}

bool Tensor::grad_written() const { return grad_ != nullptr && grad_->written; }

}  // namespace halftone
