// RUN: %exla-opt %s --passes=reshape-sinker,tensor-splitter --size-threshold=130KB --split-size=65KB --remarks=all 2>&1 | filecheck %s

// Two dilated convolutions as TensorFlow writes them, of two and three phases of each row, which have no slice in common
// but one of the batch. With the batch first in what they read, a loop over it computes both.

// CHECK: stablehlo.while
// CHECK: stablehlo.transpose {{.*}}, dims = [0, 2, 1, 3] : (tensor<2x128x2x16xf32>) -> tensor<2x2x128x16xf32>
// CHECK: stablehlo.convolution({{.*}} -> tensor<4x126x16xf32>
// CHECK-NEXT: stablehlo.tanh {{.*}} : tensor<4x126x16xf32>
// CHECK: stablehlo.transpose {{.*}}, dims = [0, 2, 1, 3] : (tensor<2x2x126x16xf32>) -> tensor<2x126x2x16xf32>
// CHECK: stablehlo.transpose {{.*}}, dims = [0, 2, 1, 3] : (tensor<2x84x3x16xf32>) -> tensor<2x3x84x16xf32>
// CHECK: stablehlo.convolution({{.*}} -> tensor<6x82x16xf32>
// CHECK: stablehlo.transpose {{.*}}, dims = [0, 2, 1, 3] : (tensor<2x3x82x16xf32>) -> tensor<2x82x3x16xf32>
// CHECK-NOT: stablehlo.transpose
// CHECK: 16x2x128x16xf32 (262KB) split over dimension 0 (16): 8 tiles of 2, with 14 more big tensors [tensor-splitter, EX001]
// CHECK-NOT: not split

func.func @main(%x: tensor<16x256xf32>, %w: tensor<3x16x16xf32>, %u: tensor<3x16x16xf32>, %v: tensor<16xf32>) -> tensor<16x246xf32> {
  %0 = stablehlo.broadcast_in_dim %x, dims = [0, 1] : (tensor<16x256xf32>) -> tensor<16x256x16xf32>
  %1 = stablehlo.reshape %0 : (tensor<16x256x16xf32>) -> tensor<16x128x2x16xf32>
  %2 = stablehlo.transpose %1, dims = [2, 0, 1, 3] : (tensor<16x128x2x16xf32>) -> tensor<2x16x128x16xf32>
  %3 = stablehlo.reshape %2 : (tensor<2x16x128x16xf32>) -> tensor<32x128x16xf32>
  %4 = stablehlo.convolution(%3, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<32x128x16xf32>, tensor<3x16x16xf32>) -> tensor<32x126x16xf32>
  %5 = stablehlo.reshape %4 : (tensor<32x126x16xf32>) -> tensor<2x16x126x16xf32>
  %6 = stablehlo.transpose %5, dims = [1, 2, 0, 3] : (tensor<2x16x126x16xf32>) -> tensor<16x126x2x16xf32>
  %7 = stablehlo.reshape %6 : (tensor<16x126x2x16xf32>) -> tensor<16x252x16xf32>
  %8 = stablehlo.tanh %7 : tensor<16x252x16xf32>
  %9 = stablehlo.reshape %8 : (tensor<16x252x16xf32>) -> tensor<16x84x3x16xf32>
  %10 = stablehlo.transpose %9, dims = [2, 0, 1, 3] : (tensor<16x84x3x16xf32>) -> tensor<3x16x84x16xf32>
  %11 = stablehlo.reshape %10 : (tensor<3x16x84x16xf32>) -> tensor<48x84x16xf32>
  %12 = stablehlo.convolution(%11, %u) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<48x84x16xf32>, tensor<3x16x16xf32>) -> tensor<48x82x16xf32>
  %13 = stablehlo.reshape %12 : (tensor<48x82x16xf32>) -> tensor<3x16x82x16xf32>
  %14 = stablehlo.transpose %13, dims = [1, 2, 0, 3] : (tensor<3x16x82x16xf32>) -> tensor<16x82x3x16xf32>
  %15 = stablehlo.reshape %14 : (tensor<16x82x3x16xf32>) -> tensor<16x246x16xf32>
  %16 = stablehlo.tanh %15 : tensor<16x246x16xf32>
  %17 = stablehlo.dot_general %16, %v, contracting_dims = [2] x [0] : (tensor<16x246x16xf32>, tensor<16xf32>) -> tensor<16x246xf32>
  return %17 : tensor<16x246xf32>
}
