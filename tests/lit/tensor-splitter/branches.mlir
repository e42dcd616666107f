// RUN: %exla-opt %s --passes=normalise,tensor-splitter --size-threshold=4KB --split-size=2KB 2>&1 | filecheck %s

// The first case returns a tensor for the second, which needs its sums over all rows, and so cannot share a loop with
// it. Now the second computes the tensor, slice by slice.

// CHECK: %[[FIRST:.*]] = "stablehlo.case"(%arg0) ({
// CHECK: stablehlo.return %{{.*}} : tensor<16xf32>
// CHECK: }, {
// CHECK: stablehlo.return %{{.*}} : tensor<16xf32>
// CHECK: }) : (tensor<i32>) -> tensor<16xf32>
// CHECK: "stablehlo.case"(%arg0) ({
// CHECK: stablehlo.while
// CHECK: stablehlo.sine
// CHECK: }, {
// CHECK: stablehlo.while
// CHECK: stablehlo.cosine

func.func @main(%k: tensor<i32>, %x: tensor<128x16xf32>) -> tensor<16xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r:2 = "stablehlo.case"(%k) ({
    %s = stablehlo.sine %x : tensor<128x16xf32>
    %sum = stablehlo.reduce(%s init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<128x16xf32>, tensor<f32>) -> tensor<16xf32>
    stablehlo.return %s, %sum : tensor<128x16xf32>, tensor<16xf32>
  }, {
    %c = stablehlo.cosine %x : tensor<128x16xf32>
    %sum = stablehlo.reduce(%c init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<128x16xf32>, tensor<f32>) -> tensor<16xf32>
    stablehlo.return %c, %sum : tensor<128x16xf32>, tensor<16xf32>
  }) : (tensor<i32>) -> (tensor<128x16xf32>, tensor<16xf32>)
  %wide = stablehlo.broadcast_in_dim %r#1, dims = [1] : (tensor<16xf32>) -> tensor<128x16xf32>
  %y = "stablehlo.case"(%k) ({
    %centred = stablehlo.subtract %r#0, %wide : tensor<128x16xf32>
    %squares = stablehlo.multiply %centred, %centred : tensor<128x16xf32>
    %sum = stablehlo.reduce(%squares init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<128x16xf32>, tensor<f32>) -> tensor<16xf32>
    stablehlo.return %sum : tensor<16xf32>
  }, {
    %centred = stablehlo.multiply %r#0, %wide : tensor<128x16xf32>
    %squares = stablehlo.multiply %centred, %centred : tensor<128x16xf32>
    %sum = stablehlo.reduce(%squares init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<128x16xf32>, tensor<f32>) -> tensor<16xf32>
    stablehlo.return %sum : tensor<16xf32>
  }) : (tensor<i32>) -> tensor<16xf32>
  return %y : tensor<16xf32>
}
