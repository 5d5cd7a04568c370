#include "bench/rivals/onnx_model.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace sluice::bench {
namespace {

constexpr size_t kBlock = 32;

// Fields of protobuf messages, by the numbers that onnx.proto gives them.
class Message {
 public:
  Message& Number(uint32_t field, uint64_t value) {
    Varint(field << 3);
    Varint(value);
    return *this;
  }
  Message& Bytes(uint32_t field, std::string_view value) {
    Varint(field << 3 | 2);
    Varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& Sub(uint32_t field, const Message& value) { return Bytes(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

constexpr uint64_t kFloat = 1, kUint8 = 2;  // TensorProto.DataType

Message Tensor(const std::string& name, std::span<const size_t> dims, uint64_t type,
               std::string_view data) {
  Message tensor;
  for (const size_t dim : dims) tensor.Number(1, dim);
  return tensor.Number(2, type).Bytes(8, name).Bytes(9, data);
}

Message IntAttribute(std::string_view name, uint64_t value) {
  constexpr uint64_t kInt = 2;  // AttributeProto.AttributeType
  return Message().Bytes(1, name).Number(3, value).Number(20, kInt);
}

Message Node(std::string_view op, std::span<const std::string> inputs, const std::string& output) {
  Message node;
  for (const std::string& input : inputs) node.Bytes(1, input);
  return node.Bytes(2, output).Bytes(3, output).Bytes(4, op);
}

// [rows, blocks, 16] bytes: integer + 8, even columns low. The last block is filled up with 0s.
std::string Nibbles(const QuantizedMatrix& matrix) {
  std::string bytes(matrix.rows * matrix.blocks() * kBlock / 2, static_cast<char>(0x88));
  for (size_t r = 0; r < matrix.rows; ++r) {
    for (size_t k = 0; k < matrix.cols; ++k) {
      const auto nibble = static_cast<uint8_t>(matrix.integers[r * matrix.cols + k] + 8);
      char& byte = bytes[r * matrix.blocks() * kBlock / 2 + k / 2];
      const auto old = static_cast<uint8_t>(byte);
      byte = static_cast<char>(k % 2 == 0 ? (old & 0xF0) | nibble : (old & 0x0F) | nibble << 4);
    }
  }
  return bytes;
}

// Adds y = matrix · x to the graph: its weights and its node.
void AddMatrix(Message& graph, const QuantizedMatrix& matrix, const std::string& name,
               const std::string& x, const std::string& y) {
  const size_t shape[] = {matrix.rows, matrix.blocks(), kBlock / 2};
  const size_t scales_shape[] = {matrix.rows * matrix.blocks()};
  const std::string_view scales(reinterpret_cast<const char*>(matrix.scales.data()),
                                matrix.scales.size() * sizeof(float));
  graph.Sub(5, Tensor(name, shape, kUint8, Nibbles(matrix)));
  graph.Sub(5, Tensor(name + "_scales", scales_shape, kFloat, scales));
  const std::string inputs[] = {x, name, name + "_scales"};
  Message node = Node("MatMulNBits", inputs, y);
  node.Bytes(7, "com.microsoft");
  for (const auto& [attribute, value] :
       std::initializer_list<std::pair<std::string_view, size_t>>{{"K", matrix.cols},
                                                                  {"N", matrix.rows},
                                                                  {"bits", 4},
                                                                  {"block_size", kBlock},
                                                                  {"accuracy_level", 4}}) {
    node.Sub(5, IntAttribute(attribute, value));
  }
  graph.Sub(1, node);
}

// ValueInfoProto of a float tensor [tokens, cols].
Message Value(std::string_view name, size_t cols) {
  Message shape;
  shape.Sub(1, Message().Bytes(2, "tokens"));
  shape.Sub(1, Message().Number(1, cols));
  const Message type = Message().Sub(1, Message().Number(1, kFloat).Sub(2, shape));
  return Message().Bytes(1, name).Sub(2, type);
}

Message Opset(std::string_view domain, uint64_t version) {
  return Message().Bytes(1, domain).Number(2, version);
}

}  // namespace

std::string OnnxModel(const PlainBlock& block) {
  Message graph;
  AddMatrix(graph, block.matrices[Matrix::kGate], "gate", "x", "g");
  AddMatrix(graph, block.matrices[Matrix::kUp], "up", "x", "u");
  // SiLU in the two nodes that the optimizer knows and joins.
  const std::string sigmoid[] = {"g"};
  const std::string silu[] = {"g", "s"};
  const std::string product[] = {"a", "u"};
  graph.Sub(1, Node("Sigmoid", sigmoid, "s"));
  graph.Sub(1, Node("Mul", silu, "a"));
  graph.Sub(1, Node("Mul", product, "h"));
  AddMatrix(graph, block.matrices[Matrix::kDown], "down", "h", "y");
  graph.Bytes(2, "block");
  graph.Sub(11, Value("x", block.d_model));
  graph.Sub(12, Value("y", block.d_model));
  Message model;
  model.Number(1, 9);  // IR version
  model.Sub(8, Opset("", 17));
  model.Sub(8, Opset("com.microsoft", 1));
  model.Sub(7, graph);
  return model.bytes();
}

}  // namespace sluice::bench
