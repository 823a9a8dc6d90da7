#include "core/recipe.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/check.h"

namespace halftone {
namespace {

std::string error_of(std::string_view text) {
  try {
    parse_recipe(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

void expect_error(std::string_view text, std::string_view part) {
  const std::string error = error_of(text);
  EXPECT_NE(error.find(part), std::string::npos) << text << " gave: " << error;
}

TEST(Recipe, PresetsSayWhatTheTableSays) {
  const Recipe block = parse_recipe("fp8-block");
  EXPECT_EQ(block.fwd, kE4M3);
  EXPECT_EQ(block.grad, kE4M3);
  EXPECT_EQ(block.block, 128);
  EXPECT_TRUE(block.square_block);
  EXPECT_EQ(block.act, DType::bf16);
  EXPECT_TRUE(block.master);
  EXPECT_EQ(block.keep, std::vector<std::string>{"head"});
  EXPECT_EQ(parse_recipe("fp8-tensor").grad, kE5M2);
  EXPECT_EQ(parse_recipe("fp8-delayed").history, 16);
  EXPECT_EQ(parse_recipe("fp16").loss_scale.mode, LossScale::Mode::dynamic);
  EXPECT_TRUE(parse_recipe("bf16").keep.empty());
  EXPECT_FALSE(parse_recipe("bf16-pure").master);
  EXPECT_EQ(parse_recipe("mxfp6").scale, ScaleRule::e8m0);
  EXPECT_EQ(parse_recipe("mxfp6").block, 32);
  EXPECT_EQ(parse_recipe("nvfp4").scale, ScaleRule::e4m3);
  EXPECT_EQ(parse_recipe("nvfp4").block, 16);
}

TEST(Recipe, PrintingAndParsingAreInverse) {
  std::vector<std::string> texts = preset_names();
  for (const char* text : {"e3m4-block",
                           "fp8-block,grad=e5m2,scale=e8m0,round=stochastic",
                           "fp8-block,block=64,scale=e8m0-ceil",
                           "mxfp8,scale=e8m0-floor",
                           "mxfp6,fwd=e3m2,grad=e3m2",
                           "fp8-block,scaling=mx",
                           "bf16,acc=hopper16",
                           "bf16,residual=fp32",
                           "bf16,act=fp16",
                           "bf16-pure,update=stochastic",
                           "fp16,loss_scale=1024",
                           "fp8-row,promote=none,keep=none",
                           "bf16,fwd=e4m3,scaling=tensor",
                           "bf16,keep=head+layers.0",
                           "e5m2-none",
                           "e4m3i-tensor",
                           "fp8-delayed,history=4"}) {
    texts.emplace_back(text);
  }
  for (const std::string& text : texts) {
    const Recipe r = parse_recipe(text);
    EXPECT_EQ(parse_recipe(to_string(r)), r) << text << " printed as " << to_string(r);
    EXPECT_EQ(parse_recipe(to_full_string(r)), r) << text << " printed as " << to_full_string(r);
  }
}

TEST(Recipe, PrintsThePresetAndWhatDiffersInTheTablesOrder) {
  EXPECT_EQ(to_string(parse_recipe("fp8-block,round=stochastic,scale=e8m0,grad=e5m2")),
            "fp8-block,grad=e5m2,scale=e8m0,round=stochastic");
  EXPECT_EQ(to_string(parse_recipe("bf16,act=bf16,master=fp32")), "bf16");
  EXPECT_EQ(to_string(parse_recipe("fp16,loss_scale=1024")), "fp16,loss_scale=1024");
  EXPECT_EQ(to_full_string(parse_recipe("bf16")),
            "bf16,fwd=bf16,grad=bf16,scaling=none,scale=fp32,history=16,round=nearest,acc=fp32,"
            "promote=128,act=bf16,"
            "residual=bf16,master=fp32,update=nearest,keep=none,loss_scale=none");
}

TEST(Recipe, ErrorsNameThePartAndWhatIsExpected) {
  expect_error("fp7", "not a preset (fp32, tf32, bf16");
  expect_error("e9m1-block", "e9m1");
  expect_error("e4m3-blok", "not a preset");
  expect_error("bf16,fwd", "not key=value");
  expect_error("bf16,forward=e4m3", "'forward' is not a key");
  expect_error("bf16,fwd=e4m3,fwd=e5m2", "given twice");
  expect_error("bf16,round=up", "nearest, stochastic, zero");
  expect_error("fp8-block,block=100", "expected N or NxN");
  expect_error("fp8-block,block=64x32", "expected N or NxN");
  expect_error("fp8-tensor,block=64", "no blocks");
  expect_error("fp8-block,scale=e4m3", "nvfp4");
  expect_error("mxfp8,scale=fp32", "MX scales");
  expect_error("bf16,scaling=tensor", "use scaling=none");
  expect_error("bf16,promote=100", "multiple of 16");
  expect_error("fp8-block,promote=48", "must divide");
  expect_error("fp32,master=none", "16-bit act");
  expect_error("bf16,update=stochastic", "master=none");
  expect_error("bf16,acc=hopper8", "e4m3 and e5m2");
  expect_error("bf16,acc=fp16", "fp16 and narrower");
  expect_error("fp32,acc=hopper16", "fraction bits");
  expect_error("fp8-delayed,history=0", "1 to 65536");
  expect_error("fp16,loss_scale=0", "above 0");
  expect_error("fp16,loss_scale=-1", "above 0");
  expect_error("fp16,loss_scale=inf", "above 0");
  expect_error("fp16,loss_scale=nan", "above 0");
  expect_error("bf16,keep=+head", "empty layer name");
}

TEST(Recipe, ResolvesEachGemmOfALinearLayer) {
  const LinearPrecision p = resolve_linear(parse_recipe("fp8-block,grad=e5m2"), "layers.0", false);
  EXPECT_EQ(p.forward.a.format, kE4M3);
  EXPECT_EQ(p.forward.a.block_mn, 1);
  EXPECT_EQ(p.forward.b.block_mn, 128);
  EXPECT_EQ(p.forward.b.block_k, 128);
  EXPECT_EQ(p.dgrad.a.format, kE5M2);
  EXPECT_EQ(p.dgrad.b, p.forward.b);
  EXPECT_EQ(p.wgrad.a, p.dgrad.a);
  EXPECT_EQ(p.wgrad.b, p.forward.a);
  EXPECT_EQ(p.forward.promote, 128);
}

TEST(Recipe, KeptLayersStayInTheActivationFormat) {
  const Recipe r = parse_recipe("fp8-row,keep=head+layers.1");
  for (const LinearPrecision& p :
       {resolve_linear(r, "layers.1", false), resolve_linear(r, "layers.7", true)}) {
    EXPECT_EQ(p.forward.a.format, kBf16);
    EXPECT_EQ(p.dgrad.a.format, kBf16);
    EXPECT_EQ(p.forward.a.scaling, Scaling::none);
    EXPECT_EQ(p.forward.promote, 0);
  }
  EXPECT_EQ(resolve_linear(r, "layers.0", false).forward.a.format, kE4M3);
  EXPECT_EQ(resolve_attention(r).a.format, kBf16);
}

TEST(Recipe, ATensorCoresArithmeticStaysWithTheOperandsThatHaveIt) {
  const Recipe r = parse_recipe("fp8-block,acc=hopper8");
  EXPECT_EQ(resolve_linear(r, "a", false).forward.acc, Accumulator::hopper8);
  EXPECT_EQ(resolve_linear(r, "a", true).forward.acc, Accumulator::hopper16);  // bf16 operands
  EXPECT_EQ(resolve_attention(r).acc, Accumulator::hopper16);
  EXPECT_EQ(resolve_attention(parse_recipe("tf32,acc=hopper16")).acc,
            Accumulator::fp32);  // FP32 operands
}

TEST(Recipe, AnOperandWithFp32sRangeIsNotScaled) {
  const LinearPrecision p = resolve_linear(parse_recipe("fp8-tensor,grad=bf16"), "a", false);
  EXPECT_EQ(p.forward.a.scaling, Scaling::tensor);
  EXPECT_EQ(p.dgrad.a.scaling, Scaling::none);
}

TEST(Recipe, HelpListsEveryPresetAndKey) {
  const std::string help = recipe_help();
  for (const std::string& name : preset_names()) {
    EXPECT_NE(help.find(name), std::string::npos) << name;
  }
  for (const char* key : {"fwd", "promote", "keep", "loss_scale", "e8m0-floor", "hopper8"}) {
    EXPECT_NE(help.find(key), std::string::npos) << key;
  }
}

}  // namespace
}  // namespace halftone
