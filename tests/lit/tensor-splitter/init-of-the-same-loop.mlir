// RUN: %exla-opt %s --passes=normalise,tensor-splitter --size-threshold=2048 --remarks=all 2>&1 | filecheck %s

// Three loops over slices, one in the other, make %least; the outermost is then cut along %columns, where %least is the
// same in every tile. The sum of the columns begins with it, so it waits for a loop of its own.

// CHECK: %[[FIRST:.*]]:3 = stablehlo.while({{.*}}) : tensor<i32>, tensor<3xf16>, tensor<f16>
// CHECK: stablehlo.convert %[[FIRST]]#2 : (tensor<f16>) -> tensor<f32>
// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<311xf32>
// CHECK: remark: 311x2xf32 (2.49KB) split over dimension 1 (2): 2 tiles of 1 then 2 tiles of 1

func.func @main(%a: tensor<3xf16>) -> (tensor<3xf16>, tensor<f16>, tensor<311xf16>) {
  %one = stablehlo.constant dense<1.0> : tensor<f16>
  %two = stablehlo.constant dense<2.0> : tensor<f16>
  %infinity = stablehlo.constant dense<0x7C00> : tensor<f16>
  %x = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<3xf16>) -> tensor<3x311x3x2xf16>
  %bounded = stablehlo.clamp %one, %x, %two : (tensor<f16>, tensor<3x311x3x2xf16>, tensor<f16>) -> tensor<3x311x3x2xf16>
  %sums = stablehlo.reduce(%bounded init: %two) applies stablehlo.add across dimensions = [1, 2, 3] : (tensor<3x311x3x2xf16>, tensor<f16>) -> tensor<3xf16>
  %least = stablehlo.reduce(%x init: %infinity) applies stablehlo.minimum across dimensions = [0, 1, 2, 3] : (tensor<3x311x3x2xf16>, tensor<f16>) -> tensor<f16>
  %columns = stablehlo.reduce(%x init: %one) applies stablehlo.add across dimensions = [0, 2] : (tensor<3x311x3x2xf16>, tensor<f16>) -> tensor<311x2xf16>
  %after = stablehlo.reduce(%columns init: %least) applies stablehlo.add across dimensions = [1] : (tensor<311x2xf16>, tensor<f16>) -> tensor<311xf16>
  return %sums, %least, %after : tensor<3xf16>, tensor<f16>, tensor<311xf16>
}
