// The code that README shows is code of this tree, which is compiled and tested: a block of C++
// that follows a line with a path (`ops/.../x.cc`) stands in that file word for word.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace halftone {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(std::string(HALFTONE_SOURCE_DIR) + "/" + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Readme, ItsCodeIsTheTreesCode) {
  std::istringstream readme(contents("README.md"));
  std::string line;
  std::string path;
  int blocks = 0;
  while (std::getline(readme, line)) {
    const size_t end = line.rfind('`');
    const size_t begin = end == std::string::npos ? end : line.rfind('`', end - 1);
    if (line.rfind("```cpp", 0) == 0) {
      std::string block;
      while (std::getline(readme, line) && line != "```") {
        block += line + "\n";
      }
      ++blocks;
      const std::string file = contents(path);
      ASSERT_FALSE(file.empty()) << "README names '" << path << "', which is not there";
      EXPECT_NE(file.find(block), std::string::npos)
          << "README shows code that is not in " << path << ":\n"
          << block;
    } else if (begin != std::string::npos && line.find('.', begin) != std::string::npos) {
      path = line.substr(begin + 1, end - begin - 1);
    }
  }
  EXPECT_GE(blocks, 4);
}

}  // namespace
}  // namespace halftone
